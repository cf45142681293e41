"""One run of the tap: streams in the catalog's order, STATE after what it covers."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.engine.engine import Engine, engine_of
from shared.engine.settings import THREADS
from shared.errors import (
    DISK_FULL,
    ClosedPipeError,
    DestinationError,
    InterruptedRunError,
    RecordError,
    SettingsError,
    SingerSparkError,
    SourceError,
    TerminatedRunError,
    Where,
)
from shared.run_summary import RunSummary
from shared.settings.batch.batch_settings import BatchConfig
from shared.sigterm import Termination
from shared.singer.live_lines import Progress
from shared.singer.logs import IN_SUMMARY
from shared.singer.messages import (
    activate_version_line,
    keys_line,
    schema_line,
    state_line,
)
from shared.singer.metrics import (
    BATCH_COUNT,
    JOB_DURATION,
    RECORD_COUNT,
    SYNC_DURATION,
    Counter,
    Timer,
)
from shared.singer.stdout import MessageOutput
from shared.spark.shared_disk import executors_share_disk
from shared.spark.spark_errors import explain, explain_environment
from shared.stall_watch import ends_if_stalled
from shared.storage.urls import local_path
from shared.telemetry.run_observer import Dataset, schema_fields
from tap_spark.batch.batch_staging import BatchStagingFolder, staging_folder_for
from tap_spark.batch.batch_writer import BatchWriter
from tap_spark.batch.key_writer import KeyWriter
from tap_spark.config import TapConfig
from tap_spark.output.held_records import held
from tap_spark.output.line_output import LineOutput
from tap_spark.output.record_writer import ChunkInfo, OnChunk, write_records, write_rows
from tap_spark.output.spark_job import interrupt_all
from tap_spark.output.spool import Spool
from tap_spark.output.state_writer import StateWriter
from tap_spark.planning.catalog import stream_id
from tap_spark.planning.catalog_rules import ruled_catalog
from tap_spark.planning.discovery import found_catalog
from tap_spark.planning.plan_lines import FileFacts, plan_line
from tap_spark.planning.replication import plan_streams
from tap_spark.planning.run_options import (
    EVERYTHING,
    RunOptions,
    as_asked,
    chosen_catalog,
    chosen_settings,
    refreshed_state,
)
from tap_spark.planning.source_names import source_name
from tap_spark.planning.stream_failures import OF_STREAM, Report, StreamFailures
from tap_spark.sources.source import (
    BoundedSource,
    DriverSource,
    Source,
    TellingSource,
    source_for,
)
from tap_spark.sources.source_datasets import source_datasets
from tap_spark.sources.source_failures import all_of, source_error
from tap_spark.sources.source_registry import source_format
from tap_spark.state.bookmarks import (
    advance,
    advance_positions,
    count_run,
    finish_stream,
    start_stream,
)
from tap_spark.state.stream_plans import (
    MOST_THREADS,
    DriverBlocks,
    DriverRows,
    Method,
    Resume,
    RowForm,
    Slice,
    StreamPlan,
)
from tap_spark.sync.multiple_outputs import SeveralOutputs
from tap_spark.sync.row_limits import first_rows, first_slices
from tap_spark.sync.stream_outputs import Output, Outputs, map_error, outputs_of
from tap_spark.sync.stream_retries import read_with_retries
from tap_spark.sync.stream_threads import run_parallel

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

ENDED_BY_OTHERS = (ClosedPipeError, InterruptedRunError, TerminatedRunError)
"""After these, standard output may lack a reader."""

UNSURE = "what the files hold, which Spark may read in another way"

Catalog = Mapping[str, Any]
State = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """What the streams of a run share."""

    engine: Engine
    output: LineOutput
    spool: Spool | None
    batch: BatchConfig | None = None
    staging: BatchStagingFolder | None = None
    outputs: Outputs = field(default_factory=Outputs)
    failures: StreamFailures | None = None
    limit: int | None = None
    spool_root: str | None = None
    summary: RunSummary = field(default_factory=partial(RunSummary, "tap-spark"))

    @property
    def spark(self) -> SparkSession:
        """Return the session; start it if nothing has needed it yet."""
        return self.engine.session()

    def batch_of(self, stream: str) -> BatchConfig | None:
        """Return how to write a stream as BATCH; None for RECORD."""
        return self.batch if self.batch is not None and self.batch.covers(stream) else None


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
    given, state = state, refreshed_state(state or {}, options)
    failures = _failures(config)
    if options.limit is not None:
        _logger.info("at most %d records of each stream: STATE is not written", options.limit)
    with Timer(JOB_DURATION), ExitStack() as cleaning:
        run, plans, planner = _prepare(config, catalog, state, output, cleaning, failures, options)
        run = replace(run, summary=summary or run.summary)
        write = run.output.write if options.reads_all else _ignored
        termination = Termination()
        known = {**state, "bookmarks": state.get("bookmarks") or {}}
        state_writer = StateWriter(
            known, write, config.state_interval_seconds, termination=termination
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
        if options.backfill is not None and options.limit is None and given is not None:
            run.output.write(state_line(given))


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
    found = tuple(_begun(run, plan) for plan in plans)
    for plan, before in zip(found, plans, strict=True):
        if plan is not before:
            state_writer.adopt(partial(_reached, plan, plan.bookmark))
    if found != tuple(plans):
        state_writer.flush()
    return found


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
                _write_schema(run, output.plan, has_failed=True)
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


def dry_run(
    config: TapConfig,
    catalog: Catalog | None,
    state: State | None,
    options: RunOptions = EVERYTHING,
) -> None:
    """Log what a run would read of each stream; start Spark only if the plan needs it.

    Args:
        config: The settings.
        catalog: The selection; None for everything.
        state: Where the last run ended; None for the start.
        options: What to read of it.

    Raises:
        SourceError: A source, the catalog or the state is wrong; names every stream.
        PartialRunError: The same, if the settings continue with other streams.
    """
    failures = _failures(config)
    errors: list[SourceError] = []
    engine = engine_of(config, config.spark)
    try:
        state = refreshed_state(state or {}, options)
        _, plans, _ = _planned(engine, config, catalog, state, failures, options)
        for plan in plans:
            try:
                _logger.info("%s", plan_line(plan, _file_facts(plan)))
            except SourceError as error:
                errors.append(error)
                if failures is not None:
                    failures.report(plan.tap_stream_id, error)
    finally:
        engine.stop()
    if failures is not None:
        failures.raise_if_any(plan.tap_stream_id for plan in plans)
    elif errors:
        raise all_of(errors)


def _file_facts(plan: StreamPlan) -> FileFacts | None:
    """List the files of a stream; None if it has none, or only Spark may have access to them."""
    from tap_spark.sources.files.file_source import FileSource  # noqa: PLC0415
    from tap_spark.sources.files.paths import list_files  # noqa: PLC0415
    from tap_spark.sources.files.resumable_files import new_bytes  # noqa: PLC0415

    source = source_for(plan.config)
    if not isinstance(source, FileSource):
        return None
    resumes = plan.resume is Resume.FILE_POSITION
    if not resumes and any(local_path(path) is None for path in source.paths):
        return None
    with _reading(plan):
        files = list_files(tuple(source.paths))
    new = new_bytes(plan, files) if resumes else None
    return FileFacts(len(files), sum(file.size for file in files), new)


def _failures(config: TapConfig) -> StreamFailures | None:
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


def run_test(
    config: TapConfig,
    mode: str,
    catalog: Catalog | None,
    output: MessageOutput,
    options: RunOptions = EVERYTHING,
) -> None:
    """Test every selected stream.

    Args:
        config: The settings.
        mode: `schema` writes SCHEMA messages; `all` also at most one RECORD per stream.
        catalog: The selection; None for everything.
        output: The message stream.
        options: Which of the streams.

    Raises:
        SourceError: Naming every stream that failed.
    """
    failed: list[str] = []
    with ExitStack() as cleaning:
        run, plans, _ = _prepare(config, catalog, {}, output, cleaning, None, options)
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
    _logger.info("stream '%s': reading, %s", plan.stream, plan.method.value, extra=IN_SUMMARY)
    with (
        run.engine.serving(plan.stream),
        Timer(SYNC_DURATION, plan.stream) as timer,
        Counter(RECORD_COUNT, plan.stream) as counter,
        Progress(plan.stream) as progress,
    ):
        state_writer.adopt(lambda state: start_stream(state, plan))
        for output in run.outputs.of(plan):
            _write_schema(run, output.plan)
            if plan.runs_since_keys is not None:
                run.output.write(keys_line(output.plan.stream))
            # The old rows may have to stay, if the stream then fails and the run goes on.
            if first_run and run.failures is None:
                _activate(run, output.plan)
        run.summary.note(plan.stream, method=plan.method.value)
        run.summary.uses(plan.stream, lambda: source_datasets(plan, run.engine.conf))
        made = run.outputs.of(plan)
        run.summary.uses(plan.stream, lambda: map(_written, made), is_output=True)
        told = _told_rows(run, plan)
        slices = _SliceReader(run, plan, state_writer)
        is_batch = run.batch_of(plan.stream) is not None
        _sync_slices(slices, _meter(run.summary, plan, counter, progress, is_batch=is_batch))
        told = slices.told_rows if told is None else told
        for output in run.outputs.of(plan):
            _activate(run, output.plan)
        if plan.sends_keys:
            # The rows count even if the target then refuses to delete as many.
            state_writer.adopt(lambda state: finish_stream(state, plan))
            state_writer.flush()
            _send_keys(_SliceReader(run, plan, state_writer))
        state_writer.finish(lambda state: _known(count_run(finish_stream(state, plan), plan), plan))
    run.summary.note(plan.stream, seconds=round(timer.seconds, 3))
    used = run.engine.used(plan.stream)
    if used is not None:
        run.summary.note(plan.stream, engine=used[0], engine_reason=used[1])
    by = "" if used is None else f", read by {used[0]} ({used[1]})"
    _logger.info("stream '%s': %s records%s", plan.stream, counter.total, by, extra=IN_SUMMARY)
    if told is not None:
        run.summary.note(plan.stream, source_rows=told)
        if told != counter.total:
            text = "stream '%s': %s records were sent, the source had %s rows when the read began"
            _logger.warning(text, plan.stream, counter.total, told)


def _send_keys(reader: _SliceReader) -> None:
    """Write the keys of all rows that the source has, one message for each output."""
    run, plan = reader.run, reader.plan
    batch, source = run.batch_of(plan.stream), source_for(plan.config)
    if batch is None:
        return
    whole_files = replace(batch, batch_size=None)
    for output, slices in run.outputs.key_slices(plan, partial(reader.slices, source)):
        with _files(run, whole_files, output.plan, KeyWriter) as files:
            for slice_ in slices:
                files.write(slice_, lambda _: None)
            files.finish()
        rows = files.written.rows
        _logger.info("stream '%s': sent the keys of %s rows", output.plan.stream, rows)


def _told_rows(run: Run, plan: StreamPlan) -> int | None:
    """Return how many records a stream should have; None if nothing tells."""
    source = source_for(plan.config)
    is_whole = plan.resume is Resume.NOTHING and plan.end_value is None
    if not (is_whole and _sends_all(run, plan) and isinstance(source, TellingSource)):
        return None
    with suppress(OSError, SourceError, ValueError):
        return source.told_rows()
    return None


def _sends_all(run: Run, plan: StreamPlan) -> bool:
    """Return whether each row that is read becomes one record."""
    outputs = run.outputs.of(plan)
    return run.limit is None and len(outputs) == 1 and outputs[0].transform is None


def _activate(run: Run, plan: StreamPlan) -> None:
    if plan.version is not None:
        run.summary.has_work = True
        run.output.write(activate_version_line(plan.stream, plan.version))


def _sync_slices(reader: _SliceReader, meter: Callable[[ChunkInfo], None]) -> None:
    run, plan, state_writer = reader.run, reader.plan, reader.state_writer
    source, read_plan = source_for(plan.config), run.outputs.read_plan(plan)
    outputs, batch = run.outputs.of(plan), run.batch_of(plan.stream)
    why = why_spark(run, plan)
    if isinstance(source, DriverSource):
        form = None if why else RowForm.RECORDS if batch is None else RowForm.BLOCKS
        with _reading(plan):
            rows = source.read_on_driver(read_plan, form, run.engine)
        if rows is not None and _written_on_driver(run, outputs[0], rows, batch, meter):
            if rows.newest is not None:
                newest = rows.newest()
                state_writer.update(lambda state: advance(state, plan, newest, ordered=False))
            elif rows.blocks is not None:
                _settle(plan, rows.bookmark, state_writer)
            elif rows.bookmark is not None:
                state_writer.update(partial(_reached, plan, rows.bookmark))
            return
    run.engine.session(why or UNSURE)
    slices = reader.slices(source, read_plan)
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


def why_spark(run: Run, plan: StreamPlan) -> str:
    """Return why only Spark can read a stream, as far as its plan tells; empty if threads may.

    Args:
        run: The outputs and settings.
        plan: The stream.
    """
    outputs, batch = run.outputs.of(plan), run.batch_of(plan.stream)
    form, has_key = source_format(plan.config.format), plan.resume is Resume.REPLICATION_KEY
    takes_keys = form is not None and form.keys_on_driver
    reasons = (
        (form is None or not form.on_driver, f"format {plan.config.format}"),
        (not run.engine.may_read, "a Spark that reads by other rules"),
        (has_key and not takes_keys, "a replication key"),
        (plan.resume is Resume.LOG_POSITION, "a log of changes"),
        (len(outputs) > 1, "several outputs of a stream"),
        (plan.sends_keys, "the keys of all rows"),
    )
    why = next((reason for applies, reason in reasons if applies), "")
    if why:
        return why
    if batch is not None:
        return _why_files(run, outputs[0], batch)
    return "" if outputs[0].transform is None else "stream maps or flattening of RECORD messages"


def _why_files(run: Run, output: Output, batch: BatchConfig) -> str:
    from shared.formats.file_formats import FORMATS  # noqa: PLC0415

    if FORMATS[batch.format].text:
        return f"batch files of {batch.format}"
    # Files with an exact number of rows take a second pass, over the rows left over.
    if batch.batch_size is not None or run.limit is not None:
        return "batch files with an exact number of rows"
    if output.transform is None:
        return ""
    from tap_spark.sync.mapped_blocks import block_map  # noqa: PLC0415

    return "" if block_map(output) is not None else "a stream map that is not computed over Arrow"


def _sure(run: Run, rows: DriverRows) -> AbstractContextManager[Iterable[pa.StringArray] | None]:
    """Hold records back until Spark need not read them; not if it must never start."""
    records: Iterable[pa.StringArray | None] = rows.records or ()
    if run.engine.choice != THREADS and not rows.is_sure:
        return held(records, run.spool_root)

    def checked() -> Iterator[pa.StringArray]:
        for texts in records:
            if texts is None:
                run.engine.session(UNSURE)
            else:
                yield texts

    return nullcontext(checked())


def _written_on_driver(
    run: Run,
    output: Output,
    rows: DriverRows,
    batch: BatchConfig | None,
    meter: Callable[[ChunkInfo], None],
) -> bool:
    """Write rows that the driver reads; return False if Spark must read them after all."""
    if rows.blocks is None or batch is None:
        with _sure(run, rows) as records:
            if records is None:
                return False
            kept = replace(rows, records=records)
            kept = kept if run.limit is None else first_rows(kept, run.limit)
            write_rows(output.plan, kept, run.output, meter)
        return True
    blocks: DriverBlocks | None = rows.blocks
    if output.transform is not None:
        from tap_spark.sync.mapped_blocks import mapped_blocks  # noqa: PLC0415

        blocks = mapped_blocks(output, rows.blocks)
    if blocks is None:
        return False
    with (
        Counter(BATCH_COUNT, output.plan.stream) as counter,
        _files(run, batch, output.plan) as files,
    ):

        def on_chunk(chunk: ChunkInfo) -> None:
            counter.increment()
            meter(chunk)

        return files.write_blocks(blocks, min(run.engine.threads.count, MOST_THREADS), on_chunk)


class _SliceReader:
    """Reads the slices of a stream, and sums up the rows that they tell."""

    def __init__(self, run: Run, plan: StreamPlan, state_writer: StateWriter) -> None:
        self.run = run
        self.plan = plan
        self.state_writer = state_writer
        self._told: list[int | None] = []

    @property
    def told_rows(self) -> int | None:
        """Return the rows of all slices; None if one does not tell, or not all rows are sent."""
        known = [rows for rows in self._told if rows is not None]
        is_told = self._told and len(known) == len(self._told) and _sends_all(self.run, self.plan)
        return sum(known) if is_told else None

    def slices(self, source: Source, plan: StreamPlan) -> Iterator[Slice]:
        """Yield the slices, or the first rows of them."""
        found = self._read(source, plan)
        return found if self.run.limit is None else first_slices(found, self.run.limit)

    def _read(self, source: Source, plan: StreamPlan) -> Iterator[Slice]:
        from tap_spark.sources.frame_helpers import with_text  # noqa: PLC0415

        spark = self.run.spark
        with _reading(plan):
            for slice_ in map(partial(with_text, plan), source.slices(spark, plan)):
                self._told.append(slice_.told_rows)
                yield slice_


@contextmanager
def _reading(plan: StreamPlan) -> Iterator[None]:
    """Convert failures of the operating system while the driver reads a source."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        file = None if error.filename is None else str(error.filename)
        where = Where(stream=plan.stream, file=file)
        reason = error.strerror or str(error)
        found = explain_environment(error, where)
        raise found or SourceError(f"cannot be read: {reason}", where=where) from error


def _on_chunk(
    plan: StreamPlan, slice_: Slice, state_writer: StateWriter, meter: Callable[[ChunkInfo], None]
) -> OnChunk:
    def on_chunk(chunk: ChunkInfo) -> None:
        meter(chunk)
        if chunk.key is not None:
            value = chunk.key.value
            state_writer.update(lambda state: advance(state, plan, value, ordered=slice_.ordered))

    return on_chunk


def _files(
    run: Run, batch: BatchConfig, plan: StreamPlan, writer: type[BatchWriter] | None = None
) -> BatchWriter:
    return (writer or BatchWriter)(
        lambda: run.spark, plan, run.output, batch=batch, spool=run.spool, staging=run.staging
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


def _known(state: State, plan: StreamPlan) -> dict[str, Any]:
    """Add an empty bookmark if the stream has none: the next run is then not its first."""
    bookmarks = state.get("bookmarks") or {}
    return {**state, "bookmarks": {plan.tap_stream_id: {}, **bookmarks}}


def _write_schema(run: Run, plan: StreamPlan, *, has_failed: bool = False) -> None:
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


def _try_stream(run: Run, plan: StreamPlan, *, wants_record: bool) -> None:
    """Write the SCHEMA of each output of a stream and, if wanted, its first RECORD."""
    from tap_spark.sources.frame_helpers import with_text  # noqa: PLC0415

    for output in run.outputs.of(plan):
        _write_schema(run, output.plan)
        if not wants_record or _tried_on_driver(replace(run, batch=None, limit=1), plan, output):
            continue
        read_plan = run.outputs.read_plan(plan)
        spark = run.engine.session(why_spark(run, plan) or UNSURE)
        for slice_ in source_for(plan.config).slices(spark, read_plan):
            mapped = output.mapped_slice(with_text(read_plan, slice_), keep_filtered=False)
            one = replace(mapped, frame=mapped.frame.limit(1))
            written = write_records(
                run.spark, output.plan, one, run.output, spool=run.spool, on_chunk=lambda _: None
            )
            if written.rows:
                break


def _tried_on_driver(run: Run, plan: StreamPlan, output: Output) -> bool:
    """Write the first RECORD without Spark; return False if only Spark can read it."""
    source = source_for(plan.config)
    if why_spark(run, plan) or not isinstance(source, DriverSource):
        return False
    with _reading(plan):
        read_plan = run.outputs.read_plan(plan)
        rows = source.read_on_driver(read_plan, RowForm.RECORDS, run.engine)
    return rows is not None and _written_on_driver(run, output, rows, None, lambda _: None)


def _prepare(
    config: TapConfig,
    catalog: Catalog | None,
    state: State,
    output: MessageOutput,
    cleaning: ExitStack,
    failures: StreamFailures | None = None,
    options: RunOptions = EVERYTHING,
) -> tuple[Run, tuple[StreamPlan, ...], Planner]:
    """Plan the streams; start Spark in the background if a stream surely needs it."""
    engine = engine_of(config, config.spark)
    cleaning.callback(engine.stop)
    outputs, plans, planner = _planned(engine, config, catalog, state, failures, options)
    spool = staging = None
    if executors_share_disk(config.spark):
        spool = cleaning.enter_context(Spool(config.spool, jobs=config.parallel_streams))
        staging = staging_folder_for(config.batch)
        if staging is not None:
            cleaning.enter_context(staging)
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


def _planned(
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
        catalog = found_catalog(engine, chosen_settings(config, options), failed)
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
