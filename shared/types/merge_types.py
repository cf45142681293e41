"""Schema evolution: which type holds every value of two types. Pure."""

from __future__ import annotations

from shared.errors import SettingsError
from shared.releases.spark_types import T

INTEGERS: dict[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 19,
}
"""Integer types with the digits they need."""
TEXTS = (T.StringType, T.CharType, T.VarcharType)
_EXACT_IN_DOUBLE = (T.ByteType, T.ShortType, T.IntegerType)
_LONG_COLUMN = 20
"""Digits that a column of longs is widened to: what formats ask for."""
_MAX_DIGITS = 38


def merge_structs(old: T.StructType, new: T.StructType) -> T.StructType:
    """Return a struct that rows of both fit: old order, added fields last, nullable wins.

    Args:
        old: The present columns.
        new: The new columns.

    Raises:
        SettingsError: A column's types lack a common one; names the column and both.
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
    merged = common_scalar(old, new, lossy=True)
    if merged is None:
        raise SettingsError(
            f"column '{path}' cannot change from {old.simpleString()} to {new.simpleString()}",
            hint="load it under another name or into another table",
        )
    return merged


def common_scalar(old: T.DataType, new: T.DataType, *, lossy: bool = False) -> T.DataType | None:
    """Return the narrowest type that holds the values of both, `old` if it does.

    Args:
        old: The present type.
        new: The new type.
        lossy: A long or a decimal may become a double, which rounds, as files are widened. Columns
            then become at least as wide as the new type: texts lose their length, and decimals
            stay decimals.

    Returns:
        None if such a type does not exist, or if one of them is a struct, an array or a map.
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
        return _decimal(old, new, lossy=lossy)
    return _floating(kinds, lossy=lossy) if kinds & {T.FloatType, T.DoubleType} else None


def _text(old: T.DataType, new: T.DataType) -> T.DataType:
    if not isinstance(old, T.CharType | T.VarcharType):
        return old
    if isinstance(new, T.CharType | T.VarcharType):
        return old if old.length >= new.length else T.VarcharType(new.length)
    return T.StringType()


def _decimal(old: T.DataType, new: T.DataType, *, lossy: bool) -> T.DataType | None:
    if isinstance(old, T.DecimalType) and _holds(old, new):
        return old
    if not lossy and isinstance(new, T.DecimalType) and _fits_integer(new, old):
        return old
    long_digits = INTEGERS[T.LongType] if lossy else _LONG_COLUMN
    digits, scales = zip(_shape(old, long_digits), _shape(new, long_digits), strict=True)
    needed = max(digits) + max(scales)
    return T.DecimalType(needed, max(scales)) if needed <= _MAX_DIGITS else None


def _shape(dtype: T.DataType, long_digits: int) -> tuple[int, int]:
    """Return the digits before and after the point."""
    if isinstance(dtype, T.DecimalType):
        return dtype.precision - dtype.scale, dtype.scale
    return (long_digits if isinstance(dtype, T.LongType) else INTEGERS[type(dtype)]), 0


def _holds(column: T.DecimalType, dtype: T.DataType) -> bool:
    digits, scale = _shape(dtype, INTEGERS[T.LongType])
    return column.precision - column.scale >= digits and column.scale >= scale


def _fits_integer(new: T.DecimalType, old: T.DataType) -> bool:
    """Return whether an integer column holds every value of a decimal type."""
    digits = INTEGERS.get(type(old), 0) - 1
    return new.scale == 0 and new.precision <= digits


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
    if isinstance(old, T.DayTimeIntervalType) and isinstance(new, T.DayTimeIntervalType):
        starts, ends = (old.startField, new.startField), (old.endField, new.endField)
        return T.DayTimeIntervalType(min(starts), max(ends))
    if isinstance(old, T.YearMonthIntervalType) and isinstance(new, T.YearMonthIntervalType):
        starts, ends = (old.startField, new.startField), (old.endField, new.endField)
        return T.YearMonthIntervalType(min(starts), max(ends))
    if isinstance(old, T.TimeType) and isinstance(new, T.TimeType):
        return old if old.precision >= new.precision else new
    return None
