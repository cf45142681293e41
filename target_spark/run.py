"""The target's edge: stdin, staging, threads, signals and stdout around the pure pipeline."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from shared.errors import MessageError, SettingsError, SingerSparkError, Where
from shared.logs import Progress
from shared.metrics import (
    BATCH_COUNT,
    BATCH_PROCESSING_TIME,
    JOB_DURATION,
    RECORD_COUNT,
    Counter,
    Point,
    Timer,
    emit,
)
from target_spark import events as ev
from target_spark.pipeline import Limits, Pipeline
from target_spark.plans import Batch, InputFile, LoadResult
from target_spark.policies import SizeAndAge
from target_spark.reader import Reader
from target_spark.staging import Staging
from target_spark.workers import StopSignals, Wakeup, Workers

if TYPE_CHECKING:
    from shared.stdout import MessageOutput
    from target_spark.config import TargetConfig

BLOCK_BYTES = 1024 * 1024
MOST_JOBS = 4
STAGED_BATCHES = 4
STOP_SECONDS = 10.0
_NEEDS_STAGING = (ev.Stage, ev.CloseFile, ev.Convert)
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", None)


class Loads(Protocol):
    """What the run needs of a loader; called from several threads."""

    def convert(self, batch: Batch) -> LoadResult:
        """Convert files by one Spark job; nothing is visible yet."""
        ...

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Make a converted batch durable and visible."""
        ...

    def abort(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Take back what has been converted."""
        ...

    def finish(self, stream: str) -> None:
        """Make a stream visible that is replaced as a whole."""
        ...

    def activate(self, stream: str, version: int) -> None:
        """Make a table version the valid one."""
        ...


class Spark(Protocol):
    """What the run needs of Spark's life."""

    def start(self) -> None:
        """Start it in the background."""
        ...

    def stop(self) -> None:
        """End it, with the jobs that still run; never hangs."""
        ...


def run(config: TargetConfig, input_fd: int, output: MessageOutput) -> None:
    """Load a Singer message stream.

    Args:
        config: The settings.
        input_fd: Where the messages come from.
        output: Where STATE goes.

    Raises:
        SingerSparkError: The input, a record, staging, the destination or Spark failed, or a
            signal came. What was durable stays so, and its STATE has been written.
    """
    from shared.spark_session import SessionStarter, executors_share_disk  # noqa: PLC0415
    from target_spark.loader import Loader  # noqa: PLC0415

    if config.staging.root is None and not executors_share_disk(config.spark):
        raise SettingsError(
            "is needed with a cluster: executors must be able to read staged files",
            where=Where(setting="staging.root"),
            hint="name a folder that this machine and all executors share",
        )
    starter = SessionStarter(config.spark)
    try:
        with Timer(JOB_DURATION):
            run_with(config, input_fd, output, Loader(config, starter.get), starter)
    finally:
        starter.stop()


def run_with(
    config: TargetConfig, input_fd: int, output: MessageOutput, loader: Loads, spark: Spark
) -> None:
    """`run` with a loader and a Spark of the caller's."""
    _widen(input_fd)
    wakeup = Wakeup()
    label = "target-spark"
    try:
        with (
            StopSignals(wakeup) as signals,
            Staging(config.staging.root) as staging,
            Progress(label) as progress,
        ):
            target = _Run(
                pipeline=_pipeline(config),
                input_fd=input_fd,
                output=output,
                loader=loader,
                spark=spark,
                staging=staging,
                signals=signals,
                wakeup=wakeup,
                # In a pipe the tap before us shows one, on the same terminal.
                progress=progress if stat.S_ISREG(os.fstat(input_fd).st_mode) else None,
            )
            try:
                target.loop()
            finally:
                target.close()
    finally:
        wakeup.close()


def _pipeline(config: TargetConfig) -> Pipeline:
    rule = SizeAndAge(
        rows=config.batch_size_rows,
        size=config.batch_size_bytes,
        seconds=config.batch_wait_limit_seconds,
    )
    limits = Limits(
        parallel=min(MOST_JOBS, os.cpu_count() or 1),
        file_bytes=config.staging.file_bytes,
        staged_bytes=STAGED_BATCHES * config.batch_size_bytes,
    )
    overwrite = config.load_method == "overwrite"
    return Pipeline(rule, limits, run_id=uuid.uuid4().hex, overwrite=overwrite)


def _widen(fd: int) -> None:
    """Let a pipe hold a whole block, where the system allows it; only speed depends on it."""
    if _F_SETPIPE_SZ is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, _F_SETPIPE_SZ, BLOCK_BYTES)


class _Clock:
    """Seconds since the epoch that never go back."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() + self._offset


@dataclass
class _Run:
    """One run: reads, hands events to the pipeline and does what it answers."""

    pipeline: Pipeline
    input_fd: int
    output: MessageOutput
    loader: Loads
    spark: Spark
    staging: Staging
    signals: StopSignals
    wakeup: Wakeup
    progress: Progress | None = None
    clock: Callable[[], float] = field(default_factory=_Clock)

    def __post_init__(self) -> None:
        self._workers = Workers(self.wakeup)
        self._reader = Reader()
        self._messages: Iterator[ev.InputEvent] = iter(())
        self._ended = False
        self._stop_by: float | None = None
        self._output_open = True
        self._inputs: dict[int, InputFile] = {}
        self._converted: dict[int, dict[int, tuple[tuple[InputFile, ...], LoadResult]]] = {}
        self._records: dict[str, Counter] = {}
        self._batches: dict[str, Counter] = {}
        self._error: BaseException | None = None
        self._doers: dict[type, Callable[[Any], None]] = {
            ev.StartSpark: lambda _: self.spark.start(),
            ev.Stage: self._stage,
            ev.CloseFile: self._close_file,
            ev.Convert: self._convert,
            ev.Commit: self._commit,
            ev.Activate: self._activate,
            ev.Finish: self._finish,
            ev.Forget: self._forget,
            ev.EmitState: self._emit_state,
            ev.CleanUp: self._clean_up,
        }

    def loop(self) -> None:
        """Run to the end.

        Raises:
            SingerSparkError: Why the run ended early.
        """
        while not self.pipeline.done:
            self._hear_signals()
            for answer in self._workers.answers():
                self._handle(answer)
            if self.pipeline.deadline() <= self.clock():
                self._handle(ev.Tick())
            if not self.pipeline.done:
                self._take_input()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Write the counters; late answers of threads go nowhere."""
        self._workers.close()
        for counter in (*self._records.values(), *self._batches.values()):
            counter.close()

    # Events

    def _hear_signals(self) -> None:
        error = self.signals.error
        if error is None:
            return
        if self._stop_by is None:
            self._stop_by = self.clock() + STOP_SECONDS
            self._handle(ev.Stopped(error))
        elif self.clock() >= self._stop_by:
            raise error

    def _take_input(self) -> None:
        """Take what has been read, or read more, or sleep until something happens."""
        if not self.pipeline.wants_input:
            self.wakeup.wait(None, self._patience())
        elif not self._take_messages():
            if self._ended:
                self._handle(ev.EndOfInput())
            elif self.wakeup.wait(self.input_fd, self._patience()):
                self._read()

    def _patience(self) -> float:
        next_at = self.pipeline.deadline() if self._stop_by is None else self._stop_by
        return next_at - self.clock()

    def _take_messages(self) -> bool:
        """Handle what the last read brought; False once that is used up."""
        try:
            for message in self._messages:
                self._handle(message)
                if not self.pipeline.wants_input or self.signals.error is not None:
                    return True
        except MessageError as error:
            self._handle(ev.Stopped(error))
            return True
        return False

    def _read(self) -> None:
        try:
            data = os.read(self.input_fd, BLOCK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            problem = MessageError(f"the input cannot be read ({error.strerror})")
            self._handle(ev.Stopped(problem))
            return
        self._ended = not data
        self._messages = self._reader.feed(data) if data else self._reader.end()

    def _handle(self, event: ev.Event) -> None:
        problem: SingerSparkError | None = None
        for action in self.pipeline.handle(event, self.clock()):
            if problem is not None and isinstance(action, _NEEDS_STAGING):
                continue
            try:
                self._doers[type(action)](action)
            except SingerSparkError as error:
                if error is self.signals.error:
                    raise
                problem = problem or error
        if self.pipeline.done:
            self._error = self._error or problem
        elif problem is not None:
            self._handle(ev.Stopped(problem))

    # Actions

    def _stage(self, action: ev.Stage) -> None:
        self.staging.append(action.file, action.data, action.lines, action.first_line)
        if self.progress is not None:
            self.progress.add(action.lines, len(action.data))

    def _close_file(self, action: ev.CloseFile) -> None:
        self._inputs[action.file] = self.staging.complete(action.file)

    def _convert(self, action: ev.Convert) -> None:
        files = action.files if action.staged is None else (self._inputs.pop(action.staged),)
        pieces = self._converted.setdefault(action.flush, {})
        batch = replace(action.header, files=files)

        def task() -> ev.WorkDone:
            result = self.loader.convert(batch)
            pieces[action.piece] = (files, result)
            return ev.WorkDone(action.work, result.rows, sum(part.size for part in result.parts))

        self._workers.start(action.work, task)

    def _commit(self, action: ev.Commit) -> None:
        batch, results = self._whole(action.flush, action.header)
        self._start(action.work, lambda: self.loader.commit(batch, results))

    def _activate(self, action: ev.Activate) -> None:
        self._start(action.work, lambda: self.loader.activate(action.stream, action.version))

    def _finish(self, action: ev.Finish) -> None:
        self._start(action.work, lambda: self.loader.finish(action.stream))

    def _start(self, work: int, call: Callable[[], None]) -> None:
        def task() -> ev.WorkDone:
            call()
            return ev.WorkDone(work)

        self._workers.start(work, task)

    def _forget(self, action: ev.Forget) -> None:
        self._converted.pop(action.flush, None)
        for file in action.staged:
            self.staging.remove(file)
        stream = action.stream
        if stream not in self._records:
            self._records[stream] = Counter(RECORD_COUNT, stream)
            self._batches[stream] = Counter(BATCH_COUNT, stream)
        self._records[stream].increment(action.rows)
        self._batches[stream].increment()
        tags = {"stream": stream, "pid": os.getpid(), "context": {}, "status": "succeeded"}
        emit(Point("timer", BATCH_PROCESSING_TIME, round(action.seconds, 6), tags))

    def _emit_state(self, action: ev.EmitState) -> None:
        if not self._output_open:
            return
        try:
            self.output.write(action.value + b"\n")
        except (SingerSparkError, OSError):
            self._output_open = False
            raise

    def _clean_up(self, action: ev.CleanUp) -> None:
        self._error = action.error
        if action.flushes:
            # Jobs that still run would go on writing what is about to be taken back.
            self.spark.stop()
        for number, header in action.flushes:
            batch, results = self._whole(number, header)
            with contextlib.suppress(Exception):
                self.loader.abort(batch, results)

    def _whole(self, flush: int, header: Batch) -> tuple[Batch, list[LoadResult]]:
        """A flush with all its files, and what became of them, in the order of arrival."""
        pieces = sorted(self._converted.get(flush, {}).items())
        files = tuple(file for _, (files, _) in pieces for file in files)
        return replace(header, files=files), [result for _, (_, result) in pieces]
