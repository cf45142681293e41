"""Convert one JSON value to one Arrow-ready Python value, exactly, or report why not.

The slow but exact half of the reader: `shared/json/json_lines.py` uses it only if Arrow's own JSON
reader rejects a block, and for the few types that reader does not support.
"""

from __future__ import annotations

import binascii
import re
from calendar import monthrange
from collections.abc import Callable
from decimal import Context, Decimal
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa

Value = Any
Convert = Callable[[Value], Value]


class Number(str):
    """A JSON number as it was written, so that every digit is there when its type is known."""

    __slots__ = ()


class Refused(ValueError):  # noqa: N818 - a verdict, not a failure
    """A value does not fit its property.

    Args:
        reason: What is wrong, without the property's name.
        path: Names and positions that lead to the value, outermost first.
    """

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def under(self, name: str) -> Refused:
        """Return the same reject, with the name of the parent before its place."""
        return Refused(self.reason, (name, *self.path))

    def __str__(self) -> str:
        if not self.path:
            return self.reason
        name = self.path[0] + "".join(p if p[:1] == "[" else f".{p}" for p in self.path[1:])
        return f"property '{name}': {self.reason}"


NON_FINITE = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
"""How numbers that JSON lacks are written, in a column of type number."""

_WORDS = {None: "null", True: "true", False: "false"}
_SHOWN = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_INTEGER = re.compile(r"-?\d+\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z", re.ASCII)
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
_DAY_TIME = re.compile(
    r"([+-]?)P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?\Z",
    re.ASCII,
)
_YEAR_MONTH = re.compile(r"([+-]?)P(?=.)(?:(\d+)Y)?(?:(\d+)M)?\Z", re.ASCII)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND


def json_text(value: Value) -> str:
    """Write a decoded value as compact JSON, numbers as they were written (but -0 as 0).

    Raises:
        Refused: For text that is not Unicode (a lone surrogate).
    """
    if isinstance(value, str):
        if type(value) is Number:
            return str(value) if value != "-0" else "0"
        return encode_basestring(text(value))
    if isinstance(value, dict):
        items = (f"{encode_basestring(text(k))}:{json_text(v)}" for k, v in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, float):
        return f'"{_constant(value)}"'
    return _WORDS[value]


def _constant(value: float) -> str:
    return next(name for name, found in NON_FINITE.items() if repr(found) == repr(value))


def shown(value: Value) -> str:
    """Return a value for an error message: JSON-like, short."""
    try:
        whole = f"'{value}'" if type(value) is str else json_text(value)
    except (Refused, RecursionError):
        whole = repr(value)
    whole = whole.encode("utf-8", "backslashreplace").decode()
    whole = _CONTROL.sub(lambda found: repr(found[0])[1:-1], whole)
    return whole if len(whole) <= _SHOWN else whole[:_SHOWN] + "…"


def not_of_type(value: Value, name: str) -> Refused:
    """Return the reject of a value of another type."""
    return Refused(f"{shown(value)} is not of type {name}")


def text(value: Value) -> str:
    """Check that a string is Unicode text."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Refused(f"lone surrogate {value[error.start]!a} is not Unicode text") from None
    return str(value)


def string(strict: bool, any_json: bool) -> Convert:
    """Convert to text; if `any_json` or not strict, convert other values to their JSON text."""

    def convert(value: Value) -> str:
        if type(value) is str:
            return text(value)
        if strict and not any_json:
            raise not_of_type(value, "string")
        return json_text(value)

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
        found = None
        if type(value) is Number:
            try:
                found = int(value)
            except ValueError:
                found = _integer(value)
        elif type(value) is str and not strict:
            found = _integer(value)
        if found is None:
            raise not_of_type(value, "integer")
        if not low <= found <= high:
            raise Refused(f"{shown(value)} is not between {low} and {high}")
        return found

    return convert


def _integer(written: str) -> int | None:
    if _INTEGER.match(written) and len(written) <= _LONGEST_INTEGER:
        return int(written)
    if not _NUMBER.match(written):
        return None
    number = Decimal(written)
    if number and number.adjusted() >= _LONGEST_INTEGER:
        return _BEYOND if number > 0 else -_BEYOND
    whole = int(number)
    return whole if number == whole else None


def decimal(precision: int, scale: int) -> Convert:
    """Convert to a decimal without losing a digit; strings that hold a number are accepted."""
    step = Decimal(1).scaleb(-scale)
    name = f"decimal({precision},{scale})"

    def convert(value: Value) -> Decimal:
        if not isinstance(value, str) or not _NUMBER.match(value):
            raise not_of_type(value, "number")
        number = Decimal(str(value))
        if not number:
            return Decimal(0).quantize(step)
        if number.adjusted() >= precision - scale:
            raise Refused(f"{shown(value)} has too many digits for {name}")
        rounded = number.quantize(step, context=_EXACT)
        if rounded != number:
            raise Refused(f"{shown(value)} has more than {scale} decimal places, for {name}")
        return rounded

    return convert


def floating(single: bool, strict: bool) -> Convert:
    """Convert to the nearest double or float; the words for NaN and infinities are accepted."""

    def convert(value: Value) -> float:
        if isinstance(value, float):
            return value
        if type(value) is str and value in NON_FINITE:
            return NON_FINITE[value]
        if type(value) is not Number and (strict or not _is_number(value)):
            raise not_of_type(value, "number")
        found = _single(value) if single else float(value)
        if found - found != 0:
            raise Refused(f"{shown(value)} is out of range")
        return found

    return convert


def _is_number(value: Value) -> bool:
    return type(value) is str and _NUMBER.match(value) is not None


def _single(written: str) -> float:
    """Round once, to single precision; the way through a double could round twice."""
    found: float = pa.scalar(str(written).lstrip("+")).cast(pa.float32()).as_py()
    return found


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
    found = _instant(value) if type(value) is str else None
    if found is None:
        raise not_of_type(value, "date-time")
    if not -(2**63) <= found < 2**63:
        raise Refused(f"{shown(value)} is out of range")
    return found


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
    found = _clock(*match.groups()) if match else None
    if found is None:
        raise not_of_type(value, "time")
    return found


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
    found = -size if sign == "-" else size
    if not -(2**bits) <= found < 2**bits:
        raise Refused(f"{shown(value)} is out of range")
    return found


def nothing(value: Value) -> None:
    """Reject any value: the column takes only null."""
    raise not_of_type(value, "null")
