"""Open batches: the rows and files of each flush, and when it is closed. No I/O."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter

from shared.errors import Where
from target_spark.core import events as ev
from target_spark.core.events import FilesPiece, Piece, StagedPiece
from target_spark.core.flushes import Activation, KeyPass, PendingFlush, Step, Stream, Swap
from target_spark.core.load_plans import (
    Batch,
    ConvertAgainError,
    InputFile,
    Reached,
    RefusedRecordError,
)
from target_spark.core.policies import BatchSize, CommitCost, FlushRule
from target_spark.core.reader import Lines
from target_spark.core.schedule import Conversion, Schedule, Turn
from target_spark.core.states import StateTracker

GATHER_SECONDS = 1.0
"""Seconds that batch files may wait for more, to be converted together."""
REPLAY_PATIENCE = 10.0
"""Seconds that a due batch waits for the rest of a segment that may be a replay."""
THREADS_BYTES = 64 * 1024 * 1024
"""Size at which a staging file for threads is complete: they begin while others come."""


@dataclass(frozen=True)
class Limits:
    """Limits for the resources of a run.

    Attributes:
        parallel: Concurrent Spark jobs and commits.
        converts: Concurrent conversions; None for as many as `parallel`.
        file_bytes: Size at which a staging file is complete; half of it before Spark is up, and
            `THREADS_BYTES` at most.
        file_runs: Runs of consecutive lines at which it is complete; bounds its line map.
        staged_bytes: Bytes in staging files at which reading of input pauses.
        waiting: Number of closed, not yet durable batches at which reading of input pauses.
        probe: Convert the first BATCH file of a stream alone, so that the flush rule can estimate
            the next ones; else it learns the size of all of them afterwards.
        gathers: Returns whether Spark is up, whose jobs should be few: BATCH files may wait
            for others, to be converted by one job.
    """

    parallel: int = 2
    converts: int | None = None
    file_bytes: int = 256 * 1024 * 1024
    file_runs: int = 50_000
    staged_bytes: int = 1024 * 1024 * 1024
    waiting: int = 8
    probe: bool = False
    gathers: Callable[[], bool] = lambda: True


@dataclass(eq=False)
class Batches:
    """All flushes that are not durable.

    Args:
        run_id: Makes the tokens of this run's flushes unique.
        cost: Watches the flushes that the rule has closed.
    """

    rule: FlushRule
    limits: Limits
    tracker: StateTracker
    schedule: Schedule
    act: Callable[[ev.Action], None]
    run_id: str
    cost: CommitCost | None = None
    has_ended: bool = field(default=False, init=False)
    _open: dict[int, PendingFlush] = field(default_factory=dict, init=False)
    """By their positions."""
    _flushes: dict[int, PendingFlush] = field(default_factory=dict, init=False)
    _discarded: list[PendingFlush] = field(default_factory=list, init=False)
    _staged_bytes: int = field(default=0, init=False)
    _kept_bytes: int = field(default=0, init=False)
    _last_flush: int = field(default=0, init=False)
    _last_file: int = field(default=0, init=False)
    _due_at: float | None = field(default=math.inf, init=False)
    """When the first open batch is due; None if that must be computed. With thousands of
        streams, computing it for each message would take minutes."""

    @property
    def have_room(self) -> bool:
        """Return whether the target can receive more input."""
        waiting = len(self._flushes) - len(self._open)
        return waiting < self.limits.waiting and self._staged_bytes < self.limits.staged_bytes

    @property
    def deadline(self) -> float:
        """Return when an open batch is due; `math.inf` for never."""
        if self._due_at is None:
            self._due_at = min(map(self._due, self._open.values()), default=math.inf)
        return self._due_at

    def left(self) -> tuple[tuple[int, Batch], ...]:
        """Return numbers and headers of the flushes that are not durable."""
        every = sorted((*self._flushes.values(), *self._discarded), key=attrgetter("number"))
        return tuple((flush.number, flush.header) for flush in every)

    def stage(
        self, stream: Stream, lines: Lines, first_line: int, version: int | None, now: float
    ) -> int:
        """Stage as many lines as the open batch takes, 1 at least; return their number."""
        flush = self.opened(stream, version, now)
        rows, size = self.rule.room(stream.schema.stream, flush.size)
        # 1. How many lines the open batch takes.
        left = None if stream.expected is None else self._lines_to_segment_end(stream, now)
        if left is not None:
            # A piece that may be a replay holds just one segment, under any rule.
            rows, size = left, None
        taken = lines.count if rows is None else min(rows, lines.count)
        if size is not None:
            taken = min(taken, lines.until(size))
        # 2. Stage them, in a new file if none is open.
        data, at = lines.take(taken), self.tracker.position
        piece = flush.staging
        if piece is None:
            self._last_file += 1
            index = flush.add_piece(first_line)
            piece = flush.staging = StagedPiece(index, first_line, self._last_file, since=at)
        self.act(ev.Stage(piece.file, data, taken, first_line))
        # 3. Count them, at the position of the newest STATE: a cut there must find the line again.
        self._staged_bytes += len(data)
        piece.until, piece.is_divided = at, piece.has_state
        piece.size += len(data)
        piece.runs += first_line != piece.next_line
        piece.next_line = first_line + taken
        if flush.lines_staged is not None:
            flush.lines_staged += taken
        flush.last = at
        flush.size.rows += taken
        flush.size.size += len(data)
        flush.size.idle = False
        # 4. Complete the file if it is large enough: threads begin with less than a job of Spark.
        most, limits = self.limits.file_bytes, self.limits
        is_large = piece.size >= most or (
            piece.size >= min(most / 2, THREADS_BYTES) and not limits.gathers()
        )
        if stream.expected is not None:
            self._count_segment(flush, piece, taken)
        elif is_large or piece.runs >= limits.file_runs:
            self._complete_file(flush)
        self.close_if_full(flush, now)
        return taken

    def add_files(
        self,
        stream: Stream,
        files: Sequence[InputFile],
        line: int,
        version: int | None,
        now: float,
    ) -> int:
        """Add as many files of a BATCH message as fit into the open batch, by their known sizes.

        The size of a file is known after its conversion, and is the estimate for the next ones.

        Returns:
            The number of files taken; 0 if they must wait.
        """
        if stream.is_probing:
            return 0
        flush = self.opened(stream, version, now)
        self._complete_file(flush)
        trial, taken = replace(flush.size), 0
        rows, size = stream.file_size or (0, 0)
        is_probing = self.limits.probe and stream.file_size is None
        most = 1 if is_probing or stream.expected is not None else len(files)
        # At least one file, however large: a flush without any would wait for ever.
        while taken < most and not (taken and self.rule.is_full(stream.schema.stream, trial)):
            trial = replace(
                trial, rows=trial.rows + rows, size=trial.size + size, files=trial.files + 1
            )
            taken += 1
        at = self.tracker.position
        flush.size, flush.last_file, flush.last = trial, at, at
        own = tuple(replace(file, since=at, until=at) for file in files[:taken])
        piece = FilesPiece(flush.add_piece(line), line, own, rows * taken, size * taken)
        if stream.expected is not None:
            piece.replay = self._file_expected(stream)
        stream.is_probing = is_probing
        # Only files of known size wait for more: nobody can tell when the others are enough.
        may_gather = size and piece.replay is None and not self.limits.probe
        may_gather = may_gather and self.limits.gathers()
        self.schedule.add_piece(flush, piece, now + GATHER_SECONDS if may_gather else None)
        self.close_if_full(flush, now)
        return taken

    def mark(self) -> None:
        """Record the arrival of a STATE message."""
        waiting = frozenset(self.tracker.waiting)
        for piece in (flush.staging for flush in self._open.values()):
            if piece is not None:
                piece.has_state = True
                # In a new dict: a conversion may read the old one.
                marks = {**piece.marks, self.tracker.position: piece.size}
                # Those of STATEs that will not be emitted would take memory.
                piece.marks = {at: size for at, size in marks.items() if at in waiting}

    def opened(self, stream: Stream, version: int | None, now: float) -> PendingFlush:
        """Return the open batch of a stream for this version; open a new one if needed."""
        if stream.open is not None and stream.open.header.version != version:
            self.close(stream, now)
        if stream.open is None:
            number, token = self._next()
            header = Batch(stream.schema, (), token, version, now)
            size = BatchSize(opened_at=now)
            flush = PendingFlush(stream, number, header, self.tracker.begin(), size)
            stream.open = self._flushes[number] = self._open[flush.position] = flush
            stream.has_flushes = True
            if self._due_at is not None:
                self._due_at = min(self._due_at, self._due(flush))
        if stream.expected is not None:
            self._due_at = None
        return stream.open

    def key_pass(
        self, stream: Stream, files: tuple[InputFile, ...], line: int, now: float
    ) -> KeyPass:
        """Return the step that deletes the rows of a stream whose keys are in none of the files."""
        number, token = self._next()
        keys = Batch(stream.schema, files, token, received_at=now)
        return KeyPass(number, keys, self.tracker.begin(), line)

    def _next(self) -> tuple[int, str]:
        self._last_flush += 1
        return self._last_flush, f"{self.run_id}-{self._last_flush:06d}"

    def close(self, stream: Stream, now: float) -> None:
        """Close a stream's batch, and the batches that would still hold back the newest STATE.

        A batch within a segment that may be a replay is closed at the end of that segment. What is
        closed before it is due is held.
        """
        if stream.open is None:
            return
        closing = [stream.open]
        # Those that hold back STATE are usually small. Without this, a slow stream would hold back
        # the STATE of a fast one. The rows of a swap are not durable before the end of the input.
        for position in self.tracker.holders() if stream.swap is None else ():
            held = self._open.get(position, stream.open)
            if held is stream.open:
                continue
            if _is_within_segment(held):
                held.awaits_segment, self._due_at = True, None
            else:
                closing.append(held)
        for flush in closing:
            # Only the first one to be due changes the deadline of all.
            if self._due_at is not None and self._due(flush) <= self._due_at:
                self._due_at = None
            del self._open[flush.position]
            self._complete_file(flush)
            flush.closed_at, flush.reached = now, self._reached(flush)
            flush.stream.open = None
            if flush.by_rule or flush.awaits_segment:
                self.schedule.add_step(flush.stream, flush)
            else:
                self.hold(flush.stream, flush, flush.size.opened_at)

    def hold(self, stream: Stream, step: Step, since: float) -> None:
        """Add a step that waits for a STATE as long as a batch would wait for its age."""
        due = self.rule.deadline(stream.schema.stream, BatchSize(opened_at=since))
        # Before a swap nothing is visible.
        self.schedule.add_step(stream, step, due if stream.swap is None else 0.0)

    def release_held(self, now: float) -> None:
        """Let held steps begin that a STATE covers before which all is converted: no bad input.

        At the end of the input no STATE is awaited. Without room for more, all of them begin.
        """
        waiting = (
            f.position for f in self._flushes.values() if f.closed_at is None or f.unconverted
        )
        first = next(waiting, sys.maxsize)
        has_room = self.have_room and len(self.schedule.held) < 2 * self.limits.waiting
        covered: float = max(self.tracker.released, self.tracker.newest_before(first))
        if not has_room or (self.has_ended and first == sys.maxsize):
            covered = math.inf
        self.schedule.release(covered, now)

    def input_is_idle(self, now: float) -> None:
        """Record that the input is idle, and close batches that need not wait."""
        for flush in list(self._open.values()):
            flush.size.idle = True
            self.close_if_full(flush, now)

    def close_due(self, now: float) -> None:
        """Close the batches that have waited long enough."""
        self._due_at = None
        for flush in [flush for flush in self._open.values() if self._due(flush) <= now]:
            self._close_by_rule(flush, now)

    def relieve_staging(self, now: float) -> None:
        """Close the largest batch if staging is full and conversions will not empty it."""
        full = self._staged_bytes >= self.limits.staged_bytes
        if full and self._open and not self.schedule.is_converting:
            self._close_by_rule(max(self._open.values(), key=_bytes_staged), now)

    def converted(self, job: Conversion, event: ev.WorkDone, now: float) -> None:
        """Record that a piece has been converted."""
        flush, piece = job.flush, job.piece
        flush.unconverted -= 1
        flush.converted[piece.index] = piece
        flush.convert_seconds = now - job.began_at
        if piece.index >= flush.pieces:
            self.act(ev.DiscardPieces(flush.number, flush.header, flush.pieces))
        elif job.stream.until < sys.maxsize and self._convert_without_end(flush, piece):
            return
        # A piece with a STATE inside may still be cut there, by a bad line that is found later, and
        # one of several messages between them: text is kept for that until the flush is durable.
        is_divided = piece.messages if isinstance(piece, FilesPiece) else piece.is_divided
        if is_divided and piece.index < flush.pieces and flush.number in self._flushes:
            flush.divided.append(piece)
        if isinstance(piece, StagedPiece):
            self._staged_bytes -= piece.size
            self._keep_or_remove(piece, keep=piece in flush.divided)
        else:
            flush.size.rows += event.rows + event.rejected - piece.rows
            flush.size.size += event.size - piece.size
            count = len(piece.files)
            job.stream.file_size = (event.rows + event.rejected) // count, event.size // count
            job.stream.is_probing = False

    def discard_from(self, line: int, streams: Iterable[Stream]) -> None:
        """Discard the input of streams from a line of stdin on, converted or not.

        Running commits go on. The rest of a flush is committed as usual, with the newest STATE
        that the tracker has not discarded.
        """
        streams, state = list(streams), self.tracker.newest(line - 1)
        self.schedule.withdraw(streams)
        for stream in streams:
            stream.until = min(line, stream.until)
            for step in self.schedule.drop_steps(stream):
                self.dropped(step)
            for flush in _waiting(stream):
                if flush.discard_from(line):
                    self.act(ev.DiscardPieces(flush.number, flush.header, flush.pieces))
                # What is left of the flush ends exactly at that STATE.
                if state is not None and flush.last >= state.position:
                    flush.last = state.position - 1
                    if flush.last_file is not None:
                        flush.last_file = min(flush.last_file, flush.last)
                    flush.reached = Reached(state.value, state.line, is_exact=True)
                self._cut_converted(flush)
        for job in self.schedule.drop_conversions():
            self.discarded(job)
        for stream in streams:
            self.schedule.offer(stream)

    def cut(self, line: int, streams: Iterable[Stream]) -> int:
        """Return the line behind the newest STATE before a line of stdin at which all can be cut.

        The flushes of streams that are not being committed can be cut there. 1 without such a
        STATE.
        """
        streams = list(streams)
        self.schedule.withdraw(streams)
        flushes = [flush for stream in streams for flush in _waiting(stream)]
        kept = [piece for flush in flushes for piece in flush.divided]
        fixed = [p for p in kept if isinstance(p, StagedPiece) and not p.is_kept]
        while True:
            state = self.tracker.newest(line - 1)
            if state is None:
                return 1
            line = state.line + 1
            # A piece whose text is gone cannot be cut: go back to the STATE before all of it, which
            # may lie in another such piece.
            divided = [piece.line for piece in fixed if piece.has_line(line)]
            if not divided:
                return line
            line = min(divided)

    def begun_segment(self, stream: Stream) -> int | None:
        """Return the line at which a segment begins that may be a replay and is not complete."""
        staging = None if stream.open is None else stream.open.staging
        return staging.line if stream.expected is not None and staging is not None else None

    def dropped(self, step: Step) -> None:
        """Record that a step will not be taken: it does not hold back STATE any more."""
        if isinstance(step, PendingFlush):
            self._remove_kept(step)
            self._discarded.append(self._flushes.pop(step.number))
        if isinstance(step, PendingFlush | Activation | KeyPass | Swap):
            self.tracker.durable(step.position)

    def states_changed(self, line: int, streams: Iterable[Stream]) -> None:
        """Name the STATEs of waiting flushes anew, if theirs is of this line or a later one."""
        for step in (step for stream in streams for step in stream.steps):
            if isinstance(step, PendingFlush) and step.reached and step.reached.line >= line:
                step.reached = self._reached(step, step.reached.line)

    def retry_without_bad_input(self, job: Conversion, where: Where) -> int | None:
        """Convert a failed piece again without its bad part; return its line, if that is known."""
        piece, until = job.piece, job.stream.until
        # Several messages in one job: one job for each names the bad one.
        if isinstance(piece, FilesPiece) and piece.messages:
            single = [message for message in piece.messages if message.line < until]
            self.schedule.convert_again(job, single)
            return None
        line = piece.line
        if isinstance(piece, StagedPiece) and where.line is not None and piece.has_line(where.line):
            line, job.flush.lines_staged = where.line, None
            piece.discard_from(min(line, until))
        self.schedule.convert_again(job, [piece])
        return line

    def reopen(self, turn: Turn, error: BaseException) -> Conversion | None:
        """Take back the conversions behind a failed commit if the store has refused rows.

        Returns:
            The conversion of the piece with the record that the error names, as if it had failed.
            None if the pieces are being converted again, or the failure is another one.
        """
        flush = turn.step
        if not isinstance(flush, PendingFlush):
            return None
        pieces = flush.pieces_converted
        if isinstance(error, RefusedRecordError):
            pieces = [pieces[error.piece]]
        elif not isinstance(error, ConvertAgainError):
            return None
        for piece in pieces:
            del flush.converted[piece.index]
            if isinstance(piece, StagedPiece):
                self._staged_bytes += piece.size
                self._kept_bytes -= piece.size if piece in flush.divided and piece.is_kept else 0
            flush.divided = [one for one in flush.divided if one is not piece]
        flush.unconverted += 1
        turn.stream.running = False
        # One that has failed is not merged with others, whose results are there.
        job = Conversion(stream=turn.stream, flush=flush, piece=pieces[0], failures=1)
        if isinstance(error, RefusedRecordError):
            return job
        self.schedule.convert_again(job, pieces)
        return None

    def discarded(self, job: Conversion) -> None:
        """Record that a discarded piece will not be converted."""
        job.flush.unconverted -= 1
        if isinstance(job.piece, StagedPiece):
            self._staged_bytes -= job.piece.size
            self._keep_or_remove(job.piece, keep=False)

    def committed(self, flush: PendingFlush, began_at: float, now: float) -> None:
        """Record that a flush is durable."""
        del self._flushes[flush.number]
        if flush.divided:
            self._remove_kept(flush)
        closed_at = now if flush.closed_at is None else flush.closed_at
        seconds = flush.convert_seconds + now - began_at
        self.rule.flushed(flush.stream.schema.stream, flush.size, seconds)
        self.act(ev.Forget(flush.number, flush.header, now - closed_at))
        if self.cost is not None and flush.by_rule:
            warning = self.cost.committed(flush.size, flush.convert_seconds, began_at, now)
            if warning is not None:
                self.act(ev.Warn(warning))

    def close_if_full(self, flush: PendingFlush, now: float) -> None:
        """Close a batch if the rule says that it is full."""
        stream = flush.stream
        if flush.closed_at is not None or not (
            flush.awaits_segment or self.rule.is_full(stream.schema.stream, flush.size)
        ):
            return
        if _is_within_segment(flush):
            flush.awaits_segment, self._due_at = True, None
            return
        if flush.awaits_segment:
            self.close(stream, now)
        else:
            self._close_by_rule(flush, now)

    def _due(self, flush: PendingFlush) -> float:
        """Return when a batch is closed for its age; a possible replay gets more time."""
        stream = flush.stream
        due = self.rule.deadline(stream.schema.stream, flush.size)
        if stream.expected is None or not _is_within_segment(flush):
            return due
        patient = stream.expected.begun_at + REPLAY_PATIENCE
        return patient if flush.awaits_segment else max(due, patient)

    def _close_by_rule(self, flush: PendingFlush, now: float) -> None:
        if flush.closed_at is None:
            flush.by_rule = True
            self.close(flush.stream, now)

    def _reached(self, flush: PendingFlush, until: float = math.inf) -> Reached | None:
        """Return the newest STATE up to a line: a later one may cover more of the stream."""
        newest = self.tracker.newest(until)
        if newest is None:
            return None
        return Reached(newest.value, newest.line, newest.position > flush.last)

    def _complete_file(self, flush: PendingFlush) -> None:
        piece, flush.staging = flush.staging, None
        if piece is None:
            return
        if piece.replay is None:
            # It ends within a segment, or none is expected: the rest cannot be compared.
            flush.stream.expected = None
        self.act(ev.CloseFile(piece.file))
        self.schedule.add_piece(flush, piece)

    def _lines_to_segment_end(self, stream: Stream, now: float) -> int | None:
        """Return the lines up to the end of the expected segment; None if there is none."""
        expected = stream.expected
        if expected is None or not expected.lines[0]:
            stream.expected = None  # Lines in the place of a batch file are not a replay.
            return None
        if not expected.taken:
            expected.begun_at = now
        return expected.lines[0] - expected.taken

    def _count_segment(self, flush: PendingFlush, piece: StagedPiece, taken: int) -> None:
        """Complete the file at the end of the expected segment, or if it is too large for it."""
        expected = flush.stream.expected
        if expected is None:
            return
        expected.taken += taken
        if expected.taken == expected.lines[0]:
            piece.replay = expected.next()
            self._complete_file(flush)
            flush.stream.expected = expected if expected.lines else None
        elif piece.size >= 2 * self.limits.file_bytes:
            self._complete_file(flush)

    def _file_expected(self, stream: Stream) -> int | None:
        """Return the expected segment that a batch file may be a replay of."""
        expected = stream.expected
        if expected is None or expected.lines[0]:
            stream.expected = None
            return None
        index = expected.next()
        stream.expected = expected if expected.lines else None
        return index

    def _cut_converted(self, flush: PendingFlush) -> None:
        """Cut the end off the converted pieces of a flush whose input is discarded."""
        for piece in list(flush.divided):
            if piece.index >= flush.pieces:
                flush.divided.remove(piece)
                self._remove_kept_piece(piece)
            elif self._convert_without_end(flush, piece):
                flush.divided.remove(piece)
                if isinstance(piece, StagedPiece):
                    self._kept_bytes -= piece.size
                    self._staged_bytes += piece.size

    def _convert_without_end(self, flush: PendingFlush, piece: Piece) -> bool:
        """Convert a piece again without its discarded end; return False if it has none."""
        pieces = piece.without_end(flush.stream.until)
        if pieces:
            self.act(ev.DiscardPieces(flush.number, flush.header, piece.index))
            flush.unconverted += 1
            job = Conversion(stream=flush.stream, flush=flush, piece=piece)
            self.schedule.convert_again(job, pieces)
        return bool(pieces)

    def _keep_or_remove(self, piece: StagedPiece, *, keep: bool) -> None:
        """Keep the file of a converted piece if it may be cut, and kept files are within bounds."""
        if keep and self._kept_bytes + piece.size <= self.limits.staged_bytes:
            piece.is_kept = True
            self._kept_bytes += piece.size
        else:
            piece.is_kept = False
            self.act(ev.RemoveFile(piece.file))

    def _remove_kept(self, flush: PendingFlush) -> None:
        for piece in flush.divided:
            self._remove_kept_piece(piece)
        flush.divided.clear()

    def _remove_kept_piece(self, piece: Piece) -> None:
        if isinstance(piece, StagedPiece) and piece.is_kept:
            self._kept_bytes -= piece.size
            self._keep_or_remove(piece, keep=False)


def _is_within_segment(flush: PendingFlush) -> bool:
    """Return whether a batch ends within a segment that may be a replay."""
    return flush.stream.expected is not None and flush.staging is not None


def _waiting(stream: Stream) -> Iterator[PendingFlush]:
    """Yield the closed flushes of a stream that are not being committed."""
    steps = islice(stream.steps, int(stream.running), None)
    return (step for step in steps if isinstance(step, PendingFlush))


def _bytes_staged(flush: PendingFlush) -> int:
    """Return the bytes of an open batch that wait for their conversion, if none runs or waits."""
    return 0 if flush.staging is None else flush.staging.size
