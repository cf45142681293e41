"""JSON lines to Arrow columns and rows to JSON text, exactly.

Imports only `shared.types`. `formats`, `spark`, `maps` and both programs may import it.
"""
