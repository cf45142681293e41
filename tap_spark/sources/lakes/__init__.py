"""Delta and Iceberg tables as sources, with their change logs.

Imports what `tap_spark.sources` has in common; found by `source_registry`.
"""
