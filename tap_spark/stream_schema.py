"""Settings of a stream: their JSON Schema, from the declared formats, and the typed result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.settings.checking import text_values
from tap_spark.connection_config import ConnectionConfig
from tap_spark.sources.source_declaration import SourceFormat
from tap_spark.sources.source_registry import FORMATS, SOURCES, added_formats, source_format
from tap_spark.stream_config import StreamConfig

METHODS = ("FULL_TABLE", "INCREMENTAL", "LOG_BASED")

_NAME = {"type": "string", "minLength": 1}


def _format_text() -> str:
    added = added_formats()
    names = ", ".join(f"`{name}`" for name in FORMATS if name not in added)
    text = f"What is read: {names}; or `package.module.Class`, an importable Spark DataSource."
    return " ".join((text, *(_added_text(SOURCES[name], added[name]) for name in added)))


def _added_text(form: SourceFormat, package: str) -> str:
    what = form.description.rstrip(".") or "a format"
    fields = ", ".join(f"`{name}`" for name in form.fields) or "nothing further"
    return f"`{form.name}` (of {package}): {what}; takes {fields}."


_PLACES: dict[str, Any] = {
    "path": {
        "type": ["string", "array"],
        "items": _NAME,
        "minLength": 1,
        "minItems": 1,
        "description": "File, folder or glob, or a list of them. For files, and for `delta` "
        "and `iceberg` tables outside a catalog.",
        "examples": ["data/*.csv", ["2025/", "2026/"]],
    },
    "table": {
        **_NAME,
        "description": "Table or view: of the connection (`jdbc`), or of a Spark catalog "
        "(`table`, `delta`, `iceberg`). Quote parts with dots or upper case.",
        "examples": ["public.orders", 'sales."Order Lines"', "lake.db.events"],
    },
    "query": {
        **_NAME,
        "description": "One statement that only reads, in the database's SQL (`jdbc`) or in "
        "Spark's (`sql`).",
        "examples": ["SELECT id, total FROM orders WHERE total > 0"],
    },
    "connection": {
        **_NAME,
        "description": "Name of the item of `connections` to read from. Only for `jdbc`; by "
        "default the only connection with a url.",
    },
}
_READING: dict[str, Any] = {
    "options": {
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean"], "secret": True},
        "default": {},
        "description": "Options of Spark's reader for the format, or of a Spark DataSource "
        "class. Names that the reader does not know are rejected, except those with a "
        "dot (`fs.s3a.endpoint`).",
        "examples": [{"header": True, "sep": ";"}],
    },
    "schema": {
        **_NAME,
        "description": "Columns and types in Spark DDL; inferred from the data if not set.",
        "examples": ["id BIGINT, name STRING"],
    },
}
_REPLICATION: dict[str, Any] = {
    "key_properties": {
        "type": "array",
        "items": _NAME,
        "uniqueItems": True,
        "default": [],
        "description": "Columns of the primary key.",
    },
    "replication_key": {
        **_NAME,
        "description": "Column whose greatest value is the bookmark.",
        "examples": ["updated_at"],
    },
    "replication_method": {
        "type": "string",
        "enum": list(METHODS),
        "description": "`INCREMENTAL` if `replication_key` is set, else `FULL_TABLE`. "
        "`INCREMENTAL` without a replication key resumes files by file and line. `LOG_BASED` "
        "reads the changes of `delta` and `iceberg` tables, deletes included.",
    },
    "sort_by_replication_key": {
        "type": "boolean",
        "default": False,
        "description": "Sort by the replication key, so that an interrupted run can resume inside "
        "the stream.",
    },
    "read_unterminated_line": {
        "type": "boolean",
        "default": False,
        "description": "`INCREMENTAL` reads a last line without line end at once, instead of "
        "waiting for its line end. For files that never get one. Only for `csv`, `text` and "
        "`fixed_width`: a last line of `json` is read as soon as it is complete.",
    },
}


def _own(*, files: bool) -> dict[str, Any]:
    """Return the settings that formats declare: of file formats, or of the others."""
    return {
        name: schema
        for form in SOURCES.values()
        if ("path" in form.places) == files
        for name, schema in form.settings.items()
    }


STREAM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "format"],
    "properties": {
        "name": {**_NAME, "description": "Name of the stream.", "examples": ["orders"]},
        "format": {
            **_NAME,
            "description": _format_text(),
            "examples": ["csv", "jdbc", "my_sources.weather.WeatherSource"],
        },
        **_PLACES,
        **_own(files=False),
        **_READING,
        **_own(files=True),
        **_REPLICATION,
    },
}


def stream_config(
    stream: Mapping[str, Any], connections: Sequence[ConnectionConfig] = ()
) -> StreamConfig:
    """Turn a validated item of `streams` into its typed form.

    Args:
        stream: The item.
        connections: The connections of the settings.

    Raises:
        ValueError: The item was not validated.
    """
    form = source_format(stream["format"])
    if form is None:
        raise ValueError(f"unknown format {stream['format']!r}")
    own = {name: value for name, value in stream.items() if name in form.settings}
    values = {name: value for name, value in stream.items() if name not in own}
    if form.name in SOURCES:
        values["format"] = form.name
    if "connection" in form.takes:
        databases = [item for item in connections if item.url is not None]
        wanted = values.get("connection", databases[0].name)
        values["connection"] = wanted
        values["database"] = next(item for item in databases if item.name == wanted)
    if isinstance(values.get("path"), list):
        values["path"] = tuple(values["path"])
    values["key_properties"] = tuple(values["key_properties"])
    values["options"] = text_values(values["options"])
    return StreamConfig(**values, own=form.typed(own))
