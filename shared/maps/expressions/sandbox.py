"""What an expression may use if Python evaluates it.

Nothing here reaches files, the network, modules or the inside of objects: functions and attributes
are listed one by one, and everything else is rejected. Imports of this project only modules that
are sent to workers by value with it.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import hashlib
import json
import operator
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import simpleeval

from shared.maps.expressions.growth_limits import (
    BUDGET,
    Meter,
    check_encoding,
    integer,
    power,
    rounded,
    shifted_left,
    too_long,
    weight,
    words,
)

_INDENT = 16
_NUMBERS = (bool, int, float, decimal.Decimal)


_DUMPS = words(
    """skipkeys ensure_ascii check_circular allow_nan indent separators default sort_keys"""
)


def summed(items: Iterable[Any], start: Any = 0) -> Any:
    """Return the sum of numbers or durations, as `sum` does."""
    total = start
    for item in (start, *items):
        if not isinstance(item, (*_NUMBERS, datetime.timedelta)):
            raise TypeError(
                f"unsupported operand type(s) for +: '{type(total).__name__}' and "
                f"'{type(item).__name__}'"
            )
    return sum(items, start)


def least(*args: Any, **keywords: Any) -> Any:
    """Return the least value, as `min` does without `key`."""
    _only_default(keywords)
    return min(*args, **keywords)


def greatest(*args: Any, **keywords: Any) -> Any:
    """Return the greatest value, as `max` does without `key`."""
    _only_default(keywords)
    return max(*args, **keywords)


def _only_default(keywords: Mapping[str, Any]) -> None:
    for name in keywords:
        if name != "default":
            raise TypeError(f"got an unexpected keyword argument '{name}'")


def random_integer(top: Any) -> int:
    """Return a random integer below a number, as the SDK does."""
    return int(random.random() * top)  # noqa: S311


def md5(string: Any) -> str:
    """Return the MD5 digest of a text, in hexadecimal."""
    return hashlib.md5(string.encode("utf-8")).hexdigest()  # noqa: S324


def sha256(string: Any) -> str:
    """Return the SHA-256 digest of a text, in hexadecimal."""
    return hashlib.sha256(string.encode("utf-8")).hexdigest()


def json_loads(text: Any) -> Any:
    """Parse JSON as `json.loads` does without options."""
    return json.loads(text)


def json_dumps(value: Any, **keywords: Any) -> str:
    """Write JSON as `json.dumps` does, with most of its options and up to a length."""
    for name in keywords:
        if name not in _DUMPS:
            raise TypeError(f"json.dumps() got an unexpected keyword argument '{name}'")
    indent = keywords.get("indent")
    if (isinstance(indent, int) and indent > _INDENT) or (
        isinstance(indent, str) and len(indent) > 1
    ):
        raise ValueError(f"indent is at most {_INDENT}")
    separators = keywords.get("separators") or ()
    if weight(separators, _INDENT) > _INDENT or weight(value, BUDGET) > BUDGET:
        too_long()
    return json.dumps(value, **keywords)


class Namespace:
    """The part of a module that expressions see.

    Args:
        parts: What it holds, by name.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = parts


def public(kind: type) -> frozenset[str]:
    """Return the public names of a class."""
    return frozenset(name for name in dir(kind) if not name.startswith("_"))


DATETIME = Namespace(
    {
        "MINYEAR": datetime.MINYEAR,
        "MAXYEAR": datetime.MAXYEAR,
        "UTC": datetime.timezone.utc,
        "date": datetime.date,
        "datetime": datetime.datetime,
        "time": datetime.time,
        "timedelta": datetime.timedelta,
        "timezone": datetime.timezone,
    }
)
JSON = Namespace({"dumps": json_dumps, "loads": json_loads})

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
        "max": greatest,
        "md5": md5,
        "min": least,
        "rand": random.random,
        "randint": random_integer,
        "round": rounded,
        "sha256": sha256,
        "str": lambda value="": meter.text(value),
        "sum": summed,
        **containers(meter),
    }


def containers(meter: Meter) -> dict[str, Any]:
    """Return the functions that make containers, by name."""
    return {
        "dict": lambda *args, **items: meter.made(dict(*args, **items)),
        "list": lambda *args: meter.made(list(*args)),
        "set": lambda *args: meter.made(set(*args)),
        "tuple": lambda *args: meter.made(tuple(*args)),
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
