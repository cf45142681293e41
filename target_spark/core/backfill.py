"""The range of a table that a run replaces."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import DestinationError, RecordError, Where


@dataclass(frozen=True)
class Backfill:
    """A range of a table that a run replaces, or compares with the source.

    Attributes:
        stream: Name of the stream.
        column: Column of the stream.
        since: Least value, as text that Spark can cast to the column's type.
        until: The value after the last one.
    """

    stream: str
    column: str
    since: str
    until: str


def outside_range(backfill: Backfill) -> RecordError:
    """Return the error for a record that a backfill must not bring."""
    return RecordError(
        f"a record of the backfill lies outside of its range: '{backfill.column}' is not from "
        f"{backfill.since} to before {backfill.until}",
        where=Where(stream=backfill.stream),
        hint="give both programs the same --from and --to; the table is unchanged",
    )


def without_column(backfill: Backfill, shown: str) -> DestinationError:
    """Return the error for a table that lacks the column of the range.

    Args:
        backfill: The range.
        shown: Name of the table in messages.
    """
    return DestinationError(
        f"{shown} does not have the column '{backfill.column}' of the range",
        where=Where(stream=backfill.stream),
        hint="see --column",
        lasts=True,
    )
