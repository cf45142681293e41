"""Files of plain text."""

from __future__ import annotations

from tap_spark.sources.reader_options import FILES, named
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="text",
    implementation="tap_spark.sources.files.plain_text:TextSource",
    places=("path",),
    takes=("options", "schema", "read_unterminated_line"),
    options=(
        *FILES,
        *named("encoding", "encoding"),
        *named("text", "lineSep"),
        *named("boolean", "wholetext"),
    ),
    resumes=True,
)
