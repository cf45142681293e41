"""Tables, views and queries of databases; their drivers follow from the connections' URLs."""

from __future__ import annotations

from tap_spark.sources.reader_options import named
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="jdbc",
    implementation="tap_spark.sources.jdbc.jdbc_source:JdbcSource",
    places=("table", "query"),
    takes=("connection", "options"),
    options=(
        *named("text", "partitionColumn lowerBound upperBound sessionInitStatement customSchema"),
        *named("text", "hint"),
        *named("integer", "numPartitions fetchsize queryTimeout"),
    ),
)
