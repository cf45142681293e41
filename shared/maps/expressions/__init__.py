"""Expressions of stream maps: Python's syntax and results, computed by Spark or by Python.

Imports only `transform` of `shared.maps`; the other modules of `shared.maps` import it.
"""
