"""Characters as the running Python knows them, for Spark: case, whitespace, digits.

Spark maps case by ICU, whose Unicode is newer than that of Python before 3.14: the letters that
Python does not know are left as they are, as Python leaves them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

SPARKS_UNICODE = (16, 0)
# Letters with another case that came after Unicode 13, the version of the oldest Python here.
_NEWER_LETTERS = (
    (0x1C89, 0x1C8A),
    (0x2C2F, 0x2C2F),
    (0x2C5F, 0x2C5F),
    (0xA7C0, 0xA7C1),
    (0xA7CB, 0xA7DC),
    (0x10570, 0x105BC),
    (0x10D50, 0x10D85),
)
# Letters that had no capital before Unicode 16.
_NEWLY_CASED = (0x19B, 0x264)
_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
_ASCII = range(128)
_ALL = range(0x110000)

WHITESPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What `str.strip` takes away."""
NUMBER_SPACE = "\t\n\x0b\x0c\r " + "".join(char for char in WHITESPACE if not char.isascii())
"""What `int` and `float` allow around a number."""


def is_ascii(text: Column) -> Column:
    """Say whether a text has ASCII characters only."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.octet_length(text) == F.char_length(text)


def upper(text: Column) -> Column:
    """Give `str.upper` of a text."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    newer = _newer(_NEWLY_CASED)
    if not newer:
        return F.upper(text)
    return F.when(is_ascii(text), F.upper(text)).otherwise(_around(text, newer, F.upper))


def lower(text: Column) -> Column:
    """Give `str.lower` of a text.

    Whether a capital sigma ends a word depends on the characters around it, so that all those
    which Python does not know matter.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    newer = _newer()
    if not newer:
        return F.lower(text)
    with_sigma = _around(text, char_class("unassigned"), F.lower)
    return (
        F.when(is_ascii(text), F.lower(text))
        .when(F.contains(text, F.lit(_SIGMA)), with_sigma)
        .otherwise(_around(text, newer, F.lower))
    )


def capitalize(text: Column) -> Column:
    """Give `str.capitalize` of a text: the first character in title case, which may be several."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    first = F.substring(text, 1, 1)
    special = [part for pair in _titles().items() for part in (F.lit(pair[0]), F.lit(pair[1]))]
    titled = F.coalesce(F.try_element_at(F.create_map(*special), first), upper(first))
    whole = lower(text)
    rest = F.when(first == "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", F.substr(whole, F.lit(3)))
    other = F.when(is_ascii(text), F.concat(F.upper(first), F.lower(F.substr(text, F.lit(2)))))
    return other.otherwise(F.concat(titled, rest.otherwise(F.substr(whole, F.lit(2)))))


def ascii_digits(text: Column) -> Column:
    """Turn every decimal digit of any script into the ASCII digit of the same value."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    digits = _decimals()
    turned = F.translate(text, digits, "".join(str(unicodedata.decimal(d)) for d in digits))
    return F.when(is_ascii(text), text).otherwise(turned)


def all_are(text: Column, name: str) -> Column:
    """Say whether a text has characters and `str.<name>()` is true of each of them."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    plain = F.rlike(text, F.lit(rf"\A[{_class(name, _ASCII)}]+\z"))
    return F.when(is_ascii(text), plain).otherwise(
        F.rlike(text, F.lit(rf"\A[{char_class(name)}]+\z"))
    )


@cache
def char_class(name: str) -> str:
    """Give the inside of a regular expression's class: characters of which `str.<name>()` is true.

    Args:
        name: A predicate without arguments of one character, or `unassigned`.
    """
    return _class(name, _ALL)


def _class(name: str, codes: Iterable[int]) -> str:
    return _ranges(filter(_test(name), codes))


def _test(name: str) -> Callable[[int], bool]:
    if name == "unassigned":
        return lambda code: unicodedata.category(chr(code)) == "Cn"
    predicate = getattr(str, name)
    return lambda code: bool(predicate(chr(code)))


def _ranges(codes: Iterable[int]) -> str:
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in found)


@cache
def _newer(more: tuple[int, ...] = ()) -> str:
    """Give the class of the letters whose case Spark knows and Python does not."""
    if tuple(map(int, unicodedata.unidata_version.split(".")[:2])) >= SPARKS_UNICODE:
        return ""
    unknown = filter(_test("unassigned"), (c for a, b in _NEWER_LETTERS for c in range(a, b + 1)))
    return _ranges((*more, *unknown))


def _around(text: Column, left: str, turn: Callable[[Column], Column]) -> Column:
    """Turn what is between the characters of a class, which stay as they are."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    pieces = F.regexp_extract_all(text, F.lit(f"[{left}]+|[^{left}]+"), F.lit(0))
    stays = F.lit(rf"\A[{left}]")
    return F.array_join(
        F.transform(
            pieces, lambda piece: F.when(F.rlike(piece, stays), piece).otherwise(turn(piece))
        ),
        "",
    )


@cache
def _titles() -> dict[str, str]:
    """Give the characters whose title case is not their upper case."""
    chars = map(chr, _ALL)
    return {char: char.title() for char in chars if char.title() != char.upper()}


@cache
def _decimals() -> str:
    return "".join(chr(code) for code in _ALL[128:] if chr(code).isdecimal())
