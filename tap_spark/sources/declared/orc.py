"""ORC files."""

from __future__ import annotations

from tap_spark.sources.reader_options import FILES, named
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="orc",
    implementation="tap_spark.sources.files.columnar_files:OrcSource",
    places=("path",),
    takes=("options", "schema"),
    options=(*FILES, *named("boolean", "mergeSchema")),
    resumes=True,
)
