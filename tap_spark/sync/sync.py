"""One run of the tap: streams in the catalog's order, STATE after what it covers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.errors import (
    ClosedPipeError,
    DestinationError,
    InterruptedRunError,
    RecordError,
    SingerSparkError,
    SourceError,
    TerminatedRunError,
    Where,
)
from shared.settings.batch.types import BatchConfig
from shared.singer.logs import Progress
from shared.singer.messages import activate_version_line, schema_line
from shared.singer.metrics import (
    BATCH_COUNT,
    JOB_DURATION,
    RECORD_COUNT,
    SYNC_DURATION,
    Counter,
    Timer,
)
from shared.singer.stdout import MessageOutput
from shared.spark.conf import executors_share_disk
from shared.spark.session import SessionStarter
from shared.spark.spark_errors import explain, explain_environment
from tap_spark.batch.batch_staging import BatchStagingFolder, staging_folder_for
from tap_spark.batch.batch_writer import BatchWriter
from tap_spark.config import TapConfig
from tap_spark.output.line_output import LineOutput
from tap_spark.output.record_writer import ChunkInfo, OnChunk, write_records, write_rows
from tap_spark.output.spark_job import interrupt_all
from tap_spark.output.spool import Spool
from tap_spark.output.state_writer import StateWriter
from tap_spark.planning.discovery import found_catalog
from tap_spark.planning.replication import plan_streams
from tap_spark.sources.source import DriverSource, driver_may_read, source_for
from tap_spark.sources.source_failures import source_error
from tap_spark.sources.source_registry import ON_DRIVER
from tap_spark.state.bookmarks import advance, advance_positions, finish_stream, start_stream
from tap_spark.state.stream_plans import Resume, Slice, StreamPlan
from tap_spark.sync.multiple_outputs import SeveralOutputs
from tap_spark.sync.stream_outputs import Outputs, map_error, outputs_of
from tap_spark.sync.stream_retries import read_with_retries
from tap_spark.sync.stream_threads import run_parallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

ENDED_BY_OTHERS = (ClosedPipeError, InterruptedRunError, TerminatedRunError)
"""After these, standard output may lack a reader."""

Catalog = Mapping[str, Any]
State = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """What the streams of a run share."""

    starter: SessionStarter
    output: LineOutput
    spool: Spool | None
    batch: BatchConfig | None = None
    staging: BatchStagingFolder | None = None
    outputs: Outputs = field(default_factory=Outputs)
    driver_reads: bool = False

    @property
    def spark(self) -> SparkSession:
        """Return the session; start it if nothing has needed it yet."""
        return self.starter.get()

    def batch_of(self, stream: str) -> BatchConfig | None:
        """Return how to write a stream as BATCH; None for RECORD."""
        return self.batch if self.batch is not None and self.batch.covers(stream) else None


@dataclass(frozen=True)
class Planner:
    """Plans the streams of a run, and plans one again after a failure."""

    config: TapConfig
    catalog: Catalog

    def plans(self, state: State) -> tuple[StreamPlan, ...]:
        """Plan every selected stream."""
        return plan_streams(self.config, self.catalog, state, time.time_ns() // 1_000_000)

    def replan(self, plan: StreamPlan, state: State) -> StreamPlan:
        """Plan a stream again, with the current state."""
        wanted = plan.tap_stream_id
        return next(new for new in self.plans(state) if new.tap_stream_id == wanted)


def run_sync(
    config: TapConfig, catalog: Catalog | None, state: State | None, output: MessageOutput
) -> None:
    """Read every selected stream and write its messages.

    Args:
        config: The settings.
        catalog: The selection; None for everything, as discovery finds it.
        state: Where the last run ended; None for the start.
        output: The message stream.

    Raises:
        SourceError: A source, the catalog or the state is wrong; names the stream. Records written
            so far, and their STATE, stay valid.
        SparkStartError: Spark cannot be started, or has stopped.
        DestinationError: The spool folder cannot be written.
        ClosedPipeError: The reader of standard output has closed it.
    """
    state = state or {}
    with Timer(JOB_DURATION), ExitStack() as cleaning:
        run, plans, planner = _prepare(config, catalog, state, output, cleaning)
        state_writer = StateWriter(state, run.output.write, config.state_interval_seconds)

        def attempt(plan: StreamPlan) -> None:
            with explained(plan.stream):
                sync_stream(run, plan, state_writer)

        def replan(plan: StreamPlan) -> StreamPlan:
            return planner.replan(plan, state_writer.state)

        def stop(reason: BaseException) -> None:
            _stop_streams(run, state_writer, reason)

        works = [partial(read_with_retries, plan, attempt, replan) for plan in plans]
        try:
            run_parallel(works, config.parallel_streams, stop)
            state_writer.end()
        except SingerSparkError as error:
            _flush_state(state_writer, error)
            raise


def _stop_streams(run: Run, state_writer: StateWriter, reason: BaseException) -> None:
    """Stop the streams that still run: they neither read nor write any more."""
    _flush_state(state_writer, reason)
    run.output.close()
    session = run.starter.running()
    if session is not None:
        interrupt_all(session)


def _flush_state(state_writer: StateWriter, reason: BaseException) -> None:
    """Write the STATE of what was written, unless that could block."""
    if isinstance(reason, Exception) and not isinstance(reason, ENDED_BY_OTHERS):
        with suppress(Exception):
            state_writer.flush()


def run_test(config: TapConfig, mode: str, catalog: Catalog | None, output: MessageOutput) -> None:
    """Test every selected stream.

    Args:
        config: The settings.
        mode: `schema` writes SCHEMA messages; `all` also at most one RECORD per stream.
        catalog: The selection; None for everything.
        output: The message stream.

    Raises:
        SourceError: Naming every stream that failed.
    """
    failed: list[str] = []
    with ExitStack() as cleaning:
        run, plans, _ = _prepare(config, catalog, {}, output, cleaning)
        for plan in plans:
            try:
                with explained(plan.stream):
                    _try_stream(run, plan, wants_record=mode != "schema")
            except (SourceError, RecordError) as error:
                _logger.error("test failed: %s", error)
                failed.append(plan.stream)
            else:
                _logger.info("test passed: stream '%s'", plan.stream)
    if failed:
        raise SourceError(f"the test failed for {', '.join(map(repr, failed))}")


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
    _logger.info("stream '%s': reading, %s", plan.stream, plan.method.value)
    with (
        Timer(SYNC_DURATION, plan.stream),
        Counter(RECORD_COUNT, plan.stream) as counter,
        Progress(plan.stream) as progress,
    ):
        state_writer.adopt(lambda state: start_stream(state, plan))
        for output in run.outputs.of(plan):
            _write_schema(run, output.plan)
            if first_run:
                _activate(run, output.plan)
        _sync_slices(run, plan, state_writer, _meter(counter, progress))
        for output in run.outputs.of(plan):
            _activate(run, output.plan)
        state_writer.finish(lambda state: _known(finish_stream(state, plan), plan))
    _logger.info("stream '%s': %s records", plan.stream, counter.total)


def _activate(run: Run, plan: StreamPlan) -> None:
    if plan.version is not None:
        run.output.write(activate_version_line(plan.stream, plan.version))


def _sync_slices(
    run: Run, plan: StreamPlan, state_writer: StateWriter, meter: Callable[[ChunkInfo], None]
) -> None:
    source, read_plan = source_for(plan.config), run.outputs.read_plan(plan)
    outputs, batch = run.outputs.of(plan), run.batch_of(plan.stream)
    if isinstance(source, DriverSource):
        plain = batch is None and len(outputs) == 1 and outputs[0].transform is None
        records = plain and run.driver_reads
        rows = source.read_on_driver(read_plan, records=records, start_spark=run.starter.start)
        if rows is not None:
            write_rows(outputs[0].plan, rows, run.output, meter)
            if rows.bookmark is not None:
                state_writer.update(partial(_reached, plan, rows.bookmark))
            return
    slices = source.slices(run.spark, read_plan)
    if len(outputs) > 1:
        several = SeveralOutputs(plan, outputs, state_writer, meter)
        if batch is None:
            several.write_records(run.spark, slices, run.output, run.spool)
        else:
            with Counter(BATCH_COUNT, plan.stream) as counter:
                several.write_files(partial(_files, run, batch), slices, counter)
        return
    slices, own = map(outputs[0].mapped_slice, slices), outputs[0].plan
    if batch is not None:
        _write_files(run, batch, own, slices, state_writer, meter)
        return
    for slice_ in slices:
        on_chunk = _on_chunk(plan, slice_, state_writer, meter)
        write_records(run.spark, own, slice_, run.output, spool=run.spool, on_chunk=on_chunk)
        if slice_.bookmark is not None:
            state_writer.update(partial(_reached, plan, slice_.bookmark))


def _on_chunk(
    plan: StreamPlan, slice_: Slice, state_writer: StateWriter, meter: Callable[[ChunkInfo], None]
) -> OnChunk:
    def on_chunk(chunk: ChunkInfo) -> None:
        meter(chunk)
        if chunk.key is not None:
            value = chunk.key.value
            state_writer.update(lambda state: advance(state, plan, value, ordered=slice_.ordered))

    return on_chunk


def _files(run: Run, batch: BatchConfig, plan: StreamPlan) -> BatchWriter:
    return BatchWriter(
        run.spark, plan, run.output, batch=batch, spool=run.spool, staging=run.staging
    )


def _write_files(
    run: Run,
    batch: BatchConfig,
    plan: StreamPlan,
    slices: Iterator[Slice],
    state_writer: StateWriter,
    meter: Callable[[ChunkInfo], None],
) -> None:
    """Write slices as BATCH; each message is followed by the STATE it makes true, if any."""
    with (
        Counter(BATCH_COUNT, plan.stream) as counter,
        _files(run, batch, plan) as files,
    ):

        def on_file(slice_: Slice) -> OnChunk:
            on_chunk = _on_chunk(plan, slice_, state_writer, meter)

            def report(chunk: ChunkInfo) -> None:
                counter.increment(1 if chunk.rows else 0)
                on_chunk(chunk)
                if slice_.ordered:
                    state_writer.flush()

            return report

        try:
            for slice_ in slices:
                _settle(plan, files.write(slice_, on_file(slice_)), state_writer)
        except (ClosedPipeError, DestinationError):
            raise
        except Exception:
            # Left-over rows of earlier slices are good, and so is the STATE that waits for them.
            with suppress(Exception):
                _settle(plan, files.finish(), state_writer)
            raise
        _settle(plan, files.finish(), state_writer)


def _settle(
    plan: StreamPlan, bookmark: Mapping[str, Any] | None, state_writer: StateWriter
) -> None:
    if bookmark is not None:
        state_writer.update(partial(_reached, plan, bookmark))
        state_writer.flush()


def _reached(plan: StreamPlan, bookmark: Mapping[str, Any], state: State) -> State:
    return advance_positions(state, plan, bookmark)


def _meter(counter: Counter, progress: Progress) -> Callable[[ChunkInfo], None]:
    def count(chunk: ChunkInfo) -> None:
        counter.increment(chunk.rows)
        progress.add(chunk.rows, chunk.size)

    return count


def _known(state: State, plan: StreamPlan) -> dict[str, Any]:
    """Add an empty bookmark if the stream has none: the next run is then not its first."""
    bookmarks = state.get("bookmarks") or {}
    return {**state, "bookmarks": {plan.tap_stream_id: {}, **bookmarks}}


def _write_schema(run: Run, plan: StreamPlan) -> None:
    key = plan.replication_key
    bookmark = (key,) if key is not None and key in (plan.schema.get("properties") or ()) else ()
    line = schema_line(plan.stream, plan.schema, plan.key_properties, bookmark)
    run.output.write(line)


def _try_stream(run: Run, plan: StreamPlan, *, wants_record: bool) -> None:
    """Write the SCHEMA of each output of a stream and, if wanted, its first RECORD."""
    for output in run.outputs.of(plan):
        _write_schema(run, output.plan)
        if not wants_record:
            continue
        for slice_ in source_for(plan.config).slices(run.spark, run.outputs.read_plan(plan)):
            mapped = output.mapped_slice(slice_, keep_filtered=False)
            one = replace(mapped, frame=mapped.frame.limit(1))
            written = write_records(
                run.spark, output.plan, one, run.output, spool=run.spool, on_chunk=lambda _: None
            )
            if written.rows:
                break


def _prepare(
    config: TapConfig,
    catalog: Catalog | None,
    state: State,
    output: MessageOutput,
    cleaning: ExitStack,
) -> tuple[Run, tuple[StreamPlan, ...], Planner]:
    """Plan the streams; start Spark in the background if a stream surely needs it."""
    starter = SessionStarter(config.spark)
    cleaning.callback(starter.stop)
    planner = Planner(config, found_catalog(starter, config) if catalog is None else catalog)
    outputs, plans = outputs_of(config.transforms, planner.plans(state), starter.get)
    if any(map(_needs_spark, plans)):
        starter.start()
    spool = staging = None
    if executors_share_disk(config.spark):
        spool = cleaning.enter_context(Spool(config.spool, jobs=config.parallel_streams))
        staging = staging_folder_for(config.batch)
        if staging is not None:
            cleaning.enter_context(staging)
    lines = LineOutput(output)
    cleaning.callback(lines.close)
    run = Run(starter, lines, spool, config.batch, staging, outputs, driver_may_read(config.spark))
    if not plans:
        _logger.warning("no stream is selected: nothing to read")
    return run, plans, planner


def _needs_spark(plan: StreamPlan) -> bool:
    """Return whether a stream surely needs Spark; the others start it when they turn out to."""
    if plan.resume is Resume.FILE_POSITION:
        return False
    return plan.resume is not Resume.NOTHING or plan.config.format not in ON_DRIVER


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
