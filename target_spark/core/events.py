"""Events that the target's core receives, actions that it requests, and what they convert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.encodings.encoding_format import Encoding
from shared.errors import SingerSparkError
from target_spark.core.load_plans import Batch, InputFile, StreamSchema


@dataclass(frozen=True)
class SchemaSeen:
    """A SCHEMA message.

    Attributes:
        line: Number of the line on stdin, from 1.
        has_failed: Whether the tap reports by it that the stream failed.
        has_bookmark: Whether it names the properties of a bookmark, which STATE will have.
        source: Name of what the stream has all rows of, if the tap tells.
        are_letters: Whether its records are dead letters; if of one output, its name.
    """

    stream: str
    schema: Mapping[str, Any]
    key_properties: tuple[str, ...]
    line: int
    has_failed: bool = False
    has_bookmark: bool = False
    source: str | None = None
    are_letters: bool | str = False


@dataclass(frozen=True)
class RecordsSeen:
    """Consecutive RECORD lines of one stream, as received.

    Attributes:
        data: The lines, each with its newline.
        first_line: Number of the first line on stdin, from 1.
        version: Table version of all of them, if any.
    """

    stream: str
    data: bytes | memoryview
    lines: int
    first_line: int
    version: int | None = None


@dataclass(frozen=True)
class BatchSeen:
    """A BATCH message."""

    stream: str
    encoding: Encoding
    manifest: tuple[str, ...]
    line: int
    version: int | None = None


@dataclass(frozen=True)
class KeysSeen:
    """A KEYS message: all keys that the source of a stream has.

    Attributes:
        encoding: Encoding of the files; None in the message that only announces another one.
    """

    stream: str
    encoding: Encoding | None
    manifest: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class StateSeen:
    """A STATE message; `value` is the text of its value, byte for byte."""

    value: bytes
    line: int


@dataclass(frozen=True)
class VersionSeen:
    """An ACTIVATE_VERSION message."""

    stream: str
    version: int
    line: int


@dataclass(frozen=True)
class LineRejected:
    """A rejected line that is not a message.

    Attributes:
        data: The line as received.
        reason: What is wrong with it, in one line.
        stream: The stream it names, if any.
    """

    data: bytes
    line: int
    reason: str
    stream: str | None = None


@dataclass(frozen=True)
class EndOfInput:
    """The input has ended."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Idle:
    """The input is idle."""


@dataclass(frozen=True)
class WorkDone:
    """Requested work has succeeded.

    Attributes:
        rows: Rows converted (of a `Convert`).
        size: Bytes written for them (of a `Convert`).
        rejected: Records rejected (of a `Convert`).
        received: Records read, those included, without replayed ones (of a `Convert`).
        reason: Place of the first record rejected, and what is wrong with it (of a `Convert`).
        expected: Lines of each segment that may be replayed (of a `Recall`); 0 for a batch file.
    """

    work: int
    rows: int = 0
    size: int = 0
    rejected: int = 0
    received: int = 0
    reason: str = ""
    expected: tuple[int, ...] = ()


@dataclass(frozen=True)
class WorkFailed:
    """Requested work has failed."""

    work: int
    error: BaseException


@dataclass(frozen=True)
class BadInput:
    """The input cannot be read any further; the input before this is valid."""

    error: BaseException


@dataclass(frozen=True)
class Stopped:
    """The run must end early: a failed disk or a signal."""

    error: BaseException


InputEvent = (
    SchemaSeen | RecordsSeen | BatchSeen | KeysSeen | StateSeen | VersionSeen | LineRejected
)
Event = InputEvent | EndOfInput | Tick | Idle | WorkDone | WorkFailed | BadInput | Stopped


MOST_FILES = 64
"""Files of several BATCH messages that one job converts; a single message may have more."""
MOST_SMALL_FILES, SMALL_BYTES = 1000, 256 * 1024 * 1024
"""As many if they are known to be small in all: a job takes longer than the files."""


@dataclass
class FilesPiece:
    """Files of one BATCH message, or of several in a row, converted by one Spark job.

    Attributes:
        index: Position within the flush, from 0; that of the first of several messages.
        line: Line of stdin of the message; of the first of several.
        rows: Estimated rows.
        size: Estimated bytes.
        messages: A piece for each of several messages.
        replay: Index of the expected segment that it may be a replay of.
    """

    index: int
    line: int
    files: tuple[InputFile, ...]
    rows: int = 0
    size: int = 0
    messages: tuple[FilesPiece, ...] = ()
    replay: int | None = None

    def without_end(self, line: int) -> tuple[FilesPiece, ...]:
        """Return pieces with all messages before a line of stdin; empty if these are all."""
        kept = tuple(message for message in self.messages if message.line < line)
        return () if len(kept) == len(self.messages) else kept

    def with_next(self, after: Piece) -> FilesPiece | None:
        """Return both pieces merged; None if one job cannot or should not convert them in order."""
        messages = self.messages or (self,)
        if not isinstance(after, FilesPiece) or after.index != self.index + len(messages):
            return None
        count, size = len(self.files) + len(after.files), self.size + after.size
        are_small = 0 < size <= SMALL_BYTES and count <= MOST_SMALL_FILES
        if count > MOST_FILES and not are_small:
            return None
        if self.replay is not None or after.replay is not None:
            return None
        files, rows = self.files + after.files, self.rows + after.rows
        return FilesPiece(self.index, self.line, files, rows, size, (*messages, after))


@dataclass
class StagedPiece:
    """A staging file, converted by one Spark job once it is complete.

    Attributes:
        index: Position within the flush, from 0.
        line: Line of stdin of the first line in it.
        runs: Runs of consecutive lines in it.
        next_line: Line of stdin after the last one in it.
        marks: Position of a STATE message that may still be emitted → bytes of the file before it.
        since: Input position of its first line.
        until: Input position of its last line.
        before: Line of stdin from which on its lines are discarded; None to use all of them.
        replay: Index of the expected segment that it may be a replay of.
        has_state: Whether a STATE has come after its first line.
        is_divided: Whether a line has come after such a STATE: its end may be cut off.
        is_kept: Whether its staging file is there.
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
    has_state: bool = False
    is_divided: bool = False
    is_kept: bool = True

    def has_line(self, line: int) -> bool:
        """Return whether the file uses a line of stdin that is not its first."""
        return self.line < line < (self.before or self.next_line)

    def without_end(self, line: int) -> tuple[StagedPiece, ...]:
        """Return the piece with its lines before one of stdin; empty if these are all."""
        if not self.is_kept or not self.has_line(line):
            return ()
        self.discard_from(line)
        return (self,)

    def discard_from(self, line: int) -> None:
        """Discard the lines of stdin from this one on."""
        if line < self.next_line and (self.before is None or line < self.before):
            self.before = line


Piece = FilesPiece | StagedPiece


@dataclass(frozen=True)
class Stage:
    """Append RECORD lines to staging file number `file`; create it if it is new."""

    file: int
    data: bytes | memoryview
    lines: int
    first_line: int


@dataclass(frozen=True)
class Recall:
    """Take a stream's lease; find its records that an earlier run has loaded, for replays."""

    work: int
    stream: StreamSchema


@dataclass(frozen=True)
class Convert:
    """Convert one piece of a flush by one Spark job.

    Attributes:
        piece: As it is now; its staging file, if it has one, is complete.
    """

    work: int
    flush: int
    header: Batch
    piece: Piece


@dataclass(frozen=True)
class CloseFile:
    """Close staging file number `file`: it is complete."""

    file: int


@dataclass(frozen=True)
class Commit:
    """Make a flush durable: all its pieces have been converted.

    Attributes:
        lines: RECORD lines in it; None if some were discarded.
    """

    work: int
    flush: int
    header: Batch
    lines: int | None = None


@dataclass(frozen=True)
class Audit:
    """Check the expectations of the run, before the STATE that waits for that."""

    work: int


@dataclass(frozen=True)
class Activate:
    """Activate a table version."""

    work: int
    stream: StreamSchema
    version: int


@dataclass(frozen=True)
class DeleteMissing:
    """Delete the rows of a stream whose keys are in none of the files."""

    work: int
    flush: int
    keys: Batch


@dataclass(frozen=True)
class Finish:
    """End a complete stream: make `overwrite` rows visible and clean up.

    Attributes:
        awaits_state: Whether a STATE was to be expected: rows without one will be received again.
    """

    work: int
    stream: str
    awaits_state: bool = False


@dataclass(frozen=True)
class WriteDeadLetters:
    """Write lines that are not messages as dead letters; `number` identifies the file."""

    work: int
    number: int
    lines: tuple[LineRejected, ...]


@dataclass(frozen=True)
class ReportLine:
    """Log and count a rejected line."""

    line: LineRejected


@dataclass(frozen=True)
class Warn:
    """Log a warning."""

    text: str


@dataclass(frozen=True)
class ReportUncovered:
    """Log and count rows after the last STATE of an input that has ended.

    Attributes:
        rows: Their number; 0 for batch files that were discarded unread.
        loaded: Whether they were loaded; else they were discarded.
        expected: Whether a STATE was to be expected after them.
    """

    stream: str
    rows: int
    loaded: bool
    expected: bool

    @property
    def extent(self) -> str:
        """Return what came after the last STATE, for a message."""
        return f"{self.rows} rows" if self.rows else "with batch files"


@dataclass(frozen=True)
class ReportFailure:
    """Log and count that a stream has failed; the others go on."""

    stream: str
    error: SingerSparkError


@dataclass(frozen=True)
class RetryLater:
    """Log that work has failed and is retried.

    Attributes:
        seconds: Pause before the retry.
    """

    what: str
    stream: str
    error: BaseException
    failures: int
    seconds: float


@dataclass(frozen=True)
class RemoveFile:
    """Remove staging file number `file`: it has been converted."""

    file: int


@dataclass(frozen=True)
class DiscardPieces:
    """Discard the pieces of a flush from position `first` on."""

    flush: int
    header: Batch
    first: int


@dataclass(frozen=True)
class Forget:
    """Forget a durable flush; it took `seconds` from close to commit."""

    flush: int
    header: Batch
    seconds: float


@dataclass(frozen=True)
class EmitState:
    """Write a STATE value: everything received before it is durable.

    Attributes:
        held: Streams that have failed, and positions of the STATEs that their bookmarks are from.
    """

    value: bytes
    position: int = 0
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DeleteConsumed:
    """Delete the batch files of flushes whose STATE has been written."""

    flushes: tuple[int, ...]


@dataclass(frozen=True)
class CleanUp:
    """End the run; discard what is not durable.

    Attributes:
        flushes: Numbers of the flushes to abort, with their headers.
    """

    error: BaseException | None = None
    flushes: tuple[tuple[int, Batch], ...] = field(default_factory=tuple)


Work = Recall | Convert | Commit | Audit | Activate | DeleteMissing | Finish | WriteDeadLetters
Report = ReportLine | ReportFailure | ReportUncovered | RetryLater | Warn
Done = RemoveFile | DiscardPieces | Forget | EmitState | DeleteConsumed | CleanUp
Action = Stage | CloseFile | Work | Report | Done
