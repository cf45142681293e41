"""Versions of a Delta table, from its history. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shared.types.spark_conform import Names, Path
from tap_spark.sources.lakes.lake_log import LoggedCommit

CHANGE_FEED = "delta.enableChangeDataFeed"
_COLUMNS_CHANGE = ("RENAME COLUMN", "DROP COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS")
_REPLACES = ("REPLACE", "CREATE OR REPLACE", "RESTORE", "CLONE")
_ROW_COUNTS = (
    "numOutputRows",
    "numUpdatedRows",
    "numDeletedRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
)
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


@dataclass(frozen=True)
class DeltaVersion:
    """One line of DESCRIBE HISTORY.

    Attributes:
        number: The version.
        at_micros: Time of the commit, in microseconds since the epoch.
        operation: Delta's name of the operation.
        parameters: Its parameters, mostly JSON texts.
        metrics: Its metrics.
        blind_append: Whether it only added rows.
    """

    number: int
    at_micros: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    blind_append: bool

    @property
    def changes_columns(self) -> bool:
        """Return whether a read of the change feed across it may fail."""
        return self.operation.startswith((*_COLUMNS_CHANGE, "REPLACE COLUMNS", *_REPLACES)) or (
            self.replaces_rows
        )

    @property
    def replaces_rows(self) -> bool:
        """Return whether it may have replaced rows with rows of other columns."""
        overwrites = self.parameters.get("mode") == "Overwrite"
        return overwrites or self.operation.startswith(_REPLACES)

    def commit(self) -> LoggedCommit:
        """Return the version as a commit of the log."""
        metrics = [self.metrics.get(name) or "" for name in _ROW_COUNTS]
        return LoggedCommit(
            self.number,
            self.number - 1,
            self.at_micros,
            rows=sum(int(text) for text in metrics if text.isdigit()),
            only_new=self.blind_append,
            alone=self.changes_columns,
        )


def names_at(versions: Iterable[DeltaVersion], number: int) -> Names:
    """Return the names of today's columns in an earlier version.

    Args:
        versions: Every version since then.
        number: The earlier version.
    """
    names: dict[Path, str] = {}
    for version in sorted(versions, key=lambda each: each.number):
        moved = renamed(version) if version.number > number else None
        if moved is not None and len(moved[0]) == 1:
            old, new = moved[0][0], moved[1][0]
            names[new,] = names.pop((old,), old)
    return dict(names)


def renamed(version: DeltaVersion) -> tuple[Path, Path] | None:
    """Return the old and new path of the field that a version renamed."""
    if version.operation != "RENAME COLUMN":
        return None
    given = version.parameters
    return _path(given.get("oldColumnPath", "")), _path(given.get("newColumnPath", ""))


def stale_columns(versions: Sequence[DeltaVersion], columns: Iterable[str]) -> list[str]:
    """Return columns whose rows a destination must get again, though no row changed.

    They, or fields inside them, were renamed, or dropped and added again.
    """
    touched: set[str] = set()
    added_later = any(version.operation == "ADD COLUMNS" for version in versions)
    for version in versions:
        moved = renamed(version)
        if moved is not None:
            touched.discard(moved[0][0] if len(moved[0]) == 1 else "")
            touched.add(moved[1][0])
        if version.operation == "DROP COLUMNS":
            dropped = map(_path, json.loads(version.parameters.get("columns") or "[]"))
            touched.update(path[0] for path in dropped if len(path) == 1 or added_later)
    return [name for name in columns if name in touched]


def _path(text: str) -> Path:
    return tuple((quoted.replace("``", "`") or plain) for quoted, plain in _PART.findall(text))
