"""Stream maps, flattening and record metadata: what a record becomes before it is written.

Imports only `shared.errors`, `shared.settings` and `shared.types`. Both programs import it.
"""
