"""JSON lines to Arrow columns and rows to JSON text, exactly.

Imports only `shared.errors` and `shared.types`. `formats`, `maps` and both programs import it.
"""
