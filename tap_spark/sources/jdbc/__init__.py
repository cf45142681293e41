"""Databases read over JDBC: URLs, dialects, metadata, parallel reads.

Imports what `tap_spark.sources` has in common; found by `source_registry`.
`connections` imports it, too.
"""
