"""The measured cost of commits, with one warning if flushes are too small. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from statistics import median
from typing import NamedTuple

from shared.settings.batch.rules import BYTES_PER_SECOND, ROWS_PER_SECOND
from target_spark.core.policies import BatchSize

Advice = Callable[[float], Iterable[str]]
"""Returns, for the seconds of a commit, the settings that are too small, in words."""

LEAST_SAMPLES = 5
MOST_SAMPLES = 50
DOMINATING_SHARE = 0.5


class _Sample(NamedTuple):
    seconds: float
    rows: int
    size: int


class CommitCost:
    """Measures the flushes that the flush rule closed.

    The cost of a commit is the time of the flush's last conversion (for a small flush, the only
    one) plus the commit itself. A flush that began before the first commit is not counted: it
    waited for Spark to start. Overlapping times count once in the share of the run.

    Args:
        advice: Returns the advice on settings; empty advice means no warning.
    """

    def __init__(self, advice: Advice) -> None:
        self._advice = advice
        self._samples: deque[_Sample] = deque(maxlen=MOST_SAMPLES)
        self._since: float | None = None
        self._busy = 0.0
        self._busy_until = 0.0
        self._has_warned = False

    def committed(
        self, size: BatchSize, convert_seconds: float, began_at: float, now: float
    ) -> str | None:
        """Record a durable flush; return a warning to log, if any.

        Args:
            size: Size of the flush.
            convert_seconds: Duration of its last conversion.
            began_at: When its commit began.
            now: When it ended; never less than the last time.

        Returns:
            A warning, at most once in a run, if commits take most of the time since the first
            one, and the flushes are too small for their rows to explain that.
        """
        if self._has_warned:
            return None
        if self._since is None:
            self._since = self._busy_until = began_at
        began = began_at - convert_seconds
        self._busy += now - max(began, self._busy_until)
        self._busy_until = now
        if began < self._since:
            return None
        self._samples.append(_Sample(now - began, size.rows, size.size))
        return self._verdict(now - self._since)

    def _verdict(self, elapsed: float) -> str | None:
        if len(self._samples) < LEAST_SAMPLES or self._busy < DOMINATING_SHARE * elapsed:
            return None
        seconds = median(sample.seconds for sample in self._samples)
        rows = median(sample.rows for sample in self._samples)
        size = median(sample.size for sample in self._samples)
        if rows >= ROWS_PER_SECOND * seconds or size >= BYTES_PER_SECOND * seconds:
            return None
        advice = "; ".join(self._advice(float(f"{seconds:.2g}")))
        if not advice:
            return None
        self._has_warned = True
        return (
            f"commits take {self._busy / elapsed:.0%} of the time since the first one, "
            f"{seconds:.2g} s each (median of {len(self._samples)}): {advice}"
        )
