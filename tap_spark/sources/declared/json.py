"""JSON files: lines, or whole documents."""

from __future__ import annotations

from tap_spark.sources.reader_options import FILES, PARSED, TIMES, named
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="json",
    implementation="tap_spark.sources.files.json_files:JsonSource",
    places=("path",),
    takes=("options", "schema"),
    settings={
        "records_path": {
            "type": "string",
            "minLength": 1,
            "description": "Name of the array inside a JSON document that holds the records, "
            "dotted if nested. Only for `json`.",
            "examples": ["features"],
        },
    },
    options=(
        *FILES,
        *TIMES,
        *PARSED,
        *named("text", "lineSep"),
        *named("boolean", "multiLine primitivesAsString prefersDecimal dropFieldIfAllNull"),
        *named("boolean", "allowComments allowUnquotedFieldNames allowSingleQuotes"),
        *named("boolean", "allowNumericLeadingZeros allowBackslashEscapingAnyCharacter"),
        *named("boolean", "allowUnquotedControlChars allowNonNumericNumbers inferTimestamp"),
        *named("boolean", "useUnsafeRow"),
    ),
    resumes=True,
    on_driver=True,
)
