"""One item of the setting `streams`: its JSON Schema, the rules inside it, and the typed result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.settings_check import INVALID, Problem, nearest
from shared.spark_settings import text_values
from tap_spark.connection_config import ConnectionConfig

FILE_FORMATS = ("csv", "json", "parquet", "orc", "text", "avro", "xml")
LOG_FORMATS = ("delta", "iceberg")
FORMATS = (*FILE_FORMATS, *LOG_FORMATS, "jdbc", "table", "sql", "rows")
METHODS = ("FULL_TABLE", "INCREMENTAL", "LOG_BASED")
DEFAULT_COLUMN_COUNT = 10
PYTHON_SOURCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")

PLACES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(FILE_FORMATS, ("path",)),
    "delta": ("path", "table"),
    "iceberg": ("path", "table"),
    "jdbc": ("table", "query"),
    "table": ("table",),
    "sql": ("query",),
    "rows": ("row_count",),
}
"""For each format the fields that say where to read, exactly one of which is needed."""


@dataclass(frozen=True)
class StreamConfig:
    """One item of `streams`.

    Attributes:
        name: Name of the stream.
        format: A key of the registry of sources, or an importable Spark DataSource class.
        path: File, folder or glob, or several; None where the format takes none.
        table: Table name, its parts quoted where they need it; see `shared.table_names`.
        query: One statement that reads.
        connection: Name of an item of `connections`.
        database: That item.
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
    table: str | None = None
    query: str | None = None
    connection: str | None = None
    database: ConnectionConfig | None = None
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

    @property
    def is_python_source(self) -> bool:
        """Whether the format names a Spark DataSource class."""
        return is_python_source(self.format)


def is_python_source(text: object) -> bool:
    """Whether a format names an importable class (`package.module.Class`)."""
    return isinstance(text, str) and PYTHON_SOURCE.fullmatch(text) is not None


_NAME = {"type": "string", "minLength": 1}

STREAM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "format"],
    "properties": {
        "name": {**_NAME, "description": "Name of the stream.", "examples": ["orders"]},
        "format": {
            **_NAME,
            "description": "What is read: " + ", ".join(f"`{name}`" for name in FORMATS) + "; or "
            "`package.module.Class`, an importable Spark DataSource.",
            "examples": ["csv", "jdbc", "my_sources.weather.WeatherSource"],
        },
        "path": {
            "type": ["string", "array"],
            "items": _NAME,
            "minLength": 1,
            "minItems": 1,
            "description": "File, folder or glob, or a list of them. For files, and for `delta` "
            "and `iceberg` tables outside of a catalog.",
            "examples": ["data/*.csv", ["2025/", "2026/"]],
        },
        "table": {
            **_NAME,
            "description": "Table or view: of the connection (`jdbc`), or of a Spark catalog "
            "(`table`, `delta`, `iceberg`). Quote parts that hold dots or upper case.",
            "examples": ["public.orders", 'sales."Order Lines"', "lake.db.events"],
        },
        "query": {
            **_NAME,
            "description": "One statement that reads: in the database's words (`jdbc`) or in "
            "Spark's (`sql`).",
            "examples": ["SELECT id, total FROM orders WHERE total > 0"],
        },
        "connection": {
            **_NAME,
            "description": "Name of the item of `connections` to read from. Only for `jdbc`; the "
            "only connection with a url where not set.",
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
            "`INCREMENTAL` without a replication key resumes files by file and line. `LOG_BASED` "
            "reads the changes of `delta` and `iceberg` tables, deletes included.",
        },
        "sort_by_replication_key": {
            "type": "boolean",
            "default": False,
            "description": "Sort by the replication key, so that a long run that is cut can "
            "resume inside the stream.",
        },
    },
}


def stream_config(
    stream: Mapping[str, Any], connections: Sequence[ConnectionConfig] = ()
) -> StreamConfig:
    """Give a validated item of `streams` its typed form.

    Args:
        stream: The item.
        connections: Those of the settings.
    """
    values = dict(stream)
    if values["format"] == "jdbc":
        databases = [item for item in connections if item.url is not None]
        wanted = values.get("connection", databases[0].name)
        values["connection"] = wanted
        values["database"] = next(item for item in databases if item.name == wanted)
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


def _known_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    if not isinstance(kind, str) or kind in FORMATS or is_python_source(kind):
        return
    match = nearest(kind, FORMATS)
    hint = f"; did you mean {match!r}?" if match else ", nor package.module.Class"
    yield "format", f"{kind!r} is not one of {', '.join(map(repr, FORMATS))}{hint}"


def _place_of_rows(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    places = PLACES.get(kind, ()) if isinstance(kind, str) else ()
    given = [name for name in places if name in stream]
    if places and not given:
        others = " (or " + " or ".join(map(repr, places[1:])) + ")" if places[1:] else ""
        yield places[0], f"is required for the format {kind!r}{others}"
    if len(given) > 1:
        yield given[1], f"excludes {given[0]!r}; give one of them"


def _fields_of_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    if kind is None or kind is INVALID or not (kind in FORMATS or is_python_source(kind)):
        return
    readers = (*FILE_FORMATS, *LOG_FORMATS, "jdbc")
    only_for = {
        "path": (*FILE_FORMATS, *LOG_FORMATS),
        "table": (*LOG_FORMATS, "jdbc", "table"),
        "query": ("jdbc", "sql"),
        "connection": ("jdbc",),
        "options": (*readers, "table"),
        "schema": FILE_FORMATS,
        "records_path": ("json",),
        "row_count": ("rows",),
        "column_count": ("rows",),
    }
    free = ("path", "options", "schema") if is_python_source(kind) else ()
    for name, formats in only_for.items():
        if name in stream and kind not in formats and name not in free:
            yield name, f"has no meaning for the format {kind!r}; leave it out"


def _replication(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    method, has_key = stream.get("replication_method"), "replication_key" in stream
    kind = stream.get("format")
    if method in ("FULL_TABLE", "LOG_BASED") and has_key:
        yield "replication_key", f"is not used by {method}; leave one of the two out"
    if method == "LOG_BASED" and kind not in LOG_FORMATS and kind in FORMATS:
        yield "replication_method", f"the format {kind!r} has no log of changes"
    if method == "INCREMENTAL" and not has_key and kind not in FILE_FORMATS:
        yield "replication_key", f"is required for INCREMENTAL with the format {kind!r}"
    if stream.get("sort_by_replication_key") is True and not has_key:
        yield "sort_by_replication_key", "needs a 'replication_key'"


STREAM_RULES: tuple[StreamRule, ...] = (
    _known_format,
    _place_of_rows,
    _fields_of_format,
    _replication,
)
