"""Files of one format in a folder per table.

Imports `folders` and what destinations may import; `destination_declaration` finds it. `load`
imports `stored_columns`.
"""
