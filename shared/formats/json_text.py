"""JSON text, exactly: numbers keep every digit that was written. Pure, without Arrow and Spark.

Why beside `json` and `orjson`: both turn decimals into floats.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring
from typing import Any

Value = Any


class Number(str):
    """A JSON number as it was written, so that every digit is there when its type is known."""

    __slots__ = ()


class Refused(ValueError):  # noqa: N818 - a verdict, not a failure
    """A value does not fit its property; names and positions lead to it, outermost first."""

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

NULL, TEXT, NUMBER, WORD = "null", '"', "[-0-9]", "true|false"
"""Kinds of values in JSON, by the patterns of how they begin."""

DECODER = json.JSONDecoder(
    parse_float=Number, parse_int=Number, parse_constant=NON_FINITE.__getitem__
)
_WORDS = {None: "null", True: "true", False: "false"}
_SHOWN = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
LONG_LINE = 512
"""Bytes of a line from which to look at each takes less time than to count heads."""
_SHORT_LINE = 40
"""Bytes of a line from which a search for its end beats `bytes.count`, which looks at each byte."""


def decode(line: bytes) -> dict[str, Any]:
    """Decode one line to an object whose numbers are still text.

    Raises:
        Refused: The line is not UTF-8, not JSON or not an object.
    """
    try:
        value = DECODER.decode(line.decode())
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8: byte {error.start + 1} of the line") from None
    except (ValueError, KeyError) as error:
        raise Refused(f"not JSON: {error}") from None
    except RecursionError:
        raise Refused("values are nested too deeply") from None
    if not isinstance(value, dict):
        raise Refused(f"not a JSON object: {shown_value(value)}")
    return value


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


def bare_text(value: Value) -> str:
    """Write a decoded value like `json_text`, but NaN and the infinities without quotation marks.

    Raises:
        Refused: See `json_text`.
    """
    return _constant(value) if isinstance(value, float) else json_text(value)


def _constant(value: float) -> str:
    return next(name for name, constant in NON_FINITE.items() if repr(constant) == repr(value))


def shown_value(value: Value) -> str:
    """Return a value for an error message: JSON-like, short."""
    try:
        whole = f"'{value}'" if type(value) is str else bare_text(value)
    except (Refused, RecursionError):
        whole = repr(value)
    whole = whole.encode("utf-8", "backslashreplace").decode()
    whole = _CONTROL.sub(lambda control: repr(control[0])[1:-1], whole)
    return whole if len(whole) <= _SHOWN else whole[:_SHOWN] + "…"


def not_of_type(value: Value, name: str) -> Refused:
    """Return the reject of a value of another type."""
    return Refused(f"{shown_value(value)} is not of type {name}")


def text(value: Value) -> str:
    """Check that a string is Unicode text."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Refused(f"lone surrogate {value[error.start]!a} is not Unicode text") from None
    return str(value)


def newlines(data: bytes, start: int = 0, end: int | None = None) -> int:
    """Return the number of newlines in some bytes, or in a range of them."""
    if 0 <= data.find(b"\n", start, end) - start < _SHORT_LINE:
        return data.count(b"\n", start, end)
    # To remove newlines finds each by a search of the C library: a fifth of the time of `count`
    # with lines of 400 bytes.
    part = data[start:end]
    return len(part) - len(part.replace(b"\n", b""))


def line_count(data: bytes) -> int:
    """Return the number of lines in some bytes; the last one may lack its end."""
    return newlines(data) + (not data.endswith(b"\n"))
