"""Singer messages on standard output, logs and `METRIC:` lines on standard error.

Imports only `shared.errors`. Every package of `shared` but `encodings` and `settings` may import
it, and both programs.
"""
