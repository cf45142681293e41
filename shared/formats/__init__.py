"""File formats of BATCH messages, one module per encoding.

Imports `shared.json`, `shared.types` and `shared.storage`. Both programs import it.
"""
