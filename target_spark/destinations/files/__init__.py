"""Files of one format in a folder per table.

Imports `folders` and `tables`; found by `destination_registry`.
"""
