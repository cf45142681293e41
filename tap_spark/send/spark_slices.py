"""The slices of one stream, read by Spark: each is one job, written once for each output.

STATE follows what every output has written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.errors import ClosedPipeError, DestinationError
from shared.singer.metrics import BATCH_COUNT, Counter
from tap_spark.send.batch_writer import BatchWriter, KeyWriter
from tap_spark.send.line_output import ChunkInfo, OnChunk, StateWriter
from tap_spark.send.record_writer import write_records, write_task_records
from tap_spark.send.run import Run, files_of, reading, sends_all, settle
from tap_spark.send.spool_files import KeyMax, greater_key
from tap_spark.send.stream_outputs import Output
from tap_spark.sources.frame_helpers import with_text
from tap_spark.sources.source import DriverSource, Source, TaskSource, whole_source
from tap_spark.state.bookmarks import advance, advance_positions
from tap_spark.state.stream_plans import Slice, StreamPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.send.line_output import LineOutput
    from tap_spark.send.spool import Spool

_logger = logging.getLogger(__name__)


def write_by_spark(
    run: Run,
    plan: StreamPlan,
    source: Source | DriverSource,
    state_writer: StateWriter,
    meter: OnChunk,
    why: str,
) -> int | None:
    """Do what `write_slices` does, by Spark; `why` says why."""
    outputs, batch = run.outputs.of(plan), run.batch_of(plan.stream)
    if batch is None and isinstance(source, TaskSource) and sends_all(run, plan):
        rows, spool = source.task_rows(plan), run.spool()
        context = None if rows is None else run.engine.context(why)
        if rows is not None and spool is not None and context is not None:
            write_task_records(context, outputs[0].plan, rows, run.output, spool, meter)
            return None
    run.engine.session(why)
    reader = SliceReader(run, plan, whole_source(source, plan.config))
    slices = reader.slices(run.outputs.read_plan(plan))
    writer = SliceWriter(plan, outputs, state_writer, meter)
    if batch is None:
        writer.write_records(run.spark, slices, run.output, run.spool)
    else:
        counted = plan if len(outputs) > 1 else outputs[0].plan
        with Counter(BATCH_COUNT, counted.stream) as counter:
            writer.write_files(partial(files_of, run, batch), slices, counter)
    return reader.told_rows


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


@dataclass(eq=False)
class SliceReader:
    """Reads the slices of a stream, and sums up the rows that they tell."""

    run: Run
    plan: StreamPlan
    source: Source
    _counts: list[int | None] = field(default_factory=list, init=False)

    @property
    def told_rows(self) -> int | None:
        """Return the rows of all slices; None if one does not tell, or not all rows are sent."""
        counts = [rows for rows in self._counts if rows is not None]
        is_told = (
            self._counts and len(counts) == len(self._counts) and sends_all(self.run, self.plan)
        )
        return sum(counts) if is_told else None

    def slices(self, plan: StreamPlan) -> Iterator[Slice]:
        """Yield the slices, or the first rows of them."""
        slices = self._read(plan)
        return slices if self.run.limit is None else first_slices(slices, self.run.limit)

    def _read(self, plan: StreamPlan) -> Iterator[Slice]:
        spark = self.run.spark
        with reading(plan):
            for slice_ in map(partial(with_text, plan), self.source.slices(spark, plan)):
                self._counts.append(slice_.told_rows)
                yield slice_


def write_keys(run: Run, plan: StreamPlan, source: Source | DriverSource) -> None:
    """Write the keys of all rows that the source has, one message for each output."""
    batch = run.batch_of(plan.stream)
    if batch is None:
        return
    reader = SliceReader(run, plan, whole_source(source, plan.config))
    whole_files = replace(batch, batch_size=None)
    for output, slices in run.outputs.key_slices(plan, reader.slices):
        with files_of(run, whole_files, output.plan, KeyWriter) as files:
            for slice_ in slices:
                files.write(slice_, lambda _: None)
            files.finish()
        _logger.info("stream '%s': sent the keys of %s rows", output.plan.stream, files.rows)


Bookmark = Mapping[str, Any]
_SLICE = "slice"


@dataclass
class WrittenSlices:
    """Tracks the slices that every output has written: only their bookmarks may be written."""

    outputs: int
    _bookmarks: dict[int, Bookmark | None] = field(default_factory=dict)
    _reached: dict[int, int] = field(default_factory=dict)
    _reported: int = 0

    def begin(self, slice_: Slice) -> Slice:
        """Number a slice; its bookmark is replaced by the number."""
        number = self._reported + len(self._bookmarks) + 1
        self._bookmarks[number] = slice_.bookmark
        return replace(slice_, bookmark={_SLICE: number})

    def reached(self, output: int, bookmark: Bookmark | None) -> None:
        """Record the newest slice that an output has written completely."""
        if bookmark is not None:
            self._reached[output] = int(bookmark[_SLICE])

    def newest(self) -> Bookmark | None:
        """Return the newest bookmark that all outputs have reached since the last call."""
        oldest = min((self._reached.get(number, 0) for number in range(self.outputs)), default=0)
        # Each may have an entry for each file: none is kept for longer than it can be the newest.
        new = [self._bookmarks.pop(number) for number in range(self._reported + 1, oldest + 1)]
        self._reported = max(self._reported, oldest)
        return next((bookmark for bookmark in reversed(new) if bookmark is not None), None)


@dataclass
class SliceWriter:
    """Writes the slices of a stream to each of its outputs; `meter` counts the written chunks.

    STATE is written after every output has the rows it covers. If rows come in the order of the
    replication key, that is the smallest key among the outputs; it then also advances inside a
    slice, while the last output is written: each BATCH message of the only output is followed by
    the STATE that it makes true.
    """

    plan: StreamPlan
    outputs: Sequence[Output]
    state_writer: StateWriter
    meter: OnChunk
    _keys: dict[int, KeyMax] = field(default_factory=dict)

    def write_records(
        self,
        spark: SparkSession,
        slices: Iterable[Slice],
        output: LineOutput,
        spool: Callable[[], Spool | None],
    ) -> None:
        """Write slices as RECORD messages; errors as `record_writer.write_records`."""
        for slice_ in slices:
            with self._kept(slice_) as kept:
                for number, own in enumerate(self.outputs):
                    mapped, on_chunk = own.mapped_slice(kept), self._on_chunk(number, slice_)
                    write_records(spark, own.plan, mapped, output, spool=spool(), on_chunk=on_chunk)
            self._advance(ordered=slice_.ordered)
            if slice_.bookmark is not None:
                self.state_writer.update(partial(advance_positions, self.plan, slice_.bookmark))

    def write_files(
        self,
        files_for: Callable[[StreamPlan], BatchWriter],
        slices: Iterable[Slice],
        counter: Counter,
    ) -> None:
        """Write slices as BATCH messages, which `counter` counts; errors as `BatchWriter.write`."""
        written = WrittenSlices(len(self.outputs))
        ordered = False
        with ExitStack() as stack:
            writers = [stack.enter_context(files_for(own.plan)) for own in self.outputs]
            try:
                for slice_ in slices:
                    ordered = slice_.ordered
                    with self._kept(written.begin(slice_)) as kept:
                        for number, own in enumerate(self.outputs):
                            on_chunk = self._on_chunk(number, slice_, counter)
                            bookmark = writers[number].write(own.mapped_slice(kept), on_chunk)
                            written.reached(number, bookmark)
                    self._settle(written, ordered=ordered)
            except (ClosedPipeError, DestinationError):
                raise
            except Exception:
                # Left-over rows of earlier slices are good; the failed slice is in no bookmark.
                with suppress(Exception):
                    self._finish(written, writers, ordered=ordered)
                raise
            self._finish(written, writers, ordered=ordered)

    def _finish(
        self, written: WrittenSlices, writers: Sequence[BatchWriter], *, ordered: bool
    ) -> None:
        for number, writer in enumerate(writers):
            written.reached(number, writer.finish())
        self._settle(written, ordered=ordered)

    def _settle(self, written: WrittenSlices, *, ordered: bool) -> None:
        """Advance to the keys of rows that have been sent; a bookmark of the source wins."""
        self._advance(ordered=ordered)
        bookmark = written.newest()
        if bookmark is not None:
            self._keys.clear()
        settle(self.plan, bookmark, self.state_writer)

    def _advance(self, *, ordered: bool) -> None:
        """Advance the bookmark to the replication key of rows that all outputs have written."""
        if ordered and len(self._keys) < len(self.outputs):
            return
        best = min if ordered else max
        key = best(self._keys.values(), key=lambda candidate: candidate.rank, default=None)
        if key is not None:
            self.state_writer.update(
                lambda state: advance(state, self.plan, key.value, ordered=ordered)
            )

    def _on_chunk(self, number: int, slice_: Slice, batches: Counter | None = None) -> OnChunk:
        """Return the function to call after each chunk of a slice that an output has written."""

        is_only = len(self.outputs) == 1

        def on_chunk(chunk: ChunkInfo) -> None:
            self.meter(chunk)
            if batches is not None:
                batches.increment(1 if chunk.rows else 0)
            key = greater_key(self._keys.get(number), chunk.key)
            if key is not None and chunk.key is not None:
                self._keys[number] = key
                if slice_.ordered or is_only:
                    self._advance(ordered=slice_.ordered)
            if batches is not None and slice_.ordered and is_only:
                self.state_writer.flush()

        return on_chunk

    @contextmanager
    def _kept(self, slice_: Slice) -> Iterator[Slice]:
        """Keep the rows of a slice on disk for several outputs, so that they are read once."""
        if len(self.outputs) == 1:
            yield slice_
            return
        from pyspark import StorageLevel  # noqa: PLC0415

        frame = slice_.frame.persist(StorageLevel.DISK_ONLY)
        try:
            yield replace(slice_, frame=frame, tasks=None)
        finally:
            frame.unpersist()
