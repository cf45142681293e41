"""Settings of one stream: the general ones, overridden by those of its patterns."""

from __future__ import annotations

import re
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from shared.errors import MessageError, Where
from target_spark.core.load_plans import Layout, StreamSchema, TableName, TableRequest
from target_spark.table_settings import LoadSettings, StreamSettings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from target_spark.config import TargetConfig

_PLACE = re.compile(r"\{(stream|schema|table)\}")


def stream_settings(config: TargetConfig, stream: str) -> StreamSettings:
    """Return the settings of a stream: the general ones, overridden by those of its patterns."""
    values = {field.name: getattr(config, field.name) for field in fields(LoadSettings)}
    for pattern, given in config.streams.items():
        if fnmatchcase(stream, pattern):
            values |= given
    return StreamSettings(**values)


def load_method(config: TargetConfig, stream: str) -> str:
    """Return the load method of a stream: `append-only`, `upsert` or `overwrite`."""
    return stream_settings(config, stream).load_method


def table_name(config: TargetConfig, stream: str) -> TableName:
    """Return the table of a stream: with prefix, schema and the names of its patterns."""
    own = stream_settings(config, stream)
    return TableName(
        table=config.table_prefix + _filled(own.table, stream),
        schema=config.default_target_schema if own.schema is None else _filled(own.schema, stream),
    )


def key_properties(config: TargetConfig, schema: StreamSchema) -> tuple[str, ...]:
    """Return the key properties of a stream: those of the settings, else of its SCHEMA."""
    given = stream_settings(config, schema.stream).key_properties
    return schema.key_properties if given is None else given


def table_request(config: TargetConfig, schema: StreamSchema, struct: StructType) -> TableRequest:
    """Return the request of a stream for its table.

    Args:
        config: The settings.
        schema: The stream's last SCHEMA.
        struct: Its columns as stored.

    Raises:
        MessageError: The load method is `upsert`, and the key is missing or is not a property.
    """
    stream = schema.stream
    own = stream_settings(config, stream)
    keys = key_properties(config, schema)
    _check_keys(stream, keys, struct, own.load_method)
    layout = Layout(
        partition_by=own.partition_by,
        cluster_by=own.cluster_by,
        target_file_bytes=own.target_file_bytes,
        properties=own.table_properties,
        compact=own.compact,
    )
    return TableRequest(
        stream=stream,
        struct=struct,
        name=table_name(config, stream),
        keys=tuple(key for key in keys if key in struct.names),
        method=own.load_method,
        schema=schema.schema,
        layout=layout,
        hard_delete=own.hard_delete,
    )


def _check_keys(stream: str, keys: tuple[str, ...], struct: StructType, method: str) -> None:
    if method != "upsert":
        return
    if not keys:
        raise MessageError(
            "'upsert' needs key properties, but the SCHEMA does not have any",
            where=Where(stream=stream),
            hint="set `streams.<pattern>.key_properties`, or another `load_method` for the stream",
        )
    for key in keys:
        if key not in struct.names:
            raise MessageError(
                f"the key property '{key}' is not a property of the SCHEMA",
                where=Where(stream=stream),
            )


def _filled(template: str, stream: str) -> str:
    schema, _, table = stream.rpartition("-")
    parts = {"stream": stream, "schema": schema, "table": table}
    return _PLACE.sub(lambda found: parts[found[1]], template)
