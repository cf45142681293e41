"""RECORD lines from executors to standard output, and when STATE follows.

Imports `state`; `batch` and `sync` import it.
"""
