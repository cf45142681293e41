"""RECORD lines from executors to standard output, and when STATE follows.

Imports only `shared`, `state` and the settings; `batch` and `sync` import it.
"""
