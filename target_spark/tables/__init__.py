"""Tables over time: legal names, columns that change, rows laid out as the table's columns.

Imports `core`'s plain data; `load` and destinations import it.
"""
