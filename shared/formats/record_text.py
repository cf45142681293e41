"""Records as JSON text, made by Spark.

`to_json` already writes most types exactly. What it does not is turned first, and only in columns
that hold such a type at some depth:

- decimals of more than 6 decimal places (it may write 1E-10), by way of a variant, which writes
  plain digits;
- intervals, as ISO 8601 durations: `[-]PnDTnHnMn.nS` and `[-]PnYnM`;
- time of day, which it cannot write at all;
- keys of maps that are not strings (it writes Spark's internal numbers, or a Java address), as the
  text the same value has elsewhere, and keys of structs or arrays as their JSON text.

Timestamps are in UTC with offset +00:00 and six digits, in any time zone of the session. NaN
and infinities are strings, as `shared/formats/json_schema.py` describes. Nulls are written.

Why beside Arrow's writers: rows that Spark reads become text on its executors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.schema_nodes import TEXTS
from shared.formats.spark_types import T
from shared.settings.texts import quoted

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of `to_json` under which its text is exact."""

Turn = Callable[[Column], Column]

PLAIN_SCALE = 6
"""Decimal places up to which `to_json` never writes an exponent."""
_AS_TEXT = (T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)
_NESTED = (T.StructType, T.ArrayType, T.MapType)
_PLAIN = (
    *TEXTS,
    T.BooleanType,
    T.IntegralType,
    T.FloatType,
    T.DoubleType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


def record_json(columns: T.StructType) -> Column:
    """Return a string column: each row's record as one JSON object, exact for every type."""
    fields = [_written(F.col(quoted(f.name)), f.dataType).alias(f.name) for f in columns.fields]
    return F.to_json(F.struct(*fields), JSON_OPTIONS) if fields else F.lit("{}")


def is_plain_type(data_type: T.DataType) -> bool:
    """Return whether `tap_spark.sources.record_arrays` writes values of a type, too."""
    if isinstance(data_type, T.DecimalType):
        return 0 <= data_type.scale <= PLAIN_SCALE
    return isinstance(data_type, _PLAIN)


def json_column(column: Column, data_type: T.DataType) -> Column:
    """Return the JSON text of a value inside a record; null for null."""
    if isinstance(data_type, _NESTED):
        return F.to_json(_written(column, data_type), JSON_OPTIONS)
    before = len('{"k":')
    text = _alone(column, data_type)
    inside = F.substring(text, before + 1, F.length(text) - (before + 1))
    return F.when(column.isNotNull(), inside)


def plain_text(column: Column, data_type: T.DataType) -> Column:
    """Return the text of a date, time or binary value inside a record; null for null.

    Unlike the ends of `json_column`, it takes the JSON of a row only once.
    """
    # No such text holds a quote.
    inside = F.substring_index(F.substring_index(_alone(column, data_type), '"', -2), '"', 1)
    return F.when(column.isNotNull(), inside)


def scalar_text(column: Column, data_type: T.DataType) -> Column:
    """Return the text of an interval or time of day in a record."""
    return _written(column, data_type).cast("string")


def at_path(path: Sequence[str]) -> Column:
    """Return a column, or a field inside it."""
    column = F.col(quoted(path[0]))
    for name in path[1:]:
        column = column.getField(name)
    return column


def _written(column: Column, data_type: T.DataType) -> Column:
    turn = _turn(data_type)
    return column if turn is None else turn(column)


def _turn(data_type: T.DataType) -> Turn | None:
    """Return the conversion before `to_json`; None if `to_json` writes the value correctly."""
    make = _TURNS.get(type(data_type))
    return make(data_type) if make else None


def _decimal(data_type: T.DecimalType) -> Turn | None:
    return None if data_type.scale <= PLAIN_SCALE else lambda column: column.cast("variant")


def _to_text(column: Column) -> Column:
    return column.cast("string")


def _struct(data_type: T.StructType) -> Turn | None:
    turns = [_turn(field.dataType) for field in data_type.fields]
    if not any(turns):
        return None

    def turn(column: Column) -> Column:
        parts = [
            (f.name, column.getField(f.name), t) for f, t in zip(data_type, turns, strict=True)
        ]
        fields = [(t(part) if t else part).alias(name) for name, part, t in parts]
        return F.when(column.isNotNull(), F.struct(*fields))

    return turn


def _array(data_type: T.ArrayType) -> Turn | None:
    element = _turn(data_type.elementType)
    return None if element is None else lambda column: F.transform(column, element)


def _map(data_type: T.MapType) -> Turn | None:
    key, value = _key(data_type.keyType), _turn(data_type.valueType)
    if key is None and value is None:
        return None

    def turn(column: Column) -> Column:
        if value is not None:
            column = F.transform_values(column, lambda _, v: value(v))
        return column if key is None else F.transform_keys(column, lambda k, _: key(k))

    return turn


def _key(data_type: T.DataType) -> Turn | None:
    """Return the conversion of a map's key to text; None for strings."""
    if isinstance(data_type, TEXTS):
        return None
    if isinstance(data_type, _AS_TEXT):
        return lambda key: plain_text(key, data_type)
    if isinstance(data_type, _NESTED):
        return lambda key: json_column(key, data_type)
    return _to_text if isinstance(data_type, T.DecimalType) else _turn(data_type) or _to_text


def _alone(value: Column, data_type: T.DataType) -> Column:
    """Return the JSON text of an object with only the value, under `k`."""
    return F.to_json(F.struct(_written(value, data_type).alias("k")), JSON_OPTIONS)


def _part(column: Column, name: str) -> Column:
    return F.extract(F.lit(name), column)


def _day_time(column: Column) -> Column:
    column = column.cast("interval day to second")
    names = ("DAY", "HOUR", "MINUTE", "SECOND")
    days, hours, minutes, seconds = (F.abs(_part(column, name)) for name in names)
    negative = F.least(*(F.signum(_part(column, name).cast("double")) for name in names)) < 0
    sign = F.when(negative, "-P").otherwise("P")
    body = F.concat(sign, days, F.lit("DT"), hours, F.lit("H"), minutes, F.lit("M"), seconds)
    return F.concat(body, F.lit("S"))


def _year_month(column: Column) -> Column:
    column = column.cast("interval year to month")
    years, months = _part(column, "YEAR"), _part(column, "MONTH")
    sign = F.when((years < 0) | (months < 0), "-P").otherwise("P")
    return F.concat(sign, F.abs(years), F.lit("Y"), F.abs(months), F.lit("M"))


_TURNS: Mapping[type[T.DataType], Callable[[Any], Turn | None]] = {
    T.StructType: _struct,
    T.ArrayType: _array,
    T.MapType: _map,
    T.DecimalType: _decimal,
    T.TimeType: lambda _: _to_text,
    T.CalendarIntervalType: lambda _: _to_text,
    T.DayTimeIntervalType: lambda _: _day_time,
    T.YearMonthIntervalType: lambda _: _year_month,
}
