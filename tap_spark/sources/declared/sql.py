"""Queries in Spark SQL."""

from __future__ import annotations

from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="sql",
    implementation="tap_spark.sources.sql_queries:SqlSource",
    places=("query",),
)
