"""Numbers, dates and text as Python has them: arithmetic, indices, f-strings, methods.

What of the arithmetic of bigint and double columns Python does with more than 64 bits is an error
of the record; what Spark would round otherwise, and what few maps have (powers, bits), is not
compiled. Values with a time of the day need the evaluator. What Python refuses for all values of
such kinds raises `Fails`.
"""

from __future__ import annotations

import datetime
import operator as python
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any

from pyspark.sql import Column

from shared.maps.expressions.value_kinds import ANY, DATE, FLOAT, STR
from shared.maps.expressions.values import (
    INT_MIN,
    Check,
    F,
    Fails,
    Make,
    Rule,
    Value,
    computed,
    constant,
    lifted,
    literal,
    over_arrow,
    settled,
    uncompiled,
)
from shared.spark.session import try_cast

EXACT = 2**53
"""Up to here every integer is a double."""
OVERFLOW = "OverflowError: an integer of more than 64 bits"

_DIGITS = 18
_GROUPS = 4


def arithmetic(symbol: str, function: Callable[..., Any], left: Value, right: Value) -> Value:
    """Return `left symbol right` of two numbers; `function` is the operator in Python."""
    if left.mixed or right.mixed:
        return _mixed(symbol, function, left, right)
    names = {left.kind.name, right.kind.name}
    floats = "float" in names
    make = None if "decimal" in names else (_FLOATS if floats else _INTEGERS).get(symbol)
    checks: list[Check] = []
    if symbol in {"/", "//", "%"} and not right.is_constant:
        zero = "float division by zero" if floats else "division by zero"
        checks.append((lambda _, b: b.cast("double") == 0.0, f"ZeroDivisionError: {zero}"))
    if make is not None and not floats and symbol in {"+", "-", "*", "//"}:
        checks.append((lambda a, b: make(a, b).isNull(), OVERFLOW))
    # The exponent decides whether a power of integers is one.
    open_power = symbol == "**" and "decimal" not in names and (floats or not right.is_constant)
    kind = (FLOAT if floats else ANY) if open_power else None
    why = f"arithmetic ({symbol}) of {left.kind.not_none()} and {right.kind.not_none()}"
    rule = None if make is None else Rule(make, checks)
    return lifted(function, rule, left, right, kind=kind, why=why)


def _mixed(symbol: str, function: Callable[..., Any], left: Value, right: Value) -> Value:
    """Compute with values that may be small integers instead of floats, if that is exact."""
    sizes = [_size(value) for value in (left, right)]
    bound = sizes[0] * sizes[1] if symbol == "*" else sum(sizes)
    if symbol in {"+", "-", "*", "/"} and bound <= EXACT:
        plain = [replace(value, mixed=0) for value in (left, right)]
        whole = symbol != "/" and all(sizes)
        return replace(arithmetic(symbol, function, *plain), mixed=max(bound, 1) if whole else 0)
    by_evaluator = uncompiled(FLOAT, "arithmetic of a value that is an int or a float", left, right)
    return replace(by_evaluator, mixed=-1)


def _size(value: Value) -> int:
    """Return the greatest integer it may be: 0 for a float, more than `EXACT` for any integer."""
    if value.mixed > 0:
        return value.mixed
    if value.kind.name == "float" and not value.mixed:
        return 0
    return max(abs(value.constant), 1) if isinstance(value.constant, int) else EXACT + 1


def _cast(data_type: str, make: Make) -> Make:
    return lambda *columns: make(*(column.cast(data_type) for column in columns))


def _true_quotient(a: Column, b: Column) -> Column:
    """Return a / b of two bigint as the nearest double.

    It divides doubles if both numbers are exact in one; else it does a long division.
    """
    small = a.between(-EXACT, EXACT) & b.between(-EXACT, EXACT)
    divided = F.try_divide(a.cast("double"), b.cast("double"))
    if functions := over_arrow():
        exact, _ = functions.each(python.truediv, FLOAT, a, b)
        return F.when(small, divided).otherwise(exact)
    by_one = F.when(b == 1, a.cast("double")).when(b == -1, F.negate(a.cast("double")))
    return F.when(small, divided).otherwise(F.coalesce(by_one, _long_division(a, b)))


def _long_division(a: Column, b: Column) -> Column:
    """Return the quotient by its decimal digits, and one more that is not 0 if digits follow.

    A double, and a number half way between two, has at most 72 of them after the point here.
    """

    def digits(dividend: Column, by: Column) -> Column:
        return F.call_function("div", dividend, by).cast("string")

    wide = "decimal(20,0)"
    # 1 is not a divisor here: the quotient would not always be a bigint.
    divisor = F.nullif(F.nullif(F.abs(b.cast(wide)), F.lit(0).cast(wide)), F.lit(1).cast(wide))
    dividend = F.abs(a.cast(wide))
    parts = [F.when((a < 0) != (b < 0), "-").otherwise(""), digits(dividend, divisor), F.lit(".")]
    rest = dividend % divisor
    for _ in range(_GROUPS):
        shifted = rest.cast(wide) * F.lit(10**_DIGITS).cast("decimal(19,0)")
        parts.append(F.lpad(digits(shifted, divisor), _DIGITS, "0"))
        rest = shifted % divisor
    parts.append(F.when(rest != 0, "1").otherwise("0"))
    return F.concat(*parts).cast("double")


def _remainder(a: Column, b: Column) -> Column:
    rest = a % F.nullif(b, literal(0))
    return F.when(_off(rest, b), rest + b).otherwise(rest)


def _floor_quotient(a: Column, b: Column) -> Column:
    """Return a // b of two bigint; null if it has more bits, or b is 0."""
    outside = (b == 0) | ((a == literal(INT_MIN)) & (b == -1))
    divisor = F.when(~outside, b)
    quotient = F.call_function("div", a, divisor)
    return F.when(_off(a % divisor, b), quotient - 1).otherwise(quotient)


def _off(rest: Column, b: Column) -> Column:
    """Return whether a remainder has the sign of the dividend, but Python's has the divisor's."""
    return (rest != 0) & ((rest < 0) != (b < 0))


_INTEGERS: Mapping[str, Make] = {
    "+": _cast("bigint", F.try_add),
    "-": _cast("bigint", F.try_subtract),
    "*": _cast("bigint", F.try_multiply),
    "/": _cast("bigint", _true_quotient),
    "//": _cast("bigint", _floor_quotient),
    "%": _cast("bigint", _remainder),
}
_FLOATS: Mapping[str, Make] = {
    "+": _cast("double", python.add),
    "-": _cast("double", python.sub),
    "*": _cast("double", python.mul),
    "/": _cast("double", F.try_divide),
}
_UNARY: Mapping[str, Mapping[str, Rule]] = {
    "bigint": {
        "+": Rule(_cast("bigint", lambda a: a)),
        "-": Rule(
            _cast("bigint", lambda a: F.try_subtract(literal(0), a)),
            [(lambda a: a.cast("bigint") == literal(INT_MIN), OVERFLOW)],
        ),
    },
    "double": {"+": Rule(_cast("double", lambda a: a)), "-": Rule(_cast("double", F.negate))},
}
_TYPES = {"bool": "bigint", "int": "bigint", "float": "double"}


def unary(symbol: str, function: Callable[..., Any], value: Value) -> Value:
    """Return `-value`, `+value` or `~value`; raise as `arithmetic` does."""
    mixed = 0 if symbol == "~" else value.mixed
    plain = settled(value) if symbol == "~" else replace(value, mixed=0)
    rule = _UNARY.get(_TYPES.get(plain.kind.name, ""), {}).get(symbol)
    why = f"'{symbol}' of {plain.kind.not_none()}"
    return replace(lifted(function, rule, plain, why=why), mixed=mixed)


_OUT_OF_RANGE = "OverflowError: date value out of range"
_ONLY_ISO_DATES = sys.version_info < (3, 11)
_WEEK_DATE = r"\A\d{4}(-W\d\d(-\d)?|W\d\d(\d)?)\z"


def _iso_date(text: Column) -> Column:
    """Return `date.fromisoformat(text)`; null if Python raises."""
    day = F.when(F.rlike(text, F.lit(r"\A\d{4}-\d\d-\d\d\z")), _date(text))
    if _ONLY_ISO_DATES:
        return day
    digits = F.regexp_replace(text, r"\A(\d{4})(\d\d)(\d\d)\z", "$1-$2-$3")
    day = day.when(F.rlike(text, F.lit(r"\A\d{8}\z")), _date(digits))
    return day.when(F.rlike(text, F.lit(_WEEK_DATE)), _week_date(text))


def _week_date(text: Column) -> Column:
    """Return the date of an ISO week and day (Monday by default)."""
    plain = F.translate(text, "-W", "")
    year, week = (try_cast(F.substring(plain, *part), "int") for part in ((1, 4), (5, 2)))
    day = F.coalesce(try_cast(F.substring(plain, 7, 1), "int"), F.lit(1))
    fourth = _date(F.concat(F.substring(plain, 1, 4), F.lit("-01-04")))
    monday = F.date_sub(fourth, F.weekday(fourth))
    # The year has a week 53 if its 28th of December is in one.
    last = F.weekofyear(_date(F.concat(F.substring(plain, 1, 4), F.lit("-12-28"))))
    date = F.date_add(monday, (week - 1) * 7 + day - 1)
    right = (week >= 1) & (week <= last) & (day >= 1) & (day <= 7)  # noqa: PLR2004
    in_range = (F.year(date) >= 1) & (F.year(date) <= 9999)  # noqa: PLR2004
    return F.when(right & (year >= 1) & in_range, date)


def _date(text: Column) -> Column:
    """Return the date of `YYYY-MM-DD`; null if it is not a date, as in year 0."""
    return F.when(~F.startswith(text, F.lit("0000")), try_cast(text, "date"))


def wrong_text(message: str) -> Make:
    """Return the error of a text that has no value."""
    return lambda text: F.concat(F.lit(f"ValueError: {message}: '"), text, F.lit("'"))


_NO_DATE: Check = (lambda text: _iso_date(text).isNull(), wrong_text("Invalid isoformat string"))
FROM_ISO = Rule(_iso_date, [_NO_DATE])
"""How Spark computes `date.fromisoformat`."""
PARTS: Mapping[str, Rule] = {
    "year": Rule(lambda date: F.year(date).cast("bigint")),
    "month": Rule(lambda date: F.month(date).cast("bigint")),
    "day": Rule(lambda date: F.day(date).cast("bigint")),
}
"""How it computes attributes of dates."""
TO_ISO = Rule(lambda date: date.cast("string"))
"""How it computes the method `isoformat` of dates."""


def shifted(function: Callable[..., Any], date: Value, delta: datetime.timedelta) -> Value:
    """Return a date shifted by as many whole days; `function` does it in Python."""
    first, last, days = datetime.date.min, datetime.date.max, delta.days
    if abs(days) > (last - first).days:
        raise Fails(_OUT_OF_RANGE)
    bound = (last if days >= 0 else first) - datetime.timedelta(days)

    def outside(column: Column) -> Column:
        limit = F.lit(bound.isoformat()).cast("date")
        return column > limit if days >= 0 else column < limit

    def make(column: Column) -> Column:
        return F.date_add(F.when(~outside(column), column), F.lit(days))

    return lifted(function, Rule(make, [(outside, _OUT_OF_RANGE)]), date, kind=DATE)


WHITESPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""Characters that `str.strip` removes."""
NUMBER_SPACE = "\t\n\x0b\x0c\r " + "".join(char for char in WHITESPACE if not char.isascii())
"""Characters that `int` and `float` allow around a number."""

_REGEX_SIGNS = frozenset(r"\^$.|?*+()[]{}-&~#")
_FAR = 2**30


def index(text: Value, position: Value) -> Value:
    """Return `text[position]`."""
    at: Any = position.constant
    rule: Rule | None = None
    if isinstance(at, int) and abs(at) < _FAR:
        outside = lambda column, _: F.char_length(column) < (at + 1 if at >= 0 else -at)  # noqa: E731
        rule = Rule(
            lambda column, _: _between(column, at, at + 1 or None),
            [(outside, "IndexError: string index out of range")],
        )
    why = "an index that is not known"
    return lifted(lambda one, key: one[key], rule, text, position, kind=STR, why=why)


def sliced(text: Value, ends: Sequence[Value]) -> Value:
    """Return `text[lower:upper:step]`; compiled for bounds that are known, without a step."""
    low, high, step = (end.constant for end in ends)
    rule: Rule | None = None
    near = all(end is None or (isinstance(end, int) and abs(end) < _FAR) for end in (low, high))
    if near and step in (None, 1):
        rule = Rule(lambda column, *_: _between(column, low, high))
    why = "a slice with a step, or with bounds that are not known"
    cut = lambda one, *bounds: one[slice(*bounds)]  # noqa: E731
    return lifted(cut, rule, text, *ends, kind=STR, always=(ValueError,), why=why)


def _between(text: Column, low: int | None, high: int | None) -> Column:
    """Return the characters from one place to another; below 0 they count from the end."""
    low = low or 0
    if functions := over_arrow():
        part: Column = functions.between(text, low, high)
        return part
    if low >= 0 and (high is None or high >= 0):
        rest = [] if high is None else [F.lit(max(high - low, 0))]
        return F.substr(text, F.lit(low + 1), *rest)
    length = F.char_length(text)
    first = F.lit(low) if low >= 0 else F.greatest(length + low, F.lit(0))
    last = length if high is None else F.lit(high) if high >= 0 else length + high
    return F.substr(text, first + 1, F.greatest(last - first, F.lit(0)))


def text_of(value: Value) -> Value:
    """Return `str(value)`."""
    name = value.kind.name
    if value.is_constant and isinstance(value.constant, (bool, int, float, str, type(None))):
        return constant(str(value.constant))
    if name not in {"none", "bool", "int", "str", "date"}:
        return uncompiled(STR, f"str() of {value.kind.not_none()}", value)
    if name == "str" and not value.kind.nullable:
        return computed(STR, lambda column: column, value)

    def make(column: Column) -> Column:
        text = column.cast("string")
        if name == "bool":
            text = F.when(column, F.lit("True")).when(~column, F.lit("False"))
        return F.coalesce(text, F.lit("None"))

    return computed(STR, make, value)


def method(name: str, args: Sequence[Value], keywords: Mapping[str, Value]) -> Rule | None:
    """Return how Spark computes a method with such arguments; None if it does not."""
    if name == "split":
        named = dict(zip(("sep", "maxsplit"), args, strict=False)) | dict(keywords)
        return _splitting(*(named.get(key, constant(None)).constant for key in ("sep", "maxsplit")))
    if keywords:
        return None
    plain: Mapping[str, tuple[Make, bool]] = {
        "lower": (lower, True),
        "upper": (upper, True),
        "startswith": (F.startswith, [part.kind.name for part in args] == ["str"]),
        "endswith": (F.endswith, [part.kind.name for part in args] == ["str"]),
        "replace": (F.replace, len(args) == 2 and args[0].is_constant and bool(args[0].constant)),  # noqa: PLR2004
        "strip": (_trimming(F.btrim), len(args) <= 1),
        "lstrip": (_trimming(F.ltrim), len(args) <= 1),
        "rstrip": (_trimming(F.rtrim), len(args) <= 1),
    }
    make, able = plain.get(name, (F.concat, False))
    return Rule(make) if able else None


def _trimming(trim: Callable[..., Column]) -> Make:
    return lambda text, *chars: trim(text, F.coalesce(*chars, F.lit(WHITESPACE)))


def _splitting(separator: Any, most: Any) -> Rule | None:
    """Return how Spark splits by a separator that is known, or by white space."""
    most = -1 if most is None else most
    if not isinstance(most, int) or not isinstance(separator, (str, type(None))):
        return None
    if separator is None:
        return Rule(_words) if most < 0 else None
    quoted = "".join("\\" + char if char in _REGEX_SIGNS else char for char in separator)
    pieces = -1 if most < 0 else min(most, _FAR) + 1
    return Rule(lambda column, *_: F.split(column, quoted, pieces))


def _words(text: Column, *_: Column) -> Column:
    words = F.btrim(text, F.lit(WHITESPACE))
    parts = F.split(words, f"[{WHITESPACE}]+", -1)
    return F.when(words == "", F.array().cast("array<string>")).otherwise(parts)


# Spark maps case by ICU, whose Unicode is newer than that of Python before 3.14: the letters that
# Python does not know are left as they are, as Python leaves them.
_NEWER_LETTERS = (
    *((0x1C89, 0x1C8A), (0x2C2F, 0x2C2F), (0x2C5F, 0x2C5F), (0xA7C0, 0xA7C1), (0xA7CB, 0xA7DC)),
    *((0x10570, 0x105BC), (0x10D50, 0x10D85)),
)
"""Letters with another case that came after Unicode 13, the version of the oldest Python here."""
_NEWLY_CASED = r"\x{19b}\x{264}"
"""Letters without a capital before Unicode 16."""
_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"


def upper(text: Column) -> Column:
    """Return `str.upper` of a text."""
    newer = _unknown(_NEWER_LETTERS)
    return _cased(text, F.upper, newer and newer + _NEWLY_CASED)


def lower(text: Column) -> Column:
    """Return `str.lower` of a text.

    Whether a capital sigma ends a word depends on the characters around it, so that all those
    which Python does not know matter.
    """
    newer = _unknown(_NEWER_LETTERS)
    plain = _cased(text, F.lower, newer)
    if not newer or over_arrow():
        return plain
    beside_sigma = _around(text, _unknown(((0, 0x10FFFF),)), F.lower)
    return F.when(F.contains(text, F.lit(_SIGMA)), beside_sigma).otherwise(plain)


def _cased(text: Column, turn: Callable[[Column], Column], unknown: str) -> Column:
    """Convert a text, but the characters of a class only if all of them are ASCII."""
    if not unknown or over_arrow():
        return turn(text)
    return F.when(_is_ascii(text), turn(text)).otherwise(_around(text, unknown, turn))


def _is_ascii(text: Column) -> Column:
    return F.octet_length(text) == F.char_length(text)


@cache
def _unknown(blocks: Sequence[tuple[int, int]]) -> str:
    """Return what Python does not know of some blocks, inside a regular expression's class."""
    codes = (code for first, last in blocks for code in range(first, last + 1))
    missing = enumerate(code for code in codes if unicodedata.category(chr(code)) == "Cn")
    runs = [[code for _, code in run] for _, run in groupby(missing, lambda one: one[1] - one[0])]
    return "".join(rf"\x{{{run[0]:x}}}-\x{{{run[-1]:x}}}" for run in runs)


def _around(text: Column, left: str, turn: Callable[[Column], Column]) -> Column:
    """Convert the text between characters of a class, and leave those unchanged."""
    pieces = F.regexp_extract_all(text, F.lit(f"[{left}]+|[^{left}]+"), F.lit(0))
    stays = F.lit(rf"\A[{left}]")
    turned = F.transform(pieces, lambda one: F.when(F.rlike(one, stays), one).otherwise(turn(one)))
    return F.array_join(turned, "")


def number_text(text: Column) -> Column:
    """Return the text that `int` and `float` read: ASCII digits without space around them."""
    digits = _decimals()
    turned = F.translate(text, digits, "".join(str(unicodedata.decimal(d)) for d in digits))
    plain = F.when(_is_ascii(text), text).otherwise(turned)
    return F.btrim(plain, F.lit(NUMBER_SPACE))


@cache
def _decimals() -> str:
    """Return the decimal digits of all scripts but ASCII's."""
    return "".join(chr(code) for code in range(0x80, 0x110000) if chr(code).isdecimal())
