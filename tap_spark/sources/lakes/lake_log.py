"""A table's log of commits, in groups that are each read by one Spark job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

MAX_COMMITS = 100
MAX_ROWS = 1_000_000


class ChangeReadMode(Enum):
    """How the changes of a commit are read."""

    FEED = "from the log of changes"
    APPENDED = "as appended rows, one commit at a time"
    COMPARE = "by comparing the versions before and after"


@dataclass(frozen=True)
class LoggedCommit:
    """One version or snapshot.

    Attributes:
        position: Its number.
        before: The number of the commit before it; None for the first.
        at_micros: Time of the commit, in microseconds since the epoch.
        how: How its changes are read.
        rows: Approximate number of changed rows.
        only_new: Whether it did not remove rows.
        alone: Whether it cannot be read with earlier commits, as columns changed.
    """

    position: int
    before: int | None
    at_micros: int
    how: ChangeReadMode = ChangeReadMode.FEED
    rows: int = 0
    only_new: bool = False
    alone: bool = False


CommitGroup = tuple[LoggedCommit, ...]


def group_commits(
    commits: Sequence[LoggedCommit], *, max_commits: int = MAX_COMMITS, max_rows: int = MAX_ROWS
) -> list[CommitGroup]:
    """Group the commits that are read together, in order.

    Args:
        commits: In their order.
        max_commits: Most commits of a group.
        max_rows: Most changed rows of a group of several commits. Commits that are compared
            have neither limit: comparing many costs as much as comparing one.
    """
    found: list[list[LoggedCommit]] = []
    rows = 0
    for commit in commits:
        last = found[-1] if found else []
        together = bool(last) and last[0].how is commit.how and not commit.alone
        if commit.how is ChangeReadMode.APPENDED:
            together = False
        elif commit.how is ChangeReadMode.FEED:
            together = together and len(last) < max_commits and rows + commit.rows <= max_rows
        if together:
            last.append(commit)
            rows += commit.rows
        else:
            found.append([commit])
            rows = commit.rows
    return [tuple(part) for part in found]


def with_compared(commits: Sequence[LoggedCommit]) -> list[LoggedCommit]:
    """Compare all commits at once, from the first that must be compared to the last."""
    found = [index for index, commit in enumerate(commits) if commit.how is ChangeReadMode.COMPARE]
    if not found:
        return list(commits)
    return [
        replace(commit, how=ChangeReadMode.COMPARE) if found[0] <= index <= found[-1] else commit
        for index, commit in enumerate(commits)
    ]


def split_in_half(part: CommitGroup) -> tuple[CommitGroup, CommitGroup]:
    """Split a group of several commits in two."""
    middle = len(part) // 2
    return part[:middle], part[middle:]
