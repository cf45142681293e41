"""All destinations: those of this package, and those of other packages by entry points.

A package adds a destination by an entry point of the group `singer_spark.destinations`, whose name
is the format and whose value is a `Declaration`. One that cannot be used does not affect runs that
use another destination.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, fields

from shared import extensions
from shared.errors import SettingsError, Where
from target_spark.destinations.databases.database_declaration import JDBC
from target_spark.destinations.destination_declaration import TABLE_SETTINGS, Declaration, Supports
from target_spark.destinations.files.file_declarations import FILE_FORMATS
from target_spark.destinations.lakes.lake_declarations import DELTA, ICEBERG

BUILT_IN = (*FILE_FORMATS, DELTA, ICEBERG, JDBC)


@dataclass(frozen=True)
class Registry:
    """The destinations that are installed.

    Attributes:
        known: Declarations by format.
        broken: Format → why it cannot be used; only runs that ask for it fail.
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


def read_registry(settings: Container[str] = ()) -> Registry:
    """Read the declarations of this package and of all others; never fails.

    Args:
        settings: Names of settings, which cannot be names of formats.
    """

    def clash(found: Declaration, _: Mapping[str, Declaration]) -> str | None:
        return "a setting has its name" if found.name in settings else None

    ours = {declared.name: declared for declared in BUILT_IN}
    found = extensions.declared(extensions.DESTINATIONS, Declaration, ours, clash)
    broken = {name: "; ".join(lines) for name, lines in found.unusable.items()}
    return Registry(found.items, broken)


def capability_table(declarations: Iterable[Declaration] = BUILT_IN) -> str:
    """Return what each destination supports, as a Markdown table."""
    columns = list(declarations)
    names = [f"`{declared.name}`" for declared in columns]
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
    "history": "`load_method: history`",
    "overwrite": "`load_method: overwrite`",
    "backfill": "`--backfill`",
    "new_columns": "adds columns",
    "exactly_once": "a repeated commit adds nothing",
    "replays": "detects replays",
    "versions": "ACTIVATE_VERSION",
    "views": "`generate_view`",
    "verify": "`target-spark verify`",
    "repair": "`target-spark verify --repair`",
    "leases": "detects overlapping runs",
}
"""Words of the documentation for each name in `Supports`."""


def _cell(declared: Declaration, name: str) -> str:
    if not getattr(declared.supports, name):
        return ""
    return declared.notes.get(name, "yes")
