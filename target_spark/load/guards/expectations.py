"""The guard of expectations: what became durable in each table is what users expect of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from shared.formats.columnar_encoding import Facts
from shared.singer.run_summary import RunSummary
from target_spark.config import expectations
from target_spark.convert.task_reports import columns_of
from target_spark.core.balance import (
    Counts,
    Expectations,
    Loaded,
    Profile,
    broken_expectations,
    check_expectations,
)
from target_spark.load.guards.guard import CommitStep, EndStep, Guard
from target_spark.run_settings import TargetConfig

_WILD = frozenset("*?[")


class ExpectationGuard(Guard):
    """Collects profiles of streams; methods may be called from any thread.

    Streams that the settings name are checked even if nothing of them arrives.
    """

    def __init__(self, config: TargetConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._profiles = {name: Profile() for name in config.streams if not _WILD & set(name)}

    def after_commit(self, step: CommitStep) -> None:
        """Add a durable flush."""
        columns = columns_of([result.columns for result in step.results if result.rows])
        self.add(step.flush.stream, step.loaded.counts, columns)

    def after_end(self, step: EndStep) -> None:
        """Add what the end of a stream has changed."""
        if step.loaded != Loaded(Counts()):
            self.add(step.stream, step.loaded.counts, {})

    def add(self, stream: str, counts: Counts, columns: Mapping[str, Facts]) -> None:
        """Add what a table has got, and the facts of its columns; nothing counts, too."""
        rows = counts.committed + counts.merged
        with self._lock:
            profile = self._profiles.setdefault(stream, Profile())
            if rows:
                before = [profile.columns] if profile.rows else []
                profile.columns = columns_of([*before, columns])
            profile.rows += rows
            profile.merged += counts.merged

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
        results = {name: expectations(self._config, name) for name in self._profiles}
        return {name: one for name, one in results.items() if one is not None}
