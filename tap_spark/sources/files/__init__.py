"""Sources of files: CSV, JSON, Parquet, Avro and others, with resuming by file and line.

Imports what `tap_spark.sources` has in common; found by `source_registry`.
"""
