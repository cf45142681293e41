"""JSON values to Arrow-ready Python values, exactly, with a reason for each reject.

For the few types that Arrow's own JSON reader does not support, and for the lines that it rejects.

Why beside `fast_json`: Arrow does not say which record of a block is wrong, nor why.
"""

from __future__ import annotations

import binascii
import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from shared.formats.json_text import (
    DECODER,
    NON_FINITE,
    Number,
    Refused,
    Value,
    bare_text,
    json_text,
    not_of_type,
    shown_value,
    text,
)
from shared.formats.schema_nodes import INTEGER_WIDTHS, TEXTS, JsonText
from shared.formats.spark_types import T

Convert = Callable[[Value], Value]


_INTEGER = re.compile(r"-?\d+\Z", re.ASCII)
NUMBER_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z", re.ASCII)
_EXACT = Context(prec=100)
_LONGEST_INTEGER = 40
_BEYOND = int("1" + "0" * _LONGEST_INTEGER)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\Z")
_TIME_PART = r"(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?"
_YEAR = r"\d{4}|-\d{4,6}|\+\d{4,6}"
"""Years before 1 and after 9999 have a sign; the year 0 is 1 BC."""
_INSTANT = re.compile(
    rf"({_YEAR})-(\d\d)-(\d\d)(?:[Tt ]{_TIME_PART} ?([Zz]|[+-]\d\d(?::?\d\d)?)?)?\Z", re.ASCII
)
_DATE = re.compile(rf"({_YEAR})-(\d\d)-(\d\d)\Z", re.ASCII)
_TIME = re.compile(rf"{_TIME_PART}\Z", re.ASCII)
_WHOLE = r"(\d{1,99})"
_DAY_TIME = re.compile(
    rf"([+-]?)P(?=.)(?:{_WHOLE}D)?(?:T(?=.)(?:{_WHOLE}H)?(?:{_WHOLE}M)?"
    rf"(?:{_WHOLE}(?:\.(\d{{1,6}}))?S)?)?\Z",
    re.ASCII,
)
_YEAR_MONTH = re.compile(rf"([+-]?)P(?=.)(?:{_WHOLE}Y)?(?:{_WHOLE}M)?\Z", re.ASCII)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND


def string(strict: bool, any_json: bool) -> Convert:
    """Convert to text; if `any_json` or not strict, convert other values to their JSON text."""

    def convert(value: Value) -> str:
        if type(value) is str:
            return text(value)
        if strict and not any_json:
            raise not_of_type(value, "string")
        return bare_text(value)

    return convert


def boolean(strict: bool) -> Convert:
    """Convert to a boolean."""
    words = {} if strict else {"true": True, "false": False}

    def convert(value: Value) -> bool:
        if isinstance(value, bool):
            return value
        if type(value) is str and value in words:
            return words[value]
        raise not_of_type(value, "boolean")

    return convert


def integer(low: int, high: int, strict: bool) -> Convert:
    """Convert to an integer in a range; 1.0 and 1e3 are integers to JSON Schema."""

    def convert(value: Value) -> int:
        number = None
        if type(value) is Number:
            try:
                number = int(value)
            except ValueError:
                number = _integer(value)
        elif type(value) is str and not strict:
            number = _integer(value)
        if number is None:
            raise not_of_type(value, "integer")
        if not low <= number <= high:
            raise Refused(f"{shown_value(value)} is not between {low} and {high}")
        return number

    return convert


def _integer(written: str) -> int | None:
    if _INTEGER.match(written) and len(written) <= _LONGEST_INTEGER:
        return int(written)
    if not NUMBER_TEXT.match(written):
        return None
    number = _number(written)
    if number and number.adjusted() >= _LONGEST_INTEGER:
        return _BEYOND if number > 0 else -_BEYOND
    whole = int(number)
    return whole if number == whole else None


def _number(written: str) -> Decimal:
    try:
        return Decimal(str(written))
    except InvalidOperation:  # an exponent of 18 digits or more
        raise Refused(f"{shown_value(written)} is out of range") from None


def decimal(precision: int, scale: int) -> Convert:
    """Convert to a decimal without losing a digit; strings that hold a number are accepted."""
    step = Decimal(1).scaleb(-scale)
    name = f"decimal({precision},{scale})"

    def convert(value: Value) -> Decimal:
        if not isinstance(value, str) or not NUMBER_TEXT.match(value):
            raise not_of_type(value, "number")
        number = _number(value)
        if not number:
            return Decimal(0).quantize(step)
        if number.adjusted() >= precision - scale:
            raise Refused(f"{shown_value(value)} has too many digits for {name}")
        rounded = number.quantize(step, context=_EXACT)
        if rounded != number:
            raise Refused(f"{shown_value(value)} has more than {scale} decimal places, for {name}")
        return rounded

    return convert


def floating(single: bool, strict: bool) -> Convert:
    """Convert to the nearest double or float; the words for NaN and infinities are accepted."""

    def convert(value: Value) -> float:
        if isinstance(value, float):
            return value
        if type(value) is str and value in NON_FINITE:
            return NON_FINITE[value]
        is_text = type(value) is str and not strict and NUMBER_TEXT.match(value)
        if type(value) is not Number and not is_text:
            raise not_of_type(value, "number")
        number = _single(value) if single else float(value)
        if number - number != 0:
            raise Refused(f"{shown_value(value)} is out of range")
        return number

    return convert


def _single(written: str) -> float:
    """Round once, to single precision; the way through a double could round twice."""
    number: float = pa.scalar(str(written).lstrip("+")).cast(pa.float32()).as_py()
    return number


def binary(value: Value) -> bytes:
    """Decode base64."""
    if type(value) is not str or not _BASE64.match(value):
        raise not_of_type(value, "binary in base64")
    return binascii.a2b_base64(value)


def _days(year: int, month: int, day: int) -> int | None:
    """Count days since 1970-01-01 in the proleptic Gregorian calendar; None for an invalid day."""
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(year or 4, month)[1]:  # noqa: PLR2004
        return None
    shifted = year - (month <= 2)  # noqa: PLR2004
    era_day = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + era_day - 719_468


def date(strict: bool) -> Convert:
    """Convert to days since 1970; if not strict, accept midnight of a day."""

    def convert(value: Value) -> int:
        match = _DATE.match(value) if type(value) is str else None
        days = _days(*map(int, match.groups())) if match else None
        if days is None and not strict and type(value) is str:
            micros = _instant(value)
            days = micros // _DAY if micros is not None and micros % _DAY == 0 else None
        if days is None:
            raise not_of_type(value, "date")
        return days

    return convert


def instant(value: Value) -> int:
    """Convert to microseconds since 1970 UTC; without a zone it is UTC; truncate finer digits."""
    moment = _instant(value) if type(value) is str else None
    if moment is None:
        raise not_of_type(value, "date-time")
    if not -(2**63) <= moment < 2**63:
        raise Refused(f"{shown_value(value)} is out of range")
    return moment


def _instant(written: str) -> int | None:
    match = _INSTANT.match(written)
    if not match:
        return None
    days = _days(*(int(part) for part in match.group(1, 2, 3)))
    clock = _clock(*match.group(4, 5, 6, 7))
    offset = _offset(match[8])
    if days is None or clock is None or offset is None:
        return None
    return days * _DAY + clock - offset


def _clock(
    hour: str | None, minute: str | None, second: str | None, part: str | None
) -> int | None:
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:  # noqa: PLR2004
        return None
    return (hours * 3600 + minutes * 60 + seconds) * _SECOND + _micros(part)


def _micros(digits: str | None) -> int:
    return int(((digits or "") + "000000")[:6])


def _offset(zone: str | None) -> int | None:
    if not zone or zone in "Zz":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0  # noqa: PLR2004
    if hours > 23 or minutes > 59:  # noqa: PLR2004
        return None
    return (hours * 60 + minutes) * 60 * _SECOND * (-1 if zone[0] == "-" else 1)


def time(value: Value) -> int:
    """Convert to microseconds since midnight."""
    match = _TIME.match(value) if type(value) is str else None
    clock = _clock(*match.groups()) if match else None
    if clock is None:
        raise not_of_type(value, "time")
    return clock


def day_time(value: Value) -> int:
    """Convert an ISO 8601 duration of days to fractions of a second to microseconds."""
    match = _DAY_TIME.match(value) if type(value) is str else None
    if not match:
        raise not_of_type(value, "duration")
    days, hours, minutes, seconds = (int(part or 0) for part in match.group(2, 3, 4, 5))
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return _signed(match[1], total * _SECOND + _micros(match[6]), 63, value)


def year_month(value: Value) -> int:
    """Convert an ISO 8601 duration of years and months to months."""
    match = _YEAR_MONTH.match(value) if type(value) is str else None
    if not match:
        raise not_of_type(value, "duration")
    return _signed(match[1], int(match[2] or 0) * 12 + int(match[3] or 0), 31, value)


def _signed(sign: str, size: int, bits: int, value: Value) -> int:
    signed = -size if sign == "-" else size
    if not -(2**bits) <= signed < 2**bits:
        raise Refused(f"{shown_value(value)} is out of range")
    return signed


def nothing(value: Value) -> None:
    """Reject any value: the column takes only null."""
    raise not_of_type(value, "null")


_QUOTED = (
    *TEXTS,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.TimeType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
)


def field_values(
    struct: T.StructType, strict: bool
) -> Callable[[Mapping[str, Value]], list[Value]]:
    """Return the function that converts a decoded object to one value for each column."""
    plans = [
        (f.name, converter(f.dataType, strict), f.nullable or not strict) for f in struct.fields
    ]

    def convert(record: Mapping[str, Value]) -> list[Value]:
        values, get, name = [], record.get, ""
        try:
            for name, change, nullable in plans:
                value = get(name)
                values.append(change(value) if value is not None else _null(nullable))
        except Refused as refused:
            raise refused.under(name) from None
        return values

    return convert


def _null(nullable: bool) -> Value:
    if not nullable:
        raise Refused("null or missing where a value is required")
    return None


def _value(value: Value, name: str, convert: Convert, nullable: bool) -> Value:
    try:
        return convert(value) if value is not None else _null(nullable)
    except Refused as refused:
        raise refused.under(name) from None


def converter(data_type: T.DataType, strict: bool) -> Convert:
    """Return the function that turns a non-null JSON value into what Arrow takes."""
    make = _CONVERTERS.get(type(data_type))
    return make(data_type, strict) if make else string(strict, any_json=False)


def _struct(data_type: T.StructType, strict: bool) -> Convert:
    fields = field_values(data_type, strict)

    def convert(value: Value) -> dict[str, Value]:
        if not isinstance(value, dict):
            raise not_of_type(value, "object")
        return dict(zip(data_type.names, fields(value), strict=True))

    return convert


def _array(data_type: T.ArrayType, strict: bool) -> Convert:
    element = converter(data_type.elementType, strict)
    nullable = data_type.containsNull or not strict

    def convert(value: Value) -> list[Value]:
        if not isinstance(value, list):
            raise not_of_type(value, "array")
        return [_value(item, f"[{i}]", element, nullable) for i, item in enumerate(value)]

    return convert


def _map(data_type: T.MapType, strict: bool) -> Convert:
    element = converter(data_type.valueType, strict)
    nullable = data_type.valueContainsNull or not strict
    key_of = _key(data_type.keyType)

    def convert(value: Value) -> list[tuple[Value, Value]]:
        if not isinstance(value, dict):
            raise not_of_type(value, "object")
        return [(key_of(k), _value(v, k, element, nullable)) for k, v in value.items()]

    return convert


def _key(data_type: T.DataType) -> Convert:
    """Return the function that reads a map's key from the text it has in JSON."""
    convert = converter(data_type, True)
    if isinstance(data_type, _QUOTED):
        return convert

    def from_text(key: str) -> Value:
        if key in NON_FINITE:
            return convert(key)
        try:
            return convert(DECODER.decode(key))
        except (ValueError, RecursionError):
            raise not_of_type(key, data_type.simpleString()) from None

    return from_text


_CONVERTERS: Mapping[type[T.DataType], Callable[[Any, bool], Convert]] = {
    T.StructType: _struct,
    T.ArrayType: _array,
    T.MapType: _map,
    T.DecimalType: lambda kind, _: decimal(kind.precision, kind.scale),
    **dict.fromkeys(INTEGER_WIDTHS, lambda k, strict: integer(*INTEGER_WIDTHS[type(k)], strict)),
    T.NullType: lambda *_: nothing,
    T.FloatType: lambda _, strict: floating(True, strict),
    T.DoubleType: lambda _, strict: floating(False, strict),
    T.BooleanType: lambda _, strict: boolean(strict),
    T.BinaryType: lambda *_: binary,
    T.DateType: lambda _, strict: date(strict),
    T.TimestampType: lambda *_: instant,
    T.TimestampNTZType: lambda *_: instant,
    T.TimeType: lambda *_: time,
    T.DayTimeIntervalType: lambda *_: day_time,
    T.YearMonthIntervalType: lambda *_: year_month,
    T.VariantType: lambda *_: json_text,
    JsonText: lambda _, strict: string(strict, True),
}
