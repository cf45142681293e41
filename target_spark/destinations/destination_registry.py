"""All destinations: those of this package, and those of other packages by entry points.

A package adds a destination by an entry point of the group `singer_spark.destinations`, whose name
is the format and whose value is a `Declaration`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import metadata

from shared.errors import SettingsError, Where
from target_spark.destinations.databases.database_declaration import JDBC
from target_spark.destinations.destination_declaration import TABLE_SETTINGS, Declaration, Supports
from target_spark.destinations.files.file_declarations import FILE_FORMATS
from target_spark.destinations.lakes.lake_declarations import DELTA, ICEBERG

GROUP = "singer_spark.destinations"
BUILT_IN = (*FILE_FORMATS, DELTA, ICEBERG, JDBC)

_FORMAT = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Registry:
    """The destinations that are installed.

    Attributes:
        known: Declarations by format.
        broken: Format → why it cannot be used.
    """

    known: Mapping[str, Declaration] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def formats(self) -> tuple[str, ...]:
        """Return all formats, unusable ones last."""
        return (*self.known, *(name for name in self.broken if name not in self.known))

    @property
    def blocks(self) -> tuple[str, ...]:
        """Return the formats with a block of settings of their own."""
        return tuple(name for name, found in self.known.items() if found.block is not None)

    def get(self, name: str) -> Declaration:
        """Return a declaration.

        Raises:
            SettingsError: The format is unknown, or cannot be used.
        """
        if name in self.broken or name not in self.known:
            reason = self.broken.get(name, f"{name!r} is not one of {', '.join(self.known)}")
            raise SettingsError(reason, where=Where(setting="format"))
        return self.known[name]


def read_registry(
    points: Iterable[metadata.EntryPoint] | None = None, taken: Iterable[str] = ()
) -> Registry:
    """Read the declarations of this package and of all others; never fails.

    Args:
        points: Entry points; if left out, those of the installed packages.
        taken: Names of settings, which cannot be names of formats with a block of their own.
    """
    known = {declared.format: declared for declared in BUILT_IN}
    owners = dict.fromkeys(known, "singer-spark")
    broken: dict[str, str] = {}
    found = metadata.entry_points(group=GROUP) if points is None else points
    for point in sorted(found, key=lambda point: (point.name, _package(point))):
        package = _package(point)
        if point.name in owners:
            broken[point.name] = (
                f"{point.name!r} is declared by the packages {owners[point.name]!r} and "
                f"{package!r}: uninstall one of them"
            )
            continue
        owners[point.name] = package
        try:
            known[point.name] = _loaded(point, frozenset(taken))
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            broken[point.name] = (
                f"the destination {point.name!r} of the package {package!r} cannot be used: "
                f"{reason}"
            )
    return Registry(known, broken)


def _loaded(point: metadata.EntryPoint, taken: frozenset[str]) -> Declaration:
    """Load a declaration and check it.

    Raises:
        Exception: Whatever the package raises; ValueError for what it declares wrongly.
    """
    found = point.load()
    if not isinstance(found, Declaration):
        raise TypeError(f"'{point.value}' is not a Declaration")
    if found.format != point.name or not _FORMAT.fullmatch(found.format):
        raise ValueError(f"its entry point must have the name of its format, {found.format!r}")
    if found.format in taken:
        raise ValueError("a setting has its name")
    unknown = (found.uses | found.ignores) - set(TABLE_SETTINGS)
    if unknown:
        raise ValueError(f"'{min(unknown)}' is not one of the table settings")
    own = {found.format} if found.block is not None else set()
    if not found.places or not set(found.places) <= {"path", "catalog"} | own:
        raise ValueError("'places' must be 'path', 'catalog' or the name of its block")
    return found


def _package(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value.partition(":")[0]


def capability_table(declarations: Iterable[Declaration] = BUILT_IN) -> str:
    """Return what each destination supports, as a Markdown table."""
    columns = list(declarations)
    names = [f"`{declared.format}`" for declared in columns]
    rows = [f"| | {' | '.join(names)} |", f"|:--{'|:--:' * len(names)}|"]
    for name in (item.name for item in fields(Supports)):
        cells = [_cell(declared, name) for declared in columns]
        rows.append(f"| {LABELS[name]} | {' | '.join(cells)} |")
    for setting in TABLE_SETTINGS:
        cells = ["yes" if setting in declared.uses else "" for declared in columns]
        rows.append(f"| `{setting}` | {' | '.join(cells)} |")
    return "\n".join(rows)


LABELS: Mapping[str, str] = {
    "upsert": "`load_method: upsert`",
    "overwrite": "`load_method: overwrite`",
    "new_columns": "adds columns",
    "exactly_once": "a repeated commit adds nothing",
    "replays": "detects replays",
    "versions": "ACTIVATE_VERSION",
    "views": "`generate_view`",
}
"""Words of the documentation for each name in `Supports`."""


def _cell(declared: Declaration, name: str) -> str:
    if not getattr(declared.supports, name):
        return ""
    return declared.notes.get(name, "yes")
