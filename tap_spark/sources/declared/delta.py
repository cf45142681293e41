"""Delta tables."""

from __future__ import annotations

from shared.spark.packages import LAKES
from tap_spark.sources.reader_options import AS_OF, named
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="delta",
    implementation="tap_spark.sources.lakes.delta_source:DeltaSource",
    places=("path", "table"),
    takes=("options",),
    options=(
        *AS_OF,
        *named("text", "startingVersion startingTimestamp endingVersion endingTimestamp"),
        *named("boolean", "readChangeFeed readChangeData"),
    ),
    has_log=True,
    needs=LAKES["delta"],
)
