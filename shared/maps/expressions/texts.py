"""Text: indices, slices, f-strings and the methods that many maps have, as Python has them.

What Python refuses for all values of such kinds raises `Fails`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from pyspark.sql import Column

from shared.maps.expressions.value_kinds import STR
from shared.maps.expressions.values import (
    F,
    Make,
    Rule,
    Value,
    computed,
    constant,
    lifted,
    over_arrow,
    uncompiled,
)

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
