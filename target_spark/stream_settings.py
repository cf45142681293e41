"""Settings of one stream: the general ones, overridden by those of its patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shared.errors import MessageError, Where
from shared.settings.checking import text_values
from target_spark.core.load_plans import Layout, StreamSchema, TableName, TableRequest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from target_spark.config import TargetConfig

_PLACE = re.compile(r"\{(stream|schema|table)\}")


def load_method(config: TargetConfig, stream: str) -> str:
    """Return the load method of a stream: `append-only`, `upsert` or `overwrite`."""
    return str(_rules(config, stream).get("load_method", config.load_method))


def hard_delete(config: TargetConfig, stream: str) -> bool:
    """Return whether rows of a stream are removed instead of being marked."""
    return bool(_rules(config, stream).get("hard_delete", config.hard_delete))


def table_name(config: TargetConfig, stream: str) -> TableName:
    """Return the table of a stream: with prefix, schema and the names of its patterns."""
    rules = _rules(config, stream)
    schema, table = rules.get("schema"), rules.get("table", "{stream}")
    return TableName(
        table=config.table_prefix + _filled(table, stream),
        schema=config.default_target_schema if schema is None else _filled(schema, stream),
    )


def key_properties(config: TargetConfig, schema: StreamSchema) -> tuple[str, ...]:
    """Return the key properties of a stream: those of the settings, else of its SCHEMA."""
    return tuple(_rules(config, schema.stream).get("key_properties", schema.key_properties))


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
    rules = _rules(config, stream)
    keys = key_properties(config, schema)
    method = load_method(config, stream)
    _check_keys(stream, keys, struct, method)
    properties = rules.get("table_properties")
    layout = Layout(
        partition_by=tuple(rules.get("partition_by", config.partition_by)),
        cluster_by=tuple(rules.get("cluster_by", config.cluster_by)),
        target_file_bytes=rules.get("target_file_bytes", config.target_file_bytes),
        properties=config.table_properties if properties is None else text_values(properties),
        compact=bool(rules.get("compact", config.compact)),
    )
    return TableRequest(
        stream=stream,
        struct=struct,
        name=table_name(config, stream),
        keys=tuple(key for key in keys if key in struct.names),
        method=method,
        schema=schema.schema,
        layout=layout,
        hard_delete=hard_delete(config, stream),
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


def _rules(config: TargetConfig, stream: str) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for rule in config.streams:
        if rule.applies(stream):
            found |= rule.values
    return found


def _filled(template: str, stream: str) -> str:
    schema, _, table = stream.rpartition("-")
    parts = {"stream": stream, "schema": schema, "table": table}
    return _PLACE.sub(lambda found: parts[found[1]], template)
