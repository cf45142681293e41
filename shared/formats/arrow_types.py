"""The Arrow type of each Spark type, and tables with exactly the columns that a table stores."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.spark_types import T

SPARK_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
"""Parquet footer key from which Spark reads the exact schema of a file."""
_SPARK_VERSION = b"org.apache.spark.version"
ORC_TYPE = "spark.sql.catalyst.type"
"""Attribute of an ORC type from which Spark reads the exact one."""

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
        return pa.struct(
            [pa.field(f.name, spark_to_arrow(f.dataType), f.nullable) for f in data_type.fields]
        )
    return _SCALARS.get(type(data_type), pa.string())


def struct_to_arrow(struct: T.StructType) -> pa.Schema:
    """Return the Arrow schema of files that Spark reads back as `struct`.

    Types that Arrow and Parquet cannot name (intervals, time, void) are named in the
    schema's metadata under Spark's own footer key, which pyarrow writes along. Variants are JSON
    text, and read back as strings.
    """
    metadata = None
    if holds(struct, _NEEDS_FOOTER):
        metadata = {SPARK_ROW_METADATA: json.dumps(_footer(struct.jsonValue())).encode()}
    return pa.schema(list(spark_to_arrow(struct)), metadata=metadata)


def arrow_schema(struct: T.StructType, encoding: str = "parquet") -> pa.Schema:
    """Return the Arrow schema of a table's files; with its metadata Spark reads the same types.

    A Parquet footer also names a Spark version: readers then read old dates unchanged.

    In ORC a timestamp is `timestamp with local time zone` (an instant). One without a zone is ORC's
    `timestamp`, which Spark reads as a timestamp of its session's zone. ORC does not have a time of
    day or void: both are text.
    """
    import pyspark  # noqa: PLC0415

    if encoding == "orc":
        return pa.schema([_orc_field(field.name, field.dataType) for field in struct])
    schema = struct_to_arrow(struct)
    version = {_SPARK_VERSION: pyspark.__version__.encode()}
    return schema.with_metadata({**(schema.metadata or {}), **version})


def _orc_field(name: str, kind: T.DataType) -> pa.Field:
    named = (T.TimestampType, T.DayTimeIntervalType, T.YearMonthIntervalType)
    attributes = {ORC_TYPE: kind.simpleString()} if isinstance(kind, named) else None
    return pa.field(name, _orc_type(kind), metadata=attributes)


def _orc_type(kind: T.DataType) -> pa.DataType:
    if isinstance(kind, T.StructType):
        return pa.struct([_orc_field(field.name, field.dataType) for field in kind])
    if isinstance(kind, T.ArrayType):
        return pa.list_(_orc_field("element", kind.elementType))
    if isinstance(kind, T.MapType):
        return pa.map_(_orc_type(kind.keyType), _orc_field("value", kind.valueType))
    if isinstance(kind, T.TimeType | T.NullType):
        return pa.string()
    return spark_to_arrow(kind)


def as_nullable(data_type: T.DataType) -> Any:
    """Return the same type with null allowed at every depth, and without metadata."""
    return mapped(data_type, lambda kind: kind)


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


def holds(data_type: T.DataType, kinds: tuple[type[T.DataType], ...]) -> bool:
    """Return whether a type is one of some kinds, or has one at any depth."""
    if isinstance(data_type, T.StructType):
        return any(holds(field.dataType, kinds) for field in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return holds(data_type.elementType, kinds)
    if isinstance(data_type, T.MapType) and T.MapType not in kinds:
        return holds(data_type.keyType, kinds) or holds(data_type.valueType, kinds)
    return isinstance(data_type, kinds)


def _footer(value: Any) -> Any:
    """Replace the types that are stored as text in Spark's JSON form of a schema."""
    if isinstance(value, dict):
        return {key: _footer(part) if key != "name" else part for key, part in value.items()}
    if isinstance(value, list):
        return [_footer(part) for part in value]
    return "string" if value in ("variant", "interval") else value


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns, order and types of `schema`.

    Columns it lacks become null, at any depth; columns that `schema` lacks are dropped.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit the wider type.
    """
    if table.schema.equals(schema):
        return table.replace_schema_metadata(schema.metadata)
    positions = {name: position for position, name in enumerate(table.column_names)}
    columns = [
        conform_column(table.column(positions[field.name]), field.type)
        if field.name in positions
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def dropped_fields(
    column: pa.ChunkedArray, kind: pa.DataType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path of each field that `conform` drops, and how many of its values are not null.

    Fields are looked for at any depth of structs and lists.
    """
    if pa.types.is_list(column.type) and pa.types.is_list(kind):
        yield from dropped_fields(pc.list_flatten(column), kind.value_type, path)
    if not (pa.types.is_struct(column.type) and pa.types.is_struct(kind)):
        return
    for field, values in zip(column.type, column.flatten(), strict=True):
        place, inner = kind.get_field_index(field.name), (*path, field.name)
        if place >= 0:
            yield from dropped_fields(values, kind.field(place).type, inner)
        elif values.null_count < len(values):
            yield inner, len(values) - values.null_count


MOST_EXACT = 1 << 53
"""Integers up to this one, and their negatives, are all exact as doubles."""
ORC_TIMES = datetime(1677, 9, 22), datetime(2262, 4, 11)
"""Times between these are nanoseconds of 64 bits, which is how Arrow reads those of ORC."""


def unheld_values(
    table: pa.Table, schema: pa.Schema, *, in_orc: bool = False
) -> Iterator[tuple[int, str, int | str]]:
    """Yield the integers that `conform` refuses to make doubles of: row, column and value.

    With `in_orc` also times, as texts, that Arrow writes into ORC files but cannot read again.
    """
    for field in schema:
        before = 0
        place = table.schema.get_field_index(field.name)
        for chunk in table.column(place).chunks if place >= 0 else ():
            for row, path, value in _lost(chunk, field.type, field.name, in_orc):
                yield before + row, path, value
            before += len(chunk)


def _lost(
    array: pa.Array, kind: pa.DataType, path: str, in_orc: bool
) -> Iterator[tuple[int, str, int | str]]:
    if array.type.equals(kind) and not in_orc:
        return
    if pa.types.is_int64(array.type) and pa.types.is_float64(kind):
        is_lost = pc.or_(pc.greater(array, MOST_EXACT), pc.less(array, -MOST_EXACT))
        rows = pc.indices_nonzero(is_lost)
        for row, value in zip(rows.to_pylist(), array.take(rows).to_pylist(), strict=True):
            yield row, path, value
    elif pa.types.is_timestamp(array.type) and in_orc:
        least, most = (pa.scalar(time, pa.timestamp("us", array.type.tz)) for time in ORC_TIMES)
        rows = pc.indices_nonzero(pc.or_(pc.less(array, least), pc.greater(array, most)))
        texts = array.take(rows).cast(pa.string()).to_pylist()
        yield from ((row, path, text) for row, text in zip(rows.to_pylist(), texts, strict=True))
    elif pa.types.is_struct(array.type) and pa.types.is_struct(kind):
        for field in kind:
            if array.type.get_field_index(field.name) >= 0:
                values = pc.struct_field(array, field.name)
                yield from _lost(values, field.type, f"{path}.{field.name}", in_orc)
    elif pa.types.is_list(array.type) and pa.types.is_list(kind):
        lost = list(_lost(pc.list_flatten(array), kind.value_type, f"{path}[]", in_orc))
        rows = pc.list_parent_indices(array) if lost else ()
        for place, name, value in lost:
            yield rows[place].as_py(), name, value
    elif pa.types.is_map(array.type) and pa.types.is_map(kind):
        items = pa.ListArray.from_arrays(array.offsets, array.items)
        yield from _lost(items, pa.list_(kind.item_type), path, in_orc)


def conform_column(
    column: pa.Array | pa.ChunkedArray, kind: pa.DataType
) -> pa.Array | pa.ChunkedArray:
    """Return a column converted to another type; errors as `conform`."""
    if isinstance(column, pa.Array):
        return _conform_array(column, kind)
    if column.type.equals(kind):
        return column
    return pa.chunked_array([_conform_array(chunk, kind) for chunk in column.chunks], kind)


def _conform_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    whole = with_parts(array, kind, lambda part, own, _: _conform_array(part, own))
    if whole is not None:
        return whole
    cast = array.cast(kind)
    is_narrower = pa.types.is_float32(kind) and pa.types.is_float64(array.type)
    # Arrow checks casts for overflow, but not this one.
    if is_narrower and not pc.is_inf(cast).equals(pc.is_inf(array)):
        raise pa.ArrowInvalid("a double is out of range for a float")
    return cast


def with_parts(
    array: pa.Array, kind: pa.DataType, convert: Callable[[pa.Array, pa.DataType, str], pa.Array]
) -> pa.Array | None:
    """Return nested values whose parts are converted; None for others.

    Args:
        array: The values.
        kind: The type to return; fields that the values lack become null.
        convert: Converts fields to a type, and elements and map values, whose name is empty.
    """
    is_nested = pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_list(kind)
    if not is_nested or array.type.id != kind.id:
        return None
    # Arrow takes no mask beside the offsets of a slice.
    array = pa.concat_arrays([array]) if array.offset else array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return pa.StructArray.from_buffers(kind, len(array), array.is_valid().buffers()[1:])
        parts = [
            convert(array.field(field.name), field.type, field.name)
            if array.type.get_field_index(field.name) >= 0
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        keys = _conform_array(array.keys, kind.key_type)
        items = convert(array.items, kind.item_type, "")
        return pa.MapArray.from_arrays(array.offsets, keys, items, kind, mask=mask)
    values = convert(array.values, kind.value_type, "")
    return pa.ListArray.from_arrays(array.offsets, values, kind, mask=mask)


def rows_without_columns(count: int) -> pa.Table:
    """Return a table without columns that keeps its number of rows."""
    return pa.table({"": pa.nulls(count)}).select([])


def breaks_nullability(
    column: pa.ChunkedArray | pa.Array, data_type: T.DataType, nullable: bool, hidden: int = 0
) -> bool:
    """Return whether a value is null against its type; `hidden` are the parent's nulls."""
    nulls = column.null_count
    if not nullable and nulls > hidden:
        return True
    if isinstance(data_type, T.StructType):
        return any(
            breaks_nullability(child, field.dataType, field.nullable, nulls)
            for child, field in zip(column.flatten(), data_type.fields, strict=True)
        )
    if isinstance(data_type, T.ArrayType):
        values = pc.list_flatten(column)
        return breaks_nullability(values, data_type.elementType, data_type.containsNull)
    return False
