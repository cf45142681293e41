"""Topics of Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from shared.spark.packages import KAFKA
from tap_spark.sources.reader_options import named
from tap_spark.sources.source_declaration import SourceFormat

METADATA = ("topic", "partition", "offset", "timestamp")
"""What `metadata_columns` may name."""
FORMATS = ("text", "json", "avro")
OFFSETS_PER_SLICE = 1_000_000
_DEFAULTS: Mapping[str, Any] = {
    "key_format": "none",
    "value_format": "json",
    "envelope": "none",
    "starting_offsets": "earliest",
    "on_data_loss": "stop",
    "metadata_columns": (),
    "offsets_per_slice": OFFSETS_PER_SLICE,
}
_TEXT = {"type": "string", "minLength": 1}


def _typed(given: dict[str, Any]) -> dict[str, Any]:
    return {**_DEFAULTS, **given}


def start_moment(text: str) -> int:
    """Return a moment, written as ISO 8601, in milliseconds; UTC if it has no offset.

    Raises:
        ValueError: It is not a moment.
    """
    # Python 3.10 does not know the suffix Z.
    found = datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text)
    found = found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
    return round(found.timestamp() * 1000)


def _start(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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


def _formats(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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


SOURCE = SourceFormat(
    name="kafka",
    implementation="tap_spark.sources.kafka.kafka_source:KafkaSource",
    places=("topic",),
    takes=("connection", "options", "schema"),
    settings={
        "topic": {**_TEXT, "description": "Topic of `kafka`.", "examples": ["shop.orders"]},
        "value_format": {
            "type": "string",
            "enum": list(FORMATS),
            "description": "What values of messages are: `json` by default; `text` becomes the "
            "column `value`; `avro` is Confluent's wire format. Only for `kafka`.",
        },
        "key_format": {
            "type": "string",
            "enum": ["none", *FORMATS],
            "description": "What keys of messages are: `none` (by default) ignores them; a key "
            "with fields becomes columns, any other the column `key`. Its columns are the "
            "default of `key_properties`. Only for `kafka`.",
        },
        "key_schema": {
            **_TEXT,
            "description": "Spark DDL of the columns of a JSON key, or the type of a single "
            "value; inferred if not set. Only for `kafka`.",
            "examples": ["id BIGINT"],
        },
        "envelope": {
            "type": "string",
            "enum": ["none", "debezium"],
            "description": "`debezium` unwraps change events into rows and deletions. Only for "
            "`kafka`.",
        },
        "value_subject": {
            **_TEXT,
            "description": "Subject of the values in the schema registry; `<topic>-value` by "
            "default. Only for `kafka`.",
        },
        "key_subject": {
            **_TEXT,
            "description": "Subject of the keys; `<topic>-key` by default. Only for `kafka`.",
        },
        "starting_offsets": {
            "type": ["string", "object"],
            "additionalProperties": {"type": "integer", "minimum": 0},
            "minLength": 1,
            "description": "Where a stream without bookmark begins: `earliest` (by default), "
            "`latest`, a timestamp (UTC if it has no offset), or an object of offsets by "
            "partition; other partitions begin with their first message. Only for `kafka`.",
            "examples": ["latest", "2026-01-01T00:00:00Z", {"0": 1500, "1": 1420}],
        },
        "on_data_loss": {
            "type": "string",
            "enum": ["stop", "continue"],
            "description": "What happens if messages after the bookmark are gone from the topic: "
            "`stop` (by default) ends the run with an error, `continue` logs how many and reads "
            "on. Only for `kafka`.",
        },
        "metadata_columns": {
            "type": "array",
            "items": {"type": "string", "enum": list(METADATA)},
            "uniqueItems": True,
            "description": "Columns to add, as `_kafka_<name>`. Only for `kafka`.",
            "examples": [["partition", "offset"]],
        },
        "offsets_per_slice": {
            "type": "integer",
            "minimum": 1,
            "description": "How many messages are read before the bookmark moves, "
            f"{OFFSETS_PER_SLICE} by default. Only for `kafka`.",
        },
    },
    typed=_typed,
    connects="brokers",
    options=(
        *named("text", "groupIdPrefix"),
        *named("integer", "minPartitions maxRecordsPerPartition"),
    ),
    has_log=True,
    default_method="LOG_BASED",
    needs=KAFKA,
    rules=(_start, _formats),
)
