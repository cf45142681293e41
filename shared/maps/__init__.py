"""Stream maps, flattening and record metadata: what a record becomes before it is written.

Imports only `shared.errors`, `shared.settings` and `shared.formats`. Both programs import it.
"""
