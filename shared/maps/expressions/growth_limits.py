"""How large values may grow if Python evaluates expressions.

Does not import this project, so that it can be sent to workers by value.
"""

from __future__ import annotations

import decimal
import re
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
    """Raise the error for a value that would be too long.

    Raises:
        IterableTooLong: Always.
    """
    raise simpleeval.IterableTooLong("the result would be too long")


def too_high() -> NoReturn:
    """Raise the error for a number that would be too large.

    Raises:
        NumberTooHigh: Always.
    """
    raise simpleeval.NumberTooHigh("the number would be too large")


def weight(value: object, limit: int) -> int:
    """Count the characters and elements that a value's text has at least, at any depth.

    Args:
        value: Anything.
        limit: Where to stop counting.

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

    def made(self, value: Any) -> Any:
        """Count a string or container that an operation has created.

        Raises:
            IterableTooLong: The record has used up its budget.
        """
        if hasattr(value, "__len__"):
            self.count(len(value))
        return value

    def count(self, length: int) -> None:
        """Count some characters or elements; raises as `made` does."""
        self.spent += length
        if self.spent > self._limit:
            if self._limit == BUDGET:
                self._limit += _TIMES * weight(self._record, BUDGET)
            if self.spent > self._limit:
                too_long()

    def added(self, a: Any, b: Any) -> Any:
        """Add; texts and lists only up to a length."""
        if type(a) in _FLAT or type(b) in _FLAT:
            return a + b
        return self.made(simpleeval.safe_add(a, b))

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
            if longer and times * weight(what, LONGEST) > LONGEST:
                too_long()
        return self.made(a * b)

    def remainder(self, a: Any, b: Any) -> Any:
        """Compute the remainder of numbers, or fill in a text's `%` places."""
        if isinstance(a, (str, bytes)):
            percent_fits(a, b)
            return self.made(a % b)
        return a % b

    def text(self, value: Any = "", turn: Callable[[Any], str] = str) -> str:
        """Call `str` (or `repr`, `ascii`), up to a length."""
        kind = type(value)
        if kind is not str and kind not in _FLAT and weight(value, LONGEST) > LONGEST:
            too_long()
        found = turn(value)
        self.count(len(found))
        return found

    def formatted(self, value: Any, spec: str) -> str:
        """Call `format`, up to a length."""
        if _SPEC_NUMBER.search(spec):
            too_long()
        kind = type(value)
        if kind is not str and kind not in _FLAT and weight(value, LONGEST) > LONGEST:
            too_long()
        found: str = self.made(format(value, spec))
        return found

    def method(self, text: str, name: str) -> Callable[..., Any]:
        """Return a method of `str` with a limit on the length of its result."""
        guard, meth = _GUARDS[name], getattr(text, name)

        def call(*args: Any, **keywords: Any) -> Any:
            if name == "join" and len(args) == 1 and not isinstance(args[0], (list, tuple, str)):
                args = (list(args[0]),)
            guard(text, *args, **keywords)
            return self.made(meth(*args, **keywords))

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
    if total + max(named, 1) * weight(values, LONGEST) > LONGEST:
        too_long()


def _padding(text: str, width: int, *_: Any) -> None:
    if width > max(LONGEST, len(text)):
        too_long()


def _tabs(text: str, tabsize: int = 8) -> None:
    if text.count("\t") * max(tabsize, 1) > LONGEST:
        too_long()


def _replacing(text: str, old: str, new: str, count: int = -1) -> None:
    found = text.count(old) if count < 0 else min(count, text.count(old))
    if found * (len(new) - len(old)) > LONGEST:
        too_long()


def _joining(text: str, parts: Iterable[str]) -> None:
    lengths = [len(part) for part in parts if isinstance(part, str)]
    total = sum(lengths) + len(text) * len(lengths)
    if total > LONGEST:
        too_long()


def _translating(text: str, table: Mapping[int, Any]) -> None:
    if not isinstance(table, dict):
        raise TypeError("translate() takes a dict")
    longest = max((len(new) for new in table.values() if isinstance(new, str)), default=1)
    if longest > 1 and longest * len(text) > LONGEST:
        too_long()


def _encoding(_: str, *args: Any, **keywords: Any) -> None:
    check_encoding(*args[:1], *([keywords["encoding"]] if "encoding" in keywords else []))


_GUARDS: dict[str, Callable[..., None]] = {
    "center": _padding,
    "ljust": _padding,
    "rjust": _padding,
    "zfill": _padding,
    "expandtabs": _tabs,
    "replace": _replacing,
    "join": _joining,
    "translate": _translating,
    "encode": _encoding,
}
GUARDED = frozenset(_GUARDS)
"""Methods of `str` that `Meter.method` replaces."""


def check_encoding(name: str = "utf-8") -> None:
    """Reject encodings but a few; looking one up would import a module of that name.

    Raises:
        LookupError: It is not one of those.
    """
    if re.sub(r"[-_ ]", "", name).lower() not in _ENCODINGS:
        raise LookupError(f"unknown encoding: {name}")


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
