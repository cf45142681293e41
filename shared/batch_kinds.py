"""The kinds of value batch settings have: how each is read, described and put in JSON Schema."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from shared.settings_check import Json, nearest
from shared.units import (
    DURATION_PATTERN,
    DURATION_UNITS,
    SIZE_PATTERN,
    byte_count,
    duration_text,
    milliseconds,
    size_text,
)

LARGEST_COUNT = 2**63 - 1
LONGEST_MS = 365 * DURATION_UNITS["d"]
LARGEST_BYTES = 2**60
_SHOWN_CHARACTERS = 60
_SHOWN_BITS = 256
_WHOLE_TEXT = "^ *[0-9]{1,19} *$"
_FLAG_TEXT = "^ *([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]) *$"

PASSWORD_IN_URL = re.compile(r"://[^/]*:(?![0-9]+(?:/|$)).*@")
LOCATION_PATTERN = (
    r"^(?!\s)(?!://)(?!.*://$)(?!.*://[^/]*:(?![0-9]+(?:/|$)).*@)"
    r"[^\u0000-\u001f\u007f]*[^\s\u0000-\u001f\u007f]$"
)
PREFIX_PATTERN = r"^(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\\\u0000-\u001f\u007f]*$"

Schema = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """Why a value is refused.

    Attributes:
        value: The value, or the item of it, as text without secrets.
        allowed: What may stand there.
        nearest: The known value it may be meant for.
        message: What is wrong.
        at: Where within the value.
    """

    value: str
    allowed: str
    nearest: str | None = None
    message: str = "is not allowed"
    at: tuple[int, ...] = ()


class RefusedValueError(ValueError):
    """A value is not of its kind.

    Args:
        faults: Everything that is wrong with it.
    """

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(f"{fault.value} {fault.message}" for fault in faults))
        self.faults = faults


class Kind(Protocol):
    """A kind of value."""

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        ...

    def read(self, value: Json) -> Json:
        """Return the value in its one unit.

        Raises:
            RefusedValueError: It is not of this kind.
        """
        ...

    def schema(self) -> Schema:
        """JSON Schema of what `read` takes, but for the range of durations and sizes in text."""
        ...


def shown(value: Json) -> str:
    """Write a value for a message: short, without what may be secret in a URL."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return "an enormous number"
    text = repr(redacted(value) if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def redacted(url: str) -> str:
    """A path or URL without user, password and query."""
    if "://" not in url:
        return url
    without_user = re.sub(r"://.*@", "://***@", url) if PASSWORD_IN_URL.search(url) else url
    return re.sub(r"\?.*", "?***", without_user)


def is_whole(value: Json) -> bool:
    """Tell whether JSON would call a value an integer (`1.0` is one, `true` is not)."""
    if isinstance(value, float):
        return math.isfinite(value) and value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Json) -> bool:
    """Tell whether a value is a finite number."""
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite


def _refuse(kind: Kind, value: Json, near: str | None = None) -> RefusedValueError:
    return RefusedValueError(Fault(shown(value), kind.allowed, near))


@dataclass(frozen=True)
class Count:
    """A whole number of at least 1."""

    largest: int = LARGEST_COUNT

    @property
    def allowed(self) -> str:
        return f"a whole number from 1 to {self.largest}"

    def read(self, value: Json) -> int:
        if not is_whole(value) or not 1 <= value <= self.largest:
            raise _refuse(self, value)
        return int(value)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": 1, "maximum": self.largest}


@dataclass(frozen=True)
class Flag:
    """True or false."""

    allowed: str = "true or false"

    def read(self, value: Json) -> bool:
        if not isinstance(value, bool):
            raise RefusedValueError(Fault(shown(value), self.allowed))
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Duration:
    """A time in milliseconds, or text with a unit; read as seconds."""

    allowed: str = (
        f"a time from 1ms to {duration_text(LONGEST_MS)}: milliseconds, "
        "or a number with ms, s, m, h, d or the long words"
    )

    def read(self, value: Json) -> float:
        amount = _within(self, value, milliseconds, LONGEST_MS)
        return float(amount / 1000)

    def schema(self) -> Schema:
        number = {"type": "number", "minimum": 1, "maximum": LONGEST_MS}
        return _or_text(number, DURATION_PATTERN)


@dataclass(frozen=True)
class Size:
    """A number of bytes, or text with a unit; read as bytes."""

    allowed: str = (
        f"a size from 1 B to {size_text(LARGEST_BYTES)}: whole bytes, "
        "or a number with B, KB, MB, GB, TB (by 1000), KiB, MiB, GiB, TiB (by 1024)"
    )

    def read(self, value: Json) -> int:
        if not isinstance(value, str) and not is_whole(value):
            raise RefusedValueError(Fault(shown(value), self.allowed))
        return int(_within(self, value, byte_count, LARGEST_BYTES))

    def schema(self) -> Schema:
        number = {"type": "integer", "minimum": 1, "maximum": LARGEST_BYTES}
        return _or_text(number, SIZE_PATTERN)


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    values: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return ", ".join(map(repr, self.values))

    def read(self, value: Json) -> str:
        if not isinstance(value, str) or value not in self.values:
            raise _refuse(self, value, self._near(value))
        return value

    def _near(self, value: Json) -> str | None:
        if not isinstance(value, str) or not value:
            return None
        # Short forms (`gz`) are too far from the word for a measure of likeness.
        longer = (word for word in self.values if word.startswith(value.lower()))
        return nearest(value, self.values) or next(longer, None)

    def schema(self) -> Schema:
        return {"type": "string", "enum": list(self.values)}


@dataclass(frozen=True)
class Location:
    """A path, or a URL without a password."""

    allowed: str = "a path or URL"

    def read(self, value: Json) -> str:
        if isinstance(value, str) and PASSWORD_IN_URL.search(value):
            allowed = "a URL without password; credentials come from options or the environment"
            raise RefusedValueError(Fault(shown(value), allowed, message="holds a password"))
        return _matching(self, value, LOCATION_PATTERN)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": LOCATION_PATTERN}


@dataclass(frozen=True)
class Prefix:
    """The beginning of a file name."""

    allowed: str = "text without a leading '/', '..' as a folder, backslashes, control characters"

    def read(self, value: Json) -> str:
        return _matching(self, value, PREFIX_PATTERN)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": PREFIX_PATTERN}


@dataclass(frozen=True)
class Word:
    """Text that is not empty."""

    allowed: str = "text that is not empty"

    def read(self, value: Json) -> str:
        if not isinstance(value, str) or not value:
            raise RefusedValueError(Fault(shown(value), self.allowed))
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class Listing:
    """A list of one kind."""

    items: Kind
    allowed: str
    shortest: int = 0

    def read(self, value: Json) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) < self.shortest:
            raise RefusedValueError(Fault(shown(value), self.allowed))
        result: list[Any] = []
        faults: list[Fault] = []
        for index, item in enumerate(value):
            try:
                result.append(self.items.read(item))
            except RefusedValueError as error:
                faults += (
                    Fault(f.value, f.allowed, f.nearest, f.message, (index,)) for f in error.faults
                )
        if faults:
            raise RefusedValueError(*faults)
        return tuple(result)

    def schema(self) -> Schema:
        bound = {"minItems": self.shortest} if self.shortest else {}
        return {"type": "array", "items": self.items.schema(), **bound}


@dataclass(frozen=True)
class Options:
    """Any object; its values may be secret."""

    allowed: str = "an object"

    def read(self, value: Json) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise RefusedValueError(Fault("the value (hidden)", self.allowed))
        return dict(value)

    def schema(self) -> Schema:
        return {"type": "object"}


@dataclass(frozen=True)
class FromText:
    """A kind whose values may also be written as text, as in a properties file."""

    inner: Kind
    pattern: str
    parse: Callable[[str], Json]

    @property
    def allowed(self) -> str:
        return self.inner.allowed

    def read(self, value: Json) -> Json:
        is_text = isinstance(value, str) and re.fullmatch(self.pattern, value)
        return self.inner.read(self.parse(value) if is_text else value)

    def schema(self) -> Schema:
        return _or_text(self.inner.schema(), self.pattern)


def in_properties(kind: Kind) -> Kind:
    """Return the kind as dotted keys take it: numbers and booleans may be text."""
    if isinstance(kind, Count):
        return FromText(kind, _WHOLE_TEXT, int)
    if isinstance(kind, Flag):
        return FromText(kind, _FLAG_TEXT, lambda text: text.strip().lower() == "true")
    return kind


def _or_text(number: Schema, pattern: str) -> Schema:
    return {"anyOf": [number, {"type": "string", "pattern": pattern}]}


def _within(kind: Kind, value: Json, parse: Callable[[Json], Json], largest: int) -> Json:
    is_given = isinstance(value, str) or (is_number(value) and 1 <= value <= largest)
    try:
        amount = parse(value) if is_given else None
    except ValueError:
        amount = None
    if amount is None or not 1 <= amount <= largest:
        raise _refuse(kind, value)
    return amount


def _matching(kind: Kind, value: Json, pattern: str) -> str:
    if not isinstance(value, str) or not re.search(pattern, value) or value.endswith("\n"):
        raise _refuse(kind, value)
    return value
