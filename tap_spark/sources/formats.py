"""Every format: one table of those of this package, and those of installed packages.

Every start imports this module: declarations are plain data, and name the class that reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from shared.encodings.encoding_format import SOURCES as GROUP
from shared.encodings.encoding_format import declared
from shared.settings.kinds import TEXT, Schema, at_least, one_of
from shared.spark.packages import AVRO, KAFKA, LAKES
from tap_spark.sources.source_declaration import (
    AS_OF,
    FILES,
    MODE,
    PARSED,
    REBASE,
    TIMES,
    Option,
    SourceFormat,
    named,
)
from tap_spark.stream_config import is_python_source

_QUOTES = (
    "STOP_AT_CLOSING_QUOTE",
    "BACK_TO_DELIMITER",
    "STOP_AT_DELIMITER",
    "SKIP_VALUE",
    "RAISE_ERROR",
)
GENERATED_COLUMNS = 10
METADATA_COLUMNS = ("topic", "partition", "offset", "timestamp")
"""What `metadata_columns` may name."""
MESSAGE_FORMATS = ("text", "json", "avro")
OFFSETS_PER_SLICE = 1_000_000
_KAFKA_DEFAULTS: Mapping[str, Any] = {
    "key_format": "none",
    "value_format": "json",
    "envelope": "none",
    "starting_offsets": "earliest",
    "on_data_loss": "stop",
    "metadata_columns": (),
    "offsets_per_slice": OFFSETS_PER_SLICE,
}


def _own(kind: Schema, description: str, examples: Sequence[Any] = ()) -> Schema:
    """Return the JSON Schema of a setting that a format declares."""
    shown = {"examples": list(examples)} if examples else {}
    return {**kind, "description": description, **shown}


def _rows_typed(settings: dict[str, Any]) -> dict[str, Any]:
    columns = settings.get("column_count", GENERATED_COLUMNS)
    return {"row_count": int(settings["row_count"]), "column_count": int(columns)}


def _one_path(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(stream.get("path"), list):
        yield "path", "must be one path for a class in Python"


@dataclass(frozen=True)
class FixedColumn:
    """The position of a column in a fixed-width file, in characters; a line begins with 1."""

    name: str
    start: int
    length: int


def _columns_typed(settings: dict[str, Any]) -> dict[str, Any]:
    placed: list[FixedColumn] = []
    following = 1
    for column in settings["columns"]:
        start, length = int(column.get("start", following)), int(column["length"])
        placed.append(FixedColumn(column["name"], start, length))
        following = start + length
    return {"columns": tuple(placed)}


def _column_names(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    columns = stream.get("columns")
    seen: set[str] = set()
    for item in columns if isinstance(columns, list) else ():
        name = item.get("name") if isinstance(item, Mapping) else None
        if isinstance(name, str):
            if name.lower() in seen:
                yield "columns", f"{name!r} is the name of several columns"
            seen.add(name.lower())


def start_moment(text: str) -> int:
    """Return a moment, written as ISO 8601, in milliseconds; UTC if it has no offset.

    Raises:
        ValueError: It is not a moment.
    """
    # Python 3.10 does not know the suffix Z.
    moment = datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)


def _starting_offsets(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    start = stream.get("starting_offsets")
    if isinstance(start, str) and start not in ("earliest", "latest"):
        try:
            start_moment(start)
        except ValueError:
            yield (
                "starting_offsets",
                f"{start!r} is neither 'earliest', 'latest', an ISO 8601 timestamp, nor an object "
                "of offsets by partition",
            )
    for partition in start if isinstance(start, Mapping) else ():
        if not partition.isdigit():
            yield "starting_offsets", f"{partition!r} is not the number of a partition"


def _message_formats(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    key, value = stream.get("key_format", "none"), stream.get("value_format", "json")
    if stream.get("envelope") == "debezium":
        if key not in ("json", "avro"):
            yield "key_format", "must be 'json' or 'avro' for the envelope 'debezium'"
        if value == "text":
            yield "value_format", "must be 'json' or 'avro' for the envelope 'debezium'"
    if "schema" in stream and value != "json":
        yield "schema", f"does not apply to the value_format {value!r}; remove it"
    if "key_schema" in stream and key != "json":
        yield "key_schema", f"does not apply to the key_format {key!r}; remove it"
    for name, kind in (("key_subject", key), ("value_subject", value)):
        if name in stream and kind != "avro":
            yield name, "applies only to 'avro'; remove it"


_BUILT_IN = (
    SourceFormat(
        name="csv",
        implementation="tap_spark.sources.files.csv_files:CsvSource",
        driver="tap_spark.sources.files.csv_blocks:CsvReader",
        places=("path",),
        takes=("options", "schema", "read_unterminated_line"),
        options=(
            *FILES,
            *TIMES,
            *PARSED,
            *named("text", "sep delimiter quote escape charToEscapeQuoteEscaping comment lineSep"),
            *named("text", "nullValue emptyValue nanValue positiveInf negativeInf"),
            *named("boolean", "header inferSchema enforceSchema multiLine preferDate"),
            *named("boolean", "columnPruning"),
            *named("boolean", "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace"),
            *named("integer", "maxColumns maxCharsPerColumn inputBufferSize"),
            Option("unescapedQuoteHandling", words=_QUOTES),
        ),
        resumes=True,
        on_driver=True,
    ),
    SourceFormat(
        name="json",
        implementation="tap_spark.sources.files.json_files:JsonSource",
        places=("path",),
        takes=("options", "schema"),
        settings={
            "records_path": _own(
                TEXT,
                "Name of the array inside a JSON document that holds the records, dotted if "
                "nested. Only for `json`.",
                ["features"],
            ),
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
    ),
    SourceFormat(
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
    ),
    SourceFormat(
        name="orc",
        implementation="tap_spark.sources.files.columnar_files:OrcSource",
        places=("path",),
        takes=("options", "schema"),
        options=(*FILES, *named("boolean", "mergeSchema")),
        resumes=True,
    ),
    SourceFormat(
        name="text",
        implementation="tap_spark.sources.files.text_formats:TextSource",
        places=("path",),
        takes=("options", "schema", "read_unterminated_line"),
        options=(
            *FILES,
            *named("encoding", "encoding"),
            *named("text", "lineSep"),
            *named("boolean", "wholetext"),
        ),
        resumes=True,
    ),
    SourceFormat(
        name="avro",
        implementation="tap_spark.sources.files.columnar_files:AvroSource",
        places=("path",),
        takes=("options", "schema"),
        options=(
            *FILES,
            *MODE,
            *named("text", "avroSchema avroSchemaUrl stableIdentifierPrefixForUnionType"),
            *named("boolean", "ignoreExtension positionalFieldMatching"),
            *named("boolean", "enableStableIdentifiersForUnionType"),
            *named("integer", "recursiveFieldMaxDepth"),
            Option("datetimeRebaseMode", words=REBASE),
        ),
        resumes=True,
        needs=AVRO,
    ),
    SourceFormat(
        name="xml",
        implementation="tap_spark.sources.files.text_formats:XmlSource",
        places=("path",),
        takes=("options", "schema"),
        options=(
            *FILES,
            *TIMES,
            *PARSED,
            *named("text", "rowTag attributePrefix valueTag nullValue rowValidationXSDPath"),
            *named("text", "wildcardColName"),
            *named("boolean", "inferSchema excludeAttribute ignoreSurroundingSpaces"),
            *named("boolean", "ignoreNamespace"),
            *named("boolean", "multiLine preferDate prefersDecimal useLegacyXMLParser"),
        ),
        required_options={"rowTag": "the element that is a row"},
        resumes=True,
    ),
    SourceFormat(
        name="fixed_width",
        implementation="tap_spark.sources.files.text_formats:FixedWidthSource",
        places=("path",),
        takes=("options", "schema", "read_unterminated_line"),
        settings={
            "columns": _own(
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["name", "length"],
                        "properties": {
                            "name": _own(TEXT, "Name of the column."),
                            "start": _own(
                                at_least(1),
                                "Its first character; a line begins with 1. By default it follows "
                                "the column before.",
                            ),
                            "length": _own(at_least(1), "How many characters it has."),
                        },
                    },
                },
                "Positions of the columns in a line. Only, and required, for `fixed_width`.",
                [[{"name": "id", "length": 8}, {"name": "city", "start": 11, "length": 20}]],
            ),
        },
        required=("columns",),
        typed=_columns_typed,
        options=(
            *FILES,
            *named("encoding", "encoding charset"),
            *named("text", "comment lineSep"),
            *named("boolean", "header"),
            Option("mode", words=("PERMISSIVE", "FAILFAST")),
        ),
        resumes=True,
        rules=(_column_names,),
    ),
    SourceFormat(
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
    ),
    SourceFormat(
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
    ),
    SourceFormat(
        name="jdbc",
        implementation="tap_spark.sources.jdbc.jdbc_source:JdbcSource",
        places=("table", "query"),
        takes=("connection", "options"),
        on_driver=True,
        keys_on_driver=True,
        why_spark="tap_spark.sources.jdbc.copy_driver:why_spark",
        options=(
            *named("text", "partitionColumn lowerBound upperBound sessionInitStatement"),
            *named("text", "customSchema hint"),
            *named("integer", "numPartitions fetchsize queryTimeout"),
        ),
    ),
    SourceFormat(
        name="table",
        implementation="tap_spark.sources.spark_tables:TableSource",
        places=("table",),
        takes=("options",),
    ),
    SourceFormat(
        name="sql",
        implementation="tap_spark.sources.spark_tables:SqlSource",
        places=("query",),
    ),
    SourceFormat(
        name="kafka",
        implementation="tap_spark.sources.kafka.kafka_source:KafkaSource",
        places=("topic",),
        takes=("connection", "options", "schema"),
        settings={
            "topic": _own(TEXT, "Topic of `kafka`.", ["shop.orders"]),
            "value_format": _own(
                one_of(MESSAGE_FORMATS),
                "What values of messages are: `json` by default; `text` becomes the column "
                "`value`; `avro` is Confluent's wire format. Only for `kafka`.",
            ),
            "key_format": _own(
                one_of(("none", *MESSAGE_FORMATS)),
                "What keys of messages are: `none` (by default) ignores them; a key with fields "
                "becomes columns, any other the column `key`. Its columns are the default of "
                "`key_properties`. Only for `kafka`.",
            ),
            "key_schema": _own(
                TEXT,
                "Spark DDL of the columns of a JSON key, or the type of a single value; inferred "
                "if not set. Only for `kafka`.",
                ["id BIGINT"],
            ),
            "envelope": _own(
                one_of(("none", "debezium")),
                "`debezium` unwraps change events into rows and deletions. Only for `kafka`.",
            ),
            "value_subject": _own(
                TEXT,
                "Subject of the values in the schema registry; `<topic>-value` by default. Only "
                "for `kafka`.",
            ),
            "key_subject": _own(
                TEXT, "Subject of the keys; `<topic>-key` by default. Only for `kafka`."
            ),
            "starting_offsets": _own(
                {
                    "type": ["string", "object"],
                    "additionalProperties": at_least(0),
                    "minLength": 1,
                },
                "Where a stream without bookmark begins: `earliest` (by default), `latest`, a "
                "timestamp (UTC if it has no offset), or an object of offsets by partition; other "
                "partitions begin with their first message. Only for `kafka`.",
                ["latest", "2026-01-01T00:00:00Z", {"0": 1500, "1": 1420}],
            ),
            "on_data_loss": _own(
                one_of(("stop", "continue")),
                "What happens if messages after the bookmark are gone from the topic: `stop` (by "
                "default) ends the run with an error, `continue` logs how many and reads on. Only "
                "for `kafka`.",
            ),
            "metadata_columns": _own(
                {"type": "array", "items": one_of(METADATA_COLUMNS), "uniqueItems": True},
                "Columns to add, as `_kafka_<name>`. Only for `kafka`.",
                [["partition", "offset"]],
            ),
            "offsets_per_slice": _own(
                at_least(1),
                "How many messages are read before the bookmark moves, "
                f"{OFFSETS_PER_SLICE} by default. Only for `kafka`.",
            ),
        },
        typed=lambda settings: {**_KAFKA_DEFAULTS, **settings},
        connects="brokers",
        options=(
            *named("text", "groupIdPrefix"),
            *named("integer", "minPartitions maxRecordsPerPartition"),
        ),
        has_log=True,
        default_method="LOG_BASED",
        needs=KAFKA,
        rules=(_starting_offsets, _message_formats),
    ),
    SourceFormat(
        name="rows",
        implementation="tap_spark.sources.spark_tables:RowsSource",
        has_tasks_alone=True,
        places=("row_count",),
        settings={
            "row_count": _own(
                at_least(0), "Number of rows to generate. Only, and required, for `rows`."
            ),
            "column_count": _own(
                at_least(1),
                f"Number of columns to generate, {GENERATED_COLUMNS} by default. Only for `rows`.",
            ),
        },
        typed=_rows_typed,
    ),
)
BUILT_IN = {form.name: form for form in _BUILT_IN}
"""The formats of this package, in the order in which users read of them."""
PYTHON = SourceFormat(
    name="package.module.Class",
    implementation="tap_spark.sources.python_sources:python_source",
    takes=("path", "options", "schema"),
    on_driver=True,
    keys_on_driver=True,
    rules=(_one_path,),
)
"""Classes in Python, named by their place instead of a format: plain ones, and DataSources."""


def _clash(form: SourceFormat, formats: Mapping[str, SourceFormat]) -> str | None:
    """Return why a format's settings or names conflict with another format; None if not."""
    if is_python_source(form.name):
        return "it looks like package.module.Class"
    for other in formats.values():
        for name in form.settings.keys() & other.settings.keys():
            if form.settings[name] != other.settings[name]:
                return f"its setting '{name}' differs from that of the format '{other.name}'"
    taken = {name for other in formats.values() for name in (other.name, *other.aliases)}
    for alias in form.aliases:
        if alias in taken:
            return f"its alias '{alias}' is the name of another format"
    return f"the name '{form.name}' is an alias of another format" if form.name in taken else None


DECLARED_FORMATS = declared(GROUP, SourceFormat, BUILT_IN, _clash)

SOURCES = DECLARED_FORMATS.items
"""Every format by its name."""
FORMATS = tuple(SOURCES)
FILE_FORMATS = tuple(form.name for form in SOURCES.values() if form.resumes)
"""Formats that INCREMENTAL resumes without a replication key."""
LOG_FORMATS = tuple(form.name for form in SOURCES.values() if form.has_log)
"""Formats with a log of changes."""

_NAMED = {name: form for form in SOURCES.values() for name in (form.name, *form.aliases)}


def source_format(name: object) -> SourceFormat | None:
    """Find a format by name or alias; None if it does not exist."""
    if is_python_source(name):
        return PYTHON
    return _NAMED.get(name) if isinstance(name, str) else None
