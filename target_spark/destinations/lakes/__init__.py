"""Delta and Iceberg tables: one destination over a `LakeFormat` of each.

Imports `folders` and what destinations may import; found by `destination_declaration`.
"""
