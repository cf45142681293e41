"""The commits of a table: moments to restore, what maintenance keeps. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from itertools import pairwise
from typing import Any

from target_spark.destinations.lakes.lake_table import Mark, Place

UNKNOWN = "unknown"
"""Stands for a version that the log does not tell."""


@dataclass(frozen=True)
class TableCommit:
    """A commit, or the return to an earlier one.

    Attributes:
        version: Its version (Delta) or snapshot (Iceberg).
        at: When it became the table, seconds since the epoch.
        mark: Our mark; None for a commit of others.
        base: The version whose rows it has changed; None for the first, or `UNKNOWN`.
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
    def created(self) -> Sequence[TableCommit]:
        """Return the commits without the returns to one of them."""
        return tuple(self._by_version.values())

    @property
    def is_complete(self) -> bool:
        """Return whether the first commit of the table is known."""
        return self.commits[0].base is None

    @property
    def streams(self) -> frozenset[str]:
        """Return the streams that were loaded into it; none if it is not ours."""
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
        result = commit
        for result in self.lineage(commit):
            if not result.keeps_rows:
                break
        return result.version

    def marks(self, commit: TableCommit) -> Mapping[str, tuple[TableCommit, Mark]]:
        """Return the last flush of each stream that the table had after a commit."""
        results: dict[str, tuple[TableCommit, Mark]] = {}
        for one in self.lineage(commit):
            if one.mark is not None and one.mark.number is not None:
                results.setdefault(one.mark.stream, (one, one.mark))
        return results

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
        results: dict[str, TableCommit] = {}
        for commit in self.commits:
            results.setdefault(commit.version, commit)
        return results


def shown_time(at: float) -> str:
    """Return a time for people and programs: ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


DAY = 86400.0


@dataclass(frozen=True)
class Kept:
    """A commit that must stay readable.

    Attributes:
        commit: The commit, as it was made first.
        why: Who needs it.
    """

    commit: TableCommit
    why: str


@dataclass(frozen=True)
class KeepPlan:
    """What maintenance keeps of a table.

    Attributes:
        kept: At least one, the oldest first; all commits after that stay, too.
        lost: Our commits before it: no rewind can return to them afterwards.
        has_earlier: Any commit is before it.
        needed_since: When another commit followed the oldest that stays: files that were removed
            from the table since then are needed; None if it is the newest.
    """

    kept: Sequence[Kept]
    lost: Sequence[TableCommit] = ()
    has_earlier: bool = False
    needed_since: float | None = None


def plan_keep(
    history: TableHistory,
    now: float,
    seconds: float,
    *,
    tokens: Collection[str] = (),
    readers: Mapping[str, str] | None = None,
    keeps_log: bool = False,
) -> KeepPlan:
    """Plan what maintenance keeps: all that a rewind, a reader or a note needs.

    Args:
        now: Seconds since the epoch.
        seconds: To each moment of this time before now a rewind must be able to return.
        tokens: Flushes in the notes of killed runs, whose marks must be found.
        readers: Versions at which readers of the log go on → who they are.
        keeps_log: Marks stay, whatever becomes of the data of their commits.
    """
    results = list(_of_rewinds(history, now - seconds, keeps_log=keeps_log))
    created = {commit.version: commit for commit in history.created}
    results += [
        Kept(created[version], f"reader {who}")
        for version, who in (readers or {}).items()
        if version in created
    ]
    if not keeps_log:
        results += [
            Kept(commit, f"the note of a killed run of stream '{commit.mark.stream}'")
            for commit in created.values()
            if commit.mark is not None and commit.mark.token in tokens
        ]
    order = {version: number for number, version in enumerate(created)}
    results.sort(key=lambda kept: order[kept.commit.version])
    before = history.created[: order[results[0].commit.version]]
    lost = tuple(one for one in before if one.mark is not None)
    after = history.created[len(before) + 1 :]
    return KeepPlan(tuple(results), lost, bool(before), after[0].at if after else None)


def _of_rewinds(history: TableHistory, since: float, *, keeps_log: bool) -> Iterator[Kept]:
    """Yield what a rewind to any moment from a time on returns to, and what tells its STATE."""
    created = {commit.version: commit for commit in history.created}
    for start in _starts(history.commits, since):
        moment = next((one for one in history.lineage(start) if history.is_moment(one)), start)
        yield Kept(created[moment.version], "rewind")
        if not keeps_log:
            for stream, (commit, _) in history.marks(moment).items():
                yield Kept(created[commit.version], f"the STATE of stream '{stream}'")


def _starts(commits: Sequence[TableCommit], since: float) -> Iterator[TableCommit]:
    """Yield what the table was at a time, and each commit after it that rests on an older one.

    Whatever the other ones need is at or after what the commit before them needs.
    """
    first = max(sum(commit.at <= since for commit in commits) - 1, 0)
    yield commits[first]
    for before, commit in pairwise(commits[first:]):
        if commit.base != before.version:
            yield commit


@dataclass(frozen=True)
class Compaction:
    """The files that a compaction has removed, and those that it has added in their place."""

    removed: int = 0
    added: int = 0


@dataclass(frozen=True)
class Removal:
    """What an expiry has removed.

    Attributes:
        versions: Number of versions that were forgotten.
        files: Number of deleted files; None if the format does not tell.
        left: Why nothing was removed.
    """

    versions: int = 0
    files: int | None = 0
    left: str = ""


@dataclass(frozen=True)
class Maintained:
    """What maintenance did to a table, or would do.

    Attributes:
        table: Short name of the table.
        restorable_version: Oldest version to which a rewind can return; None if none has a STATE.
        kept_for: Who needs the oldest commit that stays.
        lost_commits: Our earlier commits, to which none can return.
        lost_runs: Their runs that have no later commit in the table.
        orphans: Number of deleted files that no version had (Iceberg).
        dry_run: Nothing was changed.
    """

    table: str
    restorable_version: str | None
    restorable_since: str | None
    kept_for: str
    lost_commits: int
    lost_runs: tuple[str, ...]
    compacted: Compaction = field(default_factory=Compaction)
    expired: Removal = field(default_factory=Removal)
    orphans: int = 0
    dry_run: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the report of the table."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the report for people."""
        files = "?" if self.expired.files is None else self.expired.files
        if self.dry_run:
            yield f"'{self.table}': dry run, nothing was changed"
        else:
            yield (
                f"'{self.table}': {self.compacted.removed} files compacted into "
                f"{self.compacted.added}; {self.expired.versions} versions and {files} files "
                f"removed; {self.orphans} orphans removed"
            )
        if self.expired.left:
            yield f"'{self.table}': nothing was removed: {self.expired.left}"
        can = "no rewind can return to it: no commit has a STATE"
        if self.restorable_version is not None:
            can = (
                f"a rewind can return to version {self.restorable_version} of "
                f"{self.restorable_since} and later"
            )
        yield (
            f"'{self.table}': {can}; {self.lost_commits} earlier commits cannot be restored; "
            f"the oldest that stays is kept for {self.kept_for}"
        )


def maintained(history: TableHistory, plan: KeepPlan, *, dry_run: bool = False) -> Maintained:
    """Return the report of a plan, before anything is done."""
    oldest, lost = plan.kept[0], {commit.version for commit in plan.lost}
    runs = dict.fromkeys(one.mark.run for one in plan.lost if one.mark is not None)
    left = (one.mark for one in history.created if one.version not in lost)
    kept = {mark.run for mark in left if mark is not None}
    first = _first_moment(history, oldest.commit)
    return Maintained(
        table=history.name,
        restorable_version=None if first is None else first.version,
        restorable_since=None if first is None else shown_time(first.at),
        kept_for=oldest.why,
        lost_commits=len(plan.lost),
        lost_runs=tuple(run for run in runs if run and run not in kept),
        dry_run=dry_run,
    )


def _first_moment(history: TableHistory, oldest: TableCommit) -> TableCommit | None:
    """Return the first commit from one on to which a rewind can return; None if there is none."""
    left = history.created[history.created.index(oldest) :]
    with_state = (one for one in left[1:] if one.mark is not None and one.mark.state is not None)
    return next((one for one in (oldest, *with_state) if history.is_moment(one)), None)
