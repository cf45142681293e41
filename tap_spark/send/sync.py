"""One run of the tap: streams in the catalog's order, STATE after what it covers.

Streams are read one after another or in parallel, and again after failures that may pass.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shared.engine.engine import Engine, engine_of
from shared.engine.settings import THREADS
from shared.errors import (
    ClosedPipeError,
    DestinationError,
    InterruptedRunError,
    Pauses,
    SettingsError,
    SingerSparkError,
    SourceError,
    TerminatedRunError,
    Where,
    repeated,
)
from shared.singer.datasets import Dataset, schema_fields
from shared.singer.live_lines import Progress
from shared.singer.logs import IN_SUMMARY
from shared.singer.messages import (
    activate_version_line,
    keys_line,
    schema_line,
    state_line,
)
from shared.singer.metrics import (
    JOB_DURATION,
    RECORD_COUNT,
    SYNC_DURATION,
    Counter,
    Timer,
)
from shared.singer.run_summary import RunSummary
from shared.singer.signals import Termination, ends_if_stalled
from shared.singer.stdout import MessageOutput
from shared.spark.both_ends import declare
from shared.spark.connect import executors_share_disk
from shared.spark.spark_errors import explain, explain_environment
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import stream_id
from tap_spark.plan.discovery import discovered_catalog
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
from tap_spark.send.line_output import LineOutput, StateWriter
from tap_spark.send.record_writer import (
    ChunkInfo,
    interrupt_all,
)
from tap_spark.send.slices import (
    Run,
    SliceReader,
    reached,
    sends_all,
    why_spark,
    write_keys,
    write_slices,
)
from tap_spark.send.spool import Spool
from tap_spark.send.stream_outputs import Output, Outputs, map_error, outputs_of
from tap_spark.sources.source import (
    BoundedSource,
    TellingSource,
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
    count_run,
    finish_stream,
    start_stream,
)
from tap_spark.state.stream_plans import (
    Method,
    Resume,
    StreamPlan,
)

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
        """Plan every selected stream."""
        now_ms = time.time_ns() // 1_000_000
        plans = plan_streams(self.config, self.catalog, state, now_ms, self.failed)
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
        config: The settings.
        catalog: The selection; None for everything, as discovery finds it.
        state: Where the last run ended; None for the start.
        output: The message stream.
        options: What to read of it.
        summary: Collects what the run moved.

    Raises:
        SourceError: A source, the catalog or the state is wrong; names the stream. Records written
            so far, and their STATE, stay valid.
        PartialRunError: Streams failed, and the settings continue with the others.
        SparkStartError: Spark cannot be started, or has stopped.
        DestinationError: The spool folder cannot be written.
        ClosedPipeError: The reader of standard output has closed it.
    """
    last_state, state = state, refreshed_state(state or {}, options)
    failures = failures_of(config)
    if options.limit is not None:
        _logger.info("at most %d records of each stream: STATE is not written", options.limit)
    with Timer(JOB_DURATION), ExitStack() as cleaning:
        run, plans, planner = prepared(config, catalog, state, output, cleaning, failures, options)
        run = replace(run, summary=summary or run.summary)
        write = run.output.write if options.reads_all else _ignored
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
            ends_if_stalled(limit, lambda: output.bytes_written, "no message was written"),
        ):
            plans = begun(run, plans, state_writer)
            _read_streams(run, plans, planner, state_writer)
        if run.failures is not None:
            run.failures.raise_if_any(plan.tap_stream_id for plan in plans)
        if options.backfill is not None and options.limit is None and last_state is not None:
            run.output.write(state_line(last_state))


def begun(
    run: Run, plans: Sequence[StreamPlan], state_writer: StateWriter
) -> tuple[StreamPlan, ...]:
    """Fix where streams end; write the STATE that says so, before any record.

    Args:
        run: The session.
        plans: The streams.
        state_writer: The state.

    Returns:
        The plans, with these bookmarks.
    """
    fixed = tuple(_begun(run, plan) for plan in plans)
    for plan, before in zip(fixed, plans, strict=True):
        if plan is not before:
            state_writer.adopt(partial(reached, plan, plan.bookmark))
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

    works = [partial(read, plan) for plan in plans]
    try:
        run_parallel(works, planner.config.parallel_streams, stop)
        state_writer.end()
    except SingerSparkError as error:
        _flush_state(state_writer, error)
        raise


def failures_of(config: TapConfig) -> StreamFailures | None:
    return StreamFailures() if config.on_stream_failure == "continue" else None


def _ignored(_line: bytes) -> None:
    """Stand for standard output if a STATE would not be true."""


def _stop_streams(run: Run, state_writer: StateWriter, reason: BaseException) -> None:
    """Stop the streams that still run: they neither read nor write any more."""
    _flush_state(state_writer, reason)
    run.output.close()
    session = run.engine.running()
    if session is not None:
        interrupt_all(session)


def _flush_state(state_writer: StateWriter, reason: BaseException) -> None:
    """Write the STATE of what was written, unless that could block."""
    if isinstance(reason, Exception) and not isinstance(reason, ENDED_BY_OTHERS):
        with suppress(Exception):
            state_writer.flush()


def sync_stream(run: Run, plan: StreamPlan, state_writer: StateWriter) -> None:
    """Write one stream: SCHEMA, RECORDs, ACTIVATE_VERSION, STATE.

    Args:
        run: The session and standard output.
        plan: The stream.
        state_writer: The state; updated as the stream is written.

    Raises:
        SingerSparkError: See `run_sync`; other errors of Spark pass unchanged.
    """
    first_run = plan.tap_stream_id not in (state_writer.state.get("bookmarks") or {})
    _logger.info("stream '%s': reading, %s", plan.stream, plan.method.value, extra=IN_SUMMARY)
    with (
        run.engine.serving(plan.stream),
        Timer(SYNC_DURATION, plan.stream) as timer,
        Counter(RECORD_COUNT, plan.stream) as counter,
        Progress(plan.stream) as progress,
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
        source_rows = _source_rows(run, plan)
        slices = SliceReader(run, plan, state_writer)
        is_batch = run.batch_of(plan.stream) is not None
        write_slices(slices, _meter(run.summary, plan, counter, progress, is_batch=is_batch))
        source_rows = slices.told_rows if source_rows is None else source_rows
        for output in run.outputs.of(plan):
            _activate(run, output.plan)
        if plan.sends_keys:
            # The rows count even if the target then refuses to delete as many.
            state_writer.adopt(lambda state: finish_stream(state, plan))
            state_writer.flush()
            write_keys(SliceReader(run, plan, state_writer))
        state_writer.finish(
            lambda state: _with_bookmark(count_run(finish_stream(state, plan), plan), plan)
        )
    run.summary.note(plan.stream, seconds=round(timer.seconds, 3))
    used = run.engine.used(plan.stream)
    if used is not None:
        run.summary.note(plan.stream, engine=used[0], engine_reason=used[1])
    by = "" if used is None else f", read by {used[0]} ({used[1]})"
    _logger.info("stream '%s': %s records%s", plan.stream, counter.total, by, extra=IN_SUMMARY)
    if source_rows is not None:
        run.summary.note(plan.stream, source_rows=source_rows)
        if source_rows != counter.total:
            text = "stream '%s': %s records were sent, the source had %s rows when the read began"
            _logger.warning(text, plan.stream, counter.total, source_rows)


def _source_rows(run: Run, plan: StreamPlan) -> int | None:
    """Return how many records a stream should have; None if nothing tells."""
    source = source_for(plan.config)
    is_whole = plan.resume is Resume.NOTHING and plan.end_value is None
    if not (is_whole and sends_all(run, plan) and isinstance(source, TellingSource)):
        return None
    with suppress(OSError, SourceError, ValueError):
        return source.told_rows()
    return None


def _activate(run: Run, plan: StreamPlan) -> None:
    if plan.version is not None:
        run.summary.has_work = True
        run.output.write(activate_version_line(plan.stream, plan.version))


def _meter(
    summary: RunSummary, plan: StreamPlan, counter: Counter, progress: Progress, *, is_batch: bool
) -> Callable[[ChunkInfo], None]:
    def count(chunk: ChunkInfo) -> None:
        if chunk.rows:
            summary.has_work = True
        counter.increment(chunk.rows)
        progress.add(chunk.rows, chunk.size)
        files = {"batch_files": 1} if is_batch and chunk.rows else {}
        summary.add(plan.stream, sent=chunk.rows, bytes=chunk.size, **files)
        summary.moved(chunk.rows)

    return count


def _written(output: Output) -> Dataset:
    return Dataset(output.plan.stream, fields=schema_fields(output.plan.schema))


def _with_bookmark(state: State, plan: StreamPlan) -> dict[str, Any]:
    """Add an empty bookmark if the stream has none: the next run is then not its first."""
    bookmarks = state.get("bookmarks") or {}
    return {**state, "bookmarks": {plan.tap_stream_id: {}, **bookmarks}}


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
        source=None if run.limit is not None else source_name(plan, socket.gethostname()),
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
    declare("tap", config.spark, _why_own_spark(config))
    engine = engine_of(config, config.spark)
    cleaning.callback(engine.stop)
    outputs, plans, planner = planned(engine, config, catalog, state, failures, options)
    spool = staging = None
    if executors_share_disk(config.spark):
        spool = cleaning.enter_context(Spool(config.spool, jobs=config.parallel_streams))
        if config.batch is not None:
            from tap_spark.send.batch_plan import staging_folder_for  # noqa: PLC0415

            staging = staging_folder_for(config.batch)
            cleaning.enter_context(staging or nullcontext())
    lines = LineOutput(output)
    cleaning.callback(lines.close)
    run = Run(
        engine,
        lines,
        spool,
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


def _why_own_spark(config: TapConfig) -> str:
    """Return why both programs cannot share a Spark; empty if they can."""
    if config.engine == THREADS:
        return "`engine: threads` of the tap"
    batch = config.batch
    if batch is None or batch.include_streams or batch.exclude_streams:
        # Tasks that write lines wait until the target has read them.
        return "tasks that write RECORD messages hold the cores that the target needs"
    return ""


def planned(
    engine: Engine,
    config: TapConfig,
    catalog: Catalog | None,
    state: State,
    failures: StreamFailures | None,
    options: RunOptions,
) -> tuple[Outputs, tuple[StreamPlan, ...], Planner]:
    """Plan the streams and their outputs."""
    failed = None if failures is None else failures.report
    if catalog is None:
        catalog = discovered_catalog(engine, chosen_settings(config, options), failed)
    lost = tuple(failures.errors) if failures else ()
    catalog = chosen_catalog(ruled_catalog(catalog, options.rules, lost), options, lost)
    planner = Planner(config, catalog, failed, options)
    sql = partial(engine.session, "SQL in stream maps")
    outputs, plans = outputs_of(config.transforms, planner.plans(state), sql)
    _check_keys(config, outputs, plans)
    if not plans and not (failures and failures.errors):
        _logger.warning("no stream is selected: nothing to read")
    return outputs, plans, planner


def _check_keys(config: TapConfig, outputs: Outputs, plans: Sequence[StreamPlan]) -> None:
    """Raise SettingsError if the keys of a stream cannot be sent, before anything is read."""
    for plan in plans:
        if plan.runs_since_keys is None:
            continue
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
    except OSError:
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
    """Read a stream; retry temporary failures of its source.

    A retry resumes at the current bookmark; a FULL_TABLE stream starts over with a new version.
    Rows written after the bookmark may be written twice.

    Args:
        plan: The stream; its connection's `retries` limit the attempts.
        attempt: Reads it once.
        replan: See `Replan`.
        sleep: Waits for so many seconds.

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
        text = error.message if isinstance(error, SourceError) else str(error)
        _logger.warning(
            "stream '%s': %s; retrying in %.0f s (%d retries left after that)",
            plan.stream,
            text,
            seconds,
            left,
        )

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
        works: The functions, in the order in which they start.
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
        _join(threads)
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


def _join(threads: Iterable[threading.Thread]) -> None:
    until = time.monotonic() + STOP_SECONDS
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, until - time.monotonic()))
