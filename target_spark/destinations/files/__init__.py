"""Files of one format in a folder per table.

Imports `folders` and what destinations may import; found by `destination_registry`. `load` imports
`stored_columns`.
"""
