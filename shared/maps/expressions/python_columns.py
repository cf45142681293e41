"""The columns that go to Python's evaluator, and those that come back from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type

from shared.maps.expressions.arrow_records import Arrival, Shape
from shared.maps.expressions.arrow_results import Form, storage
from shared.maps.expressions.kinds import Kind
from shared.maps.expressions.records import PATH, named
from shared.types.record_text import json_text, record_json

_TEXT = (T.StringType, T.CharType, T.VarcharType)
_PLAIN = (T.BooleanType, T.IntegralType, T.DoubleType, *_TEXT)
_PRECISION, _SCALE = 38, 10


def key(struct: T.StructType) -> Column:
    """Return a hash of the whole record, as it is in a RECORD message.

    For a value inside an object, it is a hash of the value.
    """
    inside = [field for field in struct if PATH in field.metadata]
    return (
        key_of(named(inside[0]), inside[0].dataType) if inside else F.xxhash64(record_json(struct))
    )


def key_of(value: Column, data_type: T.DataType) -> Column:
    """Return a hash of a value."""
    return F.xxhash64(json_text(value, data_type))


def within(value: Column, depth: int, change: Callable[[Column], Column]) -> Column:
    """Change the values inside arrays of so many levels."""
    if not depth:
        return change(value)
    return F.transform(value, lambda item: within(item, depth - 1, change))


def arrays_of(data_type: T.DataType, depth: int) -> T.DataType:
    """Return the type of arrays of so many levels."""
    return T.ArrayType(arrays_of(data_type, depth - 1)) if depth else data_type


def view(data_type: T.DataType) -> Callable[[Column], Column]:
    """Return a function that converts a column to what `arrival` says."""
    if isinstance(data_type, _PLAIN):
        text = isinstance(data_type, _TEXT)
        return lambda column: column.cast("string") if text else column
    if isinstance(data_type, T.FloatType):
        # Through its text: 0.1 must not become 0.10000000149.
        return lambda column: column.cast("string").cast("double")
    if isinstance(data_type, T.NullType):
        return lambda column: column.cast("string")
    return lambda column: json_text(column, data_type)


def arrival(data_type: T.DataType) -> Arrival:
    """Return how a column of a type arrives in Python."""
    if isinstance(data_type, (*_PLAIN, T.FloatType, T.NullType)):
        return Arrival()
    return Arrival(text=True, shape=shape(data_type))


def shape(data_type: T.DataType) -> Shape:
    """Return which values to restore after the JSON text of a type was parsed."""
    if isinstance(data_type, T.StructType):
        return Shape("struct", fields={f.name: shape(f.dataType) for f in data_type})
    if isinstance(data_type, T.ArrayType):
        return Shape("list", shape(data_type.elementType))
    if isinstance(data_type, T.MapType):
        return Shape("map", shape(data_type.valueType))
    if isinstance(data_type, T.DecimalType):
        return Shape("decimal")
    if isinstance(data_type, (T.DoubleType, T.FloatType)):
        return Shape("float")
    return Shape("any") if isinstance(data_type, T.VariantType) else Shape()


def decimal(struct: T.StructType, reads: Iterable[str]) -> T.DecimalType:
    """Return the type of a decimal computed from these columns."""
    types = (struct[name].dataType for name in reads)
    scales = [found.scale for found in types if isinstance(found, T.DecimalType)]
    return T.DecimalType(_PRECISION, max([_SCALE, *scales]))


def form(kind: Kind, result: T.DataType) -> Form:
    """Return the form that results need for a column of a type.

    Args:
        kind: The kind of the expression's result.
        result: The type of its column.
    """
    if isinstance(result, T.VariantType):
        return Form("any")
    if isinstance(result, T.DecimalType):
        return Form("decimal", scale=result.scale)
    if isinstance(result, T.ArrayType) and kind.item is not None:
        return Form("list", item=form(kind.item, result.elementType))
    if isinstance(result, T.MapType) and kind.values is not None:
        return Form("map", item=form(kind.values, result.valueType))
    if isinstance(result, T.StructType):
        parts = zip(kind.fields, result.fields, strict=True)
        return Form("struct", fields=tuple((n, form(k, f.dataType)) for (n, k), f in parts))
    return Form(kind.name)


def result_type(of: Form) -> T.StructType:
    """Return the type that Python's function returns for results of a form."""
    value = T.StructField("value", from_arrow_type(storage(of)))
    return T.StructType([value, T.StructField("error", T.StringType())])
