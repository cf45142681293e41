"""Settings of tap-spark: their JSON Schema, the rules between them, and the typed result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shared.batch_config import is_batch_key, settings_properties, settings_rule, validate
from shared.encodings.encoding_registry import check_encodings
from shared.maps.map_settings import PROPERTIES as TRANSFORMS
from shared.maps.map_settings import (
    TransformSettings,
    transform_problems,
    transform_settings,
)
from shared.settings.about import Program
from shared.settings.batch.types import BatchConfig
from shared.settings.checking import Problem, complete_settings, read
from shared.settings.kinds import TEXT, at_least, schema_of, setting
from shared.spark.packages import LAKES, Need, with_needs
from shared.spark.spark_settings import SparkSettings, spark_problems, spark_schema, spark_settings
from tap_spark.connection_config import (
    CONNECTION_SCHEMA,
    ConnectionConfig,
    connection_config,
    connection_problems,
)
from tap_spark.sources.source_registry import check_sources, source_format
from tap_spark.stream_config import StreamConfig
from tap_spark.stream_rules import stream_problems
from tap_spark.stream_schema import STREAM_SCHEMA, stream_config

MIB = 1024 * 1024

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpoolSettings:
    """Lines on disk, between the executors and standard output."""

    root: str | None = setting(TEXT, "Folder; the system's temporary folder if not set.")
    bytes: int = setting(at_least(MIB), "Largest number of bytes to keep there.", default=256 * MIB)


@dataclass(frozen=True)
class TapConfig:
    """All settings of a run.

    Attributes:
        streams: What to read.
        connections: Databases and catalogs whose tables discovery lists.
        parallel_streams: How many streams are read at the same time.
        start_date: Lower bound of date and timestamp replication keys without a bookmark.
        spark: How to start or reach Spark.
        state_interval_seconds: Time between STATE messages inside a stream.
        spool: Lines on their way to standard output.
        batch: Which streams to send as BATCH, and how; None if all go as RECORD.
        transforms: What happens to records before they are written.
    """

    streams: tuple[StreamConfig, ...] = ()
    connections: tuple[ConnectionConfig, ...] = ()
    parallel_streams: int = 1
    start_date: str | None = None
    spark: SparkSettings = field(default_factory=lambda: SparkSettings(app_name="tap-spark"))
    state_interval_seconds: float = 10.0
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    batch: BatchConfig | None = None
    transforms: TransformSettings = field(default_factory=TransformSettings)


SETTINGS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Settings of tap-spark",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "streams": {
            "type": "array",
            "items": STREAM_SCHEMA,
            "default": [],
            "description": "Streams to read.",
        },
        "connections": {
            "type": "array",
            "items": CONNECTION_SCHEMA,
            "default": [],
            "description": "Databases, Spark catalogs and folders of tables: discovery lists "
            "their tables, and streams of the format `jdbc` read from them.",
        },
        "parallel_streams": {
            "type": "integer",
            "minimum": 1,
            "default": 1,
            "description": "How many streams to read at the same time.",
        },
        "start_date": {
            "type": "string",
            "format": "date-time",
            "description": "Lower bound of date and timestamp replication keys without a bookmark "
            "(inclusive; UTC if it has no offset).",
            "examples": ["2026-01-01T00:00:00Z"],
        },
        "spark": spark_schema("tap-spark"),
        "state_interval_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 10,
            "description": "Seconds between STATE messages inside a stream, if its order allows "
            "them.",
        },
        "spool": schema_of(
            SpoolSettings, "Disk space for lines on their way from Spark to standard output."
        ),
        **TRANSFORMS,
        **settings_properties("tap"),
    },
}


def tap_config(settings: Mapping[str, Any]) -> TapConfig:
    """Check settings and turn them into their typed form.

    Args:
        settings: As `shared.settings.loading.load_settings` gives them, or written by hand.

    Raises:
        InvalidSettingsError: With every problem found.
    """
    check_extensions()
    complete = complete_settings(PROGRAM.schema, settings, PROGRAM.rules)
    given = {key: value for key, value in complete.items() if is_batch_key(key)}
    batch = validate(given, "tap").check()
    for text in batch.warnings:
        _logger.warning(text)
    connections = tuple(map(connection_config, complete["connections"]))
    streams = tuple(stream_config(stream, connections) for stream in complete["streams"])
    spark = with_needs(
        spark_settings(complete["spark"]),
        _needs(streams, connections),
        [(item.url, item.package) for item in connections if item.url is not None],
    )
    return TapConfig(
        streams=streams,
        connections=connections,
        parallel_streams=int(complete["parallel_streams"]),
        start_date=complete.get("start_date"),
        spark=spark,
        state_interval_seconds=float(complete["state_interval_seconds"]),
        spool=SpoolSettings(**read(schema_of(SpoolSettings), complete["spool"])),
        batch=batch.batch_config,
        transforms=transform_settings(complete),
    )


def check_extensions() -> None:
    """Check that every installed source and encoding can be used.

    Raises:
        InvalidSettingsError: With every problem.
    """
    check_sources()
    check_encodings()


def _needs(
    streams: Sequence[StreamConfig], connections: Sequence[ConnectionConfig]
) -> Iterator[Need]:
    # The formats in a folder are known only when its tables are listed.
    yield from LAKES.values() if any(item.path for item in connections) else ()
    for stream in streams:
        form = source_format(stream.format)
        if form is not None and form.needs is not None:
            yield form.needs


def start_date_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that `start_date` is a date or a timestamp."""
    text = settings.get("start_date")
    if not isinstance(text, str):
        return
    try:
        # Python 3.10 does not know the suffix Z.
        datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text)
    except ValueError:
        yield Problem(("start_date",), f"{text!r} is not an ISO 8601 date or timestamp")


PROGRAM = Program(
    name="tap-spark",
    description="Singer tap that reads files, tables and databases with Apache Spark.",
    schema=SETTINGS_SCHEMA,
    rules=(
        stream_problems,
        connection_problems,
        start_date_problems,
        spark_problems,
        transform_problems,
        settings_rule("tap"),
    ),
    capabilities=(
        "catalog",
        "state",
        "discover",
        "test",
        "about",
        "batch",
        "stream-maps",
        "schema-flattening",
        "activate-version",
        "log-based",
        "structured-logging",
    ),
)
