"""The `fake` of expressions: invented names, addresses and the like, by the library Faker.

Only the functions of its providers can be called. With a seed, a record always gets the same
values. Does not import this project, so that it can be sent to workers by value.
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

MOST = 5_000
"""Characters, words or elements that one call may ask for."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# They make files, run templates that reach any attribute, or take classes and functions.
_REFUSED = _words(
    """add_provider binary csv del_arguments dsv enum fixed_width format get_arguments
    get_formatter get_providers image json json_bytes parse provider psv pydict pyiterable
    pylist pyobject pyset pystr_format pystruct pytimezone pytuple seed_instance
    set_arguments set_formatter tar time_series tsv unique xml zip"""
)
# Any integer will do for these.
_RANGES = _words(
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

    Raises:
        ImportError: Faker is not installed here.
    """

    def __init__(self, settings: FakeSettings) -> None:
        from faker import Faker  # noqa: PLC0415

        self._settings = settings
        locale = settings.locale
        self._faker: Any = Faker(list(locale) if isinstance(locale, (list, tuple)) else locale)
        self._names = offered(self._faker)
        self._methods: dict[str, Callable[..., Any]] = {}
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
        method = self._methods.get(name)
        if method is None:
            if name == "seed_instance":
                method = self._seed
            elif name in self._names:
                method = _bounded(name, getattr(self._faker, name))
            else:
                raise simpleeval.FeatureNotAvailable(f"fake.{name} is not available")
            self._methods[name] = method
        return method

    @property
    def seeded(self) -> bool:
        """Return whether a seed decides which values are invented."""
        return self._settings.seed is not None

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the functions that can be called."""
        return self._names

    def has(self, name: str) -> bool:
        """Return whether a function has this name."""
        return name in self._names or name == "seed_instance"

    def hint(self, name: str) -> Any:
        """Return the annotated type of a function's result; raise as `attribute` does."""
        self.attribute(name)
        return inspect.signature(getattr(self._faker, name)).return_annotation

    def _seed(self, seed: Any = None) -> None:
        if not isinstance(seed, (int, float, str, type(None))):
            raise TypeError("a seed is a number or a text")
        for factory in self._faker.factories:
            factory.random.seed(seed)


def offered(faker: Any) -> frozenset[str]:
    """Return the names of the Faker functions that expressions may call."""
    names = {
        name
        for factory in faker.factories
        for provider in factory.get_providers()
        for name in dir(type(provider))
        if not name.startswith("_") and inspect.isfunction(getattr(type(provider), name, None))
    }
    return frozenset(names - _REFUSED - {n for n in names if n.startswith(("add_", "set_"))})


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
    if name in _KNOWN:
        return _KNOWN[name]
    try:
        return _KINDS.get(Fakes(settings).hint(name), "any")
    except (AttributeError, ImportError, simpleeval.FeatureNotAvailable):
        return "any"
