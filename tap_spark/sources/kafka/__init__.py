"""Kafka topics as a source: bounded reads, by offsets in STATE.

Imports what `tap_spark.sources` has in common; found by `source_registry`.
"""
