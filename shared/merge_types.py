"""Schema evolution: the narrowest type that holds everything two schemas hold."""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812

from shared.errors import DestinationError

_INTEGERS: dict[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 19,
}
_MAX_DIGITS = 38


def merge_structs(old: T.StructType, new: T.StructType) -> T.StructType:
    """Give a struct that rows of both fit: old order, added fields last, nullable wins.

    Args:
        old: The columns there are.
        new: The columns that come.

    Raises:
        DestinationError: Where a column's types have no common one; names the column and both.
    """
    return _struct(old, new, "")


def _struct(old: T.StructType, new: T.StructType, path: str) -> T.StructType:
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
    if old == new or isinstance(new, T.NullType):
        return old
    if isinstance(old, T.NullType):
        return new
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        return _struct(old, new, path)
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        element = _merge(old.elementType, new.elementType, f"{path}[]")
        return T.ArrayType(element, old.containsNull or new.containsNull)
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        key = _merge(old.keyType, new.keyType, f"{path}.key")
        value = _merge(old.valueType, new.valueType, f"{path}.value")
        return T.MapType(key, value, old.valueContainsNull or new.valueContainsNull)
    merged = _scalar(old, new)
    if merged is None:
        raise DestinationError(
            f"column '{path}' cannot change from {old.simpleString()} to {new.simpleString()}",
            hint="load it under another name or into another table",
        )
    return merged


def _scalar(old: T.DataType, new: T.DataType) -> T.DataType | None:
    if type(old) in _INTEGERS and type(new) in _INTEGERS:
        return old if _INTEGERS[type(old)] >= _INTEGERS[type(new)] else new
    if isinstance(old, T.StringType | T.CharType | T.VarcharType):
        strings = isinstance(new, T.StringType | T.CharType | T.VarcharType)
        return T.StringType() if strings else None
    kinds = {type(old), type(new)}
    if T.DecimalType in kinds and kinds <= {T.DecimalType, *_INTEGERS}:
        return _decimal(old, new)
    if kinds & {T.FloatType, T.DoubleType}:
        return _floating(kinds)
    if kinds == {T.DateType, T.TimestampNTZType}:
        return T.TimestampNTZType()
    return _interval(old, new)


def _decimal(old: T.DataType, new: T.DataType) -> T.DataType | None:
    digits, scale = zip(_shape(old), _shape(new), strict=True)
    needed = max(digits) + max(scale)
    return T.DecimalType(needed, max(scale)) if needed <= _MAX_DIGITS else None


def _shape(data_type: T.DataType) -> tuple[int, int]:
    """Give the digits before and after the point."""
    if isinstance(data_type, T.DecimalType):
        return data_type.precision - data_type.scale, data_type.scale
    return _INTEGERS[type(data_type)], 0


def _floating(kinds: set[type[T.DataType]]) -> T.DataType | None:
    """Float and double with what fits them; a long or decimal may round, as asked for."""
    if kinds <= {T.FloatType, T.ByteType, T.ShortType}:
        return T.FloatType()
    if kinds <= {T.FloatType, T.DoubleType, T.DecimalType, *_INTEGERS}:
        return T.DoubleType()
    return None


def _interval(old: T.DataType, new: T.DataType) -> T.DataType | None:
    if isinstance(old, T.DayTimeIntervalType) and isinstance(new, T.DayTimeIntervalType):
        starts, ends = (old.startField, new.startField), (old.endField, new.endField)
        return T.DayTimeIntervalType(min(starts), max(ends))
    if isinstance(old, T.YearMonthIntervalType) and isinstance(new, T.YearMonthIntervalType):
        return T.YearMonthIntervalType(
            min(old.startField, new.startField), max(old.endField, new.endField)
        )
    if isinstance(old, T.TimeType) and isinstance(new, T.TimeType):
        return old if old.precision >= new.precision else new
    return None
