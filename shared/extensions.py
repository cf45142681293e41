"""What packages of other people add: declarations found by their entry points."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Generic, Protocol, TypeVar

from shared.errors import InvalidSettingsError

_logger = logging.getLogger(__name__)

SOURCES = "singer_spark.sources"
ENCODINGS = "singer_spark.encodings"
OURS = "singer-spark"
SWITCH = "SINGER_SPARK_EXTENSIONS"
"""Environment variable that leaves installed packages out if it is `off`."""


class Declaration(Protocol):
    """What an entry point leads to."""

    @property
    def name(self) -> str:
        """The name under which users know it; that of its entry point."""
        ...


Item = TypeVar("Item", bound=Declaration)


@dataclass(frozen=True)
class Declared(Generic[Item]):
    """Everything of one kind that is declared.

    Attributes:
        items: Declarations by name, those of this package first.
        packages: For each name of another package, the package with its version.
        problems: Entry points that cannot be used, one line each.
    """

    items: Mapping[str, Item]
    packages: Mapping[str, str]
    problems: tuple[str, ...]

    def check(self) -> None:
        """Refuse to go on while an entry point cannot be used.

        Raises:
            InvalidSettingsError: With every problem.
        """
        if self.problems:
            raise InvalidSettingsError(self.problems)


def imported(place: str) -> object:
    """Import an object by its place.

    Args:
        place: `package.module:name`.

    Raises:
        ImportError, AttributeError: It is not there.
    """
    module, _, name = place.partition(":")
    found: object = getattr(import_module(module), name)
    return found


def built_in(kind: type[Item], places: Iterable[str]) -> dict[str, Item]:
    """Import the declarations of this package.

    Args:
        kind: Their class.
        places: `package.module:name` of each, in the order in which users read of them.
    """
    found: dict[str, Item] = {}
    for place in places:
        item = imported(place)
        if not isinstance(item, kind):
            raise TypeError(f"{place} is not a {kind.__name__}")
        found[item.name] = item
    return found


def declared(group: str, kind: type[Item], ours: Mapping[str, Item]) -> Declared[Item]:
    """Add the declarations of installed packages to those of this package.

    Args:
        group: Name of the group of entry points.
        kind: The class of the declarations.
        ours: Those of this package, by name.
    """
    items, packages = dict(ours), dict[str, str]()
    problems: list[str] = []
    for point, package in _entry_points(group):
        place = f"package '{package}', entry point '{point.name}' of {group}"
        try:
            item = _loaded(point, kind)
            _check_name(item, point.name, items, packages)
        except _RefusedError as error:
            problems.append(f"{place}: {error}; correct or uninstall the package")
            continue
        items[item.name] = item
        packages[item.name] = package
    return Declared(items, packages, tuple(problems))


class _RefusedError(Exception):
    """Why an entry point cannot be used."""


def _loaded(point: metadata.EntryPoint, kind: type[Item]) -> Item:
    try:
        item = point.load()
    except (Exception, SystemExit) as error:
        _logger.debug("cannot import %s", point.value, exc_info=True)
        text = f"{type(error).__name__}: {error}"
        raise _RefusedError(f"cannot import '{point.value}': {text}") from error
    if not isinstance(item, kind):
        raise _RefusedError(f"'{point.value}' is a {type(item).__name__}, not a {kind.__name__}")
    return item


def _check_name(
    item: Declaration, name: str, items: Mapping[str, object], packages: Mapping[str, str]
) -> None:
    if item.name != name:
        raise _RefusedError(f"it declares the name '{item.name}', not '{name}'")
    if name in items:
        raise _RefusedError(f"the package '{packages.get(name, OURS)}' has that name already")


def _entry_points(group: str) -> Iterator[tuple[metadata.EntryPoint, str]]:
    """Yield entry points with the package each is of, in the same order on every machine."""
    if os.environ.get(SWITCH) == "off":
        return
    found = []
    for point in metadata.entry_points(group=group):
        dist = point.dist
        package = f"{dist.metadata['Name']} {dist.version}" if dist is not None else "unknown"
        found.append((package, point.name, point))
    for package, _, point in sorted(found, key=lambda one: one[:2]):
        yield point, package
