"""Singer messages on standard output, logs and `METRIC:` lines on standard error.

Imports only `shared.settings`, `shared.storage` and `shared.errors`.
"""
