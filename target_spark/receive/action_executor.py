"""Execution of the pipeline's actions: staging, Spark jobs and commits in threads, STATE.

`Workers` are the threads, which wake the run loop when they have ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from shared.engine.engine import Engine
from shared.errors import SingerSparkError, end_each
from shared.singer.datasets import Dataset, schema_fields
from shared.singer.logs import IN_SUMMARY
from shared.singer.metrics import (
    BATCH_COUNT,
    BATCH_PROCESSING_TIME,
    RECORD_COUNT,
    Counter,
    StreamProgress,
    emit,
)
from shared.singer.run_summary import RunSummary
from shared.singer.signals import SIGNALS, note_signal
from shared.singer.stdout import MessageOutput
from target_spark.core import events as ev
from target_spark.core.balance import Loaded, check_flush
from target_spark.core.load_plans import STAGED, Batch, InputFile, LoadResult
from target_spark.receive.rejected_input import Rejections
from target_spark.receive.staging import Staging
from target_spark.receive.state_file import StateFile

_logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from target_spark.load.loader import Loader
    from target_spark.receive.dead_letters import DeadLetters


_Piece = tuple[tuple[InputFile, ...], LoadResult]


@dataclass(eq=False, kw_only=True)
class ActionExecutor:
    """Executes actions; slow ones in threads, whose results become events."""

    loader: Loader
    engine: Engine
    staging: Staging
    workers: Workers
    output: MessageOutput
    progress: StreamProgress | None = None
    dead_letters: DeadLetters | None = None
    rejections: Rejections = field(default_factory=Rejections)
    summary: RunSummary = field(default_factory=partial(RunSummary, "target-spark"))
    state_file: StateFile | None = None
    _output_open: bool = field(default=True, init=False)
    _inputs: dict[int, InputFile] = field(default_factory=dict, init=False)
    _converted: dict[int, dict[int, _Piece]] = field(default_factory=dict, init=False)
    _staged_files: dict[int, tuple[int, str]] = field(default_factory=dict, init=False)
    _kept_files: dict[int, set[int]] = field(default_factory=dict, init=False)
    _consumed: dict[int, list[InputFile]] = field(default_factory=dict, init=False)
    _abandoned: list[tuple[Batch, list[LoadResult]]] = field(default_factory=list, init=False)
    _cleaners: list[threading.Thread] = field(default_factory=list, init=False)
    _counters: dict[tuple[str, str], Counter] = field(default_factory=dict, init=False)

    def execute(self, action: ev.Action) -> None:
        """Execute one action.

        Raises:
            SingerSparkError: Staging or stdout cannot be written.
        """
        match action:
            case ev.Stage():
                self.engine.receive(len(action.data))
                self.staging.append(action.file, action.data, action.lines, action.first_line)
            case ev.CloseFile():
                self._inputs[action.file] = self.staging.complete(action.file)
            case ev.RemoveFile():
                self._remove_file(action.file)
            case ev.DiscardPieces(flush, header, first):
                pieces = self._converted.get(flush, {})
                self._give_up(header, pieces, [number for number in pieces if number >= first])
            case ev.Forget():
                self._forget(action)
            case ev.EmitState():
                self._emit_state(action)
            case ev.DeleteConsumed():
                self._delete_consumed(action)
            case ev.CleanUp(flushes=flushes):
                if flushes:
                    # Jobs that still run would go on writing parts that are about to be removed.
                    self.engine.stop()
                left = [self._whole(number, header) for number, header in flushes]
                end_each(partial(self.loader.abort, *one) for one in (*left, *self._abandoned))
            case (
                ev.ReportLine()
                | ev.ReportFailure()
                | ev.ReportUncovered()
                | ev.RetryLater()
                | ev.Warn()
            ):
                self._report(action)
            case _:
                self.workers.start(action.work, partial(self._work, action))

    def close(self) -> None:
        """Write the counters."""
        for cleaner in self._cleaners:
            cleaner.join()
        for counter in self._counters.values():
            counter.close()
        self.rejections.close()
        self.loader.close()

    def _work(self, action: ev.Work) -> ev.WorkDone | None:
        """Do a piece of work, in a thread; return its result, if it has any."""
        match action:
            case ev.Convert():
                return self._convert(action)
            case ev.Commit():
                self._commit(action)
            case ev.Recall():
                return ev.WorkDone(action.work, expected=self.loader.recall(action.stream))
            case ev.Activate():
                with self.engine.serving(action.stream.stream):
                    self.loader.activate(action.stream, action.version)
            case ev.DeleteMissing():
                self._delete_missing(action)
            case ev.Audit():
                self.loader.audit()
            case ev.Finish(stream=name):
                with self.engine.serving(name):
                    self._loaded(name, self.loader.finish(name, awaits_state=action.awaits_state))
                self._note_engine(name, log=True)
            case ev.WriteDeadLetters():
                if self.dead_letters is not None:
                    self.dead_letters.write_lines(action.number, action.lines)
        return None

    def _remove_file(self, number: int) -> None:
        """Remove a staging file; if a commit may need its lines again, after the commit."""
        flush, stream = self._staged_files.get(number, (None, ""))
        if flush in self._converted and self.loader.may_refuse(stream):
            self._kept_files.setdefault(flush, set()).add(number)
            return
        self._inputs.pop(number, None)
        self._staged_files.pop(number, None)
        self.staging.remove(number)

    def _convert(self, action: ev.Convert) -> ev.WorkDone:
        piece, stream = action.piece, action.header.stream.stream
        if isinstance(piece, ev.StagedPiece):
            if piece.before is not None:
                cut = self.staging.cut(self._inputs[piece.file], piece.before)
                self._inputs[piece.file] = cut
            marks = tuple((size, position) for position, size in piece.marks.items())
            file = self._inputs[piece.file]
            file = replace(file, marks=marks, since=piece.since, until=piece.until)
            files: tuple[InputFile, ...] = (file,)
            self._staged_files[piece.file] = action.flush, stream
        else:
            files = piece.files
        pieces = self._converted.setdefault(action.flush, {})
        if piece.index in pieces:
            self._give_up(action.header, pieces, [piece.index])
        batch = replace(action.header, files=files, replay=piece.replay)
        with self.engine.serving(stream):
            result = self.loader.convert(batch)
        pieces[piece.index] = (files, result)
        size = sum(part.size for part in result.parts)
        rows = result.rows - result.exploded
        # What was rejected of replayed records is not known: they count neither way.
        received = result.received - result.replayed
        rejected, first = min(result.rejected, received), next(iter(result.rejects), None)
        place = None if first is None else replace(batch.where(first), stream=None)
        reason = "" if first is None else f"{place}: {first.reason}"
        return ev.WorkDone(action.work, rows, size, rejected, received, reason)

    def _commit(self, action: ev.Commit) -> None:
        batch, results = self._whole(action.flush, action.header)
        name, schema = batch.stream.stream, batch.stream.schema
        check_flush(batch, action.lines)
        # Dead letters first: they must be durable before the STATE after them is written.
        if self.dead_letters is not None:
            self.dead_letters.write(batch, results)
        with self.engine.serving(name):
            self._loaded(name, self.loader.commit(batch, results))
        if self.summary.is_observed:
            self.summary.uses(name, lambda: [Dataset(name, None, schema_fields(schema))])

    def _delete_missing(self, action: ev.DeleteMissing) -> None:
        name = action.keys.stream.stream
        with self.engine.serving(name):
            deleted = self.loader.delete_missing(action.keys)
        self._consumed[action.flush] = list(action.keys.files)
        _logger.info("stream '%s': deleted %d rows that its source has no more", name, deleted)
        if deleted:
            self.summary.has_work = True
            self.summary.add(name, deleted=deleted)

    def _loaded(self, stream: str, tables: Mapping[str, Loaded]) -> None:
        for table, loaded in tables.items() if self.summary.is_read else ():
            self.summary.add_to_table(stream, table, loaded.changes, **asdict(loaded.counts))
            if loaded.datasets is not None:
                self.summary.uses(stream, loaded.datasets, is_output=True)

    def _note_engine(self, stream: str, *, log: bool = False) -> None:
        """Note what loads a stream, if rows needed any work."""
        used = self.engine.used.get(stream)
        if used is not None:
            engine, reason = used
            if self.summary.is_read:
                self.summary.note(stream, engine=engine, engine_reason=reason)
            if log:
                _logger.info(
                    "stream '%s': loaded by %s (%s)", stream, engine, reason, extra=IN_SUMMARY
                )

    def _give_up(self, header: Batch, pieces: dict[int, _Piece], numbers: Sequence[int]) -> None:
        """Take the results of pieces out of a flush; their parts are removed after the run."""
        for number in numbers:
            # A worker that repeats a piece, and the loop that discards it, may both ask.
            files, result = pieces.pop(number, ((), None))
            if result is not None:
                self._abandoned.append((replace(header, files=files), [result]))

    def _forget(self, action: ev.Forget) -> None:
        batch, results = self._whole(action.flush, action.header)
        self._converted.pop(action.flush, None)
        for number in self._kept_files.pop(action.flush, ()):
            self._remove_file(number)
        stream = batch.stream.stream
        if any(result.rejected or result.cut for result in results):
            self.rejections.report_batch(batch, results)
        if any(result.undeclared for result in results):
            undeclared = self.rejections.report_undeclared(stream, results)
            self.summary.note(stream, undeclared=dict(undeclared))
        consumed = [file for file in batch.files if file.encoding.format != STAGED]
        if consumed:
            self._consumed[action.flush] = consumed
        if self.progress is not None:
            if consumed:
                for result in results:
                    size = sum(part.size for part in result.parts)
                    self.progress.of(stream).add(result.received, size)
            self.progress.of(stream).committed()
        rows = sum(result.rows for result in results)
        for metric, count in ((RECORD_COUNT, rows), (BATCH_COUNT, 1)):
            if (metric, stream) not in self._counters:
                self._counters[metric, stream] = Counter(metric, stream)
            self._counters[metric, stream].increment(count)
        if self.summary.is_read:
            self._summarize(stream, results, action.seconds)
            self._note_engine(stream)
        seconds = round(action.seconds, 6)
        emit("timer", BATCH_PROCESSING_TIME, seconds, stream, status="succeeded")

    def _summarize(self, stream: str, results: Sequence[LoadResult], seconds: float) -> None:
        self.summary.moved(sum(result.rows for result in results))
        self.summary.add(
            stream,
            received=sum(result.received for result in results),
            rejected=sum(result.rejected for result in results),
            replayed=sum(result.replayed for result in results),
            bytes=sum(part.size for result in results for part in result.parts),
            flushes=1,
            flush_seconds=round(seconds, 3),
        )

    def _emit_state(self, action: ev.EmitState) -> None:
        if not self._output_open:
            return
        try:
            if self.state_file is not None:
                self.state_file.prepare(action.value)
            # Before others see it: what a STATE covers must never count as a replay.
            self.loader.cover(action.position, action.value, action.held)
            if self.state_file is not None:
                self.state_file.publish()
            self.output.write(action.value + b"\n")
            if self.summary.is_read:
                self.summary.count(state_messages=1)
        except (SingerSparkError, OSError):
            self._output_open = False
            raise

    def _delete_consumed(self, action: ev.DeleteConsumed) -> None:
        # A flush whose files were all discarded has none.
        files = [file for flush in action.flushes for file in self._consumed.pop(flush, ())]
        if not self._output_open or not self.loader.deletes_consumed:
            return
        self._cleaners = [cleaner for cleaner in self._cleaners if cleaner.is_alive()]
        cleaner = threading.Thread(target=self.loader.delete_consumed, args=(files,), daemon=True)
        cleaner.start()
        self._cleaners.append(cleaner)

    def _report(self, action: ev.Report) -> None:
        """Log what users should know of the input and the work, and count it."""
        match action:
            case ev.ReportLine(line):
                self.summary.count(rejected_lines=1)
                self.rejections.report_line(line)
            case ev.ReportFailure(stream, error):
                self.summary.note(stream, error=" ".join(str(error).split()))
                _logger.error("%s; going on with the other streams", error)
            case ev.ReportUncovered(stream, rows):
                self.summary.note(stream, uncovered=rows)
                _logger.log(
                    logging.INFO if action.loaded and not action.expected else logging.WARNING,
                    "stream '%s': the input ended %s after its last STATE; they were %s, and "
                    "the tap will send them again if it writes STATE%s",
                    stream,
                    action.extent,
                    "loaded" if action.loaded else "discarded",
                    " (see whether it failed)" if action.expected else "",
                )
            case ev.RetryLater():
                self.summary.add(action.stream, retries=1)
                _logger.warning(
                    "stream '%s': the %s failed; retrying in %.1f s (failure %d): %s",
                    action.stream,
                    action.what,
                    action.seconds,
                    action.failures,
                    " ".join(str(action.error).split()),
                )
            case ev.Warn():
                _logger.warning("%s", action.text)

    def _whole(self, flush: int, header: Batch) -> tuple[Batch, list[LoadResult]]:
        """Return a flush with all its files and results, in order of arrival."""
        pieces = sorted(self._converted.get(flush, {}).items())
        files = tuple(file for _, (files, _) in pieces for file in files)
        return replace(header, files=files), [result for _, (_, result) in pieces]


LONGEST_WAIT = 3600.0


class Workers:
    """Runs each piece of work in a daemon thread; the pipeline bounds how many there are.

    A pipe ends the wait of the run loop for standard input.

    Attributes:
        answers: The results of work that has ended, oldest first.
        wakeup_fd: Descriptor that wakes the run loop if something is written there.
    """

    def __init__(self) -> None:
        self.answers: deque[ev.WorkDone | ev.WorkFailed] = deque()
        self._wait_fd, self.wakeup_fd = os.pipe()
        os.set_blocking(self._wait_fd, False)
        os.set_blocking(self.wakeup_fd, False)
        self._lock = threading.Lock()
        self._closed = False

    def start(self, work: int, task: Callable[[], ev.WorkDone | None]) -> None:
        """Start `task`; its result or failure will be in `answers`."""
        name = f"work-{work}"
        threading.Thread(target=self._execute, args=(work, task), name=name, daemon=True).start()

    def _execute(self, work: int, task: Callable[[], ev.WorkDone | None]) -> None:
        try:
            answer: ev.WorkDone | ev.WorkFailed = task() or ev.WorkDone(work)
        except BaseException as error:
            answer = ev.WorkFailed(work, error)
        self.answers.append(answer)
        # Under the lock: once closed, the descriptor may have become another file's.
        with self._lock, contextlib.suppress(BlockingIOError):
            if not self._closed:
                os.write(self.wakeup_fd, b"\0")

    def wait(self, fd: int | None, seconds: float) -> bool:
        """Sleep until work has ended, a signal came, `fd` is readable, or the seconds are over.

        Returns:
            Whether `fd`, if there is one, is readable (or at its end).
        """
        poll = select.poll()
        poll.register(self._wait_fd, select.POLLIN)
        if fd is not None:
            poll.register(fd, select.POLLIN)
        ready = {ready for ready, _ in poll.poll(max(0.0, min(seconds, LONGEST_WAIT)) * 1000)}
        if self._wait_fd in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wait_fd, 4096)
        return fd in ready

    def close(self) -> None:
        """Ignore the results of running work."""
        with self._lock:
            self._closed = True
            os.close(self._wait_fd)
            os.close(self.wakeup_fd)


@dataclass(eq=False)
class StopSignals:
    """The first SIGINT, SIGTERM or SIGHUP in the block of `caught_signals`; a second one raises it.

    Attributes:
        error: The error of the first one; None until it comes.
    """

    error: SingerSparkError | None = None

    def caught(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        again = self.error is not None
        note_signal(number)
        name = signal.Signals(number).name
        self.error = SIGNALS[number](f"stopped by {name}")
        if again:
            raise self.error


@contextlib.contextmanager
def caught_signals(wakeup_fd: int) -> Iterator[StopSignals]:
    """Catch the signals that stop a run; outside the main thread they are left alone.

    Args:
        wakeup_fd: Written to when a signal is caught.
    """
    signals = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    fd_before = signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)
    before = {
        number: signal.signal(number, signals.caught)
        for number in SIGNALS
        # `nohup` lets a run ignore SIGHUP.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield signals
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
