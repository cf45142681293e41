"""The encodings of batch files: declarations, without readers and writers.

Imports only `shared.errors` and `shared.extensions`. Every package of `shared` and both programs
may import it.
"""
