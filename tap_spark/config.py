"""Settings of tap-spark: their JSON Schema, the rules between them, and the typed result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shared.about import Program
from shared.batch_config import is_batch_key, settings_properties, settings_rule, validate
from shared.batch_types import BatchConfig
from shared.settings_check import INVALID, Problem, complete_settings
from shared.spark_settings import (
    SparkSettings,
    spark_problems,
    spark_schema,
    spark_settings,
    text_values,
)

FILE_FORMATS = ("csv", "json", "parquet", "orc", "text")
FORMATS = (*FILE_FORMATS, "rows")
METHODS = ("FULL_TABLE", "INCREMENTAL")
DEFAULT_COLUMN_COUNT = 10
MIB = 1024 * 1024

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamConfig:
    """One item of `streams`.

    Attributes:
        name: Name of the stream.
        format: A key of the registry of sources.
        path: File, folder or glob, or several; None where the format takes none.
        row_count: Rows to generate (`rows`).
        column_count: Columns to generate (`rows`).
        options: Options of Spark's reader.
        schema: Spark DDL of the source's columns; None to infer.
        records_path: Dotted path to the array that holds the records (`json`).
        key_properties: Primary key.
        replication_key: Column the bookmark is taken from.
        replication_method: What the user asked for; None lets planning decide.
        sort_by_replication_key: Sort the source, so that STATE can go out inside the stream.
    """

    name: str
    format: str
    path: str | tuple[str, ...] | None = None
    row_count: int | None = None
    column_count: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    records_path: str | None = None
    key_properties: tuple[str, ...] = ()
    replication_key: str | None = None
    replication_method: str | None = None
    sort_by_replication_key: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path, also where only one was given."""
        if self.path is None:
            return ()
        return (self.path,) if isinstance(self.path, str) else self.path


@dataclass(frozen=True)
class SpoolSettings:
    """Where lines wait on disk between the executors and standard output.

    Attributes:
        root: Folder; None for the system's temporary folder.
        bytes: How much may wait there.
    """

    root: str | None = None
    bytes: int = 256 * MIB


@dataclass(frozen=True)
class TapConfig:
    """All settings of a run.

    Attributes:
        streams: What to read.
        start_date: Lower bound of date and timestamp replication keys without a bookmark.
        spark: How to start or reach Spark.
        state_interval_seconds: Time between STATE messages inside a stream.
        spool: Lines on their way to standard output.
        batch: Which streams go as BATCH, and how; None where all go as RECORD.
    """

    streams: tuple[StreamConfig, ...]
    start_date: str | None = None
    spark: SparkSettings = field(default_factory=lambda: SparkSettings(app_name="tap-spark"))
    state_interval_seconds: float = 10.0
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    batch: BatchConfig | None = None


_NAME = {"type": "string", "minLength": 1}

STREAM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "format"],
    "properties": {
        "name": {**_NAME, "description": "Name of the stream.", "examples": ["orders"]},
        "format": {"type": "string", "enum": list(FORMATS), "description": "What is read."},
        "path": {
            "type": ["string", "array"],
            "items": _NAME,
            "minLength": 1,
            "minItems": 1,
            "description": "File, folder or glob, or a list of them. Every format but `rows`.",
            "examples": ["data/*.csv", ["2025/", "2026/"]],
        },
        "row_count": {
            "type": "integer",
            "minimum": 0,
            "description": "Number of rows to generate. Only, and required, for `rows`.",
        },
        "column_count": {
            "type": "integer",
            "minimum": 1,
            "description": "Number of columns to generate, "
            f"{DEFAULT_COLUMN_COUNT} where not set. Only for `rows`.",
        },
        "options": {
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean"], "secret": True},
            "default": {},
            "description": "Options of Spark's reader for the format, passed through as they are.",
            "examples": [{"header": True, "sep": ";"}],
        },
        "schema": {
            **_NAME,
            "description": "Columns and types in Spark DDL; inferred from the data where not set.",
            "examples": ["id BIGINT, name STRING"],
        },
        "records_path": {
            **_NAME,
            "description": "Name of the array inside a JSON document that holds the records, "
            "dotted where nested. Only for `json`.",
            "examples": ["features"],
        },
        "key_properties": {
            "type": "array",
            "items": _NAME,
            "uniqueItems": True,
            "default": [],
            "description": "Columns of the primary key.",
        },
        "replication_key": {
            **_NAME,
            "description": "Column whose greatest value is kept as the bookmark.",
            "examples": ["updated_at"],
        },
        "replication_method": {
            "type": "string",
            "enum": list(METHODS),
            "description": "`INCREMENTAL` where `replication_key` is set, else `FULL_TABLE`. "
            "`INCREMENTAL` without a replication key resumes files by file and line.",
        },
        "sort_by_replication_key": {
            "type": "boolean",
            "default": False,
            "description": "Sort by the replication key, so that a long run that is cut can "
            "resume inside the stream.",
        },
    },
}

SETTINGS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Settings of tap-spark",
    "type": "object",
    "additionalProperties": False,
    "required": ["streams"],
    "properties": {
        "streams": {
            "type": "array",
            "minItems": 1,
            "items": STREAM_SCHEMA,
            "description": "What to read, each as a stream of its own.",
        },
        "start_date": {
            "type": "string",
            "format": "date-time",
            "description": "Where date and timestamp replication keys start without a bookmark "
            "(inclusive; UTC where no offset is given).",
            "examples": ["2026-01-01T00:00:00Z"],
        },
        "spark": spark_schema("tap-spark"),
        "state_interval_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 10,
            "description": "Time between STATE messages inside a stream whose order allows them.",
        },
        "spool": {
            "type": "object",
            "additionalProperties": False,
            "description": "Disk space for lines on their way from Spark to standard output.",
            "properties": {
                "root": {
                    **_NAME,
                    "description": "Folder; the system's temporary folder where not set.",
                },
                "bytes": {
                    "type": "integer",
                    "minimum": MIB,
                    "default": 256 * MIB,
                    "description": "How many bytes may wait there.",
                },
            },
        },
        **settings_properties("tap"),
    },
}


def tap_config(settings: Mapping[str, Any]) -> TapConfig:
    """Validate settings and turn them into their typed form.

    Args:
        settings: As `shared.settings.load_settings` gives them, or written by hand.

    Raises:
        InvalidSettingsError: With every problem found.
    """
    complete = complete_settings(PROGRAM.schema, settings, PROGRAM.rules)
    given = {key: value for key, value in complete.items() if is_batch_key(key)}
    batch = validate(given, "tap").check()
    for text in batch.warnings:
        _logger.warning(text)
    spool = complete["spool"]
    return TapConfig(
        streams=tuple(_stream_config(stream) for stream in complete["streams"]),
        start_date=complete.get("start_date"),
        spark=spark_settings(complete["spark"]),
        state_interval_seconds=float(complete["state_interval_seconds"]),
        spool=SpoolSettings(root=spool.get("root"), bytes=int(spool["bytes"])),
        batch=batch.batch_config,
    )


def _stream_config(stream: Mapping[str, Any]) -> StreamConfig:
    values = dict(stream)
    for name in ("row_count", "column_count"):
        if name in values:
            values[name] = int(values[name])
    if values["format"] == "rows":
        values.setdefault("column_count", DEFAULT_COLUMN_COUNT)
    if isinstance(values.get("path"), list):
        values["path"] = tuple(values["path"])
    values["key_properties"] = tuple(values["key_properties"])
    values["options"] = text_values(values["options"])
    return StreamConfig(**values)


def stream_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Cross-field rules of `streams`."""
    streams = settings.get("streams")
    seen: dict[str, int] = {}
    for index, stream in enumerate(streams if isinstance(streams, list) else ()):
        if not isinstance(stream, Mapping):
            continue
        for rule in STREAM_RULES:
            yield from (Problem(("streams", index, key), text) for key, text in rule(stream))
        name = stream.get("name")
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            text = f"{name!r} is the name of config['streams'][{seen[name]}] too"
            yield Problem(("streams", index, "name"), text)


StreamRule = Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]]


def _place_of_rows(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    if kind in FILE_FORMATS and "path" not in stream:
        yield "path", f"is required for the format {kind!r}"
    if kind == "rows" and "row_count" not in stream:
        yield "row_count", "is required for the format 'rows'"


def _fields_of_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    if kind is None or kind is INVALID:
        return
    only_for = {
        "path": FILE_FORMATS,
        "options": FILE_FORMATS,
        "schema": FILE_FORMATS,
        "records_path": ("json",),
        "row_count": ("rows",),
        "column_count": ("rows",),
    }
    for name, formats in only_for.items():
        if name in stream and kind not in formats:
            yield name, f"has no meaning for the format {kind!r}; leave it out"


def _replication(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    method, has_key = stream.get("replication_method"), "replication_key" in stream
    if method == "FULL_TABLE" and has_key:
        yield "replication_key", "is not used by FULL_TABLE; leave one of the two out"
    if method == "INCREMENTAL" and not has_key and stream.get("format") == "rows":
        yield "replication_key", "is required for INCREMENTAL with the format 'rows'"
    if stream.get("sort_by_replication_key") is True and not has_key:
        yield "sort_by_replication_key", "needs a 'replication_key'"


STREAM_RULES: tuple[StreamRule, ...] = (_place_of_rows, _fields_of_format, _replication)


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
    rules=(stream_problems, start_date_problems, spark_problems, settings_rule("tap")),
    capabilities=(
        "catalog",
        "state",
        "discover",
        "test",
        "about",
        "batch",
        "activate-version",
        "structured-logging",
    ),
)
