"""Types: JSON Schema, Spark and Arrow, and values brought from one to another.

Imports only `shared.errors` and `shared.settings`; `json`, `formats` and `maps` import it, too.
"""
