"""Chunks of bytes from a column of finished lines; runs on the executors.

Sent to workers by value, as is all of this project that it imports. It does not create a Python
object per row: a chunk is a range of the Arrow column's data buffer.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.arrow_start import arrow_in_task
from tap_spark.state.date_numbers import DAY, INFINITY, MINUS_INFINITY

CHUNK_SCHEMA = "chunk binary, rows bigint, meta string"
FILTERED = "__filtered"
"""Name of the last column of rows for batch files: true in rows that are not written."""

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

    @property
    def last_line(self) -> int:
        return self.first + self.rows


def greater(one: KeyMax | None, other: KeyMax | None) -> KeyMax | None:
    """Return the greater of two maxima; None means that the key is missing."""
    if one is None or other is None:
        return one or other
    return other if other.rank > one.rank else one


def blocks(lines: pa.Array, limit: int) -> Iterator[LineBlock]:
    """Cut a column of lines into blocks of at most `limit` bytes; a longer line is one block.

    Args:
        lines: A (large) string array without nulls.
        limit: Bytes.
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
        envelope: Whether texts are RECORD messages; else bare records.
    """

    def __init__(self, name: str | None, *, envelope: bool = True) -> None:
        self._name = name
        self._envelope = envelope
        self._best: KeyMax | None = None

    def blocks(self, batch: pa.RecordBatch, limit: int) -> Iterator[LineBlock]:
        """Yield the blocks of a batch's lines, each after its rows have been tracked.

        The columns of the batch are line, key and, if lines may lack the key, a record with only
        the key. Rows without a line may come after any line, so they are tracked with the last
        block.
        """
        lines = without_nulls(batch)
        found = list(blocks(lines.column(0), limit))
        for block in found[:-1]:
            self.track_block(lines, block)
            yield block
        for block in found[-1:]:
            self.track_block(lines, block)
        if lines.num_rows < batch.num_rows and batch.num_columns > 2:  # noqa: PLR2004
            filtered = batch.filter(batch.column(0).is_null())
            self.track(filtered.column(1), filtered.column(2), envelope=False)
        yield from found[-1:]

    def track_block(self, batch: pa.RecordBatch, block: LineBlock) -> None:
        """Track the rows of a block of `batch`."""
        if self._name is not None:
            own = batch.num_columns > 2  # noqa: PLR2004
            columns = (batch.column(1), batch.column(2 if own else 0))
            keys, texts = (column.slice(block.first, block.rows) for column in columns)
            self.track(keys, texts, envelope=self._envelope and not own)

    def track(self, keys: pa.Array, texts: pa.Array, envelope: bool | None = None) -> None:
        """Track rows by their keys and the JSON texts that contain these.

        Args:
            keys: Keys of the rows.
            texts: RECORD messages or bare records.
            envelope: Which of the two, if not as for the other rows.
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
            wrapped = self._envelope if envelope is None else envelope
            self._best = KeyMax(rank, key_value(text.as_buffer(), self._name, wrapped))

    def take(self) -> KeyMax | None:
        """Return the greatest key and start over."""
        best, self._best = self._best, None
        return best


def finite(keys: pa.Array) -> pa.Array:
    """Replace infinite keys by nulls."""
    if pa.types.is_floating(keys.type):
        return pc.if_else(pc.is_finite(keys), keys, None)
    if not pa.types.is_temporal(keys.type):
        return keys
    is_date = pa.types.is_date32(keys.type)
    numbers = keys.cast(pa.int32() if is_date else pa.int64())
    for day in (MINUS_INFINITY, INFINITY):
        first = day if is_date else day * DAY
        after = first + (1 if is_date else DAY)
        inside = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, after))
        keys = pc.if_else(inside, None, keys)
    return keys


def rank_of(key: pa.Scalar) -> Any:
    """Convert a key to a number or text that JSON holds exactly and that sorts as the key does."""
    kind = key.type
    if pa.types.is_temporal(kind):
        return key.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).as_py()  # noqa: PLR2004
    value = key.as_py()
    if isinstance(value, Decimal):
        return int(value.scaleb(kind.scale))
    if isinstance(value, bytes):
        return value.hex()
    return int(value) if isinstance(value, bool) else value


def key_value(line: pa.Buffer, name: str, envelope: bool = True) -> Any:
    """Read the key from a RECORD line or a bare record; a number that neither a double nor a 64-bit
    integer holds is text.
    """
    found = json.loads(line.to_pybytes(), parse_float=Decimal)
    value = (found["record"] if envelope else found)[name]
    if isinstance(value, Decimal):
        number = float(value)
        exact = math.isfinite(number) and Decimal(repr(number)) == value
        return number if exact else str(value)
    if isinstance(value, int) and value not in _JSON_INTEGERS:
        return str(value)
    return value


def pack_meta(rows: int, key: KeyMax | None) -> str:
    """Write the metadata of a chunk for the driver."""
    return json.dumps({"rows": rows, "key": None if key is None else [key.rank, key.value]})


def unpack_meta(text: str) -> tuple[int, KeyMax | None]:
    """Read what `pack_meta` wrote."""
    meta = json.loads(text)
    return meta["rows"], None if meta["key"] is None else KeyMax(*meta["key"])


class ChunkRows:
    """Yields chunks of lines as rows of a result (`CHUNK_SCHEMA`), in order.

    Args:
        key: Name of the replication key; None without a key to track.
        chunk_bytes: Size of a chunk; only a single longer line makes it larger.
    """

    def __init__(self, key: str | None, chunk_bytes: int) -> None:
        self._key = key
        self._chunk_bytes = chunk_bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on the batches of one partition (columns: line and, with a key, key)."""
        arrow_in_task()
        tracker = KeyTracker(self._key)
        for batch in batches:
            for block in tracker.blocks(batch, self._chunk_bytes):
                yield _chunk_row(block.data, block.rows, tracker.take())
        key = tracker.take()
        if key is not None:
            yield _chunk_row(b"", 0, key)


def _chunk_row(data: memoryview | bytes, rows: int, key: KeyMax | None) -> pa.RecordBatch:
    meta = pack_meta(rows, key)
    arrays = [pa.array([data], pa.binary()), pa.array([rows], pa.int64()), pa.array([meta])]
    return pa.record_batch(arrays, names=["chunk", "rows", "meta"])
