"""Settings of tap-spark: their JSON Schema, the rules between them, and the typed result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from shared.batch_config import is_batch_key, settings_properties, settings_rule, validate
from shared.encodings.encoding_format import declared_encodings
from shared.engine.engine import EngineSettings
from shared.formats.date_numbers import parse_moment
from shared.maps.map_settings import (
    NO_TRANSFORMS,
    TransformSettings,
    supplied_transforms,
    transform_problems,
)
from shared.maps.map_settings import PROPERTIES as TRANSFORMS
from shared.settings.about import Program
from shared.settings.batch_settings import BatchConfig
from shared.settings.checking import Problem, complete_settings, nearest
from shared.settings.kinds import (
    ANY_TEXT,
    PLACE,
    POSITIVE,
    Schema,
    at_least,
    group,
    one_of,
    schema_of,
    setting,
    typed,
)
from shared.settings.loading import OTHER_VARIABLES
from shared.singer.run_summary import OpenLineageSettings, OpenTelemetrySettings
from shared.spark.conf import SparkSettings, spark_problems
from shared.spark.packages import KAFKA, LAKES, Need, with_needs
from tap_spark.sources.formats import DECLARED_FORMATS, FORMATS, SOURCES, source_format
from tap_spark.sources.source_declaration import (
    GENERAL,
    NOT_RESUMED,
    SourceFormat,
    option_problems,
)
from tap_spark.sources.tables import name_parts
from tap_spark.stream_config import (
    KINDS,
    ConnectionConfig,
    StreamConfig,
    connection_problems,
    is_python_source,
)


def _format_text() -> str:
    added = DECLARED_FORMATS.packages
    names = ", ".join(f"`{name}`" for name in FORMATS if name not in added)
    text = f"What is read: {names}; or `package.module.Class`, an importable Spark DataSource."
    return " ".join((text, *(_added_text(SOURCES[name], added[name]) for name in added)))


def _added_text(form: SourceFormat, package: str) -> str:
    what = form.description.rstrip(".") or "a format"
    fields = ", ".join(f"`{name}`" for name in form.fields) or "nothing further"
    return f"`{form.name}` (of {package}): {what}; takes {fields}."


def _own(*, files: bool) -> dict[str, Any]:
    """Return the settings that formats declare: of file formats, or of the others."""
    return {
        name: schema
        for form in SOURCES.values()
        if ("path" in form.places) == files
        for name, schema in form.settings.items()
    }


def _stream_schema() -> Schema:
    schema = schema_of(StreamConfig)
    own_before = {"options": _own(files=False), "key_properties": _own(files=True)}
    properties: dict[str, Schema] = {}
    for name, declared in schema["properties"].items():
        properties |= {**own_before.get(name, {}), name: declared}
    properties["format"] = {**properties["format"], "description": _format_text()}
    return {**schema, "properties": properties}


STREAM_SCHEMA = _stream_schema()


def stream_config(
    stream: Mapping[str, Any], connections: Sequence[ConnectionConfig] = ()
) -> StreamConfig:
    """Turn a validated item of `streams` into its typed form.

    Raises:
        ValueError: The item was not validated.
    """
    form = source_format(stream["format"])
    if form is None:
        raise ValueError(f"unknown format {stream['format']!r}")
    own = {name: value for name, value in stream.items() if name in form.settings}
    config = replace(typed(StreamConfig, stream), own=form.typed(own))
    if form.name in SOURCES:
        config = replace(config, format=form.name)
    if form.default_method and not (config.replication_method or config.replication_key):
        config = replace(config, replication_method=form.default_method)
    if "connection" in form.takes:
        databases = [item for item in connections if getattr(item, form.connects) is not None]
        wanted = config.connection or databases[0].name
        database = next(item for item in databases if item.name == wanted)
        config = replace(config, connection=wanted, database=database)
    return config


DECLARED = frozenset(STREAM_SCHEMA["properties"])
"""Every setting of a stream; the schema reports others as unknown."""


def stream_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the rules between settings of `streams`, and what else streams need."""
    streams = settings.get("streams")
    seen: dict[str, int] = {}
    for index, stream in enumerate(streams if isinstance(streams, list) else ()):
        if not isinstance(stream, Mapping):
            continue
        for key, text in chain(_by_format(stream), _place_of_rows(stream), _replication(stream)):
            yield Problem(("streams", index, key), text)
        for option, text in _reader_options(stream) if "options" in stream else ():
            yield Problem(("streams", index, "options", option), text)
        form = source_format(stream.get("format"))
        if form is not None and "connection" in form.takes:
            connections = settings.get("connections")
            for text in _unknown_connection(form.connects, stream, connections):
                yield Problem(("streams", index, "connection"), text)
        name = stream.get("name")
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            text = f"{name!r} is already the name of config['streams'][{seen[name]}]"
            yield Problem(("streams", index, "name"), text)
    if "start_date" in settings:
        yield from start_date_problems(settings)


def _unknown_connection(kind: str, stream: Mapping[str, Any], connections: object) -> Iterator[str]:
    items = connections if isinstance(connections, list) else []
    name = stream.get("connection")
    names = [i.get("name") for i in items if isinstance(i, Mapping) and kind in i]
    if "connection" not in stream and len(names) != 1:
        what = "several" if names else "none"
        yield f"is required: 'connections' has {what} with {KINDS[kind]}"
    elif isinstance(name, str) and name not in names:
        yield f"{name!r} is not a connection with {KINDS[kind]}; known: {names or 'none'}"


def _by_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Check what the declaration of the format says of the other settings."""
    kind, options = stream.get("format"), stream.get("options")
    form = source_format(kind)
    if form is None:
        if isinstance(kind, str):
            match = nearest(kind, FORMATS)
            hint = f"; did you mean {match!r}?" if match else ", nor package.module.Class"
            yield "format", f"{kind!r} is not one of {', '.join(map(repr, FORMATS))}{hint}"
        return
    allowed = {*GENERAL, *form.fields}
    for name in stream:
        if name in DECLARED and name not in allowed:
            yield name, f"does not apply to the format {kind!r}; remove it"
    for name in form.required:
        if name not in stream:
            yield name, f"is required for the format {kind!r}"
    names = {name.lower() for name in options} if isinstance(options, Mapping) else set()
    for option, what in form.required_options.items():
        if option.lower() not in names:
            yield "options", f"{option!r} is required for the format {kind!r}: {what}"
    for rule in form.rules:
        yield from rule(stream)


def _place_of_rows(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    form = source_format(kind)
    places = form.places if form else ()
    present = [name for name in places if name in stream]
    if places and not present:
        others = " (or " + " or ".join(map(repr, places[1:])) + ")" if places[1:] else ""
        yield places[0], f"is required for the format {kind!r}{others}"
    if len(present) > 1:
        yield present[1], f"excludes {present[0]!r}; give one of them"
    table = stream.get("table")
    if isinstance(table, str) and table:
        try:
            name_parts(table)
        except ValueError as error:
            yield "table", f"{error}; quote its parts if they need it"


def _replication(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    method, has_key = stream.get("replication_method"), "replication_key" in stream
    kind = stream.get("format")
    form = source_format(kind)
    if method in ("FULL_TABLE", "LOG_BASED") and has_key:
        yield "replication_key", f"is not used by {method}; remove one of the two"
    if method == "LOG_BASED" and form and not form.has_log and not is_python_source(kind):
        yield "replication_method", f"the format {kind!r} has no log of changes"
    resumes = form is not None and form.resumes
    if method == "INCREMENTAL" and not has_key and isinstance(kind, str) and not resumes:
        yield "replication_key", f"is required for INCREMENTAL with the format {kind!r}"
    if "end_date" in stream and not has_key:
        yield "end_date", "needs a 'replication_key', which it bounds; add one, or remove it"
    if "deletes" in stream and not has_key:
        yield "deletes", "needs a 'replication_key'; other methods replicate deletes, or all rows"
    if stream.get("deletes_every", 1) != 1 and "deletes" not in stream:
        yield "deletes_every", "needs 'deletes'"
    if stream.get("sort_by_replication_key") is True and not has_key:
        yield "sort_by_replication_key", "needs a 'replication_key'"


def _reader_options(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind, options = stream.get("format"), stream.get("options")
    if not isinstance(kind, str) or not isinstance(options, Mapping):
        return
    form = source_format(kind)
    yield from option_problems(kind, form.options if form else None, options)
    resumed = stream.get("replication_method") == "INCREMENTAL" and "replication_key" not in stream
    if resumed and form and form.resumes:
        refused = {name.lower() for name in NOT_RESUMED}
        for name in options:
            if name.lower() in refused:
                text = "cannot be used if files are resumed by file and line; use a glob"
                yield name, f"{text} in 'path' instead"


MIB = 1024 * 1024

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpoolSettings:
    """Lines on disk, between the executors and standard output."""

    root: str | None = setting(PLACE, "Folder; the system's temporary folder if not set.")
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
        "Lower bound of replication keys that are dates or times, also as text of files, without a "
        "bookmark (inclusive; UTC if it has no offset).",
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
    transforms: TransformSettings = NO_TRANSFORMS


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
    DECLARED_FORMATS.check()
    declared_encodings().check()
    complete = complete_settings(PROGRAM.schema, settings, PROGRAM.rules)
    batch = None
    if any(map(is_batch_key, settings)):
        block = {key: value for key, value in complete.items() if is_batch_key(key)}
        checked = validate(block, "tap").check()
        batch = checked.batch_config
        for text in checked.warnings:
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
        batch=batch,
        transforms=supplied_transforms(settings, complete),
    )


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
        parse_moment(text, "timestamp")
    except ValueError:
        yield Problem(("start_date",), f"{text!r} is not an ISO 8601 date or timestamp")


PROGRAM = Program(
    name="tap-spark",
    description="Singer tap that reads files, tables and databases with Apache Spark.",
    schema=SETTINGS_SCHEMA,
    rules=(
        stream_problems,
        connection_problems,
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
