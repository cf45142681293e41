"""The pipeline's bookkeeping of flushes: plain mutable records without rules of their own."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from target_spark.events import LineRejected
from target_spark.plans import Batch, InputFile, StreamSchema
from target_spark.policies import BatchSize

MOST_MARKS = 64
"""STATE messages that are noted in one staging file; above that every second one is forgotten."""

MOST_FILES = 64
"""Files of several BATCH messages that one job converts; a single message may have more."""


@dataclass
class FilesPiece:
    """Files of one BATCH message, or of several in a row, converted by one Spark job.

    Attributes:
        index: Position within the flush, from 0; that of the first of several messages.
        line: Line of stdin of the message; of the first of several.
        files: The files.
        rows: Rows they were taken for.
        size: Bytes they were taken for.
        messages: A piece for each of several messages.
    """

    index: int
    line: int
    files: tuple[InputFile, ...]
    rows: int = 0
    size: int = 0
    messages: tuple[FilesPiece, ...] = ()

    def with_next(self, after: Piece) -> FilesPiece | None:
        """Both pieces as one; None where one job cannot convert them in order, or should not."""
        messages = self.messages or (self,)
        if not isinstance(after, FilesPiece) or after.index != self.index + len(messages):
            return None
        if len(self.files) + len(after.files) > MOST_FILES:
            return None
        return FilesPiece(
            self.index,
            self.line,
            self.files + after.files,
            self.rows + after.rows,
            self.size + after.size,
            (*messages, after),
        )


@dataclass
class StagedPiece:
    """A staging file, converted by one Spark job once it is complete.

    Attributes:
        index: Position within the flush, from 0.
        line: Line of stdin of the first one in it.
        file: Its number.
        size: Bytes in it.
        runs: Runs of consecutive lines in it.
        next_line: Line of stdin after the last one in it.
        marks: Bytes in it when STATE messages came, some of them left out.
        before: Line of stdin from which on its lines do not count; None for all of them.
    """

    index: int
    line: int
    file: int
    size: int = 0
    runs: int = 0
    next_line: int = 0
    marks: list[int] = field(default_factory=list)
    before: int | None = None

    def mark(self) -> None:
        """Note that a STATE message has come."""
        if self.size and self.marks[-1:] != [self.size]:
            self.marks.append(self.size)
        if len(self.marks) > MOST_MARKS:
            self.marks = self.marks[::-2][::-1]

    def grow(self, lines: int, size: int, first_line: int) -> None:
        """Note lines that were staged, the first one being `first_line` of stdin."""
        self.size += size
        self.runs += first_line != self.next_line
        self.next_line = first_line + lines

    def has_line(self, line: int) -> bool:
        """Whether a line of stdin, not the first one in it, counts."""
        return self.line < line < (self.before or self.next_line)

    def end_before(self, line: int) -> None:
        """Leave out the lines of stdin from this one on."""
        if line < self.next_line and (self.before is None or line < self.before):
            self.before = line


Piece = FilesPiece | StagedPiece


@dataclass
class Flush:
    """A batch on its way: open, closed, being committed.

    Attributes:
        number: Unique in the run.
        header: The batch without its files.
        position: Its name in the STATE tracker.
        size: What the flush rule sees.
        lines: Line of stdin at which each piece begins.
        pieces: How many of them count.
        staging: The piece whose staging file is now written to.
        bytes_staged: Bytes in its staging files that are not converted.
        unconverted: Pieces not converted yet (a file being written included).
        last_file: The tracker's position when the last file of a BATCH message came; None where
            none did.
        closed_at: When it was closed, or None while it is open.
        by_rule: Whether the flush rule had it closed: not its schema, its version, another
            stream or the end of the input.
        convert_seconds: How long the last conversion took.
        awaits_state: Whether the next STATE message closes it.
    """

    number: int
    header: Batch
    position: int
    size: BatchSize
    lines: list[int] = field(default_factory=list)
    pieces: int = 0
    staging: StagedPiece | None = None
    bytes_staged: int = 0
    unconverted: int = 0
    last_file: int | None = None
    closed_at: float | None = None
    by_rule: bool = False
    convert_seconds: float = 0.0
    awaits_state: bool = False

    @property
    def stream(self) -> str:
        """Its stream's name."""
        return self.header.stream.stream

    @property
    def ready(self) -> bool:
        """Whether it can be committed as far as its own pieces go."""
        return self.closed_at is not None and self.unconverted == 0

    @property
    def line(self) -> int:
        """Line of stdin at which it begins; 0 where it has no rows."""
        return self.lines[0] if self.lines else 0

    def add_files(
        self, files: tuple[InputFile, ...], rows: int, size: int, line: int
    ) -> FilesPiece:
        """Add files of a BATCH message."""
        return FilesPiece(self._added(line), line, files, rows, size)

    def add_staging(self, file: int, line: int) -> StagedPiece:
        """Add a new staging file, which is written to from now on, beginning with a line."""
        self.staging = StagedPiece(self._added(line), line, file)
        return self.staging

    def end_before(self, line: int) -> bool:
        """Leave out the pieces that begin at a line of stdin or after it; whether there are any."""
        count, self.pieces = self.pieces, bisect_left(self.lines, line)
        return self.pieces < count

    def _added(self, line: int) -> int:
        self.lines.append(line)
        self.unconverted += 1
        self.pieces += 1
        return self.pieces - 1


@dataclass
class Activation:
    """A table version to be made valid once the flushes before it are durable."""

    stream: StreamSchema
    version: int
    position: int
    line: int


@dataclass
class Swap:
    """The end of a stream whose table is replaced as a whole."""

    stream: str
    position: int


@dataclass
class Ending:
    """The end of a stream all of whose rows are durable, and whose STATE has gone out."""

    stream: str


@dataclass
class Burial:
    """Lines of input that are to be kept as dead letters."""

    position: int
    lines: list[LineRejected] = field(default_factory=list)


Step = Flush | Activation | Swap | Ending | Burial


@dataclass
class Since:
    """What has come of a stream since its last STATE message, or its last cut after that.

    Attributes:
        rows: Lines since the last flush was cut.
        size: Bytes of them.
        file_size: Bytes since the last file was cut.
    """

    rows: int = 0
    size: int = 0
    file_size: int = 0


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
        file_size: Rows and bytes of its BATCH files, as far as is known.
        is_probing: Whether that will be known when a conversion ends.
        since: Where its flushes are to be cut by STATE messages; None where they need not be.
        is_loaded: Whether anything of it is loaded; else its records are passed over.
    """

    schema: StreamSchema
    open: Flush | None = None
    steps: deque[Step] = field(default_factory=deque)
    running: bool = False
    has_flushes: bool = False
    swap: int | None = None
    file_size: tuple[int, int] | None = None
    is_probing: bool = False
    since: Since | None = None
    is_loaded: bool = True
