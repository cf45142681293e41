"""Flush policies: when an open batch is flushed. Pure: time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from shared.settings.batch.batch_settings import (
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
        idle: Whether the input is idle now.
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


class FlushRule(Protocol):
    """Decides when a batch is closed; one object serves all streams of a run."""

    def room(self, stream: str, batch: BatchSize) -> Room:
        """Return how much more fits into the batch, at least 1 of each; None means unbounded."""
        ...

    def is_full(self, stream: str, batch: BatchSize) -> bool:
        """Return whether to close the batch now."""
        ...

    def deadline(self, stream: str, batch: BatchSize) -> float:
        """Return when the batch must be closed at the latest; `math.inf` for never."""
        ...

    def flushed(self, stream: str, batch: BatchSize, seconds: float) -> None:
        """Record a durable batch, with the seconds of its last conversion and commit."""
        ...


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
        """See `FlushRule`."""
        return Room(_remaining(self.rows, batch.rows), _remaining(self.size, batch.size))

    def is_full(self, stream: str, batch: BatchSize) -> bool:  # noqa: ARG002
        """See `FlushRule`."""
        return (
            (self.rows is not None and batch.rows >= self.rows)
            or (self.size is not None and batch.size >= self.size)
            or (self.files is not None and batch.files >= self.files)
            or (self.eager and batch.idle)
        )

    def deadline(self, stream: str, batch: BatchSize) -> float:  # noqa: ARG002
        """See `FlushRule`."""
        return batch.opened_at + self.seconds

    def flushed(self, stream: str, batch: BatchSize, seconds: float) -> None:
        """See `FlushRule`."""


class LatencySteered:
    """Flush at a number of rows that is adapted, for each stream, to a target time of a flush.

    It begins with the fewest rows. A flush that took less (more) than the target time moves the
    number towards the rows that would take the target time if time were proportional to rows:
    by a factor of at most 4, halved on the logarithmic scale, and not at all within 10 % of the
    target. As the time grows at most in proportion, this converges without overshooting. Several
    running flushes with an old number do not add up, as each moves the number towards a goal of
    its own rows. A quick small flush (of an idle stream) does not say anything about large ones.

    Args:
        least: Fewest rows.
        most: Most rows.
        target: Seconds that the last conversion and the commit of a flush are to take.
        seconds: Age that closes a batch.
    """

    def __init__(self, least: int, most: int, target: float, seconds: float) -> None:
        self._least = least
        self._most = most
        self._target = target
        self._seconds = seconds
        self._rows: dict[str, float] = {}

    def rows(self, stream: str) -> int:
        """Return the current number of rows for a flush of the stream."""
        return round(self._rows.get(stream, self._least))

    def room(self, stream: str, batch: BatchSize) -> Room:
        """See `FlushRule`."""
        return Room(_remaining(self.rows(stream), batch.rows))

    def is_full(self, stream: str, batch: BatchSize) -> bool:
        """See `FlushRule`."""
        return batch.rows >= self.rows(stream)

    def deadline(self, stream: str, batch: BatchSize) -> float:  # noqa: ARG002
        """See `FlushRule`."""
        return batch.opened_at + self._seconds

    def flushed(self, stream: str, batch: BatchSize, seconds: float) -> None:
        """See `FlushRule`."""
        ratio = self._target / max(seconds, 1e-9)
        if not batch.rows or abs(1 / ratio - 1) <= DEAD_BAND:
            return
        now = self._rows.get(stream, float(self._least))
        goal = batch.rows * min(LARGEST_STEP, max(1 / LARGEST_STEP, ratio))
        if (goal > now) == (ratio > 1):
            moved = now * (goal / now) ** DAMPING
            self._rows[stream] = min(float(self._most), max(float(self._least), moved))


def flush_rule(strategy: Strategy, wait_seconds: float) -> FlushRule:
    """Make the rule of a strategy.

    Args:
        strategy: The strategy of the settings.
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


def _only(
    *,
    rows: int | None = None,
    size: int | None = None,
    seconds: float = math.inf,
    eager: bool = False,
) -> SizeAndAge:
    return SizeAndAge(rows=rows, size=size, files=None, seconds=seconds, eager=eager)


def _remaining(limit: int | None, taken: int) -> int | None:
    return None if limit is None else max(1, limit - taken)
