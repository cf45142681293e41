"""What a run reads, and the bookmark after it: plain data and arithmetic without I/O.

Imports only `shared`; everything else of the tap imports it.
"""
