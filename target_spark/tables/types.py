"""Widening of types: the type that holds every value of two types exactly. Pure."""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812

_INTEGERS: dict[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 19,
}
"""Integer types with the digits they need."""
_LONG_COLUMN = 20
"""Digits that a column of longs is widened to, as formats require."""
_MAX_DIGITS = 38
_TEXTS = (T.StringType, T.CharType, T.VarcharType)
_FAMILIES: tuple[tuple[str, tuple[type[T.DataType], ...]], ...] = (
    ("integer", tuple(_INTEGERS)),
    ("double", (T.FloatType, T.DoubleType)),
    ("string", _TEXTS),
    ("interval", (T.DayTimeIntervalType, T.YearMonthIntervalType, T.CalendarIntervalType)),
)


def family(dtype: T.DataType) -> str:
    """Return the name of a type's family: `integer`, `decimal`, `double`, `string`, `date`, ..."""
    found = (name for name, kinds in _FAMILIES if isinstance(dtype, kinds))
    return str(next(found, dtype.typeName().partition("(")[0].replace(" ", "_")))


def is_text(dtype: T.DataType) -> bool:
    """Return whether a type is text."""
    return isinstance(dtype, _TEXTS)


def common_scalar(old: T.DataType, new: T.DataType) -> T.DataType | None:
    """Return the narrowest type that holds the values of both without loss, `old` if it does.

    None if there is no such type, or if one of them is a struct, an array or a map.
    """
    if old == new or isinstance(new, T.NullType):
        return old
    if isinstance(old, T.NullType):
        return new
    if is_text(old) and is_text(new):
        return _text(old, new)
    return _number(old, new, {type(old), type(new)}) or _time(old, new)


def _number(old: T.DataType, new: T.DataType, kinds: set[type[T.DataType]]) -> T.DataType | None:
    if kinds <= set(_INTEGERS):
        return old if _INTEGERS[type(old)] >= _INTEGERS[type(new)] else new
    if kinds <= {T.DecimalType, *_INTEGERS}:
        return _decimal(old, new)
    return _floating(kinds) if kinds & {T.FloatType, T.DoubleType} else None


def _text(old: T.DataType, new: T.DataType) -> T.DataType:
    if not isinstance(old, T.CharType | T.VarcharType):
        return old
    if isinstance(new, T.CharType | T.VarcharType):
        return old if old.length >= new.length else T.VarcharType(new.length)
    return T.StringType()


def _decimal(old: T.DataType, new: T.DataType) -> T.DataType | None:
    if isinstance(old, T.DecimalType) and _holds(old, new):
        return old
    if isinstance(new, T.DecimalType) and _fits_integer(new, old):
        return old
    digits, scales = zip(_shape(old), _shape(new), strict=True)
    needed = max(digits) + max(scales)
    return T.DecimalType(needed, max(scales)) if needed <= _MAX_DIGITS else None


def _shape(dtype: T.DataType) -> tuple[int, int]:
    """Return digits before and after the point."""
    if isinstance(dtype, T.DecimalType):
        return dtype.precision - dtype.scale, dtype.scale
    return (_LONG_COLUMN if isinstance(dtype, T.LongType) else _INTEGERS[type(dtype)]), 0


def _holds(old: T.DecimalType, new: T.DataType) -> bool:
    digits, scale = _shape(new)
    if isinstance(new, T.LongType):
        digits = _INTEGERS[T.LongType]
    return old.precision - old.scale >= digits and old.scale >= scale


def _fits_integer(new: T.DecimalType, old: T.DataType) -> bool:
    """Return whether an integer column holds every value of a decimal type."""
    digits = _INTEGERS.get(type(old), 0) - 1
    return new.scale == 0 and new.precision <= digits


def _floating(kinds: set[type[T.DataType]]) -> T.DataType | None:
    if kinds <= {T.FloatType, T.ByteType, T.ShortType}:
        return T.FloatType()
    exact = {T.FloatType, T.DoubleType, T.ByteType, T.ShortType, T.IntegerType}
    return T.DoubleType() if kinds <= exact else None


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
