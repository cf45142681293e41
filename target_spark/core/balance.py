"""What must be true of a stream's records at the end: their balance, and what users expect. Pure.

Counts come from different places on purpose: the reader of standard input, the tasks that read and
write, the footers of files, and the metadata of the commit. Each step is checked before its work
counts as done, so that STATE never covers a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any

from shared.errors import BalanceError, ExpectationError, Where
from shared.singer.datasets import Dataset
from target_spark.core.load_plans import Batch, LoadResult

_HINT = "the STATE of these records is withheld; run again, and report it if it happens again"


@dataclass(frozen=True)
class Counts:
    """Records of a stream, or of a flush of it.

    Attributes:
        received: RECORD messages, and rows of the files of BATCH messages.
        committed: Rows that commits have added, updated or deleted.
        rejected: Records that the failure policy has left out.
        filtered: Records that `stream_maps` have left out.
        merged: Records that another one of the same flush with the same key has replaced, those
            that are older than the row of the table, deletions of keys that the table does not
            have, records of `history` that add no version, and with `overwrite` those of an older
            table version.
        replayed: Records that an earlier run has committed.
        unconfirmed: Those of `committed` whose commit does not tell a number.
        exploded: Rows that `__explode__` has made of records, beyond the first of each.
    """

    received: int = 0
    committed: int = 0
    rejected: int = 0
    filtered: int = 0
    merged: int = 0
    replayed: int = 0
    unconfirmed: int = 0
    exploded: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))

    @property
    def missing(self) -> int:
        """Return the number of received records without a known fate; negative for too many."""
        existing = self.committed + self.rejected + self.filtered + self.merged + self.replayed
        return self.received + self.exploded - existing


@dataclass(frozen=True)
class Committed:
    """What the metadata of a commit tell about the rows of a flush.

    Attributes:
        rows: Rows that it added, updated or deleted; None if it does not tell.
        keys: Different keys of the flush, if its rows are matched by key and this is known.
        by_key: Whether its rows are matched by key, so that a row may replace another.
        may_skip: Whether some rows may change nothing, such as the deletion of a missing key, or
            one that is older than the row of the table.
    """

    rows: int | None = None
    keys: int | None = None
    by_key: bool = False
    may_skip: bool = False


@dataclass(frozen=True)
class Loaded:
    """A flush that is durable in one table.

    Attributes:
        changes: What has changed in the columns of the table, one phrase for each step.
        datasets: Returns what lineage calls the table; None if it is the same as before.
    """

    counts: Counts
    changes: tuple[str, ...] = ()
    datasets: Callable[[], Sequence[Dataset]] | None = field(default=None, compare=False)


def check_conversion(batch: Batch, result: LoadResult) -> LoadResult:
    """Return the result; all records must have been read, and written, rejected or filtered.

    Raises:
        BalanceError: Records are missing, or there are too many.
    """
    staged = [file.rows for file in batch.files if file.rows is not None]
    if len(staged) == len(batch.files) and sum(staged) != result.received:
        raise _error(
            batch.source, f"{sum(staged)} records were staged, {result.received} were read"
        )
    records = result.rows - result.exploded
    rest = result.received - records - result.rejected
    may_drop = batch.making is not None or not batch.reports_rejects
    if rest < 0 or records < min(1, result.rows) or (rest and not may_drop):
        raise _error(
            batch.source,
            f"{result.received} records were read, {records} written and "
            f"{result.rejected} rejected",
        )
    return result


def check_flush(batch: Batch, lines: int | None) -> None:
    """Check that a flush has all RECORD lines that were received for it.

    Args:
        lines: Number of lines; None if it is not known, as the input was cut.

    Raises:
        BalanceError: Some are missing, or there are too many.
    """
    staged = sum(file.rows or 0 for file in batch.files if file.line_map)
    if lines is not None and staged != lines:
        raise _error(batch.source, f"{lines} records were received, {staged} are to be committed")


def check_commit(
    batch: Batch, results: Sequence[LoadResult], committed: Committed | None
) -> Counts:
    """Return the counts of a durable flush.

    Raises:
        BalanceError: The commit has another number of rows than its parts.
    """
    received = sum(result.received for result in results)
    rejected = sum(result.rejected for result in results)
    replayed = sum(result.replayed for result in results)
    written = sum(result.rows for result in results)
    exploded = sum(result.exploded for result in results)
    filtered = received + exploded - rejected - replayed - written
    outcome = merged_rows(batch.source, written, committed or Committed())
    unconfirmed = written if committed is None or committed.rows is None else 0
    fates = (written - outcome, rejected, filtered, outcome, replayed)
    return Counts(received, *fates, unconfirmed, exploded)


def merged_rows(stream: str, written: int, committed: Committed) -> int:
    """Return how many of the written rows of a flush did not get into the table by themselves.

    Raises:
        BalanceError: The commit has another number of rows than it should.
    """
    rows = committed.rows
    if rows is None:
        return 0
    most = written if committed.keys is None else committed.keys
    is_exact = not committed.by_key or (committed.keys is not None and not committed.may_skip)
    least = 0 if committed.may_skip else min(1, most)
    if not (most if is_exact else least) <= rows <= most:
        what = f"{written} rows were written"
        if committed.keys is not None:
            what += f" with {committed.keys} different keys"
        raise _error(stream, f"{what}, the commit has {rows}")
    return written - rows


def _error(stream: str, text: str) -> BalanceError:
    return BalanceError(f"counts do not balance: {text}", where=Where(stream=stream), hint=_HINT)


@dataclass(frozen=True)
class Expectations:
    """What is expected of one stream; see `ExpectSettings`."""

    min_rows: int | None = None
    max_null_share: Mapping[str, float] = field(default_factory=dict)
    fresh_within: Mapping[str, float] = field(default_factory=dict)
    no_rows_where: tuple[str, ...] = ()
    withhold_state: bool = False


@dataclass
class Profile:
    """The rows of a stream that were written in this run.

    Attributes:
        columns: Nulls, least and greatest value of each column; see
            `shared.formats.columnar_encoding`.
        merged: Those of `rows` that were not committed; see `Counts`.
    """

    rows: int = 0
    columns: dict[str, list[Any]] = field(default_factory=dict)
    merged: int = 0


def check_expectations(
    wanted: Mapping[str, Expectations], profiles: Mapping[str, Profile], now: float
) -> None:
    """Check all streams.

    Args:
        now: Seconds since the epoch.

    Raises:
        ExpectationError: At least one does not hold; names all.
    """
    outcome = broken_expectations(wanted, profiles, now)
    if not outcome:
        return
    alone = next(iter(wanted)) if len(wanted) == 1 else None
    raise ExpectationError(
        f"expectations do not hold: {'; '.join(outcome)}",
        where=Where(stream=alone, setting="expect"),
        hint="the rows are committed; correct the source or the setting",
    )


def broken_expectations(
    wanted: Mapping[str, Expectations], profiles: Mapping[str, Profile], now: float
) -> list[str]:
    """Return what does not hold, with the name of its stream; see `check_expectations`."""
    return [
        f"stream '{stream}': {text}"
        for stream, expected in wanted.items()
        for text in violations(expected, profiles.get(stream) or Profile(), now)
    ]


def violations(expected: Expectations, profile: Profile, now: float) -> Iterator[str]:
    """Yield what does not hold, as text."""
    committed = profile.rows - profile.merged
    if expected.min_rows is not None and committed < expected.min_rows:
        yield f"{committed} rows, at least {expected.min_rows} are expected"
    if not profile.rows:
        return
    for column, most in expected.max_null_share.items():
        facts = profile.columns.get(column)
        if facts is None:
            yield f"the nulls of column '{column}' are not known"
        elif facts[0] > most * profile.rows:
            share = facts[0] / profile.rows
            yield f"{share:.1%} of column '{column}' are null, at most {most:.1%} are expected"
    for column, seconds in expected.fresh_within.items():
        newest = _instant((profile.columns.get(column) or [0, None, None])[2])
        if newest is None:
            yield f"the newest time in column '{column}' is not known"
        elif newest < now - seconds:
            age = f"{now - newest:,.0f} s old, at most {seconds:,.0f} s are expected"
            yield f"the newest '{column}' is {age}"


def _instant(value: Any) -> float | None:
    """Return a time as seconds since the epoch; without a zone it is one in UTC."""
    if not isinstance(value, str):
        return None
    try:
        outcome = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (outcome if outcome.tzinfo else outcome.replace(tzinfo=timezone.utc)).timestamp()
