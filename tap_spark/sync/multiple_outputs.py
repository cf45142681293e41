"""A stream with several outputs: each slice is read once, and written once per output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.errors import ClosedPipeError, DestinationError
from shared.singer.metrics import Counter
from tap_spark.batch.batch_writer import BatchWriter
from tap_spark.output.line_chunks import KeyMax, greater
from tap_spark.output.line_output import LineOutput
from tap_spark.output.record_writer import ChunkInfo, OnChunk, write_records
from tap_spark.output.spool import Spool
from tap_spark.output.state_writer import StateWriter
from tap_spark.state.bookmarks import advance, advance_positions
from tap_spark.state.stream_plans import Slice, StreamPlan
from tap_spark.sync.stream_outputs import Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Bookmark = Mapping[str, Any]
_SLICE = "slice"


@dataclass
class WrittenSlices:
    """Tracks the slices that every output has written: only their bookmarks may be written.

    Attributes:
        outputs: Number of outputs.
    """

    outputs: int
    _bookmarks: dict[int, Bookmark | None] = field(default_factory=dict)
    _reached: dict[int, int] = field(default_factory=dict)
    _reported: int = 0

    def begin(self, slice_: Slice) -> Slice:
        """Number a slice; its bookmark is replaced by the number."""
        number = len(self._bookmarks) + 1
        self._bookmarks[number] = slice_.bookmark
        return replace(slice_, bookmark={_SLICE: number})

    def reached(self, output: int, bookmark: Bookmark | None) -> None:
        """Record the newest slice that an output has written completely."""
        if bookmark is not None:
            self._reached[output] = int(bookmark[_SLICE])

    def newest(self) -> Bookmark | None:
        """Return the newest bookmark that all outputs have reached since the last call."""
        oldest = min((self._reached.get(number, 0) for number in range(self.outputs)), default=0)
        new = [self._bookmarks[number] for number in range(self._reported + 1, oldest + 1)]
        self._reported = max(self._reported, oldest)
        return next((bookmark for bookmark in reversed(new) if bookmark is not None), None)


@dataclass
class SeveralOutputs:
    """Writes the slices of a stream to each of its outputs.

    STATE is written after every output has the rows it covers. If rows come in the order of the
    replication key, that is the smallest key among the outputs; it then also advances inside a
    slice, while the RECORDs of the last output are written.

    Attributes:
        plan: The stream.
        outputs: Its outputs.
        state_writer: The state.
        meter: Counts the written chunks.
    """

    plan: StreamPlan
    outputs: Sequence[Output]
    state_writer: StateWriter
    meter: Callable[[ChunkInfo], None]
    _keys: dict[int, KeyMax] = field(default_factory=dict)

    def write_records(
        self, spark: SparkSession, slices: Iterable[Slice], output: LineOutput, spool: Spool | None
    ) -> None:
        """Write slices as RECORD messages; errors as `record_writer.write_records`."""
        for slice_ in slices:
            with _kept(slice_) as kept:
                for number, own in enumerate(self.outputs):
                    mapped, on_chunk = own.mapped_slice(kept), self._on_chunk(number, slice_)
                    write_records(spark, own.plan, mapped, output, spool=spool, on_chunk=on_chunk)
            self._advance(ordered=slice_.ordered)
            if slice_.bookmark is not None:
                self.state_writer.update(partial(_at, self.plan, slice_.bookmark))

    def write_files(
        self,
        files_of: Callable[[StreamPlan], BatchWriter],
        slices: Iterable[Slice],
        counter: Counter,
    ) -> None:
        """Write slices as BATCH messages; errors as `BatchWriter.write`.

        Args:
            files_of: Builds the writer of an output.
            slices: The slices to write.
            counter: Counts messages.
        """
        written = WrittenSlices(len(self.outputs))
        ordered = False
        with ExitStack() as stack:
            writers = [stack.enter_context(files_of(own.plan)) for own in self.outputs]
            try:
                for slice_ in slices:
                    ordered = slice_.ordered
                    numbered = written.begin(slice_)
                    with _kept(numbered) as kept:
                        for number, (own, writer) in enumerate(
                            zip(self.outputs, writers, strict=True)
                        ):
                            on_chunk = self._on_chunk(number, slice_, counter)
                            bookmark = writer.write(own.mapped_slice(kept), on_chunk)
                            written.reached(number, bookmark)
                    self._settle(written)
            except (ClosedPipeError, DestinationError):
                raise
            except Exception:
                # Left-over rows of earlier slices are good; the failed slice is in no bookmark.
                with suppress(Exception):
                    self._finish(written, writers)
                raise
            self._finish(written, writers)
            self._advance(ordered=ordered)

    def _finish(self, written: WrittenSlices, writers: Sequence[BatchWriter]) -> None:
        for number, writer in enumerate(writers):
            written.reached(number, writer.finish())
        self._settle(written)

    def _settle(self, written: WrittenSlices) -> None:
        bookmark = written.newest()
        if bookmark is not None:
            self.state_writer.update(partial(_at, self.plan, bookmark))
            self.state_writer.flush()

    def _advance(self, *, ordered: bool) -> None:
        """Advance the bookmark to the replication key of rows that all outputs have written."""
        if ordered and len(self._keys) < len(self.outputs):
            return
        best = min if ordered else max
        key = best(self._keys.values(), key=lambda found: found.rank, default=None)
        if key is not None:
            self.state_writer.update(
                lambda state: advance(state, self.plan, key.value, ordered=ordered)
            )

    def _on_chunk(self, number: int, slice_: Slice, batches: Counter | None = None) -> OnChunk:
        """Return the function to call after each chunk of a slice that an output has written."""

        def on_chunk(chunk: ChunkInfo) -> None:
            self.meter(chunk)
            if batches is not None:
                batches.increment(1 if chunk.rows else 0)
            key = greater(self._keys.get(number), chunk.key)
            if key is not None and chunk.key is not None:
                self._keys[number] = key
                if slice_.ordered:
                    self._advance(ordered=True)

        return on_chunk


@contextmanager
def _kept(slice_: Slice) -> Iterator[Slice]:
    """Keep the rows of a slice on disk while it is written, so that they are read once."""
    from pyspark import StorageLevel  # noqa: PLC0415

    frame = slice_.frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield replace(slice_, frame=frame)
    finally:
        frame.unpersist()


def _at(plan: StreamPlan, bookmark: Bookmark, state: Mapping[str, Any]) -> Mapping[str, Any]:
    return advance_positions(state, plan, bookmark)
