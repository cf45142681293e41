"""Settings of a stream: their JSON Schema, from the declared formats, and the typed result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shared.settings.kinds import Schema, schema_of, typed
from tap_spark.connection_config import ConnectionConfig
from tap_spark.sources.source_declaration import SourceFormat
from tap_spark.sources.source_registry import FORMATS, SOURCES, added_formats, source_format
from tap_spark.stream_config import StreamConfig


def _format_text() -> str:
    added = added_formats()
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
