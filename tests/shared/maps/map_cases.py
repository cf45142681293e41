"""What the tests of maps share: streams, and the way from settings to outputs."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812
from singer_sdk.mapper import PluginMapper

from shared.formats.arrow_types import as_nullable
from shared.formats.json_lines import LineReader
from shared.formats.record_text import record_json
from shared.formats.schema_nodes import json_schema_to_spark
from shared.maps.expressions.syntax import ERROR
from shared.maps.map_settings import (
    PROPERTIES,
    TransformSettings,
    transform_problems,
    transform_settings,
)
from shared.maps.stream_maps import StreamOutput, outputs
from shared.settings.checking import complete_settings

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": PROPERTIES,
    "additionalProperties": False,
}

TEXT = {"type": ["string", "null"]}
INTEGER = {"type": ["integer", "null"]}
ORDERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"], "maxLength": 50},
        "email": TEXT,
        "price": {"type": ["number", "null"]},
        "customer": {
            "type": ["object", "null"],
            "properties": {
                "email": {"type": "string"},
                "address": {"type": "object", "properties": {"city": TEXT, "zip": INTEGER}},
            },
            "required": ["email", "address"],
        },
        "tags": {"type": ["array", "null"], "items": TEXT},
    },
    "required": ["id", "name"],
}


def settings(stream_maps: Mapping[str, Any] | None = None, **values: Any) -> TransformSettings:
    """Return settings as the programs read them."""
    supplied = {"stream_maps": dict(stream_maps or {}), **values}
    return transform_settings(complete_settings(SCHEMA, supplied, (transform_problems,)))


def flat(depth: int, **values: Any) -> dict[str, Any]:
    """Return settings that flatten."""
    return {"flattening_enabled": True, "flattening_max_depth": depth, **values}


def planned(
    stream_maps: Mapping[str, Any] | None = None,
    schema: Mapping[str, Any] = ORDERS,
    keys: Sequence[str] = ("id",),
    stream: str = "orders",
    **values: Any,
) -> tuple[StreamOutput, ...]:
    """Return the outputs of a stream as a target sees it."""
    struct = json_schema_to_spark(schema)
    return outputs(settings(stream_maps, **values), stream, schema, struct, keys)


def by_sdk(
    stream_maps: Mapping[str, Any],
    schema: Mapping[str, Any] = ORDERS,
    keys: Sequence[str] = ("id",),
    stream: str = "orders",
    **values: Any,
) -> list[Any]:
    """Return the SDK's mappers of a stream."""
    supplied: Any = {"stream_maps": copy.deepcopy(dict(stream_maps)), **values}
    mapper = PluginMapper(supplied, logging.getLogger("sdk"))
    mapper.register_raw_stream_schema(stream, copy.deepcopy(dict(schema)), list(keys))
    return mapper.stream_maps[stream]


def names(output: StreamOutput) -> list[str]:
    """Return the properties of an output."""
    return list(output.schema["properties"])


def without_null(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema node without null among its types."""
    types = node.get("type", [])
    types = [types] if isinstance(types, str) else list(types)
    plain = sorted(name for name in types if name != "null")
    return {**node, "type": plain}


def fields(struct: T.StructType) -> dict[str, T.DataType]:
    """Return the types of a struct's fields."""
    return {field.name: field.dataType for field in struct}


def mapped(
    spark: SparkSession, output: StreamOutput, schema: Mapping[str, Any], records: list[Any]
) -> list[dict[str, Any]]:
    """Return the records of an output, through the target's reader and the tap's JSON."""
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    read = LineReader(schema, envelope=False, strict=True).read(lines)
    assert not read.rejects
    frame = spark.createDataFrame(read.table, as_nullable(json_schema_to_spark(schema)))
    struct = json_schema_to_spark(output.schema)
    if output.transform is not None:
        frame = output.transform.apply(frame)
        assert output.transform.struct() == struct
        assert ERROR in frame.columns
    return [json.loads(row[0]) for row in frame.select(record_json(struct)).collect()]


def plain(value: Any) -> Any:
    """Return a value without what the two may write differently: nulls, and JSON inside texts."""
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except ValueError:
            return value
        return plain(inner) if isinstance(inner, dict | list) else value
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if part is not None}
    return [plain(part) for part in value] if isinstance(value, list) else value
