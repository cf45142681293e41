"""The range of a table that a run replaces."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import RecordError, Where


@dataclass(frozen=True)
class Backfill:
    """A range of a table that a run replaces.

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
