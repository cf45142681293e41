r"""The judge: verdicts of the jsonschema library on schemas and records, in a time with a limit.

The draft is the one that the Meltano SDK validates with. As there, formats are not asserted, and
`multipleOf` compares decimal digits, so that 1.1 is a multiple of 0.01 although its float is not.
References to other documents are never fetched.

Python's `re` may need years for a short pattern of a SCHEMA and a short text, and cannot be
stopped. Most searches are known to be short by the pattern and the length of the text. The others
are tried in a helper process, which the system ends after a timeout; the jsonschema library
searches only if the helper has finished.

For Arrow, a pattern is parsed by Python's own parser and rewritten, atom by atom, for RE2, so that
it matches only texts which `re` matches too. If the two differ in their sets of characters (`\d`,
`\s`, `\w` beyond ASCII), the smaller one is used; if a match is uncertain (look-around,
references, flags, word ends), the result is None. A text that RE2 does not match is only suspected.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from shared.formats.json_text import NON_FINITE

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
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if len(pattern) > _MOST_CHARACTERS:
        return None
    try:
        tree = parsed(pattern)
        if tree is None or tree.state.flags & ~re.UNICODE:
            return None
        written = _sequence(tree)
        pc.match_substring_regex(pa.array([""]), written)
    # A KeyError is an item that has no counterpart here.
    except (_NoPattern, KeyError, re.error, pa.ArrowInvalid, RecursionError, OverflowError):
        return None
    return written


def parsed(pattern: str) -> Any:
    """Return a pattern parsed by Python; None if Python's parser cannot be found.

    Raises:
        re.error: It is not a pattern.
    """
    for name in ("re._parser", "sre_parse"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name).parse(pattern)
    return None


def _sequence(items: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_ATOMS[str(code)](value) for code, value in items)


def _character(code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 - lone surrogates are in no Arrow text
        raise _NoPattern
    return f"\\x{{{code:x}}}"


_MEMBERS: dict[str, Callable[[Any], str]] = {
    "LITERAL": _character,
    "RANGE": lambda ends: "-".join(map(_character, ends)),
    "CATEGORY": lambda name: _CATEGORIES[str(name)],
}


def _set(members: list[tuple[Any, Any]]) -> str:
    codes = [str(code) for code, _ in members]
    is_negated = codes[0] == "NEGATE"
    if is_negated and "CATEGORY" in codes:
        raise _NoPattern
    results = [_MEMBERS[code](value) for code, (_, value) in zip(codes, members, strict=True)
             if code != "NEGATE"]  # fmt: skip
    return f"[{'^' if is_negated else ''}{''.join(results)}]"


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


_ATOMS: dict[str, Callable[[Any], str]] = {
    "LITERAL": _character,
    "NOT_LITERAL": lambda code: f"[^{_character(code)}]",
    "ANY": lambda _: r"[^\n]",
    "IN": _set,
    "AT": lambda value: _POSITIONS[str(value)],
    "BRANCH": lambda value: f"(?:{'|'.join(map(_sequence, value[1]))})",
    "SUBPATTERN": _group,
    "MAX_REPEAT": _repeat,
    "MIN_REPEAT": _repeat,
}


SECONDS = 5
STEPS = 10_000_000
"""A search of at most this many steps starts at once: it takes a fraction of a second."""

_MOST_FACTOR = 10_000
_PATTERN_SHOWN = 80
_UNANCHORED = 1
_HELPER = """
import re, signal, struct, sys
signal.signal(signal.SIGALRM, signal.SIG_DFL)
read, write = sys.stdin.buffer.read, sys.stdout.buffer
while head := read(16):
    pattern, text = (read(n).decode("utf-8", "surrogatepass") for n in struct.unpack("qq", head))
    signal.alarm(int(sys.argv[1]))
    re.search(pattern, text)
    signal.alarm(0)
    write.write(b"+")
    write.flush()
"""


class SlowPatternError(Exception):
    """A search for a pattern takes too long.

    Attributes:
        text: The searched text, the very object.
    """

    def __init__(self, pattern: str, text: str) -> None:
        shown = pattern if len(pattern) <= _PATTERN_SHOWN else f"{pattern[:_PATTERN_SHOWN]}…"
        super().__init__(
            f"matching the pattern '{shown}' takes more than {SECONDS} s for {len(text)} characters"
        )
        self.text = text


class _Unbounded(Exception):  # noqa: N818 - an answer, not an error
    """The steps of a search cannot be bounded."""


def check_time(pattern: str, texts: Iterable[str]) -> None:
    """Reject a pattern search that may take longer than `SECONDS`.

    A text as long as one that was too slow is not tried again, so that many records do not take
    longer.

    Raises:
        SlowPatternError: A search takes longer.
    """
    for text in texts:
        if not is_short(pattern, len(text)) and not _HELPERS.ends(pattern, text):
            raise SlowPatternError(pattern, text)


def is_short(pattern: str, length: int) -> bool:
    """Return whether a search is known to be short, or to fail at once on a bad pattern."""
    bound = _bound(pattern)
    return bound is not None and bound[0] * max(1, length) ** bound[1] <= STEPS


@lru_cache(maxsize=512)
def _bound(pattern: str) -> tuple[int, int] | None:
    """Return factor and power of the length that bound the steps of a search; else None."""
    try:
        tree = parsed(pattern)
        if tree is None:
            return None
        factor, power = _sequence_time(tree)
    except re.error:
        return 1, 0
    except (_Unbounded, RecursionError, OverflowError):
        return None
    # Without an anchor the search begins at each character of the text.
    is_anchored = (
        bool(tree)
        and str(tree[0][1]) in {"AT_BEGINNING", "AT_BEGINNING_STRING"}
        and not tree.state.flags & re.MULTILINE
    )
    return factor, power + (0 if is_anchored else _UNANCHORED)


def _sequence_time(items: Any) -> tuple[int, int]:
    factor, power = 1, 0
    # Backtracking combines each way through an item with each one through the next: factors are
    # multiplied, powers added. `a*b*` takes the square of the length, `a?b?` four steps at a place.
    for code, value in items:
        below = _item(str(code), value)
        factor, power = _limited(factor * below[0]), power + below[1]
    return factor, power


def _item(code: str, value: Any) -> tuple[int, int]:
    if code.endswith("REPEAT"):
        return _repeat_time(*value)
    if code in _CHOICES:
        return _either(_CHOICES[code](value))
    return 1, int(code == "GROUPREF")


_CHOICES: Mapping[str, Callable[[Any], Any]] = {
    "BRANCH": lambda value: value[1],
    "SUBPATTERN": lambda value: value[3:],
    "ASSERT": lambda value: value[1:],
    "ASSERT_NOT": lambda value: value[1:],
    "ATOMIC_GROUP": lambda value: [value],
    "GROUPREF_EXISTS": lambda value: [part for part in value[1:] if part is not None],
}
"""What an item of a pattern has inside, one of which is searched for."""


def _either(choices: Any) -> tuple[int, int]:
    results = [_sequence_time(choice) for choice in choices]
    return _limited(sum(factor for factor, _ in results)), max(power for _, power in results)


def _repeat_time(low: int, high: Any, items: Any) -> tuple[int, int]:
    factor, power = _sequence_time(items)
    if str(high) == "MAXREPEAT":
        # An endless repeat of what has several ways of its own, as `(a*)*`, has a number of ways
        # that is exponential in the length.
        if factor > 1 or power:
            raise _Unbounded
        return 1, 1
    if high > 1 and power:
        raise _Unbounded
    return _limited((high - low + 1) * factor ** min(high, _MOST_FACTOR)), power


def _limited(factor: int) -> int:
    if factor > _MOST_FACTOR:
        raise _Unbounded
    return factor


class _Helpers:
    """The helper process, and the patterns it was too slow for."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._slow: dict[str, int] = {}
        self._lock = threading.Lock()

    def ends(self, pattern: str, text: str) -> bool:
        """Return whether a search ends in time."""
        # A longer text than one that was too slow would take as long again, for each of many
        # records.
        if len(text) >= self._slow.get(pattern, sys.maxsize):
            return False
        parts = [part.encode("utf-8", "surrogatepass") for part in (pattern, text)]
        request = struct.pack("qq", *map(len, parts)) + b"".join(parts)
        with self._lock:
            # A helper that something else has ended, as Ctrl-C does, says nothing of the text.
            answers = (self._answer(request) for _ in range(2))
            if next((one for one in answers if one is not None), False):
                return True
            self._slow[pattern] = len(text)
        return False

    def _answer(self, request: bytes) -> bool | None:
        """Return whether a helper's search ends before its alarm; None if something else does."""
        process = self._running()
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(request)
            process.stdin.flush()
        if process.stdout.read(1):
            return True
        self._process = None
        with contextlib.suppress(BrokenPipeError):
            process.communicate()
        return False if process.returncode == -signal.SIGALRM else None

    def _running(self) -> subprocess.Popen[bytes]:
        # A process that was forked off must not talk to the helper of its parent.
        if self._process is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _HELPER, str(SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def close(self) -> None:
        """End the helper."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()


_HELPERS = _Helpers()
atexit.register(_HELPERS.close)


_SHOWN = 200
_MOST_CALLS = 8_000


class ExactNumber(float):
    """A number with a fraction or an exponent, which remembers its text."""

    text: str

    def __new__(cls, text: str) -> ExactNumber:
        result = super().__new__(cls, text)
        result.text = text
        return result


@lru_cache(maxsize=1)
def draft() -> Any:
    """Return the validator class; loaded late, as not every run needs the library."""
    from jsonschema.validators import Draft202012Validator, extend  # noqa: PLC0415

    timed = {name: _timed(name, searches) for name, searches in _SEARCHES.items()}
    return extend(Draft202012Validator, {"multipleOf": _multiple_of, **timed})


TOO_DEEP = "values are nested too deeply"


def keywords() -> frozenset[str]:
    """Return the keywords by which the library can reject a value; not formats."""
    return frozenset(draft().VALIDATORS) - {"format"}


def schema_problem(schema: object) -> str | None:
    """Return the first problem of a schema by the draft's metaschema; None if it is valid."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415
    from jsonschema.validators import Draft202012Validator as Draft  # noqa: PLC0415

    validator = Draft(Draft.META_SCHEMA, format_checker=Draft.FORMAT_CHECKER)
    # The library calls some 25 functions for each of the 200 levels that a message may have.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _MOST_CALLS))
    try:
        error = best_match(validator.iter_errors(schema))
    except RecursionError:
        return "is nested too deeply"
    return None if error is None else error_line(error, "at")


def decoded_record(line: bytes, *, exact: bool) -> Any:
    """Return a line decoded for the library.

    Args:
        exact: Keep the digits of fractions, which only `multipleOf` needs.
    """
    return json.loads(line, parse_float=ExactNumber if exact else None)


def validator_of(schema: Any) -> Any:
    """Return a validator of a whole schema; its parts come from it by `evolve`."""
    from jsonschema.validators import extend  # noqa: PLC0415
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # noqa: PLC0415

    result = draft()
    # `unevaluatedProperties` asks the patterns of all schemas beside and below it, which the
    # library finds by itself: so all of them are timed.
    if patterns := tuple(_name_patterns(schema)):
        # It looks for them wherever a reference leads.
        searches = lambda _, names, __: ((pattern, names) for pattern in patterns)  # noqa: E731
        result = extend(result, {_UNEVALUATED: _timed(_UNEVALUATED, searches)})
    return result(schema, registry=REGISTRY)


def is_valid(validator: Any, value: Any) -> bool:
    """Return whether the library accepts a value; a value that it cannot judge is invalid."""
    try:
        return bool(validator.is_valid(value))
    except Exception:  # the library raises many kinds for references and patterns
        return False


def takes_null(validator: Any, node: Any) -> bool:
    """Return whether the library accepts null for a node of its schema."""
    return is_valid(validator.evolve(schema=node), None)


def reason(validator: Any, record: Any) -> str | None:
    """Return why the library rejects a record, in one line with the path; None if it accepts it."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    try:
        error = best_match(validator.iter_errors(record))
    except RecursionError:
        return TOO_DEEP
    except SlowPatternError as slow:
        path = (_path_of(record, slow.text) or "").removeprefix(".")
        return f"{_one_line(f'property {path!r}')}: {slow}"
    except Exception as failure:  # as in is_valid
        return _one_line(f"the schema cannot be applied: {failure}")
    return None if error is None else error_line(error, "property")


def error_line(error: Any, word: str) -> str:
    """Return an error of the library in one line."""
    path = "".join(_step(step) for step in error.absolute_path).removeprefix(".")
    message = _one_line(error.message)
    return f"{_one_line(f'{word} {path!r}')}: {message}" if path else message


def _step(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"


def _one_line(text: str) -> str:
    whole = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    if len(whole) <= _SHOWN:
        return whole
    # The reason stands at the end of the library's messages, the value at their beginning.
    half = _SHOWN // 2
    return f"{whole[:half]} … {whole[-half:]}"


def _multiple_of(
    validator: Any, step: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    del schema
    if validator.is_type(instance, "number") and not is_multiple(instance, step):
        yield ValidationError(f"{instance!r} is not a multiple of {step}")


Searches = Callable[[Any, Any, Mapping[str, Any]], Iterable[tuple[str, Iterable[str]]]]
"""Returns patterns and the texts to search, for a keyword's value, an instance and the schema.

The instance is a text for `pattern`, an object for the other keywords.
"""

_UNEVALUATED = "unevaluatedProperties"
_SEARCHES: Mapping[str, Searches] = {
    "pattern": lambda value, text, _: [(value, [text])],
    "patternProperties": lambda value, names, _: ((pattern, names) for pattern in value),
    "additionalProperties": lambda _, names, schema: [
        ("|".join(schema.get("patternProperties", ())), names)
    ],
}


def _timed(name: str, searches: Searches) -> Any:
    """Return the keyword with a check that its searches end in time."""
    from jsonschema.validators import Draft202012Validator  # noqa: PLC0415

    keyword = Draft202012Validator.VALIDATORS[name]
    kind = "string" if name == "pattern" else "object"

    def timed(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, kind):
            for pattern, texts in searches(value, instance, schema):
                check_time(pattern, texts)
        yield from keyword(validator, value, instance, schema)

    return timed


def _name_patterns(schema: Any) -> Iterator[str]:
    """Yield all patterns of property names, at any depth."""
    left = [schema]
    while left:
        node = left.pop()
        if isinstance(node, Mapping):
            entry = node.get("patternProperties")
            yield from entry if isinstance(entry, Mapping) else ()
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _path_of(value: Any, text: str) -> str | None:
    """Return the path at which this very text object is a value or a name."""
    parts = value.items() if isinstance(value, Mapping) else enumerate(value)
    for step, part in parts:
        if part is text or step is text:
            return _step(step)
        if isinstance(part, Mapping | list):
            below = _path_of(part, text)
            if below is not None:
                return _step(step) + below
    return None


def is_multiple(value: Any, step: Any) -> bool:
    """Return whether a number is a multiple of another, by their decimal digits."""
    from decimal import InvalidOperation  # noqa: PLC0415
    from fractions import Fraction  # noqa: PLC0415

    if isinstance(value, float) and not math.isfinite(value):
        return False
    try:
        number, unit = _digits(value), _digits(step)
    except InvalidOperation:  # an exponent of 18 digits or more
        return False
    if number.is_zero():
        return True
    # A fraction of 1e-1000000 has a million digits, and takes minutes.
    digits = sum(abs(one.as_tuple().exponent) for one in (number, unit))
    if digits > _MOST_DIGITS:  # of a number too small to be a multiple
        return False
    return (Fraction(number) / Fraction(unit)).denominator == 1


_MOST_DIGITS = 5000


def _digits(value: Any) -> Any:
    from decimal import Decimal  # noqa: PLC0415

    if isinstance(value, ExactNumber):
        return Decimal(value.text)
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def with_non_finite(value: Any, paths: Any) -> Any:
    """Return the value with the words for NaN and infinities as numbers at some paths.

    Args:
        paths: True for a number; a mapping for properties; a list with the entry for all items.
    """
    if paths is True:
        return NON_FINITE.get(value, value) if isinstance(value, str) else value
    if isinstance(paths, list) and isinstance(value, list):
        return [with_non_finite(item, paths[0]) for item in value]
    if isinstance(paths, dict) and isinstance(value, dict):
        return {
            name: with_non_finite(part, paths[name]) if name in paths else part
            for name, part in value.items()
        }
    return value
