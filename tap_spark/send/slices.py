"""The slices of one stream: read by threads or by Spark, written as RECORD lines or batch files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from shared.encodings.extensions import imported
from shared.engine.engine import Engine
from shared.engine.settings import THREADS
from shared.errors import (
    DISK_FULL,
    ClosedPipeError,
    DestinationError,
    SourceError,
    Where,
)
from shared.formats.file_formats import FORMATS
from shared.settings.batch_settings import BatchConfig
from shared.singer.metrics import (
    BATCH_COUNT,
    Counter,
)
from shared.singer.run_summary import RunSummary
from shared.spark.spark_errors import explain_environment
from tap_spark.send.line_output import LineOutput, StateWriter
from tap_spark.send.record_writer import (
    ChunkInfo,
    OnChunk,
    write_records,
    write_rows,
)
from tap_spark.send.spool import Spool, held
from tap_spark.send.stream_outputs import Output, Outputs, SeveralOutputs
from tap_spark.sources.formats import source_format
from tap_spark.sources.frame_helpers import with_text
from tap_spark.sources.source import (
    DriverSource,
    Source,
    source_for,
)
from tap_spark.sources.source_failures import (
    StreamFailures,
)
from tap_spark.state.bookmarks import (
    advance,
    advance_positions,
)
from tap_spark.state.stream_plans import (
    MOST_THREADS,
    DriverBlocks,
    DriverRows,
    Resume,
    RowForm,
    Slice,
    StreamPlan,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tap_spark.send.batch_plan import BatchStagingFolder
    from tap_spark.send.batch_writer import BatchWriter
    from tap_spark.stream_config import StreamConfig

_logger = logging.getLogger(__name__)
State = Mapping[str, Any]


def first_slices(slices: Iterable[Slice], most: int) -> Iterator[Slice]:
    """Yield slices until they have so many rows together.

    Spark keeps their rows, so that those that are counted are those that are written.
    """
    for slice_ in slices:
        frame = slice_.frame.limit(most).persist()
        most -= frame.count()
        yield replace(slice_, frame=frame)
        if most <= 0:
            return


def first_rows(rows: DriverRows, most: int) -> DriverRows:
    """Return at most so many of the rows that the driver has read."""
    return replace(rows, records=_first_records(rows.records or (), most))


def _first_records(records: Iterable[pa.StringArray], most: int) -> Iterator[pa.StringArray]:
    for texts in records:
        yield texts[:most]
        most -= len(texts)
        if most <= 0:
            return


UNSURE = "what the files hold, which Spark may read in another way"


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


def write_keys(reader: SliceReader) -> None:
    """Write the keys of all rows that the source has, one message for each output."""
    run, plan = reader.run, reader.plan
    from tap_spark.send.batch_writer import KeyWriter  # noqa: PLC0415

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


def sends_all(run: Run, plan: StreamPlan) -> bool:
    """Return whether each row that is read becomes one record."""
    outputs = run.outputs.of(plan)
    return run.limit is None and len(outputs) == 1 and outputs[0].transform is None


def write_slices(reader: SliceReader, meter: Callable[[ChunkInfo], None]) -> None:
    run, plan, state_writer = reader.run, reader.plan, reader.state_writer
    source, read_plan = source_for(plan.config), run.outputs.read_plan(plan)
    outputs, batch = run.outputs.of(plan), run.batch_of(plan.stream)
    why = why_spark(run, plan)
    if isinstance(source, DriverSource):
        form = None if why else RowForm.RECORDS if batch is None else RowForm.BLOCKS
        with reading(plan):
            rows = source.read_on_driver(read_plan, form, run.engine)
        if rows is not None and written_on_driver(run, outputs[0], rows, batch, meter):
            if rows.newest is not None:
                newest = rows.newest()
                state_writer.update(lambda state: advance(state, plan, newest, ordered=False))
            elif rows.blocks is not None:
                _settle(plan, rows.bookmark, state_writer)
            elif rows.bookmark is not None:
                state_writer.update(partial(reached, plan, rows.bookmark))
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
            state_writer.update(partial(reached, plan, slice_.bookmark))


def why_spark(run: Run, plan: StreamPlan) -> str:
    """Return why only Spark can read a stream, as far as its plan tells; empty if threads may.

    Args:
        run: The outputs and settings.
        plan: The stream.
    """
    outputs, batch = run.outputs.of(plan), run.batch_of(plan.stream)
    form, has_key = source_format(plan.config.format), plan.resume is Resume.REPLICATION_KEY
    takes_keys = form is not None and form.keys_on_driver
    why_source = ""
    if form is not None and form.why_spark is not None:
        ask = cast("Callable[[StreamConfig], str]", imported(form.why_spark))
        why_source = ask(plan.config)
    reasons = (
        (form is None or not form.on_driver, f"format {plan.config.format}"),
        (bool(why_source), why_source),
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
    if FORMATS[batch.format].text:
        return f"batch files of {batch.format}"
    # Files with an exact number of rows take a second pass, over the rows left over.
    if batch.batch_size is not None or run.limit is not None:
        return "batch files with an exact number of rows"
    if output.transform is None:
        return ""
    from tap_spark.send.mapped_blocks import block_map  # noqa: PLC0415

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


def written_on_driver(
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
        from tap_spark.send.mapped_blocks import mapped_blocks  # noqa: PLC0415

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


@dataclass(eq=False)
class SliceReader:
    """Reads the slices of a stream, and sums up the rows that they tell."""

    run: Run
    plan: StreamPlan
    state_writer: StateWriter
    _counts: list[int | None] = field(default_factory=list, init=False)

    @property
    def told_rows(self) -> int | None:
        """Return the rows of all slices; None if one does not tell, or not all rows are sent."""
        counts = [rows for rows in self._counts if rows is not None]
        is_told = (
            self._counts and len(counts) == len(self._counts) and sends_all(self.run, self.plan)
        )
        return sum(counts) if is_told else None

    def slices(self, source: Source, plan: StreamPlan) -> Iterator[Slice]:
        """Yield the slices, or the first rows of them."""
        slices = self._read(source, plan)
        return slices if self.run.limit is None else first_slices(slices, self.run.limit)

    def _read(self, source: Source, plan: StreamPlan) -> Iterator[Slice]:
        spark = self.run.spark
        with reading(plan):
            for slice_ in map(partial(with_text, plan), source.slices(spark, plan)):
                self._counts.append(slice_.told_rows)
                yield slice_


@contextmanager
def reading(plan: StreamPlan) -> Iterator[None]:
    """Convert failures of the operating system while the driver reads a source."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        file = None if error.filename is None else str(error.filename)
        where = Where(stream=plan.stream, file=file)
        reason = error.strerror or str(error)
        explained = explain_environment(error, where)
        raise explained or SourceError(f"cannot be read: {reason}", where=where) from error


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
    from tap_spark.send.batch_writer import BatchWriter  # noqa: PLC0415

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
        state_writer.update(partial(reached, plan, bookmark))
        state_writer.flush()


def reached(plan: StreamPlan, bookmark: Mapping[str, Any], state: State) -> State:
    return advance_positions(state, plan, bookmark)
