"""The executors' side of the spool: chunk files that the driver copies to standard output.

Sent to workers by value, as is all of this project that it imports.

The folder of one job has these files:

- `<partition>-<task>-<number>.lines`: a finished chunk; its `.meta` is written before it. Until it
  is finished its name ends in `.part`.
- `<partition>.begun`: locked while a task of the partition runs.
- `<partition>.ended`: a task of the partition has finished all its chunks.
- `progress`: in an ordered job, the partition that the driver copies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from shared.arrow_start import arrow_in_task
from tap_spark.output.line_chunks import KeyMax, KeyTracker, LineBlock, pack_meta

LINES_SUFFIX = ".lines"
META_SUFFIX = ".meta"
PART_SUFFIX = ".part"
BEGUN_SUFFIX = ".begun"
ENDED_SUFFIX = ".ended"
PROGRESS_NAME = "progress"
SPOOL_FAILED = "[tap-spark spool errno {}]"
COUNT_SCHEMA = "rows bigint"

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
        folder: The folder.
        lock: A file that the driver locks as long as it runs.
        limit: Bytes that may wait in the folder.
        ordered: Whether the driver copies partition after partition.
    """

    folder: str
    lock: str
    limit: int
    ordered: bool = False

    def path(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return os.path.join(self.folder, name)  # noqa: PTH118

    def is_full_for(self, partition: int) -> bool:
        """Return whether a task of a partition must wait."""
        if not self.ordered:
            return sum(size for _, size in unread(self.folder)) > self.limit
        progress = read_progress(self.folder)
        is_later = partition > progress.partition
        held = sum(size for p, size in unread(self.folder) if (p > progress.partition) == is_later)
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
                if not is_locked(self.lock):
                    raise RuntimeError("the tap that reads these lines has ended")


class SpoolWriter:
    """Writes the lines of partitions into chunk files.

    Args:
        spool: The folder for chunks.
        key: Name of the replication key; None without a key to track.
        chunk_bytes: Size of a chunk; only a single longer line makes it larger.
    """

    def __init__(self, spool: TaskSpool, key: str | None, chunk_bytes: int) -> None:
        self._spool = spool
        self._key = key
        self._chunk_bytes = chunk_bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on the batches of one partition; yields the number of rows written."""
        arrow_in_task()
        partition, task = task_identity()
        try:
            with begun(self._spool, partition):
                rows = self._write(batches, partition, task)
        except OSError as error:
            raise RuntimeError(SPOOL_FAILED.format(error.errno or 0)) from error
        yield pa.record_batch([pa.array([rows], pa.int64())], names=["rows"])

    def _write(self, batches: Iterable[pa.RecordBatch], partition: int, task: int) -> int:
        tracker = KeyTracker(self._key)
        chunk: _ChunkFile | None = None
        total = number = 0
        for batch in batches:
            for block in tracker.blocks(batch, self._chunk_bytes):
                if chunk is None:
                    self._spool.wait_for_space(partition)
                    chunk = _ChunkFile(self._spool.path(chunk_name(partition, task, number)))
                    number += 1
                chunk.write(block)
                total += block.rows
                if chunk.size * 2 >= self._chunk_bytes:
                    chunk.finish(tracker.take())
                    chunk = None
        key = tracker.take()
        if chunk is None and key is not None:
            # The key of rows without a line: reported by a chunk without lines.
            chunk = _ChunkFile(self._spool.path(chunk_name(partition, task, number)))
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
def begun(spool: TaskSpool, partition: int) -> Iterator[None]:
    """Mark a partition as begun, and at the end of the block as ended unless it fails."""
    if not spool.ordered:
        yield
        return
    fd = os.open(spool.path(marker_name(partition, BEGUN_SUFFIX)), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Shared: another attempt of the same task may hold it too.
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
        ended = spool.path(marker_name(partition, ENDED_SUFFIX))
        os.close(os.open(ended, os.O_WRONLY | os.O_CREAT, 0o600))
    finally:
        os.close(fd)


class _ChunkFile:
    def __init__(self, name: str) -> None:
        self._name = name
        self._fd = os.open(name + PART_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._rows = 0
        self.size = 0

    def write(self, block: LineBlock) -> None:
        rest = block.data
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self.size += len(block.data)
        self._rows += block.rows

    def finish(self, key: KeyMax | None) -> None:
        os.close(self._fd)
        _publish(self._name, pack_meta(self._rows, key))


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


def unread(folder: str) -> Iterator[tuple[int, int]]:
    """Yield partition and size of the chunks that wait for the driver."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(LINES_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    yield partition_of(entry.name), entry.stat().st_size


def is_locked(path: str) -> bool:
    """Return whether the process that locked a file still runs."""
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
