"""Stream maps, flattening and record metadata: what a record becomes before it is written.

Imports `shared.types`, `shared.json` and `shared.settings`. Both programs import it.
"""
