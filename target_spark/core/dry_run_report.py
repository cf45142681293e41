"""What a dry run finds: the tables that a load would change, and how. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_DONE = {
    "append-only": "append {rows} to",
    "upsert": "upsert {rows} into",
    "history": "add {rows} to the history in",
    "overwrite": "replace the rows of {table} by {rows}",
}


@dataclass(frozen=True)
class PlannedTable:
    """The table of a stream as a load would leave it.

    Attributes:
        stream: Name of the stream, after stream maps.
        table: Name of the table in messages.
        method: The load method.
        changes: What would happen to its columns, one phrase for each step; None if it is not
            known.
        backfill: Only a range of the table would be replaced.
    """

    stream: str
    table: str
    method: str
    changes: tuple[str, ...] | None = ()
    backfill: bool = False


@dataclass
class DryRun:
    """Collects the tables of a dry run.

    Attributes:
        tables: Stream → its table.
        versions: Stream → the table version that ACTIVATE_VERSION would activate.
    """

    tables: dict[str, PlannedTable] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)

    def lines(self, counts: Mapping[str, Mapping[str, int]]) -> Sequence[str]:
        """Return one line for each table.

        Args:
            counts: Stream → its counts, as in the run summary.
        """
        return [self._line(table, counts.get(stream, {})) for stream, table in self.tables.items()]

    def _line(self, planned: PlannedTable, counts: Mapping[str, int]) -> str:
        rows = counts.get("committed", 0)
        what = _DONE[planned.method].format(rows=_rows(rows), table=planned.table)
        if planned.backfill:
            what = f"replace a range of {planned.table} by {_rows(rows)}"
        elif planned.method != "overwrite":
            what = f"{what} {planned.table}"
        left = [f"{counts[kind]} {kind}" for kind in ("rejected", "filtered") if counts.get(kind)]
        if left:
            what += f" ({', '.join(left)})"
        steps = [what, *_changes(planned.changes)]
        if planned.stream in self.versions:
            steps.append(f"activate the table version {self.versions[planned.stream]}")
        return f"stream '{planned.stream}': would {'; '.join(steps)}"


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _changes(changes: tuple[str, ...] | None) -> tuple[str, ...]:
    if changes is None:
        return ("change its columns if that is needed (not known for this format)",)
    return changes or ("leave its columns as they are",)
