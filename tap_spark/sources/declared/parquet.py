"""Parquet files."""

from __future__ import annotations

from tap_spark.sources.reader_options import FILES, REBASE, Option, named
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="parquet",
    implementation="tap_spark.sources.files.columnar_files:ParquetSource",
    places=("path",),
    takes=("options", "schema"),
    options=(
        *FILES,
        *named("boolean", "mergeSchema"),
        Option("datetimeRebaseMode", words=REBASE),
        Option("int96RebaseMode", words=REBASE),
    ),
    resumes=True,
)
