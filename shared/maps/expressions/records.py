"""The columns of a record as the values that its RECORD message has, and their parts.

What Python refuses for all values of such kinds raises `Fails`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone

from pyspark.sql import Column

from shared.formats.record_text import at_path, plain_text, scalar_text
from shared.formats.schema_nodes import TEXTS
from shared.formats.spark_types import T
from shared.maps.expressions.value_kinds import ANY, NONE, kind_of
from shared.maps.expressions.values import (
    Check,
    F,
    Fails,
    Rule,
    Thunk,
    Value,
    computed,
    lifted,
    over_arrow,
    uncompiled,
)

PATH = "path"
"""In a column's metadata: the names that lead to it, if it is a field inside another column."""

_DAY = 86_400_000_000
_FOUR_DIGIT_YEARS = (-719_162 * _DAY, 2_932_897 * _DAY - 1)
_AS_THEY_ARE = (T.IntegralType, T.DoubleType, T.BooleanType, T.DecimalType, T.NullType)

NEVER_EMPTY = (
    *(T.DateType, T.TimestampType, T.TimestampNTZType, T.TimeType),
    *(T.DayTimeIntervalType, T.YearMonthIntervalType, T.CalendarIntervalType),
)
"""Types whose text in a record is never empty."""


def named(field: T.StructField) -> Column:
    """Return the column, or the field inside one, that a record has under a name."""
    path = field.metadata.get(PATH, (field.name,))
    if functions := over_arrow():
        source: Column = functions.source(tuple(path))
        return source
    return at_path(path)


def column(field: T.StructField) -> Value:
    """Return a column of the record."""
    return _value(lambda: named(field), field.dataType, (field.name,), nullable=field.nullable)


def _value(
    raw: Thunk,
    data_type: T.DataType,
    source: tuple[str, ...],
    error: Thunk | None = None,
    *,
    nullable: bool = True,
) -> Value:
    kind = kind_of(data_type, nullable=nullable)
    view: Thunk | None = lambda: _viewed(raw(), data_type)  # noqa: E731
    why = ""
    nested = isinstance(data_type, (T.StructType, T.ArrayType, T.MapType, T.VariantType))
    if nested and not _is_as_in_json(data_type):
        why = f"a value of type {data_type.simpleString()}" if kind.name != "any" else "a variant"
        view = None
    return Value(kind, view, error, why, source=source, raw=raw, data_type=data_type)


def _is_as_in_json(data_type: T.DataType) -> bool:
    """Return whether a column holds the same as the JSON of a record."""
    if isinstance(data_type, T.StructType):
        return all(_is_as_in_json(below.dataType) for below in data_type)
    if isinstance(data_type, T.ArrayType):
        return _is_as_in_json(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return isinstance(data_type.keyType, TEXTS) and _is_as_in_json(data_type.valueType)
    return data_type == T.StringType() or isinstance(data_type, _AS_THEY_ARE)


def as_read(value: Value) -> Value:
    """Return a value for a use to which null and the number of elements matter, and no more."""
    return value if value.raw is None else replace(value, column=value.raw)


def _viewed(raw: Column, data_type: T.DataType) -> Column:
    """Convert a column to what the JSON of a record has, as text of dates."""
    if functions := over_arrow():
        seen: Column = functions.viewed(raw, data_type)
        return seen
    if _is_as_in_json(data_type):
        return raw
    if isinstance(data_type, T.FloatType):
        # Through its text: the nearest double of 0.1f has more digits than the record has.
        return raw.cast("string").cast("double")
    if isinstance(data_type, TEXTS):
        return raw.cast("string")
    if isinstance(data_type, (T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType)):
        return plain_text(raw, data_type)
    return scalar_text(raw, data_type)


def dated(value: Value) -> Value:
    """Return a value for the first ten characters of its text: of a timestamp, its date.

    The whole text of a timestamp takes several times as long.
    """
    raw, whole = value.raw, value.column
    if raw is None or whole is None or not isinstance(value.data_type, T.TimestampType):
        return value

    def column() -> Column:
        micros = F.unix_micros(raw())
        days = F.call_function("div", micros - F.pmod(micros, F.lit(_DAY)), F.lit(_DAY))
        date = F.date_from_unix_date(days.cast("int")).cast("string")
        return F.when(micros.between(*_FOUR_DIGIT_YEARS), date).otherwise(whole())

    return replace(value, column=column)


_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(\.[0-9]{1,6})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)


def time_text(value: Value, text: object) -> str | None:
    """Return a date-time as the text that a date-time column has for it.

    None if that is the text itself, or there is none. Without a time zone it counts as UTC.
    """
    has_zone = isinstance(value.data_type, T.TimestampType)
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if value.raw is None or match is None or not (has_zone or _is_without_zone(value, match)):
        return None
    day, minute, second, fraction, zone = match.groups()
    zone = "+00:00" if zone in {None, "Z"} else zone
    whole = f"{day}T{minute}{second or ':00'}{(fraction or '.').ljust(7, '0')}"
    try:
        moment = datetime.fromisoformat(f"{whole}{zone}").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
    moment = moment if has_zone else moment.replace(tzinfo=None)
    result = moment.isoformat(timespec="microseconds")
    return None if result == text else result


def _is_without_zone(value: Value, match: re.Match[str]) -> bool:
    return isinstance(value.data_type, T.TimestampNTZType) and match[5] is None


def field(container: Value, key: str) -> Value:
    """Return `container[key]` of a dict."""
    fields = dict(container.kind.fields)
    if not fields:
        kind = (container.kind.values or ANY).or_none()
        return uncompiled(kind, "a key of a dict with any keys", container)
    if key not in fields:
        raise Fails(f"KeyError: '{key}'")
    if container.raw is None or not isinstance(container.data_type, T.StructType):
        return uncompiled(fields[key].or_none(), "a part of a dict", container)
    raw, below = container.raw, container.data_type[key].dataType
    error = none_error(container, "TypeError: 'NoneType' object is not subscriptable")
    return _value(lambda: raw().getField(key), below, (*container.source, key), error)


def none_error(container: Value, text: str) -> Thunk | None:
    """Return the errors of a value, and this one if it is None."""
    checks: list[Check] = [(lambda one: one.isNull(), text)] if container.kind.nullable else []
    return computed(NONE, lambda one: one, as_read(container), checks=checks).error


def item(container: Value, index: Value) -> Value:
    """Return `container[index]` of a list."""
    rule = Rule(_at, [(_outside, "IndexError: list index out of range")])
    return lifted(
        lambda one, at: one[at],
        rule if container.kind.item is not None else None,
        *(container, index),
        kind=(container.kind.item or ANY).or_none(),
        why="a list of values of different types",
    )


def _outside(whole: Column, index: Column) -> Column:
    size, at = F.size(whole), index.cast("bigint")
    return (at >= size) | (at < -size)


def _at(whole: Column, index: Column) -> Column:
    at = index.cast("bigint")
    place = F.when(at < 0, at + F.size(whole)).otherwise(at)
    return F.get(whole, F.when(~_outside(whole, index), place).cast("int"))
