"""When an open batch is flushed. Pure: time comes in as an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass
class BatchSize:
    """How far an open batch has grown; only the pipeline changes it.

    Attributes:
        rows: RECORD lines staged, plus rows of those BATCH files that have been converted.
        size: Bytes staged, plus bytes converted from BATCH files.
        files: Files named by BATCH messages.
        opened_at: When its first message came, by the pipeline's clock.
    """

    rows: int = 0
    size: int = 0
    files: int = 0
    opened_at: float = 0.0


class FlushRule(Protocol):
    """Decides when a batch is closed; one object serves all streams of a run."""

    def room(self, stream: str, batch: BatchSize) -> int | None:
        """How many more rows the batch may take (at least 1), or None for any number."""
        ...

    def is_full(self, stream: str, batch: BatchSize) -> bool:
        """Whether the batch is to be closed now."""
        ...

    def deadline(self, stream: str, batch: BatchSize) -> float:
        """When the batch must be closed at the latest; `math.inf` for never."""
        ...

    def flushed(self, stream: str, batch: BatchSize, seconds: float) -> None:
        """Learn that a batch is durable, and how long that took from its closing."""
        ...


@dataclass(frozen=True)
class SizeAndAge:
    """Flush at a number of rows (exact), of bytes or of files, or at an age.

    Attributes:
        rows: Exact number of RECORD lines in a batch; None for no limit.
        size: Staged bytes that close a batch.
        files: Files of BATCH messages that close a batch.
        seconds: Age that closes a batch, counted from its first message.
    """

    rows: int | None = None
    size: int = 256 * 1024 * 1024
    files: int = 1000
    seconds: float = 60.0

    def room(self, stream: str, batch: BatchSize) -> int | None:  # noqa: ARG002
        """See `FlushRule`."""
        return None if self.rows is None else max(1, self.rows - batch.rows)

    def is_full(self, stream: str, batch: BatchSize) -> bool:  # noqa: ARG002
        """See `FlushRule`."""
        rows_full = self.rows is not None and batch.rows >= self.rows
        return rows_full or batch.size >= self.size or batch.files >= self.files

    def deadline(self, stream: str, batch: BatchSize) -> float:  # noqa: ARG002
        """See `FlushRule`."""
        return batch.opened_at + self.seconds

    def flushed(self, stream: str, batch: BatchSize, seconds: float) -> None:
        """See `FlushRule`."""
