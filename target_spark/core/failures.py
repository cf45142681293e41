"""Failures: which end one stream, and which the run; rejected records; retries. Pure.

Also what no STATE covers at the end of the input: rows after the last one, and files to delete.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from shared.errors import (
    BalanceError,
    DestinationError,
    DifferenceError,
    MessageError,
    Pauses,
    RecordError,
    SettingsError,
    SingerSparkError,
    Where,
    may_pass,
)
from target_spark.core import events as ev
from target_spark.core.events import FilesPiece, StagedPiece
from target_spark.core.flushes import Stream
from target_spark.core.schedule import Conversion, RetryRule

LEAST_RECORDS = 1000
"""Records from which on the share of rejected ones counts before the end of the input."""


@dataclass(frozen=True)
class ErrorBudget:
    """Bounds for the rejected records of a stream in one run; None for no bound."""

    max_errors: int | None = None
    max_error_share: float | None = None

    def error(
        self,
        stream: str,
        records: int,
        rejected: int,
        lines: int = 0,
        *,
        reason: str = "",
        at_end: bool,
    ) -> RecordError | None:
        """Return the error of a stream that has exceeded its budget, or None.

        Args:
            records: Its records so far, rejected ones included.
            lines: How many of the rejected ones the reader has found. Good records beside them may
                not be counted yet, so that they are part of the share only at the end.
            reason: Where one of the last is, and what is wrong with it: they are not reported, as
                their flush is discarded.
            at_end: Whether they are all records of the stream.
        """
        share = self.max_error_share if at_end or records >= LEAST_RECORDS else None
        if self.max_errors is not None and rejected > self.max_errors:
            setting, bound = "max_errors", str(self.max_errors)
        elif share is not None and rejected - lines * (not at_end) > share * records:
            setting, bound = "max_error_share", f"{share:g}"
        else:
            return None
        return RecordError(
            f"{rejected} of {records} records were rejected, but `{setting}` is {bound}"
            + (f"; {reason}" if reason else ""),
            where=Where(stream=stream),
            hint="those of flushes that are committed are in the log and in the dead letters",
        )


LONGEST_PAUSE = 300.0


def with_backoff(
    retries: int, seconds: float, chance: Callable[[], float] = random.random
) -> RetryRule:
    """Return the rule to retry after transient failures: exponential pauses with full jitter.

    The pause before retry n is chosen evenly between nothing and `seconds` * 2^(n-1), which is at
    most five minutes, so that several writers do not collide again.
    """
    pauses = Pauses(LONGEST_PAUSE, first=seconds)

    def pause(error: BaseException, failures: int) -> float | None:
        if failures > retries or not may_pass(error):
            return None
        return chance() * pauses.bound(failures)

    return pause


OF_STREAM = (
    MessageError,
    RecordError,
    SettingsError,
    DestinationError,
    BalanceError,
    DifferenceError,
)
"""Failures of one stream; all others concern the whole run."""


@dataclass(eq=False)
class Failures:
    """The failures of a run so far.

    Args:
        budget: Returns how many records of a stream may be rejected.

    Attributes:
        error: What ends the run early, the first one; None if nothing does.
        bad_line: The first bad line of the input that is known.
        streams: The failures of streams without which the others go on, by name.
    """

    budget: Callable[[str], ErrorBudget]
    error: BaseException | None = field(default=None, init=False)
    bad_line: int = field(default=0, init=False)
    streams: dict[str, SingerSparkError] = field(default_factory=dict, init=False)

    def add(self, stream: Stream, error: SingerSparkError) -> bool:
        """Add the failure of a stream; return whether it is its first one."""
        if stream.has_failed:
            return False
        stream.has_failed = True
        self.streams[stream.schema.stream] = error
        error.name_stream(stream.schema.stream)
        return True

    def report_earlier(self, job: Conversion, error: BaseException) -> None:
        """Report a bad place of discarded input instead of one behind it."""
        piece, line = job.piece, job.piece.line
        if not isinstance(error, MessageError | RecordError):
            return
        if isinstance(piece, StagedPiece) and error.where.line is not None:
            line = error.where.line
        elif isinstance(piece, FilesPiece) and piece.messages:
            line = piece.messages[-1].line  # Its file may be of an earlier one.
        if line < self.bad_line:
            self.error, self.bad_line = error, line

    def add_converted(
        self, job: Conversion, event: ev.WorkDone, *, is_over: bool
    ) -> RecordError | None:
        """Count the records of a piece; return the error of a stream that has too many bad ones."""
        stream, counted = job.stream, job.flush.counted
        # A piece that is converted again counts once.
        records_before, rejected_before = counted.get(job.piece.index, (0, 0))
        counted[job.piece.index] = event.received, event.rejected
        stream.records += event.received - records_before
        stream.rejected += event.rejected - rejected_before
        stream.reason = event.reason or stream.reason
        if not stream.rejected:
            return None
        return self.over_budget(stream, at_end=is_over and stream.is_converted)

    def add_line(self, stream: Stream) -> RecordError | None:
        """Count a line that is no record; return the error of a stream with too many of them."""
        if stream.has_failed or not stream.is_loaded:
            return None
        stream.records += 1
        stream.rejected += 1
        stream.rejected_lines += 1
        error = self.over_budget(stream, at_end=False)
        if error is not None:
            stream.rejected -= 1  # It is discarded, and what came before it fits the budget.
        return error

    def over_budget(self, stream: Stream, *, at_end: bool) -> RecordError | None:
        """Return the error of a stream that has too many bad records, or None."""
        name = stream.schema.stream
        counts = stream.records, stream.rejected, stream.rejected_lines
        return self.budget(name).error(name, *counts, reason=stream.reason, at_end=at_end)


@dataclass(eq=False)
class Uncovered:
    """Rows after the last STATE of the input, and batch files that wait for a STATE.

    Attributes:
        line: Line of the last STATE; 0 if there was none.
        rows: Rows after it, by stream; 0 of batch files that are not converted.
        consumed: Durable flushes with batch files, which a later STATE lets be deleted: position
            of the last file, number of the flush, and stream.
    """

    rows: Counter[str] = field(default_factory=Counter, init=False)
    consumed: list[tuple[int, int, str]] = field(default_factory=list, init=False)
    line: int = field(default=0, init=False)
    _discarded: set[str] = field(default_factory=set, init=False)

    def add_converted(self, job: Conversion, piece: FilesPiece, rows: int) -> None:
        """Count rows of BATCH messages after the last STATE; their share if others came before."""
        late = [m for m in piece.messages or (piece,) if m.line > self.line]
        share = rows * sum(len(m.files) for m in late) // len(piece.files)
        if share:
            self.rows[job.stream.schema.stream] += share

    def discard(
        self, streams: Mapping[str, Stream], begun_segment: Callable[[Stream], int | None]
    ) -> Iterator[tuple[Stream, int]]:
        """Yield the streams whose last records are discarded, with the line from which on.

        Args:
            begun_segment: Returns the line at which a segment of a stream began that an earlier run
                may have loaded.
        """
        for name, stream in streams.items():
            if name not in self.rows or stream.swap is not None:
                continue
            partial = begun_segment(stream)
            if stream.plan.discards:
                line = self.line + 1
            elif partial is not None and stream.end.awaits_state(self.line):
                line = max(partial, self.line + 1)
            else:
                continue
            self._discarded.add(name)
            yield stream, line

    def reports(self, streams: Mapping[str, Stream]) -> Iterator[ev.ReportUncovered]:
        """Yield a report on the rows of each stream of `streams` that has any."""
        for name, rows in self.rows.items():
            is_loaded = name not in self._discarded
            if name in streams and (rows or not is_loaded):
                awaits = streams[name].end.awaits_state(self.line)
                yield ev.ReportUncovered(name, rows, is_loaded, awaits)

    def keep_files(self, stream: str) -> None:
        """Keep all files of a stream: the next run may read them again."""
        self.consumed = [item for item in self.consumed if item[2] != stream]

    def covered(
        self,
        before: float,
        streams: Mapping[str, Stream] = MappingProxyType({}),
        failed: Container[str] = (),
    ) -> list[ev.Action]:
        """Let the batch files that an emitted STATE covers be deleted, once.

        Args:
            before: The position of the STATE; infinity at the end of the input.
            streams: All streams at that end, after which the next run may name files again that no
                STATE covers although one is expected: they stay.
            failed: Those that have failed.
        """
        for name in {name for _, _, name in self.consumed if name in streams}:
            if name in failed or streams[name].end.awaits_state(self.line):
                self.keep_files(name)
        covered = tuple(number for position, number, _ in self.consumed if position < before)
        self.consumed = [item for item in self.consumed if item[0] >= before]
        return [ev.DeleteConsumed(covered)] if covered else []
