"""Delta and Iceberg tables: one destination over a `LakeFormat` of each.

Imports `folders` and `tables`; found by `destination_registry`.
"""
