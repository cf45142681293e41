"""Turns a column of finished lines into chunks of bytes; runs on the executors.

Imports nothing of this project, so that it can be sent to workers by value. No Python object is
made per row: a chunk is a range of the Arrow column's own data buffer.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

LINES_SUFFIX = ".lines"
META_SUFFIX = ".meta"
PART_SUFFIX = ".part"
SPOOL_FAILED = "[tap-spark spool errno {}]"
CHUNK_SCHEMA = "chunk binary, rows bigint, meta string"
COUNT_SCHEMA = "rows bigint"

_POLL_SECONDS = 0.02
_OWNER_CHECK_SECONDS = 1.0
_JSON_INTEGERS = range(-(2**63), 2**64)


@dataclass(frozen=True)
class KeyMax:
    """The greatest replication key of some rows.

    Attributes:
        rank: A number or text that orders as the key's type does.
        value: The key as JSON value, as it stands in the record.
    """

    rank: Any
    value: Any


@dataclass(frozen=True)
class Block:
    """Some whole lines of one Arrow batch, in the batch's own memory."""

    data: memoryview
    rows: int
    first: int

    @property
    def last_line(self) -> int:
        return self.first + self.rows


def greater(one: KeyMax | None, other: KeyMax | None) -> KeyMax | None:
    """Take the greater of two maxima; None stands for no key at all."""
    if one is None or other is None:
        return one or other
    return other if other.rank > one.rank else one


def blocks(lines: pa.Array, limit: int) -> Iterator[Block]:
    """Cut a column of lines into blocks of at most `limit` bytes; a longer line stands alone.

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
        yield Block(data[offsets[start] : offsets[stop]], stop - start, start - lines.offset)
        start = stop


def without_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out rows without a line."""
    lines = batch.column(0)
    return batch.filter(lines.is_valid()) if lines.null_count else batch


class KeyWatch:
    """Follows the greatest replication key of the rows seen since the last `take`.

    Nulls, NaN and infinities are passed over: none of them can be a bookmark.

    Args:
        name: Name of the key in the record; None where there is no key to follow.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._best: KeyMax | None = None

    def see(self, batch: pa.RecordBatch, block: Block) -> None:
        """Take in the rows of a block of `batch` (columns: line, key)."""
        if self._name is None:
            return
        keys = batch.column(1).slice(block.first, block.rows)
        if pa.types.is_floating(keys.type):
            keys = pc.if_else(pc.is_finite(keys), keys, None)
        top = pc.min_max(keys)["max"]
        if not top.is_valid:
            return
        rank = rank_of(top)
        if self._best is None or rank > self._best.rank:
            line = batch.column(0)[block.first + pc.index(keys, top).as_py()]
            self._best = KeyMax(rank, key_value(line.as_buffer(), self._name))

    def take(self) -> KeyMax | None:
        """Give the greatest key and start anew."""
        best, self._best = self._best, None
        return best


def rank_of(key: pa.Scalar) -> Any:
    """Turn a key into a number or text that JSON holds exactly and that orders as the key does."""
    kind = key.type
    if pa.types.is_temporal(kind):
        return key.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).as_py()  # noqa: PLR2004
    value = key.as_py()
    if isinstance(value, Decimal):
        return int(value.scaleb(kind.scale))
    if isinstance(value, bytes):
        return value.hex()
    return int(value) if isinstance(value, bool) else value


def key_value(line: pa.Buffer, name: str) -> Any:
    """Read the key from a RECORD line; a number no double or 64-bit integer holds is text."""
    value = json.loads(line.to_pybytes(), parse_float=Decimal)["record"][name]
    if isinstance(value, Decimal):
        number = float(value)
        exact = math.isfinite(number) and Decimal(repr(number)) == value
        return number if exact else str(value)
    if isinstance(value, int) and value not in _JSON_INTEGERS:
        return str(value)
    return value


def pack_meta(rows: int, key: KeyMax | None) -> str:
    """Write what the driver must know about a chunk."""
    return json.dumps({"rows": rows, "key": None if key is None else [key.rank, key.value]})


def unpack_meta(text: str) -> tuple[int, KeyMax | None]:
    """Read what `pack_meta` wrote."""
    meta = json.loads(text)
    return meta["rows"], None if meta["key"] is None else KeyMax(*meta["key"])


class ChunkRows:
    """Yields chunks of lines as rows of a result (`CHUNK_SCHEMA`), in order.

    Args:
        key: Name of the replication key; None where there is none to follow.
        chunk_bytes: Size of a chunk; only a single longer line makes it larger.
    """

    def __init__(self, key: str | None, chunk_bytes: int) -> None:
        self._key = key
        self._chunk_bytes = chunk_bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on the batches of one partition (columns: line and, with a key, key)."""
        watch = KeyWatch(self._key)
        for batch in map(without_nulls, batches):
            for block in blocks(batch.column(0), self._chunk_bytes):
                watch.see(batch, block)
                yield pa.record_batch(
                    [
                        pa.array([block.data], pa.binary()),
                        pa.array([block.rows], pa.int64()),
                        pa.array([pack_meta(block.rows, watch.take())]),
                    ],
                    names=["chunk", "rows", "meta"],
                )


class SpoolWriter:
    """Writes lines into chunk files of a spool folder that the driver empties meanwhile.

    A chunk is visible once `<name>.lines` exists; `<name>.meta` exists before it. Before a new
    chunk the task waits while unread chunks hold more than `room` bytes.

    Args:
        folder: Where chunks are left.
        lock: A file whose lock the driver holds as long as it lives.
        key: Name of the replication key; None where there is none to follow.
        chunk_bytes: A chunk is closed at this size.
        room: Bytes that may wait in the folder.
    """

    def __init__(
        self, folder: str, lock: str, key: str | None, chunk_bytes: int, room: int
    ) -> None:
        self._folder = folder
        self._lock = lock
        self._key = key
        self._chunk_bytes = chunk_bytes
        self._room = room

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on the batches of one partition; yields the number of rows written."""
        try:
            rows = self._write(batches)
        except OSError as error:
            raise RuntimeError(SPOOL_FAILED.format(error.errno or 0)) from error
        yield pa.record_batch([pa.array([rows], pa.int64())], names=["rows"])

    def _write(self, batches: Iterable[pa.RecordBatch]) -> int:
        watch = KeyWatch(self._key)
        chunk: _ChunkFile | None = None
        total = 0
        for batch in map(without_nulls, batches):
            for block in blocks(batch.column(0), self._chunk_bytes):
                chunk = chunk or self._open_chunk()
                watch.see(batch, block)
                chunk.write(block)
                total += block.rows
                if chunk.size * 2 >= self._chunk_bytes:
                    chunk.finish(watch.take())
                    chunk = None
        if chunk is not None:
            chunk.finish(watch.take())
        return total

    def _open_chunk(self) -> _ChunkFile:
        checked = time.monotonic()
        while unread_bytes(self._folder) > self._room:
            time.sleep(_POLL_SECONDS)
            if time.monotonic() - checked > _OWNER_CHECK_SECONDS:
                checked = time.monotonic()
                if not is_locked(self._lock):
                    raise RuntimeError("the tap that reads these lines has gone away")
        return _ChunkFile(os.path.join(self._folder, uuid.uuid4().hex))  # noqa: PTH118


class _ChunkFile:
    def __init__(self, name: str) -> None:
        self._name = name
        self._fd = os.open(name + PART_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._rows = 0
        self.size = 0

    def write(self, block: Block) -> None:
        rest = block.data
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self.size += len(block.data)
        self._rows += block.rows

    def finish(self, key: KeyMax | None) -> None:
        os.close(self._fd)
        with open(self._name + META_SUFFIX, "w", encoding="utf-8") as meta:  # noqa: PTH123
            meta.write(pack_meta(self._rows, key))
        os.rename(self._name + PART_SUFFIX, self._name + LINES_SUFFIX)  # noqa: PTH104


def unread_bytes(folder: str) -> int:
    """Sum the sizes of the chunks that wait for the driver."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(LINES_SUFFIX):
                try:
                    total += entry.stat().st_size
                except FileNotFoundError:
                    continue
    return total


def is_locked(path: str) -> bool:
    """Whether the process that locked a file lives: the system frees the lock when it ends."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)
