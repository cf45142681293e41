"""The pipeline's state of flushes and streams: plain mutable records; is a stream complete? Pure.

Standard input ends in the same way if the tap has finished and if it has died. A STATE or an
ACTIVATE_VERSION after the last record tells the two apart, before a table is replaced.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from target_spark.core.events import LineRejected, Piece, StagedPiece
from target_spark.core.load_plans import Batch, LoadPlan, Reached, StreamSchema
from target_spark.core.policies import BatchSize


@dataclass
class StreamEnd:
    """What has come of one stream, as far as it tells whether the stream is complete.

    Attributes:
        last_line: Line of stdin of its last RECORD or BATCH, also a rejected one; without one, of
            its SCHEMA.
        has_rows: Whether a RECORD or BATCH has come.
        version: Table version of the last one that has a version.
        activated: The last version that ACTIVATE_VERSION named.
        activated_line: Line of that message.
        has_failed: Whether the tap has reported that the stream failed.
        has_bookmark: Whether its SCHEMA names the properties of a bookmark.
        is_cut: Whether the input ends within a record of it.
    """

    last_line: int = 0
    has_rows: bool = False
    version: int | None = None
    activated: int = -1
    activated_line: int = 0
    has_failed: bool = False
    has_bookmark: bool = False
    is_cut: bool = False

    def add_rows(self, line: int, version: int | None) -> None:
        """Record a RECORD or BATCH message."""
        self.last_line, self.has_rows = line, True
        self.version = self.version if version is None else version

    def add_rejected(self, line: int, *, is_cut: bool) -> None:
        """Record a rejected line of the stream; one that is cut off ends the input."""
        self.last_line, self.is_cut = line, is_cut

    def activate(self, line: int, version: int) -> None:
        """Record an ACTIVATE_VERSION message."""
        self.activated, self.activated_line = version, line

    def awaits_state(self, state_line: int) -> bool:
        """Return whether a STATE was to be expected after the last record."""
        is_open = self.version is not None and self.activated_line < self.last_line
        return is_open or self.has_bookmark or state_line > 0

    def gap(self, state_line: int) -> str | None:
        """Return what is missing at the end of the input; None if the stream is complete.

        Taps differ in what they send last: tap-spark ends a FULL_TABLE stream with
        ACTIVATE_VERSION and a STATE, the Meltano SDK activates the version first and ends with a
        STATE, and some taps send neither. Of the last, records without a version count as complete.

        Args:
            state_line: Line of the last STATE; 0 without one.
        """
        if self.has_failed:
            return "the tap reports that the stream failed"
        if self.version is not None and self.version > self.activated:
            return "its records came without their ACTIVATE_VERSION"
        if state_line > self.last_line:
            return None
        if not self.has_rows and not self.is_cut:
            return "nothing came after its SCHEMA, not even a STATE"
        is_silent = not state_line and self.version is None and not self.is_cut
        if is_silent or self.activated_line > self.last_line:
            return None
        return (
            "its last record is cut off" if self.is_cut else "no STATE came after its last record"
        )


@dataclass(eq=False)
class PendingFlush:
    """A batch on its way: open, closed, being committed.

    Attributes:
        number: Unique in the run.
        position: Its position in the STATE tracker, which identifies it.
        lines: Line of stdin at which each piece begins.
        pieces: Number of pieces that are not discarded.
        lines_staged: Number of RECORD lines; None once some are discarded.
        staging: The piece whose staging file is being written.
        unconverted: Pieces not converted yet (including a file being written).
        last_file: The tracker's position when the last file of a BATCH message arrived, or None.
        last: The tracker's position when its last record or file arrived.
        reached: The STATE that its commit will make true; known once it is closed.
        closed_at: When it was closed, or None while it is open.
        by_rule: Whether the flush rule closed it, not a new schema or version, another stream or
            the end of the input.
        convert_seconds: How long the last conversion took.
        awaits_segment: Whether it is closed once the expected segment is complete.
        converted: Its converted pieces, by index.
        counted: Records and rejected records of pieces, by index, as they count for its stream.
        divided: Converted pieces whose end may have to be cut off.
    """

    stream: Stream
    number: int
    header: Batch
    position: int
    size: BatchSize
    lines: list[int] = field(default_factory=list)
    pieces: int = 0
    lines_staged: int | None = 0
    staging: StagedPiece | None = None
    unconverted: int = 0
    last_file: int | None = None
    last: int = 0
    reached: Reached | None = None
    closed_at: float | None = None
    by_rule: bool = False
    convert_seconds: float = 0.0
    awaits_segment: bool = False
    converted: dict[int, Piece] = field(default_factory=dict)
    counted: dict[int, tuple[int, int]] = field(default_factory=dict)
    divided: list[Piece] = field(default_factory=list)

    @property
    def line(self) -> int:
        """Return the line of stdin at which it begins; 0 without rows."""
        return self.lines[0] if self.lines else 0

    @property
    def pieces_converted(self) -> list[Piece]:
        """Return its converted pieces that are not discarded, in order."""
        return [self.converted[n] for n in sorted(self.converted) if n < self.pieces]

    def discard_from(self, line: int) -> bool:
        """Discard the pieces from a line of stdin on; return whether there are any."""
        self.lines_staged = None
        count, self.pieces = self.pieces, bisect_left(self.lines, line)
        return self.pieces < count

    def add_piece(self, line: int) -> int:
        """Add a piece that begins with a line of stdin; return its index."""
        self.lines.append(line)
        self.unconverted += 1
        self.pieces += 1
        return self.pieces - 1


@dataclass
class Recollection:
    """The lease of a table for a stream, and the lookup of an earlier run's note."""

    schema: StreamSchema


@dataclass
class Activation:
    """A table version to activate once the flushes before it are durable."""

    stream: StreamSchema
    version: int
    position: int
    line: int


@dataclass
class KeyPass:
    """A deletion of the rows that a source has no more, once the flushes before it are durable.

    Attributes:
        number: Number of its commit, unique among flushes.
        line: Line of stdin of its message.
    """

    number: int
    keys: Batch
    position: int
    line: int


@dataclass
class Swap:
    """The end of a stream whose table is replaced as a whole."""

    stream: str
    position: int


@dataclass
class AuditStep:
    """The check of expectations, before any STATE may go out."""

    position: int


@dataclass
class Ending:
    """The end of a stream all of whose rows are durable, and whose STATE has gone out."""

    stream: str
    awaits_state: bool = False


@dataclass
class DeadLetterStep:
    """Lines of input to write as dead letters."""

    position: int
    lines: list[LineRejected] = field(default_factory=list)


Step = (
    Recollection | PendingFlush | Activation | KeyPass | Swap | AuditStep | Ending | DeadLetterStep
)


@dataclass
class Expected:
    """The segments of a stream that may be replayed.

    Attributes:
        lines: Lines of the segments that are not complete yet; 0 for a batch file.
        index: Index of the first of them.
        begun_at: Arrival of its first line.
        taken: Number of its lines that have arrived.
    """

    lines: deque[int]
    index: int = 0
    begun_at: float = 0.0
    taken: int = 0

    def next(self) -> int:
        """Advance to the next segment; return the index of the complete one."""
        self.lines.popleft()
        self.taken = 0
        self.index += 1
        return self.index - 1


@dataclass(eq=False)
class Stream:
    """A stream that has a SCHEMA; `steps` wait for their turn in order of arrival.

    Attributes:
        steps: Closed batches and activations, oldest first; the first may be running.
        running: Whether the first of `steps` is.
        has_flushes: Whether it ever had a batch.
        has_keys: Whether a KEYS message has come.
        swap: Position of the whole stream if it is durable only at its end.
        file_size: Rows and bytes of its BATCH files, as far as known.
        is_probing: Whether a running conversion will show that size.
        is_recalling: Whether its records wait for the result of a `Recall`.
        was_recalled: Whether the result has arrived.
        expected: The segments that may be replayed, or None.
        comparing: Whether a piece that may be a replay is being compared.
        is_loaded: Whether the stream is loaded; else its records are ignored.
        first_line: Line of stdin of its first SCHEMA.
        until: Line of stdin from which on its input is discarded.
        has_failed: Whether the stream has failed, and the others go on.
        records: Its converted records and those that were rejected.
        rejected: How many of them were rejected.
        rejected_lines: How many of these were lines that are no records.
        reason: Place of one that was rejected last, and what is wrong with it.
    """

    schema: StreamSchema
    end: StreamEnd = field(default_factory=StreamEnd)
    open: PendingFlush | None = None
    steps: deque[Step] = field(default_factory=deque)
    running: bool = False
    has_flushes: bool = False
    has_keys: bool = False
    swap: int | None = None
    file_size: tuple[int, int] | None = None
    is_probing: bool = False
    is_recalling: bool = False
    was_recalled: bool = False
    expected: Expected | None = None
    comparing: bool = False
    plan: LoadPlan = field(default_factory=LoadPlan)
    is_loaded: bool = True
    first_line: int = 0
    until: int = sys.maxsize
    has_failed: bool = False
    records: int = 0
    rejected: int = 0
    rejected_lines: int = 0
    reason: str = ""

    @property
    def is_converted(self) -> bool:
        """Return whether no piece that has arrived waits for its conversion."""
        flushes = (step for step in self.steps if isinstance(step, PendingFlush))
        return self.open is None and not any(flush.unconverted for flush in flushes)
