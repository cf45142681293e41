"""The target's edge: stdin, staging, threads, signals and stdout around the pure pipeline."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from shared.engine.engine import THREADS, Engine, engine_of
from shared.errors import MessageError, SettingsError, SingerSparkError, Where
from shared.settings.batch_rules import cost_warnings
from shared.settings.batch_settings import FixedSize, MegaBatch, MemoryBased
from shared.settings.checking import Location
from shared.singer.logs import CONSOLE
from shared.singer.metrics import JOB_DURATION, StreamProgress, timed
from shared.singer.platform import usable_cores
from shared.singer.run_summary import RunSummary
from shared.singer.signals import StallWatch
from shared.singer.stdout import PIPE_BYTES, MessageOutput, widen_pipe
from shared.spark.conf import SparkSettings, scheduling
from shared.spark.connect import executors_share_disk
from shared.spark.running_java import declare
from shared.storage.access import StorageOptions
from target_spark.config import REGISTRY, error_budget
from target_spark.core import events as ev
from target_spark.core.failures import with_backoff
from target_spark.core.load_plans import LoadPlan, StreamSchema
from target_spark.core.pipeline import Limits, Pipeline
from target_spark.core.policies import CommitCost, FlushRule, SizeAndAge, flush_rule
from target_spark.core.reader import Reader
from target_spark.receive.action_executor import (
    ActionExecutor,
    StopSignals,
    Workers,
    caught_signals,
)
from target_spark.receive.rejected_input import Rejections
from target_spark.receive.staging import Staging
from target_spark.receive.state_file import StateFile
from target_spark.run_settings import TargetConfig
from target_spark.validation.columns import checked, readable

if TYPE_CHECKING:
    from target_spark.load.loader import Loader
    from target_spark.receive.dead_letters import DeadLetters

_logger = logging.getLogger(__name__)

MOST_JOBS = 4
STAGED_BATCHES = 4
STOP_SECONDS = 10.0
SILENCE_SECONDS = 0.5
"""Silence after a SCHEMA after which Spark starts: the tap seems to be looking for records."""
_LENIENT = ("LogAndContinue", "SendToDLQ")
_OWN_BOUNDS: dict[str, Location] = {
    "size": ("batch_size_rows",),
    "timeout": ("batch_wait_limit_seconds",),
    "memory_size": ("batch_size_bytes",),
}
_NOT_AFTER_A_PROBLEM = (ev.Stage, ev.CloseFile, ev.Convert, ev.DeleteConsumed)
_TO_DO = (ev.RecordsSeen, ev.BatchSeen, ev.VersionSeen, ev.LineRejected)
"""What changes tables, or was meant to."""


def run(
    config: TargetConfig,
    input_fd: int,
    output: MessageOutput,
    summary: RunSummary | None = None,
    state_file: StateFile | None = None,
) -> None:
    """Load a Singer message stream.

    Raises:
        SingerSparkError: The input, a record, staging, the destination or Spark failed, or a
            signal came. What was durable stays so, and its STATE has been written.
    """
    if config.staging.root is None and not executors_share_disk(config.spark):
        raise SettingsError(
            "is required with a cluster: executors must be able to read staged files",
            where=Where(setting="staging.root"),
            hint="name a folder that this machine and all executors share, or a URL (s3://…); "
            "`tap-spark spark-server` needs none, while it runs",
        )
    spark, needs = _spark_of(config), REGISTRY.get(config.format).needs
    apart = "`engine: threads` of the target" if config.engine == THREADS else ""
    declare("target", spark, apart, needs=needs)
    # Not above: it imports pyarrow and pyspark, and the command line must answer at once.
    from target_spark.load.loader import Loader  # noqa: PLC0415

    engine = engine_of(config, spark, needs)
    status = os.fstat(input_fd)
    if stat.S_ISREG(status.st_mode):
        engine.expect(status.st_size)
    try:
        with timed(JOB_DURATION):
            describes = summary is not None and summary.is_read
            kind = Loader
            if config.transforms.active:
                from target_spark.load.mapped_loader import MappedLoader  # noqa: PLC0415

                kind = MappedLoader
            loader = kind(config, engine, describes=describes)
            run_with(config, input_fd, output, loader, engine, summary, state_file)
    finally:
        engine.stop()


def _spark_of(config: TargetConfig) -> SparkSettings:
    """Return how to start Spark, whose Java only schedules tasks if no row of a load passes it."""
    is_alone = REGISTRY.get(config.format).has_tasks_alone
    return scheduling(config.spark, is_alone and not (config.transforms.active or config.operates))


def run_with(
    config: TargetConfig,
    input_fd: int,
    output: MessageOutput,
    loader: Loader,
    engine: Engine,
    summary: RunSummary | None = None,
    state_file: StateFile | None = None,
) -> None:
    """Run with a loader and an engine of the caller."""
    widen_pipe(input_fd)
    summary = summary or RunSummary("target-spark")
    # Seconds since the epoch that never go back.
    offset = time.time() - time.monotonic()
    clock: Callable[[], float] = lambda: time.monotonic() + offset  # noqa: E731
    progress = None if CONSOLE.live_after is None else StreamProgress()
    with (
        contextlib.closing(Workers()) as workers,
        caught_signals(workers.wakeup_fd) as signals,
        Staging(config.staging.root) as staging,
        contextlib.nullcontext() if progress is None else contextlib.closing(progress),
    ):
        run_id, failure = summary.run_id, config.failure
        letters = failure.dead_letter_path
        executor = ActionExecutor(
            loader=loader,
            engine=engine,
            staging=staging,
            workers=workers,
            output=output,
            progress=progress,
            dead_letters=None if letters is None else _dead_letters(config, letters, run_id),
            rejections=Rejections(letters),
            summary=summary,
            state_file=state_file,
        )
        loop = _Loop(
            _pipeline(config, run_id, loader, engine),
            Reader(lenient=failure.policy in _LENIENT),
            input_fd,
            executor,
            workers,
            signals,
            StallWatch(
                config.stall_limit_seconds or math.inf,
                clock(),
                heartbeat=config.heartbeat_seconds or math.inf,
            ),
            clock,
            summary,
            progress,
        )
        try:
            loop.run()
            if config.streams or config.transforms.active:
                loader.tell_unmatched()
            loader.check()
        finally:
            if summary.is_read:
                loader.describe(summary)
            executor.close()


def _dead_letters(config: TargetConfig, path: str, run_id: str) -> DeadLetters:
    from target_spark.receive.dead_letters import DeadLetters  # noqa: PLC0415

    return DeadLetters(path, run_id, options=StorageOptions(config.storage_options))


def _pipeline(config: TargetConfig, run_id: str, loader: Loader, engine: Engine) -> Pipeline:
    strategy, failure = config.strategy, config.failure
    rule: FlushRule = SizeAndAge(
        rows=config.batch_size_rows,
        size=config.batch_size_bytes,
        seconds=config.batch_wait_limit_seconds,
    )
    if strategy is not None:
        rule = flush_rule(strategy, config.batch_wait_limit_seconds)
    look = checked if config.validate_records else readable
    plan: Callable[[StreamSchema], LoadPlan | None] = partial(look, loader.plan)
    limits = Limits(
        parallel=min(MOST_JOBS, usable_cores()),
        converts=1 if isinstance(strategy, MegaBatch) and not strategy.parallel else None,
        file_bytes=config.staging.file_bytes,
        staged_bytes=STAGED_BATCHES * config.batch_size_bytes,
        probe=strategy is not None or config.batch_size_rows is not None,
        gathers=engine.is_spark_ready,
    )
    return Pipeline(
        rule,
        limits,
        run_id=run_id,
        plan=plan,
        check_keys=loader.check_keys,
        retries=with_backoff(failure.max_retries, failure.backoff_seconds),
        keep_dead_letters=failure.dead_letter_path is not None,
        cost=CommitCost(partial(_advice, config)),
        audited=config.write_audit_publish
        or any(own.get("expect", {}).get("withhold_state") for own in config.streams.values()),
        publishes=config.write_audit_publish,
        goes_on=config.on_stream_failure == "continue",
        budget=partial(error_budget, config),
        strict_end=config.strict_end,
        creates_empty=config.dry_run is None and config.verification is None,
    )


def _advice(config: TargetConfig, seconds: float) -> Iterator[str]:
    """Yield the bounds of a flush that are too small for the seconds of a commit."""
    if config.strategy is not None:
        yield from cost_warnings(config.strategy, seconds, config.strategy_paths)
        return
    if config.batch_size_rows is not None:
        bounds = FixedSize(config.batch_size_rows, config.batch_wait_limit_seconds)
        yield from cost_warnings(bounds, seconds, _OWN_BOUNDS)
    yield from cost_warnings(MemoryBased(config.batch_size_bytes), seconds, _OWN_BOUNDS)


@dataclass
class _Loop:
    """One run: reads input, passes events to the pipeline and executes its actions."""

    pipeline: Pipeline
    reader: Reader
    input_fd: int
    executor: ActionExecutor
    workers: Workers
    signals: StopSignals
    stall: StallWatch
    clock: Callable[[], float]
    summary: RunSummary
    progress: StreamProgress | None
    _is_idle_reported: bool = field(default=False, init=False)
    _silent_at: float = field(default=math.inf, init=False)
    _messages: Iterator[ev.InputEvent] = field(default=iter(()), init=False)
    _ended: bool = field(default=False, init=False)
    _stop_by: float | None = field(default=None, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def run(self) -> None:
        """Run to the end.

        Raises:
            SingerSparkError: Why the run ended early.
        """
        while not self.pipeline.done:
            if self.stall.deadline <= self.clock():
                self._say_stall()
            if self.signals.error is not None:
                self._stop_soon(self.signals.error)
            while self.workers.answers:
                self.stall.progress(self.clock())
                self._handle(self.workers.answers.popleft())
            if self.pipeline.deadline() <= self.clock():
                self._handle(ev.Tick())
            if self._silent_at <= self.clock():
                self._silent_at = math.inf
                if self.pipeline.has_streams:
                    self.executor.engine.receive(0)
            if not self.pipeline.done:
                self._take_input()
        if self._error is not None:
            raise self._error

    def _say_stall(self) -> None:
        """Say that a run makes no progress, and end it at the limit as if by a signal."""
        now = self.clock()
        beat = self.stall.beat(now, lambda: self.pipeline.waits_for)
        if beat is not None:
            _logger.info("%s", beat)
        warning = self.stall.warning(now)
        if warning is not None:
            _logger.warning("%s", warning)
        self.signals.error = self.signals.error or self.stall.error(now)

    def _stop_soon(self, error: SingerSparkError) -> None:
        """Stop after a signal; raise its error if the run has not ended after `STOP_SECONDS`."""
        if self._stop_by is None:
            self._stop_by = self.clock() + STOP_SECONDS
            self._handle(ev.Stopped(error))
        elif self.clock() >= self._stop_by:
            raise error

    def _take_input(self) -> None:
        """Handle the input read so far, or read more, or sleep until something happens."""
        next_at = self._stop_by
        if next_at is None:
            next_at = min(self.pipeline.deadline(), self.stall.deadline)
        timeout = min(next_at, self._silent_at) - self.clock()
        if not self.pipeline.wants_input:
            self.workers.wait(None, timeout)
        elif not self._take_messages():
            if self._ended:
                self._handle(ev.EndOfInput())
            elif self.workers.wait(self.input_fd, timeout if self._is_idle_reported else 0.0):
                self._is_idle_reported, self._silent_at = False, math.inf
                self._read()
            elif not self._is_idle_reported:
                self._is_idle_reported = True
                self._silent_at = self.clock() + SILENCE_SECONDS
                self._handle(ev.Idle())

    def _take_messages(self) -> bool:
        """Handle the messages of the last read; return False if there are none left."""
        try:
            for message in self._messages:
                self._handle(message)
                if not self.pipeline.wants_input or self.signals.error is not None:
                    return True
        except MessageError as error:
            self._handle(ev.BadInput(error))
            return True
        return False

    def _read(self) -> None:
        try:
            data = os.read(self.input_fd, PIPE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            problem = MessageError(f"the input cannot be read ({error.strerror})")
            self._handle(ev.BadInput(problem))
            return
        self.stall.progress(self.clock())
        self._ended = not data
        self._messages = self.reader.feed(data) if data else self.reader.end()

    def _handle(self, event: ev.Event) -> None:
        problem: SingerSparkError | None = None
        if isinstance(event, _TO_DO):
            self.summary.has_work = True
        if self.progress is not None and isinstance(event, ev.RecordsSeen):
            self.progress.of(event.stream).add(event.lines, len(event.data))
        for action in self.pipeline.handle(event, self.clock()):
            if isinstance(action, ev.CleanUp):
                self._error = action.error
            if problem is not None and isinstance(action, _NOT_AFTER_A_PROBLEM):
                continue
            try:
                self.executor.execute(action)
            except SingerSparkError as error:
                if error is self.signals.error:
                    raise
                problem = problem or error
        if self.pipeline.done:
            self._error = self._error or problem
        elif problem is not None:
            self._handle(ev.Stopped(problem))
