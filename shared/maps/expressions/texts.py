"""Text: operators, f-strings and the methods that many maps have, as Python has them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.maps.expressions.building import (
    Make,
    called,
    computed,
    constant,
    lifted,
    uncompiled,
)
from shared.maps.expressions.kinds import BOOL, INT, STR, Kind
from shared.maps.expressions.values import Call, Value

Part: TypeAlias = "str | tuple[Value, bool]"
"""Text of an f-string, or a value and whether it has a format."""

WHITESPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""Characters that `str.strip` removes."""
NUMBER_SPACE = "\t\n\x0b\x0c\r " + "".join(char for char in WHITESPACE if not char.isascii())
"""Characters that `int` and `float` allow around a number."""

_ALL = range(0x110000)
_REGEX_SIGNS = frozenset(r"\^$.|?*+()[]{}-&~#")


def index(text: Value, position: Value) -> Value:
    """Return `text[position]`.

    Raises:
        Fails: The position is not an integer.
    """
    at: Any = position.known

    def outside(column: Column, _: Column) -> Column:
        short: Column = F.char_length(column) < (at + 1 if at >= 0 else -at)
        return short

    known = isinstance(at, int) and abs(at) < _FAR
    return lifted(
        lambda one, key: one[key],
        (lambda column, _: _between(column, at, at + 1 or None)) if known else None,
        *(text, position),
        kind=STR,
        checks=[(outside, "IndexError: string index out of range")] if known else (),
        why="an index that is not known",
    )


_FAR = 2**30


def sliced(text: Value, ends: Sequence[Value]) -> Value:
    """Return `text[lower:upper:step]`; compiled for bounds that are known, without a step.

    Raises:
        Fails: A bound is not an integer, or the step is 0.
    """
    known = [end.known for end in ends]
    plain = all(end is None or (isinstance(end, int) and abs(end) < _FAR) for end in known)
    able = plain and known[2] in (None, 1)
    return lifted(
        lambda one, *bounds: one[slice(*bounds)],
        (lambda column, *_: _between(column, known[0], known[1])) if able else None,
        *(text, *ends),
        kind=STR,
        always=(ValueError,),
        why="a slice with a step, or with bounds that are not known",
    )


def _between(text: Column, low: int | None, high: int | None) -> Column:
    """Return the characters from one place to another; below 0 they count from the end."""
    low = low or 0
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
    if value.is_known and isinstance(value.known, (bool, int, float, str, type(None))):
        return constant(str(value.known))
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


def formatted(parts: Sequence[Part]) -> Value:
    """Return the text of an f-string."""
    values = [constant(part) if isinstance(part, str) else _formatted(*part) for part in parts]
    if all(value.is_known for value in values):
        return constant("".join(value.known for value in values))
    return computed(STR, F.concat, *values)


def _formatted(value: Value, has_format: bool) -> Value:
    if has_format:
        return uncompiled(STR, f"a format of {value.kind.not_none()}", value)
    return text_of(value)


_KINDS: Mapping[Kind, str] = {
    STR: """lower upper capitalize strip lstrip rstrip replace removeprefix removesuffix join ljust
    rjust center zfill""",
    BOOL: "startswith endswith isascii isdigit isdecimal isnumeric isspace isalpha isalnum",
    INT: "find rfind index rindex count",
    Kind("list", item=STR): "split",
}
METHODS: Mapping[str, Kind] = {
    name: kind for kind, names in _KINDS.items() for name in names.split()
}
"""Methods whose result's kind is known, by name."""


def method(text: Value, name: str, call: Call) -> Value:
    """Return the result of one of `METHODS`.

    Raises:
        Fails: It raises for all arguments of these kinds.
    """
    given = (*call.args, *call.keywords.values())
    find = _MAKERS.get(name)
    make = find(name, call.args) if find and len(call.args) == len(given) else None
    if name == "split":
        make = _splitting(call)

    def python(one: str, *args: object, **keywords: object) -> object:
        return getattr(one, name)(*args, **keywords)

    always = (ValueError,) if name == "split" else ()
    why = f"str.{name}()" + (" with such arguments" if find or name == "split" else "")
    return called(python, make, call, text, kind=METHODS[name], why=why, always=always)


def _case(name: str, args: Sequence[Value]) -> Make | None:
    return None if args else {"lower": lower, "upper": upper}[name]


def _strip(name: str, args: Sequence[Value]) -> Make | None:
    def make(text: Column, chars: Column | None = None) -> Column:
        space = F.lit(WHITESPACE)
        taken = space if chars is None else F.coalesce(chars, space)
        found: Column = getattr(F, "btrim" if name == "strip" else name.replace("strip", "trim"))(
            text, taken
        )
        return found

    return make if len(args) <= 1 else None


def _edge(name: str, args: Sequence[Value]) -> Make | None:
    make = F.startswith if name == "startswith" else F.endswith
    return make if [part.kind.name for part in args] == ["str"] else None


def _replace(_: str, args: Sequence[Value]) -> Make | None:
    return F.replace if len(args) == 2 and args[0].is_known and args[0].known else None  # noqa: PLR2004


_MAKERS: Mapping[str, Callable[[str, Sequence[Value]], Make | None]] = {
    **dict.fromkeys(("lower", "upper"), _case),
    **dict.fromkeys(("strip", "lstrip", "rstrip"), _strip),
    **dict.fromkeys(("startswith", "endswith"), _edge),
    "replace": _replace,
}


def _splitting(call: Call) -> Make | None:
    given = dict(zip(("sep", "maxsplit"), call.args, strict=False)) | dict(call.keywords)
    separator = given.get("sep", constant(None)).known
    most = given.get("maxsplit", constant(-1)).known
    if not isinstance(most, int) or not isinstance(separator, (str, type(None))):
        return None
    if separator is None and most >= 0:
        return None
    pieces = -1 if most < 0 else min(most, _FAR) + 1

    def make(column: Column, *_: Column) -> Column:
        if separator is not None:
            quoted = "".join("\\" + char if char in _REGEX_SIGNS else char for char in separator)
            return F.split(column, quoted, pieces)
        words = F.btrim(column, F.lit(WHITESPACE))
        parts = F.split(words, f"[{WHITESPACE}]+", -1)
        return F.when(words == "", F.array().cast("array<string>")).otherwise(parts)

    return make


# Spark maps case by ICU, whose Unicode is newer than that of Python before 3.14: the letters that
# Python does not know are left as they are, as Python leaves them.
_SPARKS_UNICODE = (16, 0)
_NEWER_LETTERS = (
    *((0x1C89, 0x1C8A), (0x2C2F, 0x2C2F), (0x2C5F, 0x2C5F), (0xA7C0, 0xA7C1), (0xA7CB, 0xA7DC)),
    *((0x10570, 0x105BC), (0x10D50, 0x10D85)),
)
"""Letters with another case that came after Unicode 13, the version of the oldest Python here."""
_NEWLY_CASED = (0x19B, 0x264)
"""Letters without a capital before Unicode 16."""
_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"


def upper(text: Column) -> Column:
    """Return `str.upper` of a text."""
    newer = _newer(_NEWLY_CASED)
    if not newer:
        return F.upper(text)
    return F.when(_is_ascii(text), F.upper(text)).otherwise(_around(text, newer, F.upper))


def lower(text: Column) -> Column:
    """Return `str.lower` of a text.

    Whether a capital sigma ends a word depends on the characters around it, so that all those
    which Python does not know matter.
    """
    newer = _newer()
    if not newer:
        return F.lower(text)
    with_sigma = _around(text, _unassigned(), F.lower)
    return (
        F.when(_is_ascii(text), F.lower(text))
        .when(F.contains(text, F.lit(_SIGMA)), with_sigma)
        .otherwise(_around(text, newer, F.lower))
    )


def _is_ascii(text: Column) -> Column:
    return F.octet_length(text) == F.char_length(text)


@cache
def _newer(more: tuple[int, ...] = ()) -> str:
    """Return the class of the letters whose case Spark knows and Python does not."""
    if tuple(map(int, unicodedata.unidata_version.split(".")[:2])) >= _SPARKS_UNICODE:
        return ""
    codes = (code for first, last in _NEWER_LETTERS for code in range(first, last + 1))
    return _ranges((*more, *filter(_is_unassigned, codes)))


@cache
def _unassigned() -> str:
    return _ranges(filter(_is_unassigned, _ALL))


def _is_unassigned(code: int) -> bool:
    return unicodedata.category(chr(code)) == "Cn"


def _ranges(codes: Iterable[int]) -> str:
    """Return characters as ranges inside a regular expression's class."""
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in found)


def _around(text: Column, left: str, turn: Callable[[Column], Column]) -> Column:
    """Convert the text between characters of a class, and leave those unchanged."""
    pieces = F.regexp_extract_all(text, F.lit(f"[{left}]+|[^{left}]+"), F.lit(0))
    stays = F.lit(rf"\A[{left}]")
    return F.array_join(
        F.transform(
            pieces, lambda piece: F.when(F.rlike(piece, stays), piece).otherwise(turn(piece))
        ),
        "",
    )


def number_text(text: Column) -> Column:
    """Return the text that `int` and `float` read: ASCII digits without space around them."""
    digits = _decimals()
    turned = F.translate(text, digits, "".join(str(unicodedata.decimal(d)) for d in digits))
    plain = F.when(_is_ascii(text), text).otherwise(turned)
    return F.btrim(plain, F.lit(NUMBER_SPACE))


@cache
def _decimals() -> str:
    """Return the decimal digits of all scripts but ASCII's."""
    return "".join(chr(code) for code in _ALL[128:] if chr(code).isdecimal())
