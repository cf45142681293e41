"""One item of the setting `streams`: its JSON Schema, and the typed result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.settings_check import text_values
from tap_spark.connection_config import ConnectionConfig

FILE_FORMATS = ("csv", "json", "parquet", "orc", "text", "avro", "xml", "fixed_width")
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
class FixedColumn:
    """Where a column of a fixed-width file lies.

    Attributes:
        name: Name of the column.
        start: Its first character; a line begins with 1.
        length: How many characters it has.
    """

    name: str
    start: int
    length: int


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
        columns: Where the columns lie (`fixed_width`).
        key_properties: Primary key.
        replication_key: Column the bookmark is taken from.
        replication_method: What the user asked for; None lets planning decide.
        sort_by_replication_key: Sort the source, so that STATE can go out inside the stream.
        read_unterminated_line: INCREMENTAL reads a last line without line end at once.
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
    columns: tuple[FixedColumn, ...] = ()
    key_properties: tuple[str, ...] = ()
    replication_key: str | None = None
    replication_method: str | None = None
    sort_by_replication_key: bool = False
    read_unterminated_line: bool = False

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
            "description": "Options of Spark's reader for the format, or of a Spark DataSource "
            "class. Names that the reader does not know are refused, but those with a dot "
            "(`fs.s3a.endpoint`) pass.",
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
        "columns": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "length"],
                "properties": {
                    "name": {**_NAME, "description": "Name of the column."},
                    "start": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Its first character; a line begins with 1. Where not set, "
                        "it follows the column before.",
                    },
                    "length": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "How many characters it has.",
                    },
                },
            },
            "description": "Where the columns lie in a line. Only, and required, for "
            "`fixed_width`.",
            "examples": [
                [{"name": "id", "length": 8}, {"name": "city", "start": 11, "length": 20}]
            ],
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
        "read_unterminated_line": {
            "type": "boolean",
            "default": False,
            "description": "`INCREMENTAL` reads a last line without line end at once, instead of "
            "waiting for its end. For files that never get one. Only for `csv`, `text` and "
            "`fixed_width`: a last line of `json` is read as soon as it is complete.",
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
    if "columns" in values:
        values["columns"] = _placed(values["columns"])
    values["key_properties"] = tuple(values["key_properties"])
    values["options"] = text_values(values["options"])
    return StreamConfig(**values)


def _placed(columns: Sequence[Mapping[str, Any]]) -> tuple[FixedColumn, ...]:
    placed: list[FixedColumn] = []
    following = 1
    for column in columns:
        start, length = int(column.get("start", following)), int(column["length"])
        placed.append(FixedColumn(column["name"], start, length))
        following = start + length
    return tuple(placed)
