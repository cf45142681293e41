"""One run of the tap: streams in the catalog's order, STATE after what it covers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.batch_types import BatchConfig
from shared.errors import (
    ClosedPipeError,
    DestinationError,
    RecordError,
    SingerSparkError,
    SourceError,
    Where,
)
from shared.logs import Progress
from shared.messages import activate_version_line, schema_line
from shared.metrics import BATCH_COUNT, JOB_DURATION, RECORD_COUNT, SYNC_DURATION, Counter, Timer
from shared.spark_errors import explain, explain_environment
from shared.spark_session import SessionStarter, executors_share_disk
from shared.stdout import MessageOutput
from tap_spark.batch_writer import write_batches
from tap_spark.bookmarks import advance, advance_positions, finish_stream, start_stream
from tap_spark.config import TapConfig
from tap_spark.discovery import catalog_for
from tap_spark.line_output import LineOutput
from tap_spark.plans import Slice, StreamPlan
from tap_spark.record_writer import ChunkInfo, OnChunk, write_records
from tap_spark.replication import plan_streams
from tap_spark.sources import source_for
from tap_spark.sources.failures import source_error
from tap_spark.spool import Spool
from tap_spark.state_pace import StatePace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

Catalog = Mapping[str, Any]
State = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """What every stream of a run needs."""

    starter: SessionStarter
    output: LineOutput
    spool: Spool | None
    batch: BatchConfig | None = None

    @property
    def spark(self) -> SparkSession:
        """The session; waits until it is there."""
        return self.starter.get()

    def batch_of(self, stream: str) -> BatchConfig | None:
        """Say how a stream goes as BATCH; None where it goes as RECORD."""
        return self.batch if self.batch is not None and self.batch.covers(stream) else None


def run_sync(
    config: TapConfig, catalog: Catalog | None, state: State | None, output: MessageOutput
) -> None:
    """Read every selected stream and write its messages.

    Args:
        config: The settings.
        catalog: What is selected; None for everything, as discovery finds it.
        state: Where the last run ended; None for the start.
        output: The message stream.

    Raises:
        SourceError: A source, the catalog or the state is wrong; names the stream. What had been
            written, and its STATE, stays.
        SparkStartError: Spark cannot be started, or has gone away.
        DestinationError: The spool cannot be written.
        ClosedPipeError: The reader of standard output has gone away.
    """
    state = state or {}
    with Timer(JOB_DURATION), ExitStack() as cleaning:
        run, plans = _prepare(config, catalog, state, output, cleaning)
        pace = StatePace(state, run.output.write, config.state_interval_seconds)
        for plan in plans:
            with _explained(plan.stream):
                sync_stream(run, plan, pace)


def run_test(config: TapConfig, mode: str, catalog: Catalog | None, output: MessageOutput) -> None:
    """Try every selected stream.

    Args:
        config: The settings.
        mode: `schema` writes the SCHEMA messages; `all` also at most one RECORD of every stream.
        catalog: What is selected; None for everything.
        output: The message stream.

    Raises:
        SourceError: Naming every stream that failed.
    """
    failed: list[str] = []
    with ExitStack() as cleaning:
        run, plans = _prepare(config, catalog, {}, output, cleaning)
        for plan in plans:
            try:
                with _explained(plan.stream):
                    _try_stream(run, plan, wants_record=mode != "schema")
            except (SourceError, RecordError) as error:
                _logger.error("test failed: %s", error)
                failed.append(plan.stream)
            else:
                _logger.info("test passed: stream '%s'", plan.stream)
    if failed:
        raise SourceError(f"the test failed for {', '.join(map(repr, failed))}")


def sync_stream(run: Run, plan: StreamPlan, pace: StatePace) -> None:
    """Write one stream: SCHEMA, RECORDs, ACTIVATE_VERSION, STATE.

    Args:
        run: The session and standard output.
        plan: The stream.
        pace: The state; left as it is after the stream.

    Raises:
        SingerSparkError: As `run_sync` says; anything else Spark raised comes as it is.
    """
    first_run = plan.tap_stream_id not in (pace.state.get("bookmarks") or {})
    _logger.info("stream '%s': reading, %s", plan.stream, plan.method.value)
    with (
        Timer(SYNC_DURATION, plan.stream),
        Counter(RECORD_COUNT, plan.stream) as counter,
        Progress(plan.stream) as progress,
    ):
        pace.adopt(start_stream(pace.state, plan))
        _write_schema(run, plan)
        if plan.version is not None and first_run:
            run.output.write(activate_version_line(plan.stream, plan.version))
        for piece in source_for(plan.config).slices(run.spark, plan):
            _sync_slice(run, plan, piece, pace, _meter(counter, progress))
        if plan.version is not None:
            run.output.write(activate_version_line(plan.stream, plan.version))
        pace.finish(_known(finish_stream(pace.state, plan), plan))
    _logger.info("stream '%s': %s records", plan.stream, counter.total)


def _sync_slice(
    run: Run, plan: StreamPlan, piece: Slice, pace: StatePace, meter: Callable[[ChunkInfo], None]
) -> None:
    def on_chunk(chunk: ChunkInfo) -> None:
        meter(chunk)
        if chunk.key is not None:
            value = chunk.key.value
            pace.update(advance(pace.state, plan, value, ordered=piece.ordered))

    batch = run.batch_of(plan.stream)
    if batch is None:
        write_records(run.spark, plan, piece, run.output, spool=run.spool, on_chunk=on_chunk)
    else:
        _write_files(run, batch, plan, piece, pace, on_chunk)
    if piece.bookmark is not None:
        pace.update(advance_positions(pace.state, plan, piece.bookmark))
        if batch is not None:
            pace.flush()


def _write_files(
    run: Run,
    batch: BatchConfig,
    plan: StreamPlan,
    piece: Slice,
    pace: StatePace,
    on_chunk: OnChunk,
) -> None:
    """Write a slice as BATCH; each message is followed by the STATE it makes true, if any."""
    with Counter(BATCH_COUNT, plan.stream) as counter:

        def on_file(chunk: ChunkInfo) -> None:
            counter.increment(1 if chunk.rows else 0)
            on_chunk(chunk)
            if piece.ordered:
                pace.flush()

        write_batches(
            run.spark,
            plan,
            piece,
            run.output,
            batch=batch,
            spool=run.spool,
            on_chunk=on_file,
        )


def _meter(counter: Counter, progress: Progress) -> Callable[[ChunkInfo], None]:
    def count(chunk: ChunkInfo) -> None:
        counter.increment(chunk.rows)
        progress.add(chunk.rows, chunk.size)

    return count


def _known(state: State, plan: StreamPlan) -> dict[str, Any]:
    """Give the stream a bookmark, if an empty one: the next run is then not its first."""
    bookmarks = state.get("bookmarks") or {}
    return {**state, "bookmarks": {plan.tap_stream_id: {}, **bookmarks}}


def _write_schema(run: Run, plan: StreamPlan) -> None:
    bookmark = (plan.replication_key,) if plan.replication_key is not None else ()
    line = schema_line(plan.stream, plan.schema, plan.key_properties, bookmark)
    run.output.write(line)


def _try_stream(run: Run, plan: StreamPlan, *, wants_record: bool) -> None:
    """Write the SCHEMA of a stream and, if wanted, its first RECORD."""
    _write_schema(run, plan)
    if not wants_record:
        return
    for piece in source_for(plan.config).slices(run.spark, plan):
        one = replace(piece, frame=piece.frame.limit(1))
        written = write_records(
            run.spark, plan, one, run.output, spool=run.spool, on_chunk=lambda _: None
        )
        if written.rows:
            return


def _prepare(
    config: TapConfig,
    catalog: Catalog | None,
    state: State,
    output: MessageOutput,
    cleaning: ExitStack,
) -> tuple[Run, tuple[StreamPlan, ...]]:
    """Plan, and start what is needed where there is something to read."""
    now_ms = time.time_ns() // 1_000_000
    known = None if catalog is None else plan_streams(config, catalog, state, now_ms)
    starter = SessionStarter(config.spark)
    cleaning.callback(starter.stop)
    if known != ():
        starter.start()
    spool = None
    if executors_share_disk(config.spark):
        spool = cleaning.enter_context(Spool(config.spool))
    lines = LineOutput(output)
    cleaning.callback(lines.close)
    run = Run(starter, lines, spool, config.batch)
    if known == ():
        _logger.warning("no stream is selected: nothing is read")
    if known is not None:
        return run, known
    return run, plan_streams(config, catalog_for(run.spark, config), state, now_ms)


@contextmanager
def _explained(stream: str) -> Iterator[None]:
    """Turn what Spark raises into errors that name the stream."""
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
        raise explain_environment(error, where) or source_error(stream, error) from error
