"""Settings of tap-spark: their JSON Schema, the rules between them, and the typed result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shared.batch_config import is_batch_key, settings_properties, settings_rule, validate
from shared.encodings.encoding_registry import check_encodings
from shared.engine.settings import EngineSettings
from shared.maps.map_settings import PROPERTIES as TRANSFORMS
from shared.maps.map_settings import (
    TransformSettings,
    transform_problems,
    transform_settings,
)
from shared.settings.about import Program
from shared.settings.batch.batch_settings import BatchConfig
from shared.settings.checking import Problem, complete_settings
from shared.settings.kinds import (
    ANY_TEXT,
    POSITIVE,
    TEXT,
    at_least,
    group,
    one_of,
    schema_of,
    setting,
    typed,
)
from shared.settings.loading import OTHER_VARIABLES
from shared.spark.packages import KAFKA, LAKES, Need, with_needs
from shared.spark.spark_settings import SparkSettings, spark_problems
from shared.telemetry.telemetry_settings import OpenLineageSettings, OpenTelemetrySettings
from tap_spark.connection_config import ConnectionConfig, connection_problems
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
class TapConfig(EngineSettings):
    """All settings of a run; `batch` is None if no stream is sent as BATCH."""

    streams: tuple[StreamConfig, ...] = setting(
        {"type": "array", "items": STREAM_SCHEMA}, "Streams to read.", default=[], make=tuple
    )
    connections: tuple[ConnectionConfig, ...] = setting(
        {"type": "array", "items": schema_of(ConnectionConfig)},
        "Databases, Spark catalogs, folders of tables and brokers of Kafka: discovery lists their "
        "tables and topics, and streams of the formats `jdbc` and `kafka` read from them.",
        default=[],
        make=lambda items: tuple(typed(ConnectionConfig, item) for item in items),
    )
    parallel_streams: int = setting(
        at_least(1), "How many streams to read at the same time.", default=1
    )
    on_stream_failure: str = setting(
        one_of(("stop", "continue")),
        "What happens if a stream cannot be read: `stop` ends the run; `continue` reads the other "
        "streams, and the run then ends with exit code 9.",
        default="stop",
    )
    start_date: str | None = setting(
        ANY_TEXT,
        "Lower bound of date and timestamp replication keys without a bookmark (inclusive; UTC if "
        "it has no offset).",
        format="date-time",
        examples=["2026-01-01T00:00:00Z"],
    )
    spark: SparkSettings = group(
        SparkSettings, "How to start or reach Spark.", app_name="tap-spark"
    )
    state_interval_seconds: float = setting(
        POSITIVE,
        "Seconds between STATE messages inside a stream, if its order allows them.",
        default=10,
    )
    stall_limit_seconds: float | None = setting(
        POSITIVE,
        "Longest time without any message written. After half of it the run logs a warning, after "
        "all of it the run ends with exit code 12. Unbounded if not set.",
        examples=[1800],
    )
    heartbeat_seconds: int = setting(
        at_least(0),
        "Each time that no message was written for so long, an INFO line says what the run waits "
        "for. 0 for no such lines.",
        default=60,
    )
    spool: SpoolSettings = group(
        SpoolSettings, "Disk space for lines on their way from Spark to standard output."
    )
    openlineage: OpenLineageSettings = group(
        OpenLineageSettings,
        "OpenLineage events about the runs; see `tap-spark docs observability`.",
    )
    opentelemetry: OpenTelemetrySettings = group(
        OpenTelemetrySettings,
        "Spans and metrics of the runs; see `tap-spark docs observability`.",
    )
    batch: BatchConfig | None = None
    transforms: TransformSettings = field(default_factory=TransformSettings)


SETTINGS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Settings of tap-spark",
    "type": "object",
    OTHER_VARIABLES: ["USER", "PASSWORD"],
    "additionalProperties": False,
    "properties": {
        **schema_of(TapConfig)["properties"],
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
    config = typed(TapConfig, complete)
    streams = tuple(stream_config(stream, config.connections) for stream in complete["streams"])
    spark = with_needs(
        config.spark,
        _needs(streams, config.connections),
        [(item.url, item.package) for item in config.connections if item.url is not None],
    )
    return replace(
        config,
        streams=streams,
        spark=spark,
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
    yield from (KAFKA for item in connections if item.brokers)
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
    setting_groups=(("streams",), ("connections",)),
)
