"""The Arrow type of each Spark type, and so the types in files that pyarrow writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from shared.releases.spark_types import T

SPARK_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
"""Parquet footer key from which Spark reads the exact schema of a file."""

TEXT_ONLY = (
    T.CalendarIntervalType,
    T.VariantType,
    T.GeometryType,
    T.GeographyType,
    T.CharType,
    T.VarcharType,
)
"""Types that are stored as text, variants as JSON."""

_SCALARS: dict[type[T.DataType], pa.DataType] = {
    T.NullType: pa.null(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.BinaryType: pa.binary(),
    T.BooleanType: pa.bool_(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.TimeType: pa.time64("us"),
    T.DayTimeIntervalType: pa.int64(),
    T.YearMonthIntervalType: pa.int32(),
}
_NEEDS_FOOTER = (
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
    T.TimeType,
    T.NullType,
)


def spark_to_arrow(data_type: T.DataType) -> pa.DataType:
    """Return the storage type: intervals as microseconds or months, variants as JSON text."""
    if isinstance(data_type, T.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, T.ArrayType):
        element = spark_to_arrow(data_type.elementType)
        return pa.list_(pa.field("element", element, data_type.containsNull))
    if isinstance(data_type, T.MapType):
        value = pa.field("value", spark_to_arrow(data_type.valueType), data_type.valueContainsNull)
        return pa.map_(spark_to_arrow(data_type.keyType), value)
    if isinstance(data_type, T.StructType):
        return pa.struct([_field(field) for field in data_type.fields])
    return _SCALARS.get(type(data_type), pa.string())


def struct_to_arrow(struct: T.StructType) -> pa.Schema:
    """Return the Arrow schema of files that Spark reads back as `struct`.

    Types that Arrow and Parquet cannot name (intervals, time, void) are named in the
    schema's metadata under Spark's own footer key, which pyarrow writes along. Variants are JSON
    text, and read back as strings.
    """
    metadata = None
    if _any(struct, _NEEDS_FOOTER):
        metadata = {SPARK_ROW_METADATA: json.dumps(_footer(struct.jsonValue())).encode()}
    return pa.schema([_field(field) for field in struct.fields], metadata=metadata)


def as_nullable(data_type: T.DataType) -> Any:
    """Return the same type with null allowed at every depth (map keys stay as they are)."""
    if isinstance(data_type, T.StructType):
        fields = [T.StructField(f.name, as_nullable(f.dataType), True) for f in data_type.fields]
        return T.StructType(fields)
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(as_nullable(data_type.elementType), True)
    if isinstance(data_type, T.MapType):
        return T.MapType(data_type.keyType, as_nullable(data_type.valueType), True)
    return data_type


def mapped(data_type: T.DataType, change: Callable[[T.DataType], T.DataType]) -> T.DataType:
    """Return the type with a change applied to everything in it that is not nested.

    Null is allowed at every depth of what comes out.
    """
    if isinstance(data_type, T.StructType):
        fields = [T.StructField(f.name, mapped(f.dataType, change)) for f in data_type]
        return T.StructType(fields)
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(mapped(data_type.elementType, change))
    if isinstance(data_type, T.MapType):
        return T.MapType(mapped(data_type.keyType, change), mapped(data_type.valueType, change))
    return change(data_type)


def _field(field: T.StructField) -> pa.Field:
    return pa.field(field.name, spark_to_arrow(field.dataType), field.nullable)


def _any(data_type: T.DataType, kinds: tuple[type[T.DataType], ...]) -> bool:
    if isinstance(data_type, T.StructType):
        return any(_any(field.dataType, kinds) for field in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return _any(data_type.elementType, kinds)
    if isinstance(data_type, T.MapType):
        return _any(data_type.keyType, kinds) or _any(data_type.valueType, kinds)
    return isinstance(data_type, kinds)


def _footer(value: Any) -> Any:
    """Replace the types that are stored as text in Spark's JSON form of a schema."""
    if isinstance(value, dict):
        return {key: _footer(part) if key != "name" else part for key, part in value.items()}
    if isinstance(value, list):
        return [_footer(part) for part in value]
    return "string" if value in ("variant", "interval") else value
