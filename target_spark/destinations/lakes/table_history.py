"""The commits of a table and the moments to which it can be restored. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from target_spark.destinations.lakes.commit_marks import Mark
    from target_spark.destinations.lakes.lake_table import Place


@dataclass(frozen=True)
class TableCommit:
    """A commit, or the return to an earlier one.

    Attributes:
        version: Its version (Delta) or snapshot (Iceberg).
        at: When it became the table, seconds since the epoch.
        mark: Our mark; None for a commit of others.
        base: The version whose rows it has changed; None for the first.
        keeps_rows: It has the same rows as its base: a compaction, or a return to it.
    """

    version: str
    at: float
    mark: Mark | None = None
    base: str | None = None
    keeps_rows: bool = False


@dataclass(frozen=True)
class TableHistory:
    """A table and its commits, as far as they are known.

    Attributes:
        name: Short name of the table: `orders`, `schema.orders`.
        place: Its location.
        commits: In the order in which they became the table.
    """

    name: str
    place: Place
    commits: Sequence[TableCommit]

    @property
    def newest(self) -> TableCommit:
        """Return what the table is now."""
        return self.commits[-1]

    @property
    def made(self) -> Sequence[TableCommit]:
        """Return the commits without the returns to one of them."""
        return tuple(self._by_version.values())

    @property
    def is_complete(self) -> bool:
        """Return whether the first commit of the table is known."""
        return self.commits[0].base is None

    @property
    def is_ours(self) -> bool:
        """Return whether a run has loaded into it."""
        return any(commit.mark is not None for commit in self.commits)

    @property
    def streams(self) -> frozenset[str]:
        """Return the streams that were loaded into it."""
        return frozenset(c.mark.stream for c in self.commits if c.mark is not None)

    def lineage(self, commit: TableCommit) -> Iterator[TableCommit]:
        """Yield a commit and those that it rests on, newest first."""
        at: TableCommit | None = commit
        seen: set[str] = set()
        while at is not None and at.version not in seen:
            seen.add(at.version)
            yield at
            at = None if at.base is None else self._by_version.get(at.base)

    def content(self, commit: TableCommit) -> str:
        """Return the version that first had the rows of a commit."""
        found = commit
        for found in self.lineage(commit):
            if not found.keeps_rows:
                break
        return found.version

    def marks(self, commit: TableCommit) -> Mapping[str, tuple[TableCommit, Mark]]:
        """Return the last flush of each stream that the table had after a commit."""
        found: dict[str, tuple[TableCommit, Mark]] = {}
        for one in self.lineage(commit):
            if one.mark is not None and one.mark.number is not None:
                found.setdefault(one.mark.stream, (one, one.mark))
        return found

    def is_moment(self, commit: TableCommit) -> bool:
        """Return whether the table had a known STATE for each of its streams after a commit."""
        marks = self.marks(commit).values()
        return bool(marks) and all(mark.state is not None for _, mark in marks)

    def lost(self, target: TableCommit) -> list[TableCommit]:
        """Return the commits of others that the table would lose by its return to a commit."""
        kept = {commit.version for commit in self.lineage(target)}
        return [
            commit
            for commit in self.lineage(self.newest)
            if commit.version not in kept and commit.mark is None and not commit.keeps_rows
        ]

    @cached_property
    def _by_version(self) -> Mapping[str, TableCommit]:
        found: dict[str, TableCommit] = {}
        for commit in self.commits:
            found.setdefault(commit.version, commit)
        return found


def shown_time(at: float) -> str:
    """Return a time for people and programs: ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
