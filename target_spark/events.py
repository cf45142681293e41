"""What the target's core hears (events) and wants done (actions): plain data, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.encodings import Encoding
from target_spark.plans import Batch, InputFile


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
class EndOfInput:
    """Nothing more will be received."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class WorkDone:
    """Work that was asked for has succeeded.

    Attributes:
        work: Its number, from the action.
        rows: Rows converted (of a `Convert`).
        size: Bytes written for them (of a `Convert`).
    """

    work: int
    rows: int = 0
    size: int = 0


@dataclass(frozen=True)
class WorkFailed:
    """Work that was asked for has failed for good."""

    work: int
    error: BaseException


@dataclass(frozen=True)
class Stopped:
    """The run must end early: bad input, a failed disk or a signal."""

    error: BaseException


Event = (
    SchemaSeen
    | RecordsSeen
    | BatchSeen
    | StateSeen
    | VersionSeen
    | EndOfInput
    | Tick
    | WorkDone
    | WorkFailed
    | Stopped
)
InputEvent = SchemaSeen | RecordsSeen | BatchSeen | StateSeen | VersionSeen


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
class Convert:
    """Convert one piece of a flush by one Spark job.

    Attributes:
        work: Number to report under.
        flush: Number of the flush it belongs to.
        header: The flush as a batch without files.
        piece: Position of the piece within the flush, from 0.
        staged: Number of a staging file, complete by now, or None.
        files: Files of a BATCH message where `staged` is None.
    """

    work: int
    flush: int
    header: Batch
    piece: int
    staged: int | None = None
    files: tuple[InputFile, ...] = ()


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
    stream: str
    version: int


@dataclass(frozen=True)
class Finish:
    """The stream is complete; make it visible where the load method waits for that."""

    work: int
    stream: str


@dataclass(frozen=True)
class Forget:
    """A flush is durable: its staging files may go. `seconds` it took from close to commit."""

    flush: int
    staged: tuple[int, ...]
    stream: str
    rows: int
    seconds: float


@dataclass(frozen=True)
class EmitState:
    """Write a STATE value: everything received before it is durable."""

    value: bytes


@dataclass(frozen=True)
class CleanUp:
    """The run is over; what is not durable is given up.

    Attributes:
        error: What ended it early, or None.
        flushes: Numbers of the flushes to abort, with their headers.
    """

    error: BaseException | None = None
    flushes: tuple[tuple[int, Batch], ...] = field(default_factory=tuple)


Work = Convert | Commit | Activate | Finish
Action = StartSpark | Stage | CloseFile | Work | Forget | EmitState | CleanUp
