"""Leases: one run at a time loads a stream into a table.

Imports `target_spark.destinations.folders`, and nothing else of this program.
"""
