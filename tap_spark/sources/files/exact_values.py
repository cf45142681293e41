"""Text as values of the types of `schema`: of the same value, or rejected.

`inference` asks more of types that it chose: they keep the text, too.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.spark.session import try_cast

DOUBLE_DIGITS, FLOAT_DIGITS = 15, 6
"""Digits that a float of 64 or 32 bits keeps, whatever they are."""
_LEAST: dict[type[T.DataType], float] = {T.DoubleType: 2.3e-308, T.FloatType: 1.2e-38}
"""Smaller values keep fewer digits."""

_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?\z"
_INFINITE = r"^(?:[Nn]a[Nn]|[+-]?(?:Inf|Infinity|INF|inf|infinity))\z"
_DAY = r"^[+-]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"
_CLOCK = r"[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]{1,6}0*)?)?"
_ZONE = r" ?(?:[A-Za-z+-][A-Za-z0-9_+:/-]*)?"
_FORMS: dict[type[T.DataType], str] = {
    T.ByteType: r"^[+-]?[0-9]+\z",
    T.ShortType: r"^[+-]?[0-9]+\z",
    T.IntegerType: r"^[+-]?[0-9]+\z",
    T.LongType: r"^[+-]?[0-9]+\z",
    T.BooleanType: r"^(?i:true|false)\z",
    T.DateType: _DAY + r"(?:[ T]00:00(?::00(?:\.0+)?)?)?\z",
    T.TimestampType: _DAY + rf"(?:[ T]{_CLOCK}{_ZONE})?\z",
    T.TimestampNTZType: _DAY + rf"(?:[ T]{_CLOCK})?\z",
}


def has_same_value(text: Column, value: Column, dtype: T.DataType) -> Column:
    """Return whether a cast has kept the value of a text; null or false if the cast is null."""
    if isinstance(dtype, T.DecimalType):
        digits, power = _digits(text)
        fits = (digits == "") | (power >= -dtype.scale)
        return value.isNotNull() & text.rlike(_NUMBER) & fits
    if isinstance(dtype, (T.DoubleType, T.FloatType)):
        return (text.rlike(_NUMBER) & _same_float(text, value, dtype)) | text.rlike(_INFINITE)
    if isinstance(dtype, (T.VarcharType, T.CharType)):
        return F.length(text) <= dtype.length
    form = _FORMS.get(type(dtype))
    if form is None and dtype.typeName() == "time":
        form = rf"^{_CLOCK}\z"
    return value.isNotNull() & (text.rlike(form) if form else F.lit(True))


def _same_float(text: Column, value: Column, dtype: T.DataType) -> Column:
    """Return whether the nearest float is written with the digits of the text."""
    digits, power = _digits(text)
    kept, kept_power = _digits(value.cast("string"))
    most = DOUBLE_DIGITS if isinstance(dtype, T.DoubleType) else FLOAT_DIGITS
    is_sure = (F.length(text) <= most) & F.abs(value).between(_LEAST[type(dtype)], F.lit(1e30))
    return is_sure | ((digits == kept) & ((digits == "") | (power == kept_power)))


def _digits(text: Column) -> tuple[Column, Column]:
    """Return the digits of a number without zeros around them, and the power of the last one."""
    lower = F.lower(text)
    mantissa = F.substring_index(lower, "e", 1)
    written = F.when(F.instr(lower, "e") > 0, F.substring_index(lower, "e", -1)).otherwise("0")
    whole = F.regexp_replace(mantissa, "[^0-9]", "")
    places = F.when(
        F.instr(mantissa, ".") > 0, F.length(F.substring_index(mantissa, ".", -1))
    ).otherwise(0)
    kept = F.rtrim(whole, F.lit("0"))
    power = try_cast(written, "int") - places + F.length(whole) - F.length(kept)
    return F.ltrim(kept, F.lit("0")), power
