"""What a run reads, and the bookmark after it: plain data and arithmetic without I/O.

Imports only `shared`; `sources` and all packages above them may import it.
"""
