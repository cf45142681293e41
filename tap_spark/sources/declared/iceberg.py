"""Iceberg tables."""

from __future__ import annotations

from shared.spark.packages import LAKES
from tap_spark.sources.reader_options import AS_OF, named
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="iceberg",
    implementation="tap_spark.sources.lakes.iceberg_source:IcebergSource",
    places=("path", "table"),
    takes=("options",),
    options=(
        *AS_OF,
        *named("text", "tag branch as-of-timestamp start-timestamp end-timestamp"),
        *named("integer", "snapshot-id start-snapshot-id end-snapshot-id"),
        *named("integer", "split-size lookback file-open-cost batch-size"),
        *named("boolean", "vectorization-enabled locality aggregate-push-down-enabled"),
    ),
    has_log=True,
    needs=LAKES["iceberg"],
)
