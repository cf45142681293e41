"""Failures: which end one stream, and which the run; rejected records; retries. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from shared.errors import (
    BalanceError,
    DestinationError,
    DifferenceError,
    MessageError,
    PartialRunError,
    Pauses,
    RecordError,
    SettingsError,
    SingerSparkError,
    Where,
    may_pass,
)
from target_spark.core.flushes import FilesPiece, StagedPiece, Stream
from target_spark.core.schedule import Conversion

LEAST_RECORDS = 1000
"""Records from which on the share of rejected ones counts before the end of the input."""


@dataclass(frozen=True)
class ErrorBudget:
    """Bounds for the rejected records of a stream in one run; None for no bound."""

    max_errors: int | None = None
    max_error_share: float | None = None

    def error(
        self, stream: str, records: int, rejected: int, *, at_end: bool
    ) -> RecordError | None:
        """Return the error of a stream that has exceeded its budget, or None.

        Args:
            stream: Its name.
            records: Its records so far, rejected ones included.
            rejected: How many of them were rejected.
            at_end: Whether they are all records of the stream.
        """
        if self.max_errors is not None and rejected > self.max_errors:
            setting, bound = "max_errors", str(self.max_errors)
        elif self._is_share_exceeded(records, rejected, at_end):
            setting, bound = "max_error_share", f"{self.max_error_share:g}"
        else:
            return None
        return RecordError(
            f"{rejected} of {records} records were rejected, but `{setting}` is {bound}",
            where=Where(stream=stream),
            hint="the reasons are in the log and in the dead letters",
        )

    def _is_share_exceeded(self, records: int, rejected: int, at_end: bool) -> bool:
        share = self.max_error_share
        if share is None or not (at_end or records >= LEAST_RECORDS):
            return False
        return rejected > share * records


LONGEST_PAUSE = 300.0


class Backoff:
    """Retry work after transient failures: exponential pauses with full jitter.

    The pause before retry n is chosen evenly between nothing and `seconds` * 2^(n-1), which is at
    most five minutes, so that several writers do not collide again.

    Args:
        retries: Most retries.
        seconds: Longest pause before the first retry.
        chance: Gives numbers from 0 to 1.
    """

    def __init__(
        self, retries: int, seconds: float, chance: Callable[[], float] = random.random
    ) -> None:
        self._retries = retries
        self._pauses = Pauses(LONGEST_PAUSE, first=seconds)
        self._chance = chance

    def pause(self, error: BaseException, failures: int) -> float | None:
        """See `RetryRule`."""
        if failures > self._retries or not may_pass(error):
            return None
        return self._chance() * self._pauses.bound(failures)


OF_STREAM = (
    MessageError,
    RecordError,
    SettingsError,
    DestinationError,
    BalanceError,
    DifferenceError,
)
"""Failures of one stream; all others concern the whole run."""


class Failures:
    """The failures of a run so far.

    Args:
        budget: Returns how many records of a stream may be rejected.

    Attributes:
        error: What ends the run early, the first one; None if nothing does.
        bad_line: The first bad line of the input that is known.
        streams: The failures of streams without which the others go on, by name.
    """

    def __init__(self, budget: Callable[[str], ErrorBudget]) -> None:
        self._budget = budget
        self.error: BaseException | None = None
        self.bad_line = 0
        self.streams: dict[str, SingerSparkError] = {}

    def add(self, stream: Stream, error: SingerSparkError) -> bool:
        """Add the failure of a stream; return whether it is its first one."""
        if stream.has_failed:
            return False
        stream.has_failed = True
        self.streams[stream.schema.stream] = error
        name_stream(stream, error)
        return True

    def bad_input(self, line: int, error: BaseException) -> None:
        """Let a bad line end the input."""
        self.error, self.bad_line = error, line

    def report_earlier(self, job: Conversion, error: BaseException) -> None:
        """Report a bad place of discarded input instead of one behind it."""
        piece, line = job.piece, job.piece.line
        if not isinstance(error, MessageError | RecordError):
            return
        if isinstance(piece, StagedPiece) and error.where.line is not None:
            line = error.where.line
        elif isinstance(piece, FilesPiece) and piece.messages:
            return
        if line < self.bad_line:
            self.bad_input(line, error)

    def over_budget(
        self, job: Conversion, rows: int, rejected: int, *, is_over: bool
    ) -> RecordError | None:
        """Count the records of a piece; return the error of a stream with too many rejected ones.

        Args:
            job: Its conversion.
            rows: Its rows.
            rejected: Its rejected records.
            is_over: No more input comes.
        """
        stream, counted = job.stream, job.flush.counted
        # A piece that is converted again counts once.
        records_before, rejected_before = counted.get(job.piece.index, (0, 0))
        counted[job.piece.index] = rows + rejected, rejected
        stream.records += rows + rejected - records_before
        stream.rejected += rejected - rejected_before
        name = stream.schema.stream
        return self._budget(name).error(
            name, stream.records, stream.rejected, at_end=is_over and stream.is_converted
        )

    def summary(self, streams: int) -> PartialRunError | None:
        """Return the error about all streams that have failed, if any of so many has."""
        if not self.streams:
            return None
        reasons = "; ".join(map(str, self.streams.values()))
        return PartialRunError(f"{len(self.streams)} of {streams} streams failed: {reasons}")


def name_stream(stream: Stream, error: SingerSparkError) -> None:
    """Let an error tell its stream."""
    if error.where.stream is None:
        error.where = replace(error.where, stream=stream.schema.stream)
