"""The pipeline's bookkeeping of flushes: plain mutable records without rules of their own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from target_spark.plans import Batch, InputFile, StreamSchema
from target_spark.policies import BatchSize


@dataclass
class Piece:
    """What one Spark job converts: a staging file, or the files of one BATCH message."""

    index: int
    staged: int | None = None
    files: tuple[InputFile, ...] = ()


@dataclass
class Flush:
    """A batch on its way: open, closed, being committed.

    Attributes:
        number: Unique in the run.
        header: The batch without its files.
        position: Its name in the STATE tracker.
        size: What the flush rule sees.
        pieces: How many there are.
        staging: The piece whose staging file (the last of `staged`) is now written to.
        file_size: Bytes in that file.
        file_runs: Runs of consecutive lines in that file.
        next_line: Line of stdin after the last one in it.
        staged: Numbers of all its staging files.
        bytes_staged: Bytes in them.
        unconverted: Pieces not converted yet (a file being written included).
        closed_at: When it was closed, or None while it is open.
    """

    number: int
    header: Batch
    position: int
    size: BatchSize
    pieces: int = 0
    staging: Piece | None = None
    file_size: int = 0
    file_runs: int = 0
    next_line: int = 0
    staged: list[int] = field(default_factory=list)
    bytes_staged: int = 0
    unconverted: int = 0
    closed_at: float | None = None

    @property
    def stream(self) -> str:
        return self.header.stream.stream

    @property
    def ready(self) -> bool:
        """Whether it can be committed as far as its own pieces go."""
        return self.closed_at is not None and self.unconverted == 0

    def add_piece(self, staged: int | None = None, files: tuple[InputFile, ...] = ()) -> Piece:
        piece = Piece(self.pieces, staged, files)
        self.pieces += 1
        self.unconverted += 1
        if staged is not None:
            self.staged.append(staged)
            self.staging, self.file_size, self.file_runs, self.next_line = piece, 0, 0, 0
        return piece

    def grow(self, rows: int = 0, size: int = 0, files: int = 0) -> None:
        self.size.rows += rows
        self.size.size += size
        self.size.files += files


@dataclass
class Activation:
    """A table version to be made valid once the flushes before it are durable."""

    stream: str
    version: int
    position: int


@dataclass
class Swap:
    """The end of a stream whose table is replaced as a whole."""

    stream: str
    position: int


Step = Flush | Activation | Swap


@dataclass
class Stream:
    """A stream that has a SCHEMA; `steps` wait for their turn in order of arrival.

    Attributes:
        schema: The last SCHEMA.
        open: The batch that is growing.
        steps: Closed batches and activations, oldest first; the first may be running.
        running: Whether the first of `steps` is.
        has_flushes: Whether it ever had a batch.
        swap: Position of the whole stream where it is durable only at its end.
    """

    schema: StreamSchema
    open: Flush | None = None
    steps: deque[Step] = field(default_factory=deque)
    running: bool = False
    has_flushes: bool = False
    swap: int | None = None
