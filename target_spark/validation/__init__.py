"""Validation of records against the JSON Schema of their stream: a screen in Arrow, then a judge.

Imports only `shared` and `core`; `destinations`, `load` and `convert` may import it.
"""
