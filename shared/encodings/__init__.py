"""Which encodings of batch files there are: declarations, without readers and writers.

Imports only `shared.errors` and `shared.extensions`. `settings`, `formats` and programs import it.
"""
