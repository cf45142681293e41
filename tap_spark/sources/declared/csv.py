"""CSV files."""

from __future__ import annotations

from tap_spark.sources.reader_options import FILES, PARSED, TIMES, Option, named
from tap_spark.sources.source_declaration import SourceFormat

QUOTES = (
    "STOP_AT_CLOSING_QUOTE",
    "BACK_TO_DELIMITER",
    "STOP_AT_DELIMITER",
    "SKIP_VALUE",
    "RAISE_ERROR",
)

SOURCE = SourceFormat(
    name="csv",
    implementation="tap_spark.sources.files.csv_files:CsvSource",
    places=("path",),
    takes=("options", "schema", "read_unterminated_line"),
    options=(
        *FILES,
        *TIMES,
        *PARSED,
        *named("text", "sep delimiter quote escape charToEscapeQuoteEscaping comment lineSep"),
        *named("text", "nullValue emptyValue nanValue positiveInf negativeInf"),
        *named("boolean", "header inferSchema enforceSchema multiLine preferDate columnPruning"),
        *named("boolean", "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace"),
        *named("integer", "maxColumns maxCharsPerColumn inputBufferSize"),
        Option("unescapedQuoteHandling", words=QUOTES),
    ),
    resumes=True,
    on_driver=True,
)
