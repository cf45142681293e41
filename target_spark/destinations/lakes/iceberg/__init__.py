"""Iceberg tables, by path or in a catalog.

Imports what `lakes` has in common; found by `lake_declarations`.
"""
