"""Reports of runs that load nothing: differences to tables, and what a load would change. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from shared.errors import DifferenceError, Where

MISSING, CHANGED, VANISHED, DOUBLED = KINDS = ("missing", "changed", "vanished", "doubled")
"""Keys that only the source has, that have other values, that only the table has, and that the
table has more than once."""
MOST_VANISHED = 0.1
"""Greatest share of a table's rows that a repair deletes without consent."""


@dataclass(frozen=True)
class RangeDifference:
    """A range of hashed keys in which source and table differ.

    Attributes:
        keys: Kind of difference → number of keys.
        examples: Kind of difference → one of the keys, as JSON.
    """

    range: int
    source_rows: int
    table_rows: int
    keys: dict[str, int]
    examples: dict[str, str]


@dataclass(frozen=True)
class TableDifference:
    """What the comparison of one table has found.

    Attributes:
        table_rows: Rows of the table, without those that are marked as deleted.
        ranges: Those that differ.
        missing_columns: Columns of the stream that the table lacks.
        repaired: Kinds of difference that were repaired.
    """

    stream: str
    table: str
    source_rows: int
    table_rows: int
    ranges: tuple[RangeDifference, ...] = ()
    missing_columns: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        stream: str,
        table: str,
        rows: Mapping[int, tuple[int, int]],
        results: Mapping[int, tuple[dict[str, int], dict[str, str]]],
        missing_columns: tuple[str, ...] = (),
    ) -> TableDifference:
        """Return the difference of a table.

        Args:
            rows: Range → rows of the source and of the table.
            results: Range that differs → number of keys of each kind, and one of them.
        """
        ranges = (RangeDifference(n, *rows[n], *results[n]) for n in sorted(results))
        ours, theirs = (sum(pair[side] for pair in rows.values()) for side in (0, 1))
        return cls(stream, table, ours, theirs, tuple(ranges), missing_columns)

    def count(self, kind: str) -> int:
        """Return how many keys differ in one way."""
        return sum(result.keys.get(kind, 0) for result in self.ranges)

    @property
    def left(self) -> str:
        """Return what still differs, for people; empty if nothing does."""
        texts = [
            f"{count} {kind}"
            for kind in KINDS
            if kind not in self.repaired and (count := self.count(kind))
        ]
        if self.missing_columns:
            texts.append(f"without the columns {', '.join(self.missing_columns)}")
        return ", ".join(texts)

    def to_json(self) -> dict[str, Any]:
        """Return the report of the table."""
        return {**asdict(self), "equal": not self.left}


@dataclass(frozen=True)
class Verification:
    """What a run compares instead of loading.

    Attributes:
        report: Called with what was found, once for each table.
        ranges: Number of ranges of hashed keys.
        repair: Change the rows that differ.
        force: Consent to the deletion of many rows.
        deletes: Look for vanished keys alone; the input needs no other columns.
        most_vanished: Greatest share of a table's rows that a repair deletes without `force`.
        consent: What to do if so many rows are to be deleted.
    """

    report: Callable[[TableDifference], None]
    ranges: int = 256
    repair: bool = False
    force: bool = False
    deletes: bool = False
    most_vanished: float = MOST_VANISHED
    consent: str = "run the tap without a state and without bounds; --force consents to that"

    @property
    def kinds(self) -> Sequence[str]:
        """Return the kinds of differences that count."""
        return (VANISHED,) if self.deletes else KINDS

    def repaired(self, *, can_delete: bool, part: bool) -> tuple[str, ...]:
        """Return the kinds of differences that a repair ends.

        Args:
            can_delete: Rows can be deleted, or marked as deleted.
            part: Only a range is compared: a row that left it in the source looks like a deleted
                one.
        """
        deletes = (VANISHED,) if can_delete and (self.force or not part) else ()
        return deletes if self.deletes else (MISSING, CHANGED, *deletes)

    def check_vanished(self, difference: TableDifference, others: Collection[str] = ()) -> None:
        """Check that a repair does not delete so many rows that the input looks partial.

        Nor any row, if other streams were loaded into the table: it may be theirs.

        Raises:
            DifferenceError: It would; the difference has been reported.
        """
        vanished = difference.count(VANISHED)
        few = vanished <= self.most_vanished * difference.table_rows
        theirs = vanished and others and self.most_vanished < 1
        if self.force or (few and not theirs):
            return
        self.report(difference)
        raise DifferenceError(
            f"nothing was changed: {vanished} of {difference.table_rows} rows of "
            f"{difference.table} are not in the input"
            + (f", but may be of the stream '{min(others)}'" if theirs else ""),
            where=Where(stream=difference.stream),
            hint=self.consent,
        )


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
        """Return one line for each table; `counts` has those of the run summary, by stream."""
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
