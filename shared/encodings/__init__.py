"""Which encodings of batch files there are: declarations, without readers and writers.

Imports only `shared.errors` and `shared.extensions`. Every package of `shared` and both programs
may import it.
"""
