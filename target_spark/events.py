"""What the target's core hears (events) and wants done (actions): plain data, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.encodings import Encoding
from target_spark.plans import Batch, InputFile, StreamSchema


@dataclass(frozen=True)
class SchemaSeen:
    """A SCHEMA message."""

    stream: str
    schema: Mapping[str, Any]
    key_properties: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class RecordsSeen:
    """Consecutive RECORD lines of one stream, as received.

    Attributes:
        stream: Its name.
        data: The lines, each with its newline.
        lines: How many.
        first_line: Number of the first one on stdin, from 1.
        version: Table version that all of them carry, if any.
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
    """A line that is no message and is to be left out.

    Attributes:
        data: The line as received.
        line: Its number.
        reason: What is wrong with it, in one line.
        stream: The stream it names, if any.
    """

    data: bytes
    line: int
    reason: str
    stream: str | None = None


@dataclass(frozen=True)
class EndOfInput:
    """Nothing more will be received."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Idle:
    """Nothing waits on the input now."""


@dataclass(frozen=True)
class WorkDone:
    """Work that was asked for has succeeded.

    Attributes:
        work: Its number, from the action.
        rows: Rows converted (of a `Convert`).
        size: Bytes written for them (of a `Convert`).
        rejected: Records left out (of a `Convert`).
        expected: Lines of the segments that may come again (of a `Recall`); 0 for a batch file.
    """

    work: int
    rows: int = 0
    size: int = 0
    rejected: int = 0
    expected: tuple[int, ...] = ()


@dataclass(frozen=True)
class WorkFailed:
    """Work that was asked for has failed."""

    work: int
    error: BaseException


@dataclass(frozen=True)
class BadInput:
    """The input cannot be read on; what came before it is good."""

    error: BaseException


@dataclass(frozen=True)
class Stopped:
    """The run must end early: a failed disk or a signal."""

    error: BaseException


Event = (
    SchemaSeen
    | RecordsSeen
    | BatchSeen
    | StateSeen
    | VersionSeen
    | LineRejected
    | EndOfInput
    | Tick
    | Idle
    | WorkDone
    | WorkFailed
    | BadInput
    | Stopped
)
InputEvent = SchemaSeen | RecordsSeen | BatchSeen | StateSeen | VersionSeen | LineRejected


@dataclass(frozen=True)
class StartSpark:
    """The first SCHEMA has come: Spark will be needed."""


@dataclass(frozen=True)
class Stage:
    """Append RECORD lines to staging file number `file`, which is made where it is new."""

    file: int
    data: bytes | memoryview
    lines: int
    first_line: int


@dataclass(frozen=True)
class Recall:
    """Find out what an earlier run has left of a stream that may come again."""

    work: int
    stream: StreamSchema


@dataclass(frozen=True)
class Convert:
    """Convert one piece of a flush by one Spark job.

    Attributes:
        work: Number to report under.
        flush: Number of the flush it belongs to.
        header: The flush as a batch without files.
        piece: Position of the piece within the flush, from 0.
        staged: Number of a staging file, complete by now, or None.
        files: Files of a BATCH message where `staged` is None.
        marks: Bytes of the staging file and positions of the STATE messages that came there.
        since: Position at which the first line of the staging file came.
        until: Position at which the last one came.
        before: Line of stdin from which on the staging file does not count; None for all of it.
        replay: Which expected segment the piece may be a replay of.
    """

    work: int
    flush: int
    header: Batch
    piece: int
    staged: int | None = None
    files: tuple[InputFile, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    since: int = 0
    until: int = 0
    before: int | None = None
    replay: int | None = None


@dataclass(frozen=True)
class CloseFile:
    """Staging file number `file` is complete."""

    file: int


@dataclass(frozen=True)
class Commit:
    """Make a flush durable: all its pieces have been converted."""

    work: int
    flush: int
    header: Batch


@dataclass(frozen=True)
class Activate:
    """Make a table version the valid one."""

    work: int
    stream: StreamSchema
    version: int


@dataclass(frozen=True)
class Finish:
    """The stream is complete: make it visible where the load method waits for that; tidy up."""

    work: int
    stream: str


@dataclass(frozen=True)
class Bury:
    """Write lines that are no messages as dead letters; `number` names them within the run."""

    work: int
    number: int
    lines: tuple[LineRejected, ...]


@dataclass(frozen=True)
class ReportLine:
    """Log and count a line that has been left out."""

    line: LineRejected


@dataclass(frozen=True)
class Warn:
    """Log a warning."""

    text: str


@dataclass(frozen=True)
class RetryLater:
    """Log that work has failed and is done again.

    Attributes:
        what: What it is.
        stream: Of which stream.
        error: The failure.
        failures: How often it has failed.
        seconds: Pause before it is done again.
    """

    what: str
    stream: str
    error: BaseException
    failures: int
    seconds: float


@dataclass(frozen=True)
class RemoveFile:
    """Staging file number `file` has been converted and may go."""

    file: int


@dataclass(frozen=True)
class GiveUp:
    """Pieces of a flush, from the one at position `first` on, will not be committed with it."""

    flush: int
    header: Batch
    first: int


@dataclass(frozen=True)
class Forget:
    """A flush is durable. `seconds` it took from close to commit."""

    flush: int
    header: Batch
    seconds: float


@dataclass(frozen=True)
class EmitState:
    """Write a STATE value: everything received before it is durable.

    Attributes:
        value: Its text.
        position: Where it came in the input.
    """

    value: bytes
    position: int = 0


@dataclass(frozen=True)
class DeleteConsumed:
    """The STATE behind these flushes has gone out: their BATCH files are not needed any more."""

    flushes: tuple[int, ...]


@dataclass(frozen=True)
class CleanUp:
    """The run is over; what is not durable is given up.

    Attributes:
        error: What ended it early, or None.
        flushes: Numbers of the flushes to abort, with their headers.
    """

    error: BaseException | None = None
    flushes: tuple[tuple[int, Batch], ...] = field(default_factory=tuple)


Work = Recall | Convert | Commit | Activate | Finish | Bury
Report = ReportLine | RetryLater | Warn
Done = RemoveFile | GiveUp | Forget | EmitState | DeleteConsumed | CleanUp
Action = StartSpark | Stage | CloseFile | Work | Report | Done
