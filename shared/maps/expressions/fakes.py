"""The `fake` of expressions: invented names, addresses and the like, by the library Faker.

Only the functions of its providers can be called. With a seed, a record always gets the same
values. Imports only a module that is sent to workers by value with it.
"""

from __future__ import annotations

import datetime
import hashlib
import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import simpleeval

from shared.maps.expressions.sandbox import words

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
_KINDS: dict[Any, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    datetime.date: "date",
    datetime.datetime: "datetime",
}


_KNOWN = {"boolean": "bool", "seed_instance": "none", "uuid4": "str"}


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
    """The value of `fake` in expressions.

    Args:
        settings: How values are invented.

    Attributes:
        names: Of the functions that can be called.

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
        """Start a record.

        Args:
            record: A hash of its content.
        """
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
        if name in _KNOWN or name not in self.names:
            return _KNOWN.get(name, "any")
        hint = inspect.signature(getattr(self._faker, name)).return_annotation
        return _KINDS.get(hint, "any")

    def _seed(self, seed: Any = None) -> None:
        if not isinstance(seed, (int, float, str, type(None))):
            raise TypeError("a seed is a number or a text")
        for factory in self._faker.factories:
            factory.random.seed(seed)


def _offered(faker: Any) -> frozenset[str]:
    """Return the names of the Faker functions that expressions may call."""
    providers = {type(p) for factory in faker.factories for p in factory.get_providers()}
    names = {name for kind in providers for name, _ in inspect.getmembers(kind, inspect.isfunction)}
    return frozenset({n for n in names if not n.startswith(("_", "add_", "set_"))} - _REFUSED)


def _bounded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    def call(*args: Any, **keywords: Any) -> Any:
        given = signature.bind(*args, **keywords).arguments
        for parameter, value in given.items():
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

    Args:
        name: The function.
        settings: How values are invented: languages have functions of their own.
    """
    try:
        return Fakes(settings).kind(name)
    except (AttributeError, ImportError):
        return "any"
