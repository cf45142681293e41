"""One run of the tap: streams in the catalog's order, STATE after what it covers.

Streams are read one after another or in parallel, and again after failures that may pass.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from shared.engine.engine import THREADS, Engine, engine_of
from shared.errors import (
    ClosedPipeError,
    DestinationError,
    InterruptedRunError,
    Pauses,
    SettingsError,
    SingerSparkError,
    SourceError,
    SparkLostError,
    StalledRunError,
    TerminatedRunError,
    Where,
    repeated,
)
from shared.maps.map_settings import NO_TRANSFORMS
from shared.settings.checking import tell_unmatched
from shared.singer.datasets import Dataset, schema_fields
from shared.singer.logs import CONSOLE, IN_SUMMARY
from shared.singer.messages import activate_version_line, keys_line, schema_line, state_line
from shared.singer.metrics import (
    JOB_DURATION,
    RECORD_COUNT,
    SYNC_DURATION,
    Counter,
    Progress,
    timed,
)
from shared.singer.run_summary import RunSummary
from shared.singer.signals import Termination, ends_if_stalled
from shared.singer.stdout import MessageOutput
from shared.spark.conf import SparkSettings, local_cores, scheduling
from shared.spark.connect import executors_share_disk
from shared.spark.running_java import VARIABLE as BOTH_ENDS
from shared.spark.running_java import declare
from shared.spark.spark_errors import LOST, LOST_HINT, explain, explain_environment, is_of_java
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import stream_id
from tap_spark.plan.discovery import discovered_catalog, without_files
from tap_spark.plan.replication import plan_streams, source_name
from tap_spark.plan.run_options import (
    EVERYTHING,
    RunOptions,
    as_asked,
    chosen_catalog,
    chosen_settings,
    refreshed_state,
    ruled_catalog,
)
from tap_spark.send.line_output import ChunkInfo, LineOutput, StateWriter
from tap_spark.send.run import Run, sends_all
from tap_spark.send.slices import why_spark, write_slices
from tap_spark.send.stream_outputs import Output, Outputs, map_error, outputs_of
from tap_spark.sources.formats import source_format
from tap_spark.sources.source import (
    BoundedSource,
    TellingSource,
    driver_source_for,
    source_for,
)
from tap_spark.sources.source_failures import (
    OF_STREAM,
    Report,
    StreamFailures,
    TransientSourceError,
    source_error,
)
from tap_spark.sources.tables import source_datasets
from tap_spark.state.bookmarks import (
    advance_positions,
    end_stream,
    finish_stream,
    start_stream,
)
from tap_spark.state.stream_plans import (
    Method,
    Resume,
    StreamPlan,
)

if TYPE_CHECKING:
    from tap_spark.send.spool import Spool

_logger = logging.getLogger(__name__)
ENDED_BY_OTHERS = (ClosedPipeError, InterruptedRunError, TerminatedRunError)
"""After these, standard output may lack a reader."""
Catalog = Mapping[str, Any]
State = Mapping[str, Any]


@dataclass(frozen=True)
class Planner:
    """Plans the streams of a run, and plans one again after a failure."""

    config: TapConfig
    catalog: Catalog
    failed: Report | None = None
    options: RunOptions = EVERYTHING

    def plans(self, state: State) -> tuple[StreamPlan, ...]:
        now_ms = time.time_ns() // 1_000_000
        plans = plan_streams(self.config, self.catalog, state, now_ms, self.failed)
        if self.options == EVERYTHING:
            return plans
        return tuple(as_asked(plan, self.options) for plan in plans)

    def replan(self, plan: StreamPlan, state: State) -> StreamPlan:
        """Plan a stream again, with the current state."""
        entries = [e for e in self.catalog["streams"] if stream_id(e) == plan.tap_stream_id]
        return replace(self, catalog={"streams": entries}, failed=None).plans(state)[0]


def run_sync(
    config: TapConfig,
    catalog: Catalog | None,
    state: State | None,
    output: MessageOutput,
    options: RunOptions = EVERYTHING,
    summary: RunSummary | None = None,
) -> None:
    """Read every selected stream and write its messages.

    Args:
        catalog: The selection; None for everything, as discovery finds it.
        state: Where the last run ended; None for the start.

    Raises:
        SourceError: A source, the catalog or the state is wrong; names the stream. Records written
            so far, and their STATE, stay valid.
        PartialRunError: Streams failed, and the settings continue with the others.
        SparkStartError: Spark cannot be started, or has stopped.
        DestinationError: The spool folder cannot be written.
        ClosedPipeError: The reader of standard output has closed it.
    """
    last_state, state = state, state or {}
    failures = failures_of(config)
    if options.limit is not None:
        _logger.info("at most %d records of each stream: STATE is not written", options.limit)
    with timed(JOB_DURATION), ExitStack() as cleaning:
        refreshed = refreshed_state(state, options) if state else state
        run, plans, planner = prepared(
            config, catalog, refreshed, output, cleaning, failures, options
        )
        names = {plan.tap_stream_id for plan in plans} | {*(failures.errors if failures else ())}
        state = refreshed_state(state, options, names) if state else state
        run = replace(run, summary=summary or run.summary)
        # A STATE that would not be true is not written.
        write = run.output.write if options.reads_all else lambda _: None
        termination = Termination()
        with_bookmarks = {**state, "bookmarks": state.get("bookmarks") or {}}
        state_writer = StateWriter(
            with_bookmarks, write, config.state_interval_seconds, termination=termination
        )
        # Without bookmarks, there is nothing to wait for.
        resumes = any(plan.resume is not Resume.NOTHING for plan in plans)
        limit = config.stall_limit_seconds
        with (
            termination.on_sigterm() if resumes else nullcontext(),
            ends_if_stalled(limit, lambda: output.bytes_written, "no message was written")
            if limit
            else nullcontext(),
        ):
            if any(plan.resume is Resume.LOG_POSITION for plan in plans):
                plans = begun(run, plans, state_writer)
            _read_streams(run, plans, planner, state_writer)
        if run.failures is not None:
            run.failures.raise_if_any(plan.tap_stream_id for plan in plans)
        is_same = options.backfill is not None or not plans
        if is_same and options.limit is None and last_state is not None:
            run.output.write(state_line(last_state))


def begun(
    run: Run, plans: Sequence[StreamPlan], state_writer: StateWriter
) -> tuple[StreamPlan, ...]:
    """Fix where streams end; write the STATE that says so, before any record.

    Returns:
        The plans, with these bookmarks.
    """
    fixed = tuple(_begun(run, plan) for plan in plans)
    for plan, before in zip(fixed, plans, strict=True):
        if plan is not before:
            state_writer.adopt(partial(advance_positions, plan, plan.bookmark))
    if fixed != tuple(plans):
        state_writer.flush()
    return fixed


def _begun(run: Run, plan: StreamPlan) -> StreamPlan:
    source = source_for(plan.config) if plan.resume is Resume.LOG_POSITION else None
    if not isinstance(source, BoundedSource):
        return plan
    # What fails here fails again when the stream is read, which reports it.
    with suppress(SourceError):
        bookmark = source.begin(run.spark, plan)
        return plan if bookmark is None else replace(plan, bookmark=bookmark)
    return plan


def _read_streams(
    run: Run, plans: Sequence[StreamPlan], planner: Planner, state_writer: StateWriter
) -> None:
    """Write every stream; go on after failures if the run collects them."""
    ending = threading.Event()

    def attempt(plan: StreamPlan) -> None:
        with explained(plan.stream):
            sync_stream(run, plan, state_writer)

    def replan(plan: StreamPlan) -> StreamPlan:
        return planner.replan(plan, state_writer.state)

    def read(plan: StreamPlan) -> None:
        try:
            if plan.config.database is None:
                with explained(plan.stream):
                    sync_stream(run, plan, state_writer)
            else:
                read_with_retries(plan, attempt, replan)
        except OF_STREAM as error:
            if run.failures is None or ending.is_set():
                raise
            run.failures.report(plan.tap_stream_id, error)
            run.summary.note(plan.stream, error=" ".join(str(error).split()))
            for output in run.outputs.of(plan):
                write_schema(run, output.plan, has_failed=True)
            state_writer.adopt(lambda state: start_stream(state, plan))
            state_writer.flush()

    def stop(reason: BaseException) -> None:
        ending.set()
        _stop_streams(run, state_writer, reason)

    at_once = planner.config.parallel_streams
    try:
        if at_once > 1:
            run_parallel([partial(read, plan) for plan in plans], at_once, stop)
        else:
            for plan in plans:
                read(plan)
        state_writer.end()
    except SingerSparkError as error:
        _flush_state(run, state_writer, error)
        raise


def failures_of(config: TapConfig) -> StreamFailures | None:
    """Return what collects failures of streams; None if the first one ends the run."""
    return StreamFailures() if config.on_stream_failure == "continue" else None


def _stop_streams(run: Run, state_writer: StateWriter, reason: BaseException) -> None:
    """Stop the streams that still run: they neither read nor write any more."""
    _flush_state(run, state_writer, reason)
    run.output.close()
    session = run.engine.running()
    if session is not None:
        from tap_spark.send.record_writer import interrupt_all  # noqa: PLC0415

        interrupt_all(session)


def _flush_state(run: Run, state_writer: StateWriter, reason: BaseException) -> None:
    """Write the STATE of what was written, unless that could block."""
    is_stuck = isinstance(reason, StalledRunError) and run.output.is_writing
    if isinstance(reason, Exception) and not (is_stuck or isinstance(reason, ENDED_BY_OTHERS)):
        with suppress(Exception):
            state_writer.flush()


def sync_stream(run: Run, plan: StreamPlan, state_writer: StateWriter) -> None:
    """Write one stream: SCHEMA, RECORDs, ACTIVATE_VERSION, STATE.

    Raises:
        SingerSparkError: See `run_sync`; other errors of Spark pass unchanged.
    """
    first_run = plan.tap_stream_id not in (state_writer.state.get("bookmarks") or {})
    _logger.info("stream '%s': reading, %s", plan.stream, plan.method.value, extra=IN_SUMMARY)
    with (
        run.engine.serving(plan.stream),
        timed(SYNC_DURATION, plan.stream) as seconds,
        Counter(RECORD_COUNT, plan.stream) as counter,
        nullcontext() if CONSOLE.live_after is None else Progress(plan.stream) as progress,
    ):
        state_writer.adopt(lambda state: start_stream(state, plan))
        for output in run.outputs.of(plan):
            write_schema(run, output.plan)
            if plan.runs_since_keys is not None:
                run.output.write(keys_line(output.plan.stream))
            # The old rows may have to stay, if the stream then fails and the run goes on.
            if first_run and run.failures is None:
                _activate(run, output.plan)
        run.summary.note(plan.stream, method=plan.method.value)
        if run.summary.is_observed:
            outputs = run.outputs.of(plan)
            run.summary.uses(plan.stream, lambda: source_datasets(plan, run.engine.conf))
            run.summary.uses(plan.stream, lambda: map(_written, outputs), is_output=True)
        is_whole = plan.resume is Resume.NOTHING
        source = (driver_source_for if is_whole else source_for)(plan.config)
        told_rows = _told_rows(run, plan, source) if isinstance(source, TellingSource) else None
        is_batch = run.batch_of(plan.stream) is not None
        meter = partial(_count, run.summary, plan, counter, progress, is_batch=is_batch)
        slice_rows = write_slices(run, plan, source, state_writer, meter)
        source_rows = slice_rows if told_rows is None else told_rows
        for output in run.outputs.of(plan):
            _activate(run, output.plan)
        if plan.sends_keys:
            # The rows count even if the target then refuses to delete as many.
            state_writer.adopt(lambda state: finish_stream(state, plan))
            state_writer.flush()
            from tap_spark.send.spark_slices import write_keys  # noqa: PLC0415

            write_keys(run, plan, source)
        state_writer.finish(lambda state: end_stream(state, plan))
    run.summary.note(plan.stream, seconds=round(seconds(), 3))
    used = run.engine.used.get(plan.stream)
    if used is not None:
        run.summary.note(plan.stream, engine=used[0], engine_reason=used[1])
    by = "" if used is None else f", read by {used[0]} ({used[1]})"
    _logger.info("stream '%s': %s records%s", plan.stream, counter.total, by, extra=IN_SUMMARY)
    if source_rows is not None:
        run.summary.note(plan.stream, source_rows=source_rows)
        if source_rows != counter.total:
            text = "stream '%s': %s records were sent, the source had %s rows when the read began"
            _logger.warning(text, plan.stream, counter.total, source_rows)


def _told_rows(run: Run, plan: StreamPlan, source: TellingSource) -> int | None:
    """Return how many records a stream should have; None if the source does not tell."""
    is_whole = plan.resume is Resume.NOTHING and plan.end_value is None
    if not (is_whole and sends_all(run, plan)):
        return None
    with suppress(OSError, SourceError, ValueError):
        return source.told_rows()
    return None


def _activate(run: Run, plan: StreamPlan) -> None:
    if plan.version is not None and run.limit is None:
        run.summary.has_work = True
        run.output.write(activate_version_line(plan.stream, plan.version))


def _count(
    summary: RunSummary,
    plan: StreamPlan,
    counter: Counter,
    progress: Progress | None,
    chunk: ChunkInfo,
    *,
    is_batch: bool,
) -> None:
    """Count lines, or a batch file, that have been written."""
    if chunk.rows:
        summary.has_work = True
    counter.increment(chunk.rows)
    if progress is not None:
        progress.add(chunk.rows, chunk.size)
    if summary.is_read:
        files = {"batch_files": 1} if is_batch and chunk.rows else {}
        summary.add(plan.stream, sent=chunk.rows, bytes=chunk.size, **files)
        summary.moved(chunk.rows)


def _written(output: Output) -> Dataset:
    return Dataset(output.plan.stream, fields=schema_fields(output.plan.schema))


def write_schema(run: Run, plan: StreamPlan, *, has_failed: bool = False) -> None:
    key = plan.replication_key
    bookmark = (key,) if key is not None and key in (plan.schema.get("properties") or ()) else ()
    line = schema_line(
        plan.stream,
        plan.schema,
        plan.key_properties,
        bookmark,
        has_failed=has_failed,
        has_bookmark=not bookmark and plan.method is not Method.FULL_TABLE,
        source=source_name(plan, socket.gethostname()),
    )
    run.output.write(line)


def prepared(
    config: TapConfig,
    catalog: Catalog | None,
    state: State,
    output: MessageOutput,
    cleaning: ExitStack,
    failures: StreamFailures | None = None,
    options: RunOptions = EVERYTHING,
) -> tuple[Run, tuple[StreamPlan, ...], Planner]:
    """Plan the streams; start Spark in the background if a stream surely needs it."""
    spark = _spark_of(config)
    if BOTH_ENDS in os.environ:
        apart = "`engine: threads` of the tap" if config.engine == THREADS else ""
        declare("tap", spark, apart, _waiting_tasks(config))
    engine = engine_of(config, spark)
    cleaning.callback(engine.stop)
    outputs, plans, planner = planned(engine, config, catalog, state, failures, options)
    staging = None
    if config.batch is not None and executors_share_disk(config.spark):
        from tap_spark.send.batch_plan import staging_folder_for  # noqa: PLC0415

        staging = staging_folder_for(config.batch)
        cleaning.enter_context(staging or nullcontext())
    lines = LineOutput(output)
    cleaning.callback(lines.close)
    run = Run(
        engine,
        lines,
        # Streams that begin at the same time may each create one: its limit is that of a stream.
        cache(partial(_spool, config, cleaning)),
        config.batch,
        staging,
        outputs,
        failures,
        options.limit,
        config.spool.root,
    )
    for plan in plans:
        why = why_spark(run, plan)
        # With positions in files, there may be nothing to read.
        if why and (plan.resume is not Resume.FILE_POSITION or plan.sends_keys):
            engine.needs(why, plan.stream)
            engine.start()
    return run, plans, planner


def _spool(config: TapConfig, cleaning: ExitStack) -> Spool | None:
    """Create the spool; None if executors do not share a disk with this process."""
    from tap_spark.send.spool import Spool  # noqa: PLC0415

    if not executors_share_disk(config.spark):
        return None
    return cleaning.enter_context(Spool(config.spool, jobs=config.parallel_streams))


def _spark_of(config: TapConfig) -> SparkSettings:
    """Return how to start Spark, whose Java only schedules tasks if no row of the tap passes it."""
    forms = [source_format(stream.format) for stream in config.streams]
    are_alone = all(form is not None and form.has_tasks_alone for form in forms)
    return scheduling(
        config.spark, are_alone and not (config.connections or config.transforms.active)
    )


def _waiting_tasks(config: TapConfig) -> int:
    """Return how many tasks that write RECORD lines may wait for the target at a time."""
    batch, jobs = config.batch, config.parallel_streams
    if batch is not None and not (batch.include_streams or batch.exclude_streams):
        return 0
    # Half of the cores: the target needs as much work for a line.
    return max(1, local_cores(config.spark) // 2 // jobs) * jobs


def planned(
    engine: Engine,
    config: TapConfig,
    catalog: Catalog | None,
    state: State,
    failures: StreamFailures | None,
    options: RunOptions,
) -> tuple[Outputs, tuple[StreamPlan, ...], Planner]:
    failed = None if failures is None else failures.report
    is_limited, is_discovered = options != EVERYTHING, catalog is None
    empty: list[str] = []
    # 1. The catalog: discovered without streams whose files are gone, or cut to the run's options.
    if catalog is None:
        chosen = chosen_settings(config, options) if is_limited else config
        if state:
            empty = without_files((s for s in chosen.streams if s.is_incremental), state)
        streams = tuple(stream for stream in chosen.streams if stream.name not in empty)
        catalog = discovered_catalog(engine, replace(chosen, streams=streams), failed)
    if is_limited:
        lost = (*empty, *(failures.errors if failures else ()))
        catalog = chosen_catalog(ruled_catalog(catalog, options.rules, lost), options, lost)
    # 2. How each stream is read. One whose files are gone keeps its bookmark.
    planner = Planner(config, catalog, failed, options)
    outputs, plans = Outputs(), planner.plans(state)
    if state and not is_discovered:
        resumed = (plan.config for plan in plans if plan.method is Method.INCREMENTAL)
        empty = without_files(resumed, state)
        plans = tuple(plan for plan in plans if plan.tap_stream_id not in empty)
    # 3. What maps make of the streams. They may name streams that this run does not read.
    if config.transforms is not NO_TRANSFORMS and config.transforms.active:
        sql = partial(engine.session, "SQL in stream maps")
        names = [*empty, *(plan.stream for plan in plans)]
        names += map(str, map(stream_id, catalog["streams"]))
        outputs, plans = outputs_of(config.transforms, plans, sql)
        if not is_limited and not (failures and failures.errors):
            tell_unmatched("stream_maps", config.transforms.maps.patterns, names)
    if keyed := [plan for plan in plans if plan.runs_since_keys is not None]:
        _check_keys(config, outputs, keyed)
    if not plans and not empty and not (failures and failures.errors):
        _logger.warning("no stream is selected: nothing to read")
    return outputs, plans, planner


def _check_keys(config: TapConfig, outputs: Outputs, plans: Sequence[StreamPlan]) -> None:
    """Raise SettingsError if the keys of a stream cannot be sent, before anything is read."""
    for plan in plans:
        where = Where(stream=plan.stream, setting="deletes")
        if config.batch is None or not config.batch.covers(plan.stream):
            hint = "set `batch_config`, or remove the setting"
            raise SettingsError("keys are sent in batch files", where=where, hint=hint)
        if not all(output.plan.key_properties for output in outputs.of(plan)):
            hint = "let `stream_maps` keep the keys, or remove the setting"
            raise SettingsError("needs key properties", where=where, hint=hint)


@contextmanager
def explained(stream: str) -> Iterator[None]:
    """Convert errors that Spark raises to errors that name the stream."""
    where = Where(stream=stream)
    try:
        yield
    except (ClosedPipeError, DestinationError):
        raise
    except SingerSparkError as error:
        raise explain(error, where) from error.__cause__
    except OSError as error:
        if is_of_java(error):
            raise SparkLostError(LOST, where=where, hint=LOST_HINT) from error
        raise
    except Exception as error:
        mapped = map_error(error)
        raise mapped or explain_environment(error, where) or source_error(stream, error) from error


FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0

Replan = Callable[[StreamPlan], StreamPlan]
"""Plans the stream again: with the current bookmark, and a new version."""


def read_with_retries(
    plan: StreamPlan,
    attempt: Callable[[StreamPlan], None],
    replan: Replan,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Read a stream; retry temporary failures of its source, by the `retries` of its connection.

    A retry resumes at the current bookmark; a FULL_TABLE stream starts over with a new version.
    Rows written after the bookmark may be written twice.

    Raises:
        SourceError: No retries are left, or a retry cannot help.
    """
    database = plan.config.database
    retries = 0 if database is None else database.retries

    def work(number: int) -> None:
        nonlocal plan
        plan = replan(plan) if number else plan
        attempt(plan)

    def report(error: Exception, seconds: float, left: int) -> None:
        reason = error.message if isinstance(error, SourceError) else str(error)
        text = "stream '%s': %s; retrying in %.0f s (%d retries left after that)"
        _logger.warning(text, plan.stream, reason, seconds, left)

    repeated(
        work,
        lambda error: isinstance(error, TransientSourceError),
        attempts=retries + 1,
        pauses=Pauses(LONGEST_SECONDS, first=FIRST_SECONDS, least=0.5),
        report=report,
        sleep=sleep,
    )


STOP_SECONDS = 5.0
Work = Callable[[], None]


def run_parallel(
    works: Iterable[Work], at_once: int, stop: Callable[[BaseException], None]
) -> None:
    """Run every function, at most `at_once` at the same time.

    Args:
        at_once: Number of threads; 1 runs them in the caller's own thread.
        stop: Called once, with the reason, when a function failed or the caller is interrupted;
            makes the running functions fail soon. The others are not started.

    Raises:
        BaseException: The first failure of a function, or the interruption.
    """
    waiting = deque(works)
    if min(at_once, len(waiting)) <= 1:
        for work in waiting:
            work()
        return
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=_take, args=(waiting, ended), name=f"stream-{number}", daemon=True)
        for number in range(min(at_once, len(waiting)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            error = ended.get()
            if error is not None:
                raise error
    except BaseException as failure:
        waiting.clear()
        stop(failure)
        until = time.monotonic() + STOP_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        raise


def _take(waiting: deque[Work], ended: queue.SimpleQueue[BaseException | None]) -> None:
    try:
        while True:
            try:
                work = waiting.popleft()
            except IndexError:
                break
            work()
    except BaseException as error:
        ended.put(error)
    else:
        ended.put(None)
