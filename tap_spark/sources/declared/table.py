"""Tables and views of Spark catalogs."""

from __future__ import annotations

from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="table",
    implementation="tap_spark.sources.catalog_tables:TableSource",
    places=("table",),
    takes=("options",),
)
