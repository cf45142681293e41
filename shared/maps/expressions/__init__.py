"""Expressions of stream maps: Python's syntax and results, computed by Spark or by Python.

Imports nothing else of `shared.maps`, which imports it.
"""
