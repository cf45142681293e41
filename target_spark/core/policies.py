"""When an open batch is flushed, and what commits cost. Pure: time is an argument.

A run warns once if its flushes are so small that commits take most of its time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import NamedTuple

from shared.settings.batch_rules import BYTES_PER_SECOND, ROWS_PER_SECOND
from shared.settings.batch_settings import (
    AdaptiveSize,
    FixedSize,
    LowLatency,
    MegaBatch,
    MemoryBased,
    Strategy,
    TimeWindow,
)

DAMPING = 0.5
LARGEST_STEP = 4.0
DEAD_BAND = 0.1


@dataclass
class BatchSize:
    """The size of an open batch; only the pipeline changes it.

    Attributes:
        rows: RECORD lines staged, plus rows of BATCH files (estimated until they are converted).
        size: Bytes staged, plus bytes converted from BATCH files (estimated until then).
        files: Files named by BATCH messages.
        opened_at: Arrival of its first message, by the pipeline's clock.
    """

    rows: int = 0
    size: int = 0
    files: int = 0
    opened_at: float = 0.0
    idle: bool = False


class Room(NamedTuple):
    """What fits into a batch: rows, and bytes (the row that reaches them is the last)."""

    rows: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class SizeAndAge:
    """Flush at a number of rows (exact), bytes or files, at an age, or at once.

    Attributes:
        rows: Exact number of RECORD lines in a batch; None for no limit.
        size: Bytes that close a batch; None for no limit.
        files: Files of BATCH messages that close a batch; None for no limit.
        seconds: Age that closes a batch, counted from its first message.
        eager: Close a batch as soon as the input is idle.
    """

    rows: int | None = None
    size: int | None = 256 * 1024 * 1024
    files: int | None = 1000
    seconds: float = 60.0
    eager: bool = False

    def room(self, stream: str, batch: BatchSize) -> Room:  # noqa: ARG002
        """Return how much more fits into the batch, at least 1 of each; None means unbounded."""
        return Room(
            None if self.rows is None else max(1, self.rows - batch.rows),
            None if self.size is None else max(1, self.size - batch.size),
        )

    def is_full(self, stream: str, batch: BatchSize) -> bool:  # noqa: ARG002
        """Return whether to close the batch now."""
        return (
            (self.rows is not None and batch.rows >= self.rows)
            or (self.size is not None and batch.size >= self.size)
            or (self.files is not None and batch.files >= self.files)
            or (self.eager and batch.idle)
        )

    def deadline(self, stream: str, batch: BatchSize) -> float:  # noqa: ARG002
        """Return when the batch must be closed at the latest; `math.inf` for never."""
        return batch.opened_at + self.seconds

    def flushed(self, stream: str, batch: BatchSize, seconds: float) -> None:
        """Do nothing with a durable batch and the seconds of its last conversion and commit."""


@dataclass(eq=False)
class LatencySteered:
    """Flush at a number of rows that is adapted, for each stream, to a target time of a flush.

    It begins with the fewest rows. A flush that took less (more) than the target time moves the
    number towards the rows that would take the target time if time were proportional to rows:
    by a factor of at most 4, halved on the logarithmic scale, and not at all within 10 % of the
    target. As the time grows at most in proportion, this converges without overshooting. Several
    running flushes with an old number do not add up, as each moves the number towards a goal of
    its own rows. A quick small flush (of an idle stream) does not say anything about large ones.
    For the methods see `SizeAndAge`.

    Args:
        target: Seconds that the last conversion and the commit of a flush are to take.
        seconds: Age that closes a batch.
    """

    least: int
    most: int
    target: float
    seconds: float
    _rows: dict[str, float] = field(default_factory=dict, init=False)

    def rows(self, stream: str) -> int:
        """Return the current number of rows for a flush of the stream."""
        return round(self._rows.get(stream, self.least))

    def room(self, stream: str, batch: BatchSize) -> Room:
        return Room(max(1, self.rows(stream) - batch.rows))

    def is_full(self, stream: str, batch: BatchSize) -> bool:
        return batch.rows >= self.rows(stream)

    def deadline(self, stream: str, batch: BatchSize) -> float:  # noqa: ARG002
        return batch.opened_at + self.seconds

    def flushed(self, stream: str, batch: BatchSize, seconds: float) -> None:
        ratio = self.target / max(seconds, 1e-9)
        if not batch.rows or abs(1 / ratio - 1) <= DEAD_BAND:
            return
        now = self._rows.get(stream, float(self.least))
        goal = batch.rows * min(LARGEST_STEP, max(1 / LARGEST_STEP, ratio))
        if (goal > now) == (ratio > 1):
            moved = now * (goal / now) ** DAMPING
            self._rows[stream] = min(float(self.most), max(float(self.least), moved))


FlushRule = SizeAndAge | LatencySteered
"""Decides when a batch is closed; one object serves all streams of a run."""


def flush_rule(strategy: Strategy, wait_seconds: float) -> FlushRule:
    """Make the rule of a strategy.

    Args:
        wait_seconds: Age that closes a batch if the strategy does not define one.
    """
    match strategy:
        case FixedSize():
            return _only(rows=strategy.size, seconds=strategy.timeout_seconds)
        case TimeWindow():
            return _only(seconds=strategy.window_seconds)
        case MemoryBased():
            return _only(size=strategy.memory_bytes, seconds=wait_seconds)
        case AdaptiveSize():
            return LatencySteered(
                strategy.min_size, strategy.max_size, strategy.target_latency_seconds, wait_seconds
            )
        case LowLatency():
            return _only(
                rows=strategy.max_size, seconds=strategy.max_wait_seconds, eager=strategy.eager
            )
        case MegaBatch():
            return _only(rows=strategy.size, seconds=wait_seconds)


_only = partial(SizeAndAge, size=None, files=None)


Advice = Callable[[float], Iterable[str]]
"""Returns, for the seconds of a commit, the settings that are too small, in words."""

LEAST_SAMPLES = 5
MOST_SAMPLES = 50
DOMINATING_SHARE = 0.5


@dataclass(eq=False)
class CommitCost:
    """Measures the flushes that the flush rule closed.

    The cost of a commit is the time of the flush's last conversion (for a small flush, the only
    one) plus the commit itself. A flush that began before the first commit is not counted: it
    waited for Spark to start. Overlapping times count once in the share of the run.

    Args:
        advice: Returns the advice on settings; empty advice means no warning.
    """

    advice: Advice
    _samples: deque[tuple[float, int, int]] = field(
        default_factory=lambda: deque(maxlen=MOST_SAMPLES), init=False
    )
    """Seconds, rows and bytes of flushes."""
    _since: float | None = field(default=None, init=False)
    _busy: float = field(default=0.0, init=False)
    _busy_until: float = field(default=0.0, init=False)
    _has_warned: bool = field(default=False, init=False)

    def committed(
        self, size: BatchSize, convert_seconds: float, began_at: float, now: float
    ) -> str | None:
        """Record a durable flush; return a warning to log, if any.

        Args:
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
        self._samples.append((now - began, size.rows, size.size))
        return self._verdict(now - self._since)

    def _verdict(self, elapsed: float) -> str | None:
        if len(self._samples) < LEAST_SAMPLES or self._busy < DOMINATING_SHARE * elapsed:
            return None
        seconds, rows, size = map(median, zip(*self._samples, strict=True))
        if rows >= ROWS_PER_SECOND * seconds or size >= BYTES_PER_SECOND * seconds:
            return None
        advice = "; ".join(self.advice(float(f"{seconds:.2g}")))
        if not advice:
            return None
        self._has_warned = True
        return (
            f"commits take {self._busy / elapsed:.0%} of the time since the first one, "
            f"{seconds:.2g} s each (median of {len(self._samples)}): {advice}"
        )
