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

Schema evolution asks which type holds every value of two types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import float_info
from typing import Any

from shared.errors import SettingsError
from shared.formats.schema_nodes import (
    HINT,
    INTEGER_WIDTHS,
    MAX_DIGITS,
    TEXTS,
    decimal_bounds,
    hint_of,
)
from shared.formats.spark_types import T

INTEGERS: dict[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 19,
}
"""Integer types with the digits they need."""
_EXACT_IN_DOUBLE = (T.ByteType, T.ShortType, T.IntegerType)
_LONG_COLUMN = 20
"""Digits that a column of longs is widened to: what formats ask for."""


def merge_structs(old: T.StructType, new: T.StructType, path: str = "") -> T.StructType:
    """Return a struct that rows of both fit: old order, added fields last, nullable wins.

    Raises:
        SettingsError: A column's types lack a common one; names the column, below `path`, and both.
    """
    later = {field.name: field for field in new.fields}
    fields = [_field(field, later.pop(field.name, None), path) for field in old.fields]
    added = [T.StructField(f.name, f.dataType, True) for f in later.values()]
    return T.StructType([*fields, *added])


def _field(old: T.StructField, new: T.StructField | None, path: str) -> T.StructField:
    if new is None:
        return T.StructField(old.name, old.dataType, True)
    merged = _merge(old.dataType, new.dataType, f"{path}.{old.name}" if path else old.name)
    return T.StructField(old.name, merged, old.nullable or new.nullable)


def _merge(old: T.DataType, new: T.DataType, path: str) -> T.DataType:
    if old == new:
        return old
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        return merge_structs(old, new, path)
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        element = _merge(old.elementType, new.elementType, f"{path}[]")
        return T.ArrayType(element, old.containsNull or new.containsNull)
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        key = _merge(old.keyType, new.keyType, f"{path}.key")
        value = _merge(old.valueType, new.valueType, f"{path}.value")
        return T.MapType(key, value, old.valueContainsNull or new.valueContainsNull)
    merged = common_scalar(old, new, lossy=True)
    if merged is None:
        raise SettingsError(
            f"column '{path}' cannot change from {old.simpleString()} to {new.simpleString()}",
            hint="load it under another name or into another table",
        )
    return merged


def without_new_fields(new: T.DataType, old: T.DataType) -> T.DataType:
    """Return a type without the fields of its structs that the older type lacks."""
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        existing = {field.name: field.dataType for field in old}
        return T.StructType(
            [
                T.StructField(f.name, without_new_fields(f.dataType, existing[f.name]), f.nullable)
                for f in new
                if f.name in existing
            ]
        )
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        inner = without_new_fields(new.elementType, old.elementType)
        return T.ArrayType(inner, new.containsNull)
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        value = without_new_fields(new.valueType, old.valueType)
        return T.MapType(new.keyType, value, new.valueContainsNull)
    return new


_LONGEST_SHOWN = 60


def shown_type(dtype: T.DataType) -> str:
    """Return the name of a type, cut if it is long."""
    text = dtype.simpleString()
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def common_scalar(old: T.DataType, new: T.DataType, *, lossy: bool = False) -> T.DataType | None:
    """Return the narrowest type that holds the values of both, `old` if it does.

    If `lossy`, a long, whose digits a double may round, or a decimal of up to 15 digits may become
    a double, as files are widened. Columns then become at least as wide as the new type: texts lose
    their length, and decimals stay decimals. None if such a type does not exist, or if one is a
    struct, an array or a map.
    """
    if old == new or isinstance(new, T.NullType):
        return old
    if isinstance(old, T.NullType):
        return new
    if isinstance(old, TEXTS) and isinstance(new, TEXTS):
        return T.StringType() if lossy else _text(old, new)
    return _number(old, new, lossy=lossy) or _time(old, new)


def holds_all(old: T.DataType, new: T.DataType) -> bool:
    """Return whether a column of the new type holds every value of another old type."""
    if type(old) in INTEGERS and type(new) in INTEGERS:
        return INTEGERS[type(old)] <= INTEGERS[type(new)]
    if isinstance(new, T.DecimalType):
        return type(old) in {T.DecimalType, *INTEGERS} and _holds(new, old)
    if isinstance(new, T.DoubleType):
        return isinstance(old, (T.FloatType, *_EXACT_IN_DOUBLE))
    if isinstance(new, T.FloatType):
        return isinstance(old, T.ByteType | T.ShortType)
    return isinstance(old, T.DateType) and isinstance(new, T.TimestampNTZType)


def _number(old: T.DataType, new: T.DataType, *, lossy: bool) -> T.DataType | None:
    kinds = {type(old), type(new)}
    if kinds <= set(INTEGERS):
        return old if INTEGERS[type(old)] >= INTEGERS[type(new)] else new
    if kinds <= {T.DecimalType, *INTEGERS}:
        return _wider_decimal(old, new, lossy=lossy)
    if not kinds & {T.FloatType, T.DoubleType} or any(map(_is_beyond_double, (old, new))):
        return None
    return _floating(kinds, lossy=lossy)


def _is_beyond_double(dtype: T.DataType) -> bool:
    """Return whether a double may change the digits of a decimal."""
    return isinstance(dtype, T.DecimalType) and dtype.precision > float_info.dig


def _text(old: T.DataType, new: T.DataType) -> T.DataType:
    if not isinstance(old, T.CharType | T.VarcharType):
        return old
    if isinstance(new, T.CharType | T.VarcharType):
        return old if old.length >= new.length else T.VarcharType(new.length)
    return T.StringType()


def _wider_decimal(old: T.DataType, new: T.DataType, *, lossy: bool) -> T.DataType | None:
    if isinstance(old, T.DecimalType) and _holds(old, new):
        return old
    # A column of integers holds all numbers of one digit less.
    own = INTEGERS.get(type(old), 0)
    if isinstance(new, T.DecimalType) and not (lossy or new.scale) and new.precision < own:
        return old
    long_digits = INTEGERS[T.LongType] if lossy else _LONG_COLUMN
    digits, scales = zip(_shape(old, long_digits), _shape(new, long_digits), strict=True)
    needed = max(digits) + max(scales)
    return T.DecimalType(needed, max(scales)) if needed <= MAX_DIGITS else None


def _shape(dtype: T.DataType, long_digits: int) -> tuple[int, int]:
    """Return the digits before and after the point."""
    if isinstance(dtype, T.DecimalType):
        return dtype.precision - dtype.scale, dtype.scale
    return (long_digits if isinstance(dtype, T.LongType) else INTEGERS[type(dtype)]), 0


def _holds(column: T.DecimalType, dtype: T.DataType) -> bool:
    digits, scale = _shape(dtype, INTEGERS[T.LongType])
    return column.precision - column.scale >= digits and column.scale >= scale


def _floating(kinds: set[type[T.DataType]], *, lossy: bool) -> T.DataType | None:
    if kinds <= {T.FloatType, T.ByteType, T.ShortType}:
        return T.FloatType()
    numbers = {T.FloatType, T.DoubleType, *_EXACT_IN_DOUBLE}
    if lossy:
        numbers |= {T.LongType, T.DecimalType}
    return T.DoubleType() if kinds <= numbers else None


def _time(old: T.DataType, new: T.DataType) -> T.DataType | None:
    if {type(old), type(new)} == {T.DateType, T.TimestampNTZType}:
        return T.TimestampNTZType()
    for interval in (T.DayTimeIntervalType, T.YearMonthIntervalType):
        if isinstance(old, interval) and isinstance(new, interval):
            start = min(old.startField, new.startField)
            return interval(start, max(old.endField, new.endField))
    if isinstance(old, T.TimeType) and isinstance(new, T.TimeType):
        return old if old.precision >= new.precision else new
    return None


_PLAIN: dict[type[T.DataType], dict[str, Any]] = {
    T.NullType: {"type": "null"},
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


def spark_type_to_json_schema(data_type: T.DataType, nullable: bool = True) -> dict[str, Any]:
    """Return the JSON Schema of one value, of any Spark SQL type.

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


def spark_to_json_schema(struct: T.StructType) -> dict[str, Any]:
    """Return the JSON Schema of a stream whose records are rows of `struct`."""
    properties = {
        field.name: spark_type_to_json_schema(field.dataType, field.nullable)
        for field in struct.fields
    }
    node: dict[str, Any] = {"type": "object", "properties": properties}
    required = [field.name for field in struct.fields if not field.nullable]
    if required:
        node["required"] = required
    if not properties:
        node[HINT] = "struct"
    return node


_BUILDERS: Mapping[type[T.DataType], Callable[[Any], dict[str, Any]]] = {
    **dict.fromkeys(INTEGER_WIDTHS, _integer),
    T.DecimalType: _decimal,
    T.StringType: _string,
    T.CharType: _sized_string,
    T.VarcharType: _sized_string,
    T.ArrayType: _array,
    T.MapType: _map,
    T.StructType: spark_to_json_schema,
}
