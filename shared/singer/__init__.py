"""Singer messages on standard output, logs and `METRIC:` lines on standard error.

Imports only `shared.errors` and `shared.settings`. Everything may import it.
"""
