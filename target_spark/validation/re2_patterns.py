r"""Patterns for Arrow (RE2) that match only texts which Python's `re` matches too.

A pattern is parsed by Python's own parser and rewritten, atom by atom, for RE2. If the
two differ in their sets of characters (`\d`, `\s`, `\w` beyond ASCII), the smaller one is
used; if a match is uncertain (look-around, references, flags, word ends), the result is None.
A text that RE2 does not match is only suspected.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_MOST_REPEATS = 1000
_MOST_CHARACTERS = 1000
_CATEGORIES = {
    "CATEGORY_DIGIT": "0-9",
    "CATEGORY_SPACE": r"\t\n\x{b}\f\r ",
    "CATEGORY_WORD": "0-9A-Za-z_",
    "CATEGORY_NOT_DIGIT": r"\x{0}-/:-\x{7f}",
    "CATEGORY_NOT_SPACE": r"\x{0}-\x{8}\x{e}-\x{1b}!-\x{7f}",
    "CATEGORY_NOT_WORD": r"\x{0}-/:-@\[-\^`\{-\x{7f}",
}
_POSITIONS = {
    "AT_BEGINNING": r"\A",
    "AT_BEGINNING_STRING": r"\A",
    "AT_END": r"\z",
    "AT_END_STRING": r"\z",
}


class _NoPattern(Exception):  # noqa: N818 - an answer, not an error
    """RE2 may differ."""


@lru_cache(maxsize=512)
def certain_pattern(pattern: str) -> str | None:
    """Return a pattern for RE2 whose matches `re.search` finds too; None if not possible."""
    if len(pattern) > _MOST_CHARACTERS:
        return None
    try:
        tree = parsed(pattern)
        if tree is None or tree.state.flags & ~re.UNICODE:
            return None
        written = _sequence(tree)
        pc.match_substring_regex(pa.array([""]), written)
    except (_NoPattern, re.error, pa.ArrowInvalid, RecursionError, OverflowError):
        return None
    return written


def parsed(pattern: str) -> Any:
    """Return a pattern parsed by Python; None if Python's parser cannot be found.

    Raises:
        re.error: It is not a pattern.
    """
    parser = _parser()
    return None if parser is None else parser.parse(pattern)


def _parser() -> Any:
    for name in ("re._parser", "sre_parse"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _sequence(items: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_atom(str(code), value) for code, value in items)


def _atom(code: str, value: Any) -> str:
    if code not in _ATOMS:
        raise _NoPattern
    return _ATOMS[code](value)


def _character(code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 - lone surrogates are in no Arrow text
        raise _NoPattern
    return f"\\x{{{code:x}}}"


def _range(value: tuple[int, int]) -> str:
    low, high = value
    return f"{_character(low)}-{_character(high)}"


def _category(value: Any) -> str:
    return _CATEGORIES[str(value)]


_MEMBERS: dict[str, Callable[[Any], str]] = {
    "LITERAL": _character,
    "RANGE": _range,
    "CATEGORY": _category,
}


def _set(members: list[tuple[Any, Any]]) -> str:
    codes = [str(code) for code, _ in members]
    is_negated = codes[0] == "NEGATE"
    if is_negated and "CATEGORY" in codes:
        raise _NoPattern
    found = [_MEMBERS[code](value) for code, (_, value) in zip(codes, members, strict=True)
             if code != "NEGATE"]  # fmt: skip
    return f"[{'^' if is_negated else ''}{''.join(found)}]"


def _repeat(value: tuple[Any, Any, Any]) -> str:
    low, high, items = value
    top = "" if str(high) == "MAXREPEAT" else int(high)
    if int(low) > _MOST_REPEATS or (top != "" and int(top) > _MOST_REPEATS):
        raise _NoPattern
    return f"(?:{_sequence(items)}){{{int(low)},{top}}}"


def _group(value: tuple[Any, int, int, Any]) -> str:
    _, added, removed, items = value
    if added or removed:
        raise _NoPattern
    return f"(?:{_sequence(items)})"


def _branch(value: tuple[Any, list[Any]]) -> str:
    return f"(?:{'|'.join(_sequence(items) for items in value[1])})"


def _position(value: Any) -> str:
    if str(value) not in _POSITIONS:
        raise _NoPattern
    return _POSITIONS[str(value)]


_ATOMS: dict[str, Callable[[Any], str]] = {
    "LITERAL": _character,
    "NOT_LITERAL": lambda code: f"[^{_character(code)}]",
    "ANY": lambda _: r"[^\n]",
    "IN": _set,
    "AT": _position,
    "BRANCH": _branch,
    "SUBPATTERN": _group,
    "MAX_REPEAT": _repeat,
    "MIN_REPEAT": _repeat,
}
