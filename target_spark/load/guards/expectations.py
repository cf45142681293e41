"""The guard of expectations: what became durable in each table is what users expect of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from shared.formats.row_groups import merged
from target_spark.core.balance import (
    Counts,
    Expectations,
    Loaded,
    Profile,
    broken_expectations,
    check_expectations,
)
from target_spark.load.guards.guard import CommitStep, EndStep, Guard

if TYPE_CHECKING:
    from shared.singer.run_summary import RunSummary

_WILD = frozenset("*?[")


class ExpectationGuard(Guard):
    """Collects profiles of streams; methods may be called from any thread.

    Args:
        expectations: Returns what is expected of a stream, None for nothing.
        streams: Streams that are checked even if nothing of them arrives.
    """

    def __init__(
        self,
        expectations: Callable[[str], Expectations | None] = lambda _: None,
        streams: Iterable[str] = (),
    ) -> None:
        self._expectations = expectations
        self._lock = threading.Lock()
        self._profiles = {name: Profile() for name in streams}

    def after_commit(self, step: CommitStep) -> None:
        """Add a durable flush."""
        self.add(step.flush.stream, step.loaded)

    def after_end(self, step: EndStep) -> None:
        """Add what the end of a stream has changed."""
        if step.loaded != Loaded(Counts()):
            self.add(step.stream, step.loaded)

    def add(self, stream: str, loaded: Loaded) -> None:
        """Add what a table has got; nothing counts, too."""
        rows = loaded.counts.committed + loaded.counts.merged
        with self._lock:
            profile = self._profiles.setdefault(stream, Profile())
            if rows:
                existing = profile.columns if profile.rows else loaded.columns
                both = existing.keys() & loaded.columns.keys()
                first = not profile.rows
                profile.columns = {
                    name: loaded.columns[name]
                    if first
                    else merged(existing[name], loaded.columns[name])
                    for name in sorted(both)
                }
            profile.rows += rows

    def describe(self, summary: RunSummary) -> None:
        """Add the facts of columns to a summary."""
        with self._lock:
            for stream, profile in self._profiles.items():
                if profile.columns:
                    summary.profile(stream, profile.rows, profile.columns)

    def check(self) -> None:
        """Check the expectations of all streams.

        Raises:
            ExpectationError: At least one does not hold.
        """
        with self._lock:
            check_expectations(self._wanted(), self._profiles, time.time())

    def before_publish(self) -> Sequence[str]:
        """Return which expectations do not hold, one line each."""
        with self._lock:
            return broken_expectations(self._wanted(), self._profiles, time.time())

    def _wanted(self) -> dict[str, Expectations]:
        results = {name: self._expectations(name) for name in self._profiles}
        return {name: one for name, one in results.items() if one is not None}


def plain_names(patterns: Iterable[str]) -> list[str]:
    """Return the patterns that name one stream."""
    return [pattern for pattern in patterns if not _WILD & set(pattern)]
