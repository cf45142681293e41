"""Extensions by other packages: declarations found by their entry points."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Generic, Protocol, TypeVar

from shared.errors import InvalidSettingsError

_logger = logging.getLogger(__name__)

SOURCES = "singer_spark.sources"
DESTINATIONS = "singer_spark.destinations"
ENCODINGS = "singer_spark.encodings"
OURS = "singer-spark"
SWITCH = "SINGER_SPARK_EXTENSIONS"
"""Environment variable that leaves installed packages out if it is `off`."""


class Named(Protocol):
    """A declaration that an entry point names."""

    @property
    def name(self) -> str:
        """Return the name under which users know it, which is that of its entry point."""
        ...


Item = TypeVar("Item", bound=Named)


@dataclass(frozen=True)
class Declared(Generic[Item]):
    """Everything of one kind that is declared.

    Attributes:
        items: Declarations by name, those of this package first.
        packages: For each name of another package, the package with its version.
        unusable: Name of an entry point → why it cannot be used, one line per package. The name may
            be in `items`, too: of another package.
    """

    items: Mapping[str, Item]
    packages: Mapping[str, str]
    unusable: Mapping[str, tuple[str, ...]]

    @property
    def problems(self) -> tuple[str, ...]:
        """Return a line for each entry point that cannot be used."""
        return tuple(line for lines in self.unusable.values() for line in lines)

    def check(self) -> None:
        """Raise an error if an entry point cannot be used.

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
    loaded: object = getattr(import_module(module), name)
    return loaded


def declared(
    group: str,
    kind: type[Item],
    ours: Mapping[str, Item],
    clash: Callable[[Item, Mapping[str, Item]], str | None] | None = None,
) -> Declared[Item]:
    """Add the declarations of installed packages to those of this package; never fail.

    Args:
        group: Name of the group of entry points.
        kind: The class of the declarations.
        ours: Those of this package, by name.
        clash: Says why a declaration cannot be used beside the known ones; None if it can.
    """
    items, packages = dict(ours), dict[str, str]()
    unusable: dict[str, tuple[str, ...]] = {}
    for point, package in _entry_points(group):
        try:
            if point.name in items:
                owner = packages.get(point.name, OURS)
                raise _RefusedError(f"the package '{owner}' has that name already")
            item = _loaded(point, kind)
            reason = clash(item, items) if clash is not None else None
            if reason is not None:
                raise _RefusedError(reason)
        except _RefusedError as error:
            place = f"package '{package}', entry point '{point.name}' of {group}"
            line = f"{place}: {error}; correct or uninstall the package"
            unusable[point.name] = (*unusable.get(point.name, ()), line)
            continue
        items[item.name] = item
        packages[item.name] = package
    return Declared(items, packages, unusable)


class _RefusedError(Exception):
    """Why an entry point cannot be used."""


def _loaded(point: metadata.EntryPoint, kind: type[Item]) -> Item:
    try:
        item = point.load()
    except (Exception, SystemExit) as error:
        _logger.debug("cannot import %s", point.value, exc_info=True)
        text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        raise _RefusedError(f"cannot import '{point.value}': {text}") from error
    if not isinstance(item, kind):
        raise _RefusedError(f"'{point.value}' is a {type(item).__name__}, not a {kind.__name__}")
    if item.name != point.name:
        raise _RefusedError(f"it declares the name '{item.name}', not '{point.name}'")
    return item


def _entry_points(group: str) -> Iterator[tuple[metadata.EntryPoint, str]]:
    """Yield entry points with the package each is of, in the same order on every machine."""
    if os.environ.get(SWITCH) == "off":
        return
    declared = []
    for point in metadata.entry_points(group=group):
        dist = point.dist
        package = f"{dist.metadata['Name']} {dist.version}" if dist is not None else "unknown"
        declared.append((package, point.name, point))
    for package, _, point in sorted(declared, key=lambda one: one[:2]):
        yield point, package
