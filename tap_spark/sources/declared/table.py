"""Tables and views of Spark catalogs."""

from __future__ import annotations

from tap_spark.sources.declaration import SourceFormat

SOURCE = SourceFormat(
    name="table",
    implementation="tap_spark.sources.tables:TableSource",
    places=("table",),
    takes=("options",),
)
