"""Types: JSON Schema, Spark and Arrow, and values brought from one to another.

Imports only `shared.errors`. `json`, `formats`, `spark`, `maps` and both programs may import it.
"""
