"""The executors' side of the spool: lines in chunk files that the driver copies to standard output.

Sent to workers by value, as is all of this project that it imports. It does not create a Python
object per row: a chunk is a range of the Arrow column's data buffer.

The folder of one job has these files:

- `<partition>-<task>-<number>.lines`: a finished chunk; its `.meta` is written before it. Until it
  is finished its name ends in `.part`.
- `<partition>.begun`: locked while a task of the partition runs.
- `<partition>.ended`: a task of the partition has finished all its chunks.
- `progress`: in an ordered job, the partition that the driver copies.
- `*.free`: a file whose lines the driver has copied; a task writes its next chunk over it. For the
  system, new pages in memory are most of the work of a chunk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.singer.platform import arrow_in_task
from tap_spark.sources.record_arrays import RecordTexts, finite

CHUNK_SCHEMA = "chunk binary, rows bigint, meta string, replaced string"
REPLACED = b"replaced"
"""Metadata of a batch of lines: JSON of `RecordTexts.replaced`."""
FILTERED = "__filtered"
"""Name of the last column of rows for batch files: true in rows that are not written."""

OfBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_JSON_INTEGERS = range(-(2**63), 2**64)


@dataclass(frozen=True)
class KeyMax:
    """The greatest replication key of some rows.

    Attributes:
        rank: A number or text that orders as the key's type does.
        value: The key as a JSON value, as in the record.
    """

    rank: Any
    value: Any


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of one Arrow batch, in the batch's own memory."""

    data: memoryview
    rows: int
    first: int


def greater_key(one: KeyMax | None, other: KeyMax | None) -> KeyMax | None:
    """Return the greater of two maxima; None means that the key is missing."""
    if one is None or other is None:
        return one or other
    return other if other.rank > one.rank else one


def blocks(lines: pa.Array, limit: int) -> Iterator[LineBlock]:
    """Cut a (large) string array without nulls into blocks of at most `limit` bytes; a longer line
    is one block.
    """
    _, offsets_buffer, data_buffer = lines.buffers()
    if not len(lines) or data_buffer is None:
        return
    raw = memoryview(offsets_buffer).cast("B")
    offsets = raw.cast("q") if pa.types.is_large_string(lines.type) else raw.cast("i")
    data = memoryview(data_buffer).cast("B")
    start, end = lines.offset, lines.offset + len(lines)
    while start < end:
        fits = bisect_right(offsets, offsets[start] + limit, start + 1, end + 1) - 1
        stop = max(fits, start + 1)
        yield LineBlock(data[offsets[start] : offsets[stop]], stop - start, start - lines.offset)
        start = stop


def without_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drop rows without a line."""
    lines = batch.column(0)
    return batch.filter(lines.is_valid()) if lines.null_count else batch


class KeyTracker:
    """Tracks the greatest replication key of the rows since the last `take`.

    Nulls, NaN and infinities (also of dates) are ignored: they cannot be bookmarks.

    Args:
        name: Name of the key in the record; None without a key to track.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._best: KeyMax | None = None

    def blocks(self, batch: pa.RecordBatch, limit: int) -> Iterator[LineBlock]:
        """Yield the blocks of a batch's lines, each after its rows have been tracked.

        The columns of the batch are line, key and, if lines may lack the key, a record with only
        the key. Rows without a line may come after any line, so they are tracked with the last
        block.
        """
        lines = without_nulls(batch)
        parts = list(blocks(lines.column(0), limit))
        for block in parts[:-1]:
            self.track_block(lines, block)
            yield block
        for block in parts[-1:]:
            self.track_block(lines, block)
        if lines.num_rows < batch.num_rows and batch.num_columns > 2:  # noqa: PLR2004
            filtered = batch.filter(batch.column(0).is_null())
            self.track(filtered.column(1), filtered.column(2))
        yield from parts[-1:]

    def track_block(self, batch: pa.RecordBatch, block: LineBlock) -> None:
        if self._name is not None:
            own = batch.num_columns > 2  # noqa: PLR2004
            columns = (batch.column(1), batch.column(2 if own else 0))
            keys, texts = (column.slice(block.first, block.rows) for column in columns)
            self.track(keys, texts, envelope=not own)

    def track(self, keys: pa.Array, texts: pa.Array, *, envelope: bool = False) -> None:
        """Track rows by their keys and the JSON texts that contain these.

        Texts are bare records, or RECORD messages with an `envelope`.
        """
        if self._name is None:
            return
        keys = finite(keys)
        top = pc.min_max(keys)["max"]
        if not top.is_valid:
            return
        rank = rank_of(top)
        if self._best is None or rank > self._best.rank:
            text = texts[pc.index(keys, top).as_py()]
            self._best = KeyMax(rank, key_value(text.as_buffer(), self._name, envelope))

    def take(self) -> KeyMax | None:
        """Return the greatest key and start over."""
        best, self._best = self._best, None
        return best


def rank_of(key: pa.Scalar) -> Any:
    """Convert a key to a number or text that JSON holds exactly and that sorts as the key does."""
    kind = key.type
    if pa.types.is_temporal(kind):
        return key.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).as_py()  # noqa: PLR2004
    value = key.as_py()
    if isinstance(value, Decimal):
        # Arithmetic would round it to 28 digits.
        return int(f"{value:f}".replace(".", ""))
    if isinstance(value, bytes):
        return value.hex()
    return int(value) if isinstance(value, bool) else value


def key_value(line: pa.Buffer, name: str, envelope: bool = True) -> Any:
    """Read the key from a RECORD line or a bare record; a number that neither a double nor a 64-bit
    integer holds is text.
    """
    parsed = json.loads(line.to_pybytes(), parse_float=Decimal)
    value = (parsed["record"] if envelope else parsed)[name]
    if isinstance(value, Decimal):
        number = float(value)
        exact = math.isfinite(number) and Decimal(repr(number)) == value
        return number if exact else str(value)
    if isinstance(value, int) and value not in _JSON_INTEGERS:
        return str(value)
    return value


def pack_meta(rows: int, key: KeyMax | None) -> str:
    return json.dumps({"rows": rows, "key": None if key is None else [key.rank, key.value]})


def unpack_meta(text: str) -> tuple[int, KeyMax | None]:
    """Read what `pack_meta` wrote."""
    meta = json.loads(text)
    return meta["rows"], None if meta["key"] is None else KeyMax(*meta["key"])


@dataclass(frozen=True)
class Chain:
    """Passes the batches of a task through steps, one after the other; for `mapInArrow`."""

    steps: tuple[OfBatches, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for step in self.steps:
            batches = step(batches)
        return iter(batches)


def chain(*steps: OfBatches | None) -> Chain:
    """Return a chain of the steps that are not None."""
    return Chain(tuple(filter(None, steps)))


@dataclass(frozen=True)
class RecordLines:
    """Makes the RECORD lines of a partition, with the columns of the key.

    Attributes:
        names: Names of the record's columns. The batches have these columns, then (with a key) the
            key, (if records may lack it) a record with only the key, and (if rows are filtered)
            `FILTERED`.
        ready: Positions of columns that hold JSON text.
    """

    names: tuple[str, ...]
    ready: frozenset[int]
    before: str
    after: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        texts = RecordTexts(self.names, self.ready, self.before, self.after)
        width = len(self.names) or 1
        for batch in batches:
            start, others = 0, batch.columns[width:]
            mark = others.pop() if batch.schema.names[-1] == FILTERED else None
            for lines in texts.of(batch.columns[:width]):
                rest = [column.slice(start, len(lines)) for column in others]
                if mark is not None:
                    lines = pc.if_else(mark.slice(start, len(lines)), None, lines)  # noqa: PLW2901
                start += len(lines)
                names, facts = ["line", "key", "own"][: 1 + len(rest)], None
                if texts.replaced:
                    facts = {REPLACED: json.dumps(texts.replaced)}
                    texts.replaced.clear()
                yield pa.record_batch([lines, *rest], names, metadata=facts)


def replaced_in(batch: pa.RecordBatch) -> Counter[str]:
    """Return the rows of a batch of lines whose text is not UTF-8, by column."""
    return Counter(json.loads((batch.schema.metadata or {}).get(REPLACED, b"{}")))


@dataclass(frozen=True)
class ChunkRows:
    """Yields chunks of lines as rows of a result (`CHUNK_SCHEMA`), in order; see `SpoolWriter`."""

    key: str | None
    chunk_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on the batches of one partition (columns: line and, with a key, key)."""
        arrow_in_task()
        tracker, replaced = KeyTracker(self.key), Counter[str]()
        for batch in batches:
            replaced += replaced_in(batch)
            for block in tracker.blocks(batch, self.chunk_bytes):
                yield _chunk_row(block.data, block.rows, tracker.take())
        key = tracker.take()
        if key is not None or replaced:
            yield _chunk_row(b"", 0, key, replaced)


def _chunk_row(
    data: memoryview | bytes,
    rows: int,
    key: KeyMax | None,
    replaced: Mapping[str, int] | None = None,
) -> pa.RecordBatch:
    arrays = [
        pa.array([data], pa.binary()),
        pa.array([rows], pa.int64()),
        pa.array([pack_meta(rows, key)]),
        pa.array([json.dumps(replaced or {})]),
    ]
    return pa.record_batch(arrays, names=["chunk", "rows", "meta", "replaced"])


LINES_SUFFIX = ".lines"
META_SUFFIX = ".meta"
PART_SUFFIX = ".part"
FREE_SUFFIX = ".free"
BEGUN_SUFFIX = ".begun"
ENDED_SUFFIX = ".ended"
PROGRESS_NAME = "progress"
SPOOL_FAILED = "[tap-spark spool errno {}]"
COUNT_SCHEMA = "rows bigint, replaced string"

_POLL_SECONDS = 0.02
_OWNER_CHECK_SECONDS = 1.0


@dataclass(frozen=True)
class CopyProgress:
    """What the driver of an ordered job reports to its tasks.

    Attributes:
        partition: The partition whose chunks it copies.
        granted: Bytes that later partitions may use beyond their half of the space.
    """

    partition: int = 0
    granted: int = 0


@dataclass(frozen=True)
class TaskSpool:
    """The folder in which tasks of a job leave their chunks, and how many bytes may wait there.

    A task does not start a chunk while too many bytes wait. In an ordered job half of the space is
    reserved for the partition that the driver copies, so that later partitions, which share the
    other half, can never block it.

    Attributes:
        lock: A file that the driver locks as long as it runs.
        limit: Bytes that may wait in the folder.
        ordered: Whether the driver copies partition after partition.
    """

    folder: str
    lock: str
    limit: int
    ordered: bool = False

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)  # noqa: PTH118

    def is_full_for(self, partition: int) -> bool:
        """Return whether a task of a partition must wait."""
        if not self.ordered:
            return sum(size for _, size in file_sizes(self.folder)) > self.limit
        progress = read_progress(self.folder)
        is_later = partition > progress.partition
        held = sum(
            size for p, size in file_sizes(self.folder) if (p > progress.partition) == is_later
        )
        return held > self.limit // 2 + (progress.granted if is_later else 0)

    def wait_for_space(self, partition: int) -> None:
        """Wait until a task of a partition may start a chunk.

        Raises:
            RuntimeError: The driver has ended.
        """
        checked = time.monotonic()
        while self.is_full_for(partition):
            time.sleep(_POLL_SECONDS)
            if time.monotonic() - checked > _OWNER_CHECK_SECONDS:
                checked = time.monotonic()
                if not is_spool_locked(self.lock):
                    raise RuntimeError("the tap that reads these lines has ended")


@dataclass(frozen=True)
class SpoolWriter:
    """Writes the lines of partitions into chunk files.

    Attributes:
        key: Name of the replication key; None without a key to track.
        chunk_bytes: Size of a chunk; only a single longer line makes it larger.
    """

    spool: TaskSpool
    key: str | None
    chunk_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on the batches of one partition; yields the number of rows written."""
        arrow_in_task()
        partition, task = task_identity()
        replaced: Counter[str] = Counter()
        try:
            with begun_task(self.spool, partition):
                rows = self._write(batches, partition, task, replaced)
        except OSError as error:
            raise RuntimeError(SPOOL_FAILED.format(error.errno or 0)) from error
        counts = [pa.array([rows], pa.int64()), pa.array([json.dumps(replaced)])]
        yield pa.record_batch(counts, names=["rows", "replaced"])

    def _write(
        self,
        batches: Iterable[pa.RecordBatch],
        partition: int,
        task: int,
        replaced: Counter[str],
    ) -> int:
        tracker = KeyTracker(self.key)
        chunk: _ChunkFile | None = None
        total = number = 0
        for batch in batches:
            replaced.update(replaced_in(batch))
            for block in tracker.blocks(batch, self.chunk_bytes):
                if chunk is None:
                    self.spool.wait_for_space(partition)
                    chunk = _ChunkFile(self.spool.path(chunk_name(partition, task, number)))
                    number += 1
                chunk.write(block)
                total += block.rows
                if chunk.size * 2 >= self.chunk_bytes:
                    chunk.finish(tracker.take())
                    chunk = None
        key = tracker.take()
        if chunk is None and key is not None:
            # The key of rows without a line: reported by a chunk without lines.
            chunk = _ChunkFile(self.spool.path(chunk_name(partition, task, number)))
        if chunk is not None:
            chunk.finish(key)
        return total


def task_identity() -> tuple[int, int]:
    """Return the partition of the running task, and the unique id of this attempt."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())


def chunk_name(partition: int, task: int, number: int) -> str:
    """Return a chunk's name: names sort in the order of rows, a retried task comes last."""
    return f"{partition:010d}-{task:012d}-{number:010d}"


def partition_of(name: str) -> int:
    """Return the partition of a file in the folder, from its name."""
    return int(name[:10])


def marker_name(partition: int, suffix: str) -> str:
    """Return the name of the file that marks a partition as begun or ended."""
    return f"{partition:010d}{suffix}"


@contextmanager
def begun_task(spool: TaskSpool, partition: int) -> Iterator[None]:
    """Mark a partition as begun, and at the end of the block as ended unless it fails."""
    if not spool.ordered:
        yield
        return
    # Readable, too: NFS gives a shared lock to such files only.
    with open(spool.path(marker_name(partition, BEGUN_SUFFIX)), "a+b") as marker:  # noqa: PTH123
        # Shared: another attempt of the same task may hold it too.
        fcntl.flock(marker, fcntl.LOCK_SH)
        yield
        open(spool.path(marker_name(partition, ENDED_SUFFIX)), "ab").close()  # noqa: PTH123


class _ChunkFile:
    def __init__(self, name: str) -> None:
        self._name = name
        _take_free_file(name + PART_SUFFIX)
        self._fd = os.open(name + PART_SUFFIX, os.O_WRONLY | os.O_CREAT, 0o600)
        self._rows = 0
        self.size = 0

    def write(self, block: LineBlock) -> None:
        rest = block.data
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self.size += len(block.data)
        self._rows += block.rows

    def finish(self, key: KeyMax | None) -> None:
        os.ftruncate(self._fd, self.size)
        os.close(self._fd)
        _publish(self._name, pack_meta(self._rows, key))


def _take_free_file(path: str) -> None:
    """Give a file that is free the name of a chunk, if there is one."""
    with os.scandir(os.path.dirname(path)) as entries:  # noqa: PTH120
        for entry in entries:
            if entry.name.endswith(FREE_SUFFIX):
                with contextlib.suppress(FileNotFoundError):  # Another task was faster.
                    os.rename(entry.path, path)  # noqa: PTH104
                    return


def leave_note(name: str, text: str, meta: str) -> None:
    """Write a chunk with a text for the driver."""
    with open(name + PART_SUFFIX, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)
    _publish(name, meta)


def _publish(name: str, meta: str) -> None:
    with open(name + META_SUFFIX, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(meta)
    os.rename(name + PART_SUFFIX, name + LINES_SUFFIX)  # noqa: PTH104


def write_progress(folder: str, progress: CopyProgress) -> None:
    """Write, for the tasks, which partition the driver copies."""
    path = os.path.join(folder, PROGRESS_NAME)  # noqa: PTH118
    with open(path + PART_SUFFIX, "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(f"{progress.partition} {progress.granted}")
    os.replace(path + PART_SUFFIX, path)  # noqa: PTH105


def read_progress(folder: str) -> CopyProgress:
    """Read what `write_progress` wrote; the first partition if it has not written yet."""
    try:
        with open(os.path.join(folder, PROGRESS_NAME), encoding="ascii") as file:  # noqa: PTH118, PTH123
            partition, granted = file.read().split()
    except FileNotFoundError:
        return CopyProgress()
    return CopyProgress(int(partition), int(granted))


def file_sizes(folder: str, suffix: str = LINES_SUFFIX) -> Iterator[tuple[int, int]]:
    """Yield partition and size of the files with a suffix; chunks wait for the driver."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(suffix):
                with contextlib.suppress(FileNotFoundError):
                    yield partition_of(entry.name), entry.stat().st_size


def is_spool_locked(path: str) -> bool:
    """Return whether the process that locked a file still runs.

    Why beside `owned_folders.is_locked`: that is not sent to workers, as this module is.
    """
    with contextlib.suppress(FileNotFoundError), open(path, "r+b") as file:  # noqa: PTH123
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
