"""Tables over time: legal names, columns that change, rows laid out as the table's columns.

Imports only `shared` and `core`; `validation`, `destinations`, `load` and `convert` may import it.
"""
