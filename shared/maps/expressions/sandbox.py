"""What an expression may use if Python evaluates it, and how large values may grow.

Nothing here reaches files, the network, modules or the inside of objects: functions and attributes
are listed one by one, and everything else is rejected. Does not import this project, so that it can
be sent to workers by value.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import hashlib
import json
import operator
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import simpleeval

LONGEST = simpleeval.MAX_STRING_LENGTH
"""Characters or elements that one operation may create from fewer."""
BUDGET = 10_000_000
"""The same for all operations on one record together."""
BITS = 65_536
"""Longest integer between operations; results are 64 bits long."""
DIGITS = 4_000
"""Most decimal places of a power of ten between operations."""


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_ENCODINGS = words("ascii utf8 utf16 utf32 latin1 iso88591 cp1252 windows1252")
_INDENT = 16
# Python itself rejects texts of long integers.
_FLAT = frozenset({bool, int, float, decimal.Decimal, type(None)})
# Length of values from a long record, in lengths of the record.
_TIMES = 20
_SPEC_NUMBER = re.compile(r"\d{5,}", re.ASCII)
_PERCENT = re.compile(
    r"%%|%(\([^)]*\))?[-#0 +]*(\*|[0-9]*)(?:\.(\*|[0-9]*))?",
)


def too_long() -> NoReturn:
    """Raise the error for a value that would be too long."""
    raise simpleeval.IterableTooLong("the result would be too long")


def too_high() -> NoReturn:
    """Raise the error for a number that would be too large."""
    raise simpleeval.NumberTooHigh("the number would be too large")


def _is_heavy(value: object) -> bool:
    """Return whether the text of a value may be too long, as far as its parts tell."""
    is_flat = type(value) is str or type(value) in _FLAT
    return not is_flat and value_weight(value, LONGEST) > LONGEST


def value_weight(value: object, limit: int) -> int:
    """Count the characters and elements that a value's text has at least, at any depth.

    Returns:
        The count; any number above `limit` if it is more than that.
    """
    total, stack = 0, [value]
    while stack and total <= limit:
        item = stack.pop()
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, Mapping):
            total += len(item)
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            total += len(item)
            stack.extend(item)
        else:
            total += item.bit_length() // 3 if isinstance(item, int) else 1
    return total


class Meter:
    """Counts the characters and elements that the evaluation of one record has created so far."""

    def __init__(self) -> None:
        self.begin({})

    def begin(self, record: Mapping[str, Any]) -> None:
        """Start a record; the longer it is, the longer the values made of it may be."""
        self._record = record
        self._limit = BUDGET
        self.spent = 0

    def charged(self, value: Any) -> Any:
        """Count a string or container that an operation has created.

        Raises:
            IterableTooLong: The record has used up its budget.
        """
        if hasattr(value, "__len__"):
            self.count(len(value))
        return value

    def count(self, length: int) -> None:
        """Count some characters or elements; raises as `charged` does."""
        self.spent += length
        if self.spent > self._limit:
            if self._limit == BUDGET:
                self._limit += _TIMES * value_weight(self._record, BUDGET)
            if self.spent > self._limit:
                too_long()

    def added(self, a: Any, b: Any) -> Any:
        """Add; texts and lists only up to a length."""
        if type(a) in _FLAT or type(b) in _FLAT:
            return a + b
        return self.charged(simpleeval.safe_add(a, b))

    def multiplied(self, a: Any, b: Any) -> Any:
        """Multiply; numbers, texts and lists only up to a length."""
        if type(a) is float or type(b) is float:
            return a * b
        if isinstance(a, int) and isinstance(b, int):
            if a.bit_length() + b.bit_length() > BITS:
                too_high()
            return a * b
        for times, what in ((a, b), (b, a)):
            longer = isinstance(times, int) and times > 1 and hasattr(what, "__len__")
            if longer and times * value_weight(what, LONGEST) > LONGEST:
                too_long()
        return self.charged(a * b)

    def remainder(self, a: Any, b: Any) -> Any:
        """Compute the remainder of numbers, or fill in a text's `%` places."""
        if isinstance(a, (str, bytes)):
            percent_fits(a, b)
            return self.charged(a % b)
        return a % b

    def text(self, value: Any = "") -> str:
        """Call `str`, up to a length."""
        if _is_heavy(value):
            too_long()
        text = str(value)
        self.count(len(text))
        return text

    def formatted(self, value: Any, spec: str) -> str:
        """Call `format`, up to a length."""
        if _is_heavy(value) or _SPEC_NUMBER.search(spec):
            too_long()
        text = format(value, spec)
        self.count(len(text))
        return text

    def method(self, text: str, name: str) -> Callable[..., Any]:
        """Return a method of `str` with a limit on the length of its result."""
        length, meth = _LENGTHS[name], getattr(text, name)

        def call(*args: Any, **keywords: Any) -> Any:
            if name == "join" and len(args) == 1 and not isinstance(args[0], (list, tuple, str)):
                args = (list(args[0]),)
            if length(text, *args, **keywords) > max(LONGEST, len(text)):
                too_long()
            return self.charged(meth(*args, **keywords))

        return call


def percent_fits(text: str | bytes, values: Any) -> None:
    """Check that a text does not become long when its `%` places are filled in."""
    plain = text.decode("latin-1") if isinstance(text, bytes) else text
    total, named = len(plain), 0
    for place in _PERCENT.finditer(plain):
        name, width, precision = place.groups()
        if "*" in (width, precision) or len(f"{width or ''}{precision or ''}") > _INDENT:
            too_long()
        named += name is not None
        total += int(width or 0) + int(precision or 0)
    if total + max(named, 1) * value_weight(values, LONGEST) > LONGEST:
        too_long()


def _joined(text: str, parts: Iterable[str]) -> int:
    lengths = [len(part) for part in parts if isinstance(part, str)]
    return sum(lengths) + len(text) * len(lengths)


def _translated(text: str, table: Mapping[int, Any]) -> int:
    if not isinstance(table, dict):
        raise TypeError("translate() takes a dict")
    return len(text) * max((len(new) for new in table.values() if isinstance(new, str)), default=1)


def _replaced(text: str, old: str, new: str, count: int = -1) -> int:
    times = text.count(old) if count < 0 else min(count, text.count(old))
    return times * (len(new) - len(old))


_LENGTHS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), lambda _, width, *_fill: width),
    "expandtabs": lambda text, tabsize=8: text.count("\t") * tabsize,
    "replace": _replaced,
    "join": _joined,
    "translate": _translated,
    "encode": lambda _, encoding="utf-8", *_errors, **_named: check_encoding(encoding),
}
GUARDED = frozenset(_LENGTHS)
"""Methods of `str` that `Meter.method` replaces: how long they make a text at least."""


def check_encoding(name: str = "utf-8") -> int:
    """Reject encodings but a few; looking one up would import a module of that name.

    Raises:
        LookupError: It is not one of those.
    """
    if re.sub(r"[-_ ]", "", name).lower() not in _ENCODINGS:
        raise LookupError(f"unknown encoding: {name}")
    return 0


def power(a: Any, b: Any) -> Any:
    """Raise to a power; integers only up to a length."""
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and abs(b) * a.bit_length() > BITS:
        too_high()
    return simpleeval.safe_power(a, b)


def shifted_left(a: Any, b: Any) -> Any:
    """Shift to the left; integers only up to a length."""
    if isinstance(a, int) and isinstance(b, int) and b + a.bit_length() > BITS:
        too_high()
    return simpleeval.safe_lshift(a, b)


def integer(*args: Any, **keywords: Any) -> int:
    """Call `int`, but not for texts or decimals of thousands of digits."""
    value = args[0] if args else 0
    if isinstance(value, (str, bytes)) and len(value) > LONGEST:
        too_long()
    _check_digits(value)
    return int(*args, **keywords)


def rounded(number: Any, ndigits: int | None = None) -> Any:
    """Call `round`, but not for thousands of digits."""
    _check_digits(number)
    if isinstance(ndigits, int) and abs(ndigits) > DIGITS:
        too_high()
    return round(number, ndigits)


def _check_digits(value: Any) -> None:
    if isinstance(value, decimal.Decimal) and value.is_finite() and value.adjusted() > DIGITS:
        too_high()


_SUMMABLE = (bool, int, float, decimal.Decimal, datetime.timedelta)
_DUMPS = words(
    """skipkeys ensure_ascii check_circular allow_nan indent separators default sort_keys"""
)


def summed(items: Iterable[Any], start: Any = 0) -> Any:
    """Return the sum of numbers or durations, as `sum` does."""
    parts = [start, *items]
    for part in parts:
        if not isinstance(part, _SUMMABLE):
            text = f"unsupported operand type(s) for +: '{type(start).__name__}' and "
            raise TypeError(f"{text}'{type(part).__name__}'")
    return sum(parts[1:], start)


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `min` or `max` without `key`."""

    def call(*args: Any, **keywords: Any) -> Any:
        for name in keywords.keys() - {"default"}:
            raise TypeError(f"got an unexpected keyword argument '{name}'")
        return function(*args, **keywords)

    return call


def json_dumps(value: Any, **keywords: Any) -> str:
    """Write JSON as `json.dumps` does, with most of its options and up to a length."""
    for name in keywords:
        if name not in _DUMPS:
            raise TypeError(f"json.dumps() got an unexpected keyword argument '{name}'")
    indent = keywords.get("indent")
    if (len(indent) > 1) if isinstance(indent, str) else (indent or 0) > _INDENT:
        raise ValueError(f"indent is at most {_INDENT}")
    separators = keywords.get("separators") or ()
    if value_weight(separators, _INDENT) > _INDENT or value_weight(value, BUDGET) > BUDGET:
        too_long()
    return json.dumps(value, **keywords)


class Namespace:
    """The part of a module that expressions see, by name."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = parts


def public(kind: type) -> frozenset[str]:
    """Return the public names of a class."""
    return frozenset(name for name in dir(kind) if not name.startswith("_"))


_OF_DATETIME = ("MINYEAR", "MAXYEAR", "date", "datetime", "time", "timedelta", "timezone")
DATETIME = Namespace(
    {"UTC": datetime.timezone.utc, **{name: getattr(datetime, name) for name in _OF_DATETIME}}
)
# Without options, which are functions.
JSON = Namespace({"dumps": json_dumps, "loads": lambda text: json.loads(text)})  # noqa: PLW0108

_TEXT = words(
    """capitalize casefold center count encode endswith expandtabs find index isalnum isalpha
    isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle
    isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex
    rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title
    translate upper zfill"""
)
_DATES = public(datetime.date) | public(datetime.datetime) | public(datetime.time)
_WHOLE = words(
    """as_integer_ratio bit_count bit_length conjugate denominator imag is_integer numerator
    real"""
)
ATTRIBUTES: dict[type, frozenset[str]] = {
    str: _TEXT,
    bytes: frozenset({"hex", "decode"}),
    bool: _WHOLE,
    int: _WHOLE,
    float: words("as_integer_ratio conjugate hex imag is_integer real"),
    complex: frozenset({"conjugate", "imag", "real"}),
    decimal.Decimal: words(
        """adjusted conjugate copy_abs copy_negate imag is_finite is_infinite
    is_nan is_signed is_zero normalize quantize real to_integral_value"""
    ),
    dict: frozenset({"copy", "get", "items", "keys", "pop", "values"}),
    list: frozenset({"copy", "count", "index", "pop"}),
    tuple: frozenset({"count", "index"}),
    set: words(
        """copy difference intersection isdisjoint issubset issuperset symmetric_difference union"""
    ),
    datetime.date: _DATES,
    datetime.datetime: _DATES,
    datetime.time: _DATES,
    datetime.timedelta: public(datetime.timedelta),
    datetime.timezone: public(datetime.timezone),
    time.struct_time: frozenset(name for name in dir(time.struct_time) if name.startswith("tm_")),
}
"""Attributes of values; those of a class that is itself a value are the same."""
CLASSES = frozenset(value for value in DATETIME.parts.values() if isinstance(value, type))
"""Classes that can be a value."""


def bytes_text(data: bytes, name: str) -> Callable[..., Any]:
    """Return a method of `bytes`; `decode` for a few encodings only."""

    def decode(encoding: str = "utf-8", errors: str = "strict") -> str:
        check_encoding(encoding)
        return data.decode(encoding, errors)

    return decode if name == "decode" else data.hex


def attributes() -> dict[type, frozenset[str]]:
    """Return `ATTRIBUTES`, and those of a class that cannot be sent to workers by value."""
    week = type(datetime.date(2000, 1, 1).isocalendar())
    return {**ATTRIBUTES, week: frozenset({"year", "week", "weekday"})}


def functions(meter: Meter) -> dict[str, Any]:
    """Return the functions and values by the names that expressions use."""
    return {
        "abs": abs,
        "bool": bool,
        "datetime": DATETIME,
        "float": float,
        "int": integer,
        "json": JSON,
        "len": len,
        "max": _extreme(max),
        "md5": lambda string: hashlib.md5(string.encode("utf-8")).hexdigest(),  # noqa: S324
        "min": _extreme(min),
        "rand": random.random,
        "randint": lambda top: int(random.random() * top),  # noqa: S311
        "round": rounded,
        "sha256": lambda string: hashlib.sha256(string.encode("utf-8")).hexdigest(),
        "str": meter.text,
        "sum": summed,
        **containers(meter),
    }


def containers(meter: Meter) -> dict[str, Any]:
    """Return the functions that make containers, by name."""
    return {
        "dict": lambda *args, **items: meter.charged(dict(*args, **items)),
        "list": lambda *args: meter.charged(list(*args)),
        "set": lambda *args: meter.charged(set(*args)),
        "tuple": lambda *args: meter.charged(tuple(*args)),
    }


def operators(meter: Meter) -> dict[type[ast.AST], Callable[..., Any]]:
    """Return the function of each operator."""
    return {
        **simpleeval.DEFAULT_OPERATORS,
        ast.Add: meter.added,
        ast.Mult: meter.multiplied,
        ast.Mod: meter.remainder,
        ast.Pow: power,
        ast.LShift: shifted_left,
        ast.In: lambda item, container: operator.contains(container, item),
        ast.NotIn: lambda item, container: not operator.contains(container, item),
    }
