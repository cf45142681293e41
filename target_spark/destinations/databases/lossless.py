"""Which changes of a column's type keep every value. Pure."""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812

_DIGITS: dict[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 19,
}
_EXACT_IN_DOUBLE = (T.ByteType, T.ShortType, T.IntegerType, T.FloatType)


def holds_all(old: T.DataType, new: T.DataType) -> bool:
    """Whether a column of the new type holds every value of the old one."""
    if type(old) in _DIGITS and type(new) in _DIGITS:
        return _DIGITS[type(old)] <= _DIGITS[type(new)]
    if isinstance(new, T.DecimalType):
        return _fits(old, new)
    if isinstance(new, T.DoubleType):
        return isinstance(old, _EXACT_IN_DOUBLE)
    if isinstance(new, T.FloatType):
        return isinstance(old, T.ByteType | T.ShortType)
    if isinstance(new, T.TimestampNTZType):
        return isinstance(old, T.DateType)
    return False


def _fits(old: T.DataType, new: T.DecimalType) -> bool:
    whole = new.precision - new.scale
    if isinstance(old, T.DecimalType):
        return old.scale <= new.scale and old.precision - old.scale <= whole
    return type(old) in _DIGITS and _DIGITS[type(old)] <= whole
