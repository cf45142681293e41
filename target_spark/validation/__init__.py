"""Validation of records against the JSON Schema of their stream: a screen in Arrow, then a judge.

Imports only `shared`; `load` and `runtime` import it.
"""
