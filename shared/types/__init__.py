"""Types: JSON Schema, Spark and Arrow, and values brought from one to another.

Imports only `shared.errors` and `shared.settings`. `json`, `formats`, `maps` and the programs import it.
"""
