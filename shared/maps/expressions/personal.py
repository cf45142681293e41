"""Functions of maps that hide personal data: `hash_value`, `mask`, `truncate`, `redact`, `fake`.

All but `fake` accept any value and return a text; None stays None. They work on the value's text: a
text itself, numbers as Python writes them, `true` and `false`, lists and dicts as compact JSON.
`fake` invents names, addresses and the like, by the library Faker: only functions of its providers
can be called. With a seed, a record always gets the same values.

Imports only a module that is sent to workers by value with it.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import inspect
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import simpleeval

from shared.maps.expressions.sandbox import words

ALGORITHMS = ("sha224", "sha256", "sha384", "sha512")
"""Values of the option `algorithm` of `hash_value`."""
REDACTED = "[REDACTED]"
"""The text by which `redact` replaces matches."""
SALT = "hash_salt"
"""The key of `stream_map_config` that holds the salt of `hash_value`."""

_LONGEST_PATTERN = 1000


def text_of(value: Any) -> str | None:
    """Return the text that a value is hidden as; None for None."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (datetime.date, datetime.datetime, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if isinstance(value, (int, float, decimal.Decimal, datetime.timedelta)):
        return str(value)
    raise TypeError(f"no text of a {type(value).__name__}")


def hash_value(value: Any, salt: Any = None, algorithm: Any = "sha256") -> str | None:
    """Return the digest of salt and value, in hexadecimal, by one of `ALGORITHMS`.

    Raises:
        TypeError: The salt is not a text.
        ValueError: It is empty, or the algorithm is unknown.
    """
    if not isinstance(salt, str):
        raise TypeError("hash_value() needs a salt that is a text")
    if not salt:
        raise ValueError("hash_value() needs a salt that is not empty")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"hash_value() knows the algorithms {', '.join(ALGORITHMS)}")
    text = text_of(value)
    if text is None:
        return None
    return hashlib.new(algorithm, f"{salt}{text}".encode()).hexdigest()


class Salted:
    """`hash_value` with a default salt, that of the settings."""

    def __init__(self, salt: Any) -> None:
        self._salt = salt

    def __call__(self, value: Any, *args: Any, **keywords: Any) -> str | None:
        """Return the result of `hash_value`."""
        if not args:
            keywords.setdefault("salt", self._salt)
        return hash_value(value, *args, **keywords)


def mask(value: Any, keep_last: Any = 4, char: Any = "*") -> str | None:
    """Replace all characters but the last ones; all of them if the text is not longer than those.

    Raises:
        TypeError: An option is of the wrong type.
        ValueError: It is out of range.
    """
    _check_count("mask", "keep_last", keep_last)
    if not isinstance(char, str):
        raise TypeError("mask() needs a text as char")
    if len(char) != 1:
        raise ValueError("mask() needs one character as char")
    text = text_of(value)
    if text is None:
        return None
    hidden = len(text) - keep_last
    if hidden <= 0:
        return str(char * len(text))
    return str(char * hidden + text[hidden:])


def truncate(value: Any, length: Any) -> str | None:
    """Keep the first characters only.

    Raises:
        TypeError: The length is not an integer.
        ValueError: It is negative.
    """
    _check_count("truncate", "length", length)
    text = text_of(value)
    return None if text is None else text[:length]


def _check_count(function: str, name: str, value: Any) -> None:
    if type(value) is not int:
        raise TypeError(f"{function}() needs an integer as {name}")
    if not 0 <= value < 2**31:
        raise ValueError(f"{function}() needs a {name} that is not negative (and below 2**31)")


def redact(value: Any, pattern: Any = None, replacement: Any = REDACTED) -> str | None:
    """Replace every match of a pattern, or the whole text without a pattern.

    Patterns are RE2's, whose time grows only with the length of the text. The replacement has no
    references to groups.

    Raises:
        TypeError: An option is not a text.
        ValueError: The pattern is wrong, or too long.
    """
    _check_redact(pattern, replacement)
    text = text_of(value)
    if text is None or pattern is None:
        return None if text is None else str(replacement)
    import pyarrow as pa  # noqa: PLC0415

    return str(redacted(pa.array([text]), pattern, replacement)[0].as_py())


def redacted(texts: Any, pattern: str, replacement: str) -> Any:
    """Redact a column of texts in Arrow as `redact` does."""
    import pyarrow.compute as pc  # noqa: PLC0415

    plain = replacement.replace("\\", "\\\\")
    return pc.replace_substring_regex(texts, pattern=pattern, replacement=plain)


def _check_redact(pattern: Any, replacement: Any) -> None:
    if not isinstance(pattern, (str, type(None))) or not isinstance(replacement, str):
        raise TypeError("redact() needs texts as pattern and replacement")
    if len(pattern or "") > _LONGEST_PATTERN or len(replacement) > _LONGEST_PATTERN:
        raise ValueError(f"redact() takes at most {_LONGEST_PATTERN} characters")
    if pattern is not None and pattern not in _GOOD:
        _try(pattern)
        if len(_GOOD) < _LONGEST_PATTERN:
            _GOOD.add(pattern)


_GOOD: set[str] = set()


def _try(pattern: str) -> None:
    import pyarrow as pa  # noqa: PLC0415

    try:
        redaction = redacted(pa.array([""]), pattern, "x")[0].as_py()
    except pa.ArrowInvalid as error:
        raise ValueError(f"redact() does not understand the pattern: {error}") from None
    if redaction:
        raise ValueError("redact() needs a pattern that does not match the empty text")


_ALL: tuple[Callable[..., str | None], ...] = (hash_value, mask, redact, truncate)
FUNCTIONS = {function.__name__: function for function in _ALL}
"""These functions in Python, by name."""


MOST = 5_000
"""Characters, words or elements that one call may ask for."""


# They make files, run templates that reach any attribute, or take classes and functions.
_REFUSED = words(
    """add_provider binary csv del_arguments dsv enum fixed_width format get_arguments
    get_formatter get_providers image json json_bytes parse provider psv pydict pyiterable
    pylist pyobject pyset pystr_format pystruct pytimezone pytuple seed_instance
    set_arguments set_formatter tar time_series tsv unique xml zip"""
)
# Any integer will do for these.
_RANGES = words(
    """min max step min_value max_value start_date end_date start_datetime end_datetime
    after_now before_now minimum_age maximum_age variance_start now timezone tzinfo seed"""
)
_NAMED_ALIKE = (bool, int, float, str, datetime.date, datetime.datetime)
_KINDS: dict[Any, str] = {kind: kind.__name__ for kind in _NAMED_ALIKE}
_RESULT_KINDS = {"boolean": "bool", "seed_instance": "none", "uuid4": "str"}


@dataclass(frozen=True)
class FakeSettings:
    """How values are invented.

    Attributes:
        locale: One of Faker's, or several.
        seed: Seed of the values; None for random ones.
        label: Distinguishes properties of one record.
    """

    locale: Any = None
    seed: Any = None
    label: str = ""


class Fakes:
    """The value of `fake` in expressions; `names` are those of functions that can be called.

    Raises:
        ImportError: Faker is not installed here.
    """

    def __init__(self, settings: FakeSettings) -> None:
        from faker import Faker  # noqa: PLC0415

        self._settings = settings
        locale = settings.locale
        self._faker: Any = Faker(list(locale) if isinstance(locale, (list, tuple)) else locale)
        self.names = _offered(self._faker)
        self._methods: dict[str, Callable[..., Any]] = {"seed_instance": self._seed}
        for factory in self._faker.factories:
            factory.random = random.Random()  # noqa: S311 - not one that other fakes share

    def begin(self, record: int) -> None:
        """Start a record, of whose content this is a hash."""
        text = f"{self._settings.seed}\n{record}\n{self._settings.label}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        for factory in self._faker.factories:
            factory.random.seed(seed)
        if len(self._faker.factories) > 1:
            random.seed(seed)

    def attribute(self, name: str) -> Callable[..., Any]:
        """Return a function that invents values.

        Raises:
            FeatureNotAvailable: A function of this name does not exist, or is not allowed.
        """
        if name not in self._methods:
            if name not in self.names:
                raise simpleeval.FeatureNotAvailable(f"fake.{name} is not available")
            self._methods[name] = _bounded(name, getattr(self._faker, name))
        return self._methods[name]

    def kind(self, name: str) -> str:
        """Return the kind of the results of a function; `any` if the library does not say."""
        if name in _RESULT_KINDS or name not in self.names:
            return _RESULT_KINDS.get(name, "any")
        hint = inspect.signature(getattr(self._faker, name)).return_annotation
        return _KINDS.get(hint, "any")

    def _seed(self, seed: Any = None) -> None:
        if not isinstance(seed, (int, float, str, type(None))):
            raise TypeError("a seed is a number or a text")
        for factory in self._faker.factories:
            factory.random.seed(seed)


def _offered(faker: Any) -> frozenset[str]:
    providers = {type(p) for factory in faker.factories for p in factory.get_providers()}
    names = {name for kind in providers for name, _ in inspect.getmembers(kind, inspect.isfunction)}
    return frozenset({n for n in names if not n.startswith(("_", "add_", "set_"))} - _REFUSED)


def _bounded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    def call(*args: Any, **keywords: Any) -> Any:
        arguments = signature.bind(*args, **keywords).arguments
        for parameter, value in arguments.items():
            _check_argument(name, parameter, value)
        return method(*args, **keywords)

    return call


def _check_argument(name: str, parameter: str, value: Any) -> None:
    parts = value if isinstance(value, (list, tuple, Mapping)) else [value]
    for part in parts:
        if callable(part):
            raise TypeError(f"fake.{name}() takes no function")
        high = isinstance(part, (int, float)) and not -MOST <= part <= MOST
        if (high and parameter not in _RANGES) or (isinstance(part, str) and len(part) > MOST):
            raise simpleeval.NumberTooHigh(f"fake.{name}() is asked for too much ({parameter})")


def result_kind(name: str, settings: FakeSettings) -> str:
    """Return the kind of the result of a function of `fake`; `any` if the library does not say.

    Languages have functions of their own.
    """
    try:
        return Fakes(settings).kind(name)
    except (AttributeError, ImportError):
        return "any"
