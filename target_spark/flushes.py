"""The pipeline's bookkeeping of flushes: plain mutable records without rules of their own."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from target_spark.events import LineRejected
from target_spark.plans import Batch, InputFile, StreamSchema
from target_spark.policies import BatchSize

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
        replay: Which expected segment it may be a replay of.
    """

    index: int
    line: int
    files: tuple[InputFile, ...]
    rows: int = 0
    size: int = 0
    messages: tuple[FilesPiece, ...] = ()
    replay: int | None = None

    def with_next(self, after: Piece) -> FilesPiece | None:
        """Both pieces as one; None where one job cannot convert them in order, or should not."""
        messages = self.messages or (self,)
        if not isinstance(after, FilesPiece) or after.index != self.index + len(messages):
            return None
        if len(self.files) + len(after.files) > MOST_FILES:
            return None
        if self.replay is not None or after.replay is not None:
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
        marks: Position of a STATE message that came and may still go out → bytes in it then.
        since: Position of the input at which its first line came.
        until: Position at which its last one came.
        before: Line of stdin from which on its lines do not count; None for all of them.
        replay: Which expected segment it may be a replay of.
    """

    index: int
    line: int
    file: int
    size: int = 0
    runs: int = 0
    next_line: int = 0
    marks: dict[int, int] = field(default_factory=dict)
    since: int = 0
    until: int = 0
    before: int | None = None
    replay: int | None = None

    def mark(self, position: int, waiting: frozenset[int]) -> None:
        """Note that a STATE message has come.

        Args:
            position: Its position.
            waiting: Positions of all that may still go out: bounds what is kept.
        """
        self.marks[position] = self.size
        self.marks = {at: size for at, size in self.marks.items() if at in waiting}

    def grow(self, lines: int, size: int, first_line: int, position: int) -> None:
        """Note lines that were staged, the first one being `first_line` of stdin."""
        if not self.size:
            self.since = position
        self.until = position
        self.size += size
        self.runs += first_line != self.next_line
        self.next_line = first_line + lines

    def has_line(self, line: int) -> bool:
        """Whether a line of stdin, not the first one in it, counts."""
        return self.line < line < (self.before or self.next_line)

    def discard_from(self, line: int) -> None:
        """Leave out the lines of stdin from this one on."""
        if line < self.next_line and (self.before is None or line < self.before):
            self.before = line


Piece = FilesPiece | StagedPiece


@dataclass
class PendingFlush:
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
        awaits_segment: Whether it is closed once the expected segment is complete.
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
    awaits_segment: bool = False

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

    def discard_from(self, line: int) -> bool:
        """Leave out the pieces that begin at a line of stdin or after it; whether there are any."""
        count, self.pieces = self.pieces, bisect_left(self.lines, line)
        return self.pieces < count

    def _added(self, line: int) -> int:
        self.lines.append(line)
        self.unconverted += 1
        self.pieces += 1
        return self.pieces - 1


@dataclass
class Recollection:
    """The question what an earlier run has left of a stream."""

    schema: StreamSchema


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
class DeadLetterStep:
    """Lines of input that are to be kept as dead letters."""

    position: int
    lines: list[LineRejected] = field(default_factory=list)


Step = Recollection | PendingFlush | Activation | Swap | Ending | DeadLetterStep


@dataclass
class Expected:
    """What of a stream may come again.

    Attributes:
        lines: Of the segments that are not complete yet; 0 for a batch file.
        index: Of the first of them.
        begun_at: When its first line came.
        taken: Lines of it that have come.
    """

    lines: deque[int]
    index: int = 0
    begun_at: float = 0.0
    taken: int = 0

    def next(self) -> int:
        """Go on to the next segment; return the index of the complete one."""
        self.lines.popleft()
        self.taken = 0
        self.index += 1
        return self.index - 1


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
        is_recalling: Whether its records wait for the answer of a `Recall`.
        was_recalled: Whether the answer has come.
        expected: What may come again; None if nothing may.
        comparing: Whether a piece that may be a replay is being compared.
        is_loaded: Whether anything of it is loaded; else its records are ignored.
    """

    schema: StreamSchema
    open: PendingFlush | None = None
    steps: deque[Step] = field(default_factory=deque)
    running: bool = False
    has_flushes: bool = False
    swap: int | None = None
    file_size: tuple[int, int] | None = None
    is_probing: bool = False
    is_recalling: bool = False
    was_recalled: bool = False
    expected: Expected | None = None
    comparing: bool = False
    is_loaded: bool = True
