"""The type table: Spark types to JSON Schema and back, exactly.

| Spark                        | JSON Schema (nullable adds "null" to `type`)        | hint       |
| ---------------------------- | --------------------------------------------------- | ---------- |
| byte, short, int, long       | integer with the width's `minimum` and `maximum`    |            |
| decimal(p,0)                 | integer with its `minimum` and `maximum`            | decimal    |
| decimal(p,s)                 | number                                              | decimal    |
| double / float               | number                                              | - / float  |
| string / char(n), varchar(n) | string / string with `maxLength`                    | - / itself |
| binary                       | string, `contentEncoding` base64                    |            |
| boolean, void                | boolean, null                                       |            |
| date, timestamp              | string, `format` date, date-time                    |            |
| timestamp_ntz                | string, `format` date-time                          | itself     |
| time(p)                      | string, `format` time                               | itself     |
| intervals                    | string, `format` duration                           | itself     |
| variant                      | every type                                          | itself     |
| struct                       | object with `properties`, `required` (non-nullable) |            |
| array, map<string,T>         | array with `items`, object, `additionalProperties`  |            |
| map<K,T>                     | as above, `propertyNames` of type string            | K's schema |

The hint (`x-spark-type`) only refines what the standard keywords already say, so a reader that
does not know it loads the data correctly too. Decimals carry no `multipleOf`: validators that read
JSON numbers as floats would reject 1.1 as a multiple of 0.01. JSON lacks NaN and infinity: they
are the strings "NaN", "Infinity" and "-Infinity" in columns of type number (as Spark and
Jackson write them), so the schema of ordinary data stays a plain number for every other target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shared.releases.spark_types import T
from shared.types.arrow_types import struct_to_arrow
from shared.types.merge_types import merge_structs
from shared.types.schema_nodes import FREE_FORM_COLUMN, json_schema_to_spark
from shared.types.type_hints import HINT, INTEGER_WIDTHS, decimal_bounds, hint_of

__all__ = [
    "FREE_FORM_COLUMN",
    "HINT",
    "json_schema_to_spark",
    "merge_structs",
    "spark_to_json_schema",
    "spark_type_to_json_schema",
    "struct_to_arrow",
]

_PLAIN: dict[type[T.DataType], dict[str, Any]] = {
    T.DoubleType: {"type": "number"},
    T.BinaryType: {"type": "string", "contentEncoding": "base64"},
    T.BooleanType: {"type": "boolean"},
    T.DateType: {"type": "string", "format": "date"},
    T.TimestampType: {"type": "string", "format": "date-time"},
}
_HINTED: dict[type[T.DataType], dict[str, Any]] = {
    T.FloatType: {"type": "number"},
    T.TimestampNTZType: {"type": "string", "format": "date-time"},
    T.TimeType: {"type": "string", "format": "time"},
    T.DayTimeIntervalType: {"type": "string", "format": "duration"},
    T.YearMonthIntervalType: {"type": "string", "format": "duration"},
    T.CalendarIntervalType: {"type": "string"},
    T.VariantType: {"type": ["object", "array", "string", "number", "boolean"]},
    T.GeometryType: {"type": "string"},
    T.GeographyType: {"type": "string"},
}


def spark_to_json_schema(struct: T.StructType) -> dict[str, Any]:
    """Return the JSON Schema of a stream whose records are rows of `struct`."""
    return _object(struct)


def spark_type_to_json_schema(data_type: T.DataType, nullable: bool = True) -> dict[str, Any]:
    """Return the JSON Schema of one value.

    Args:
        data_type: Any Spark SQL type.
        nullable: Whether null is allowed too.

    Raises:
        TypeError: For a user-defined type.
    """
    node = _node(data_type)
    if nullable and not isinstance(data_type, T.NullType):
        types = node["type"] if isinstance(node["type"], list) else [node["type"]]
        node = {**node, "type": [*types, "null"]}
    return node


def _node(data_type: T.DataType) -> dict[str, Any]:
    kind = type(data_type)
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if kind in _HINTED:
        return {**_HINTED[kind], HINT: hint_of(data_type)}
    if kind not in _BUILDERS:
        raise TypeError(f"type {data_type.simpleString()} has no JSON Schema")
    return _BUILDERS[kind](data_type)


def _null(_: T.DataType) -> dict[str, Any]:
    return {"type": "null"}


def _integer(data_type: T.DataType) -> dict[str, Any]:
    low, high = INTEGER_WIDTHS[type(data_type)]
    return {"type": "integer", "minimum": low, "maximum": high}


def _decimal(data_type: T.DecimalType) -> dict[str, Any]:
    if data_type.scale > 0:
        return {"type": "number", HINT: hint_of(data_type)}
    low, high = decimal_bounds(data_type.precision)
    return {"type": "integer", "minimum": low, "maximum": high, HINT: hint_of(data_type)}


def _string(data_type: T.StringType) -> dict[str, Any]:
    plain = type(data_type) is T.StringType and data_type == T.StringType()
    return {"type": "string"} if plain else {"type": "string", HINT: hint_of(data_type)}


def _sized_string(data_type: T.CharType | T.VarcharType) -> dict[str, Any]:
    return {"type": "string", "maxLength": data_type.length, HINT: hint_of(data_type)}


def _array(data_type: T.ArrayType) -> dict[str, Any]:
    items = spark_type_to_json_schema(data_type.elementType, data_type.containsNull)
    return {"type": "array", "items": items}


def _map(data_type: T.MapType) -> dict[str, Any]:
    values = spark_type_to_json_schema(data_type.valueType, data_type.valueContainsNull)
    node: dict[str, Any] = {"type": "object", "additionalProperties": values}
    if data_type.keyType != T.StringType():
        keys = spark_type_to_json_schema(data_type.keyType, nullable=False)
        node["propertyNames"] = {"type": "string", HINT: keys}
    return node


def _object(data_type: T.StructType) -> dict[str, Any]:
    properties = {
        field.name: spark_type_to_json_schema(field.dataType, field.nullable)
        for field in data_type.fields
    }
    node: dict[str, Any] = {"type": "object", "properties": properties}
    required = [field.name for field in data_type.fields if not field.nullable]
    if required:
        node["required"] = required
    if not properties:
        node[HINT] = "struct"
    return node


_BUILDERS: Mapping[type[T.DataType], Callable[[Any], dict[str, Any]]] = {
    T.NullType: _null,
    **dict.fromkeys(INTEGER_WIDTHS, _integer),
    T.DecimalType: _decimal,
    T.StringType: _string,
    T.CharType: _sized_string,
    T.VarcharType: _sized_string,
    T.ArrayType: _array,
    T.MapType: _map,
    T.StructType: _object,
}
