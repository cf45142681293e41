"""Tasks that write batch files, without a Python object per row.

Executors run them; threads of the driver do for blocks of rows that it reads itself.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.arrow_types import conform
from shared.formats.file_formats import FORMATS, Encoding
from shared.singer.platform import arrow_in_task
from shared.storage.access import StorageOptions, make_durable
from shared.storage.files import open_output, open_random
from shared.storage.urls import local_path
from tap_spark.send.batch_plan import (
    FILE_BYTES,
    NO_FILE,
    FileContent,
    FileNames,
    WrittenFile,
    marking_storage_failures,
    row_count,
)
from tap_spark.send.spool_files import (
    FILTERED,
    KeyMax,
    KeyTracker,
    TaskSpool,
    begun_task,
    chunk_name,
    leave_note,
    pack_meta,
    replaced_in,
    task_identity,
)
from tap_spark.state.stream_plans import BlockReaders

NOTE_SCHEMA = "partition int, number int, note string, meta string"
PART_SUFFIX = ".part"
LEFTOVER_SUFFIX = ".rest"
_COPY_BYTES = 1 << 20
_PUSHED = 4 * 8192
"""Characters of a note that comes with the result: Java keeps shorter ones until the job's end."""
_NOTES = pa.schema(
    [
        ("partition", pa.int32()),
        ("number", pa.int32()),
        ("note", pa.string()),
        ("meta", pa.string()),
    ]
)


@dataclass(frozen=True)
class BatchFileWriter:
    """Writes one finished file.

    Attributes:
        work: Local folder for finished files, from which the driver moves them; None to write them
            to their URLs.
        level: Level of the compression; None for the encoding's own.
    """

    encoding: Encoding
    names: FileNames
    schema: pa.Schema
    options: StorageOptions
    work: str | None = None
    level: int | None = None

    def write(self, url: str, tables: Iterable[pa.Table]) -> None:
        """Write a file; it appears when it is complete and durable."""
        path = local_path(url)
        with marking_storage_failures(self.options):
            if path is None:
                self._fill(url, tables)
            elif self.work is not None:
                self._fill_waiting(waiting_path(self.work, url), tables)
            else:
                part = _hidden(path)
                self._fill(part, tables)
                make_durable(part)
                os.replace(part, path)  # noqa: PTH105
                make_durable(str(Path(path).parent))

    def _fill_waiting(self, path: str, tables: Iterable[pa.Table]) -> None:
        file = Path(path)
        # Fails if the driver has removed the folder.
        with file.open("xb") as begun:
            self._fill(path, tables)
            # If it is removed now, opening the file has created it again.
            if not os.path.samestat(os.fstat(begun.fileno()), file.stat()):
                shutil.rmtree(file.parent, ignore_errors=True)
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        make_durable(path)

    def _fill(self, url: str, tables: Iterable[pa.Table]) -> None:
        FORMATS[self.encoding.format].write(
            url,
            self.schema,
            (conform(table, self.schema) for table in tables),
            self.encoding.compression,
            self.options,
            self.level,
        )


@dataclass(frozen=True)
class Reporter:
    """Reports files to the driver while others are still being written.

    Attributes:
        spool: Folder for notes; None if executors do not share a disk with the driver, which then
            gets them with the result.
    """

    spool: TaskSpool | None

    def report(
        self, partition: int, task: int, number: int, written: WrittenFile, key: KeyMax | None
    ) -> pa.RecordBatch:
        note, meta = json.dumps(vars(written)), pack_meta(written.rows, key)
        if self.spool is not None:
            leave_note(self.spool.path(chunk_name(partition, task, number)), note, meta)
        else:
            note = note.ljust(_PUSHED)
        row = {"partition": partition, "number": number, "note": note, "meta": meta}
        return pa.RecordBatch.from_pylist([row], schema=_NOTES)

    def notes(
        self, files: Callable[[int, int], Iterable[tuple[WrittenFile, KeyMax | None]]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield a note for each file that a task writes, by its partition and attempt."""
        arrow_in_task()
        partition, task = task_identity()
        with nullcontext() if self.spool is None else begun_task(self.spool, partition):
            for number, (written, key) in enumerate(files(partition, task), start=1):
                yield self.report(partition, task, number, written, key)


@dataclass(eq=False)
class BatchTask:
    """Writes the rows of partitions into batch files.

    Attributes:
        key: Name of the replication key; None without a key to track.
        rows: Exact number of rows of a file; left-over rows of a partition go to a file in Arrow's
            format. None for files of about `file_bytes`.
        leftover_folder: Local folder for left-over rows; None to write them beside the files, if
            tasks do not share a disk.
        file_bytes: Bytes in memory of the rows of a file.
        before: Waiting rows of earlier slices, fewer than `rows`, to write before the task's own;
            only if a single task reads the slice.
    """

    writer: BatchFileWriter
    reporter: Reporter
    key: str | None
    rows: int | None
    leftover_folder: str | None = None
    file_bytes: int = FILE_BYTES
    before: FileContent = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on the batches of one partition; yields a note for each file."""
        return self.reporter.notes(lambda _, task: self.files(batches, task))

    def files(
        self, batches: Iterable[pa.RecordBatch], task: int
    ) -> Iterator[tuple[WrittenFile, KeyMax | None]]:
        """Write batches to files; yield each file and its greatest key."""
        rows = TaskRows(batches, self.key, self.writer.schema.names)
        number = 0
        while rows.more():
            number += 1
            url = self.writer.names.url(task, number)
            write = self._one if self.rows is None else self._exact
            written = replace(write(url, rows), replaced=json.dumps(rows.replaced))
            rows.replaced.clear()
            yield written, rows.tracker.take()
        key = rows.tracker.take()
        if key is not None:
            yield NO_FILE, key

    def _one(self, url: str, rows: TaskRows) -> WrittenFile:
        rows.count = rows.size = 0
        self.writer.write(url, rows.take(None, self.file_bytes))
        return WrittenFile(url, rows.count, rows.size)

    def _exact(self, url: str, rows: TaskRows) -> WrittenFile:
        """Write rows to disk first: only then is it known whether they fill a file."""
        size = self.rows or 0
        before, self.before = self.before, ()
        sizes: list[int] = []
        earlier = _range_tables(before, self.writer.options, sizes)
        rows.count = rows.size = 0
        with self._raw_file(url) as raw:
            own = rows.take(size - row_count(before), None)
            _write_raw(raw, self.writer.schema, chain(earlier, own))
            raw.seek(0)
            written = WrittenFile(url, rows.count + row_count(before), rows.size + sum(sizes))
            if written.rows < size:
                return replace(written, url=self._keep(raw, url), is_leftover=True)
            self.writer.write(url, _raw_tables(raw))
        if self.leftover_folder is not None:
            Path(raw.name).unlink()
        return written

    def _raw_file(self, url: str) -> BinaryIO:
        if self.leftover_folder is None:
            # A file without a name disappears however the task ends.
            return tempfile.TemporaryFile()
        name = url.rpartition("/")[2] + LEFTOVER_SUFFIX
        return Path(self.leftover_folder, name).open("w+b")

    def _keep(self, raw: BinaryIO, url: str) -> str:
        """Return the URL of left-over rows, which every executor can read."""
        if self.leftover_folder is not None:
            return raw.name
        kept = f"{url}{LEFTOVER_SUFFIX}"
        options = self.writer.options
        with marking_storage_failures(options), open_output(kept, options=options) as sink:
            shutil.copyfileobj(raw, sink, _COPY_BYTES)
        return kept


@dataclass(frozen=True)
class RepackTask:
    """Writes files from left-over rows; `shares` are the files of each partition."""

    writer: BatchFileWriter
    reporter: Reporter
    shares: tuple[tuple[FileContent, ...], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on a partition, whose number selects its files; yields a note for each."""
        for _ in batches:
            pass
        return self.reporter.notes(self._files)

    def _files(self, partition: int, task: int) -> Iterator[tuple[WrittenFile, None]]:
        for number, content in enumerate(self.shares[partition], start=1):
            url = self.writer.names.url(task, number)
            sizes: list[int] = []
            self.writer.write(url, _range_tables(content, self.writer.options, sizes))
            yield WrittenFile(url, row_count(content), sum(sizes)), None


class TaskRows:
    """Yields the rows of a partition file by file, and tracks the replication key.

    Filtered rows count only after the rows before them have been taken.

    Args:
        batches: The file's columns, then (with a key) the key and, unless the first column is the
            record itself, a record with the key; last `FILTERED`, if rows are filtered.

    Attributes:
        size: Bytes of the rows taken.
        replaced: See `RecordTexts`; of the rows read.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], key: str | None, names: list[str]
    ) -> None:
        self.tracker = KeyTracker(key)
        self.count = 0
        self.size = 0
        self.replaced: Counter[str] = Counter()
        self._key = key
        self._names = names
        self._batches = iter(batches)
        self._pending: pa.RecordBatch | None = None
        self._filtered: pa.RecordBatch | None = None

    def more(self) -> bool:
        """Return whether there are rows left."""
        while self._pending is None or not self._pending.num_rows:
            self._track_filtered()
            self._pending = next(self._batches, None)
            if self._pending is None:
                return False
            self.replaced.update(replaced_in(self._pending))
            if self._pending.schema.names[-1] == FILTERED:
                self._part(self._pending)
        return True

    def _part(self, batch: pa.RecordBatch) -> None:
        """Separate filtered rows from the others."""
        mark, own = batch.column(batch.num_columns - 1), batch.drop_columns([FILTERED])
        self._pending = own.filter(pc.invert(mark))
        self._filtered = own.filter(mark)

    def _track_filtered(self) -> None:
        rows, self._filtered = self._filtered, None
        if rows is not None:
            width = len(self._names)
            self.tracker.track(rows.column(width), rows.column(width + 1))

    def take(self, rows: int | None, size: int | None) -> Iterator[pa.Table]:
        """Take whole batches until there are `size` bytes, or exactly `rows` rows."""
        while (rows is None or self.count < rows) and (size is None or self.size < size):
            if not self.more() or self._pending is None:
                return
            batch = self._pending
            head = batch if rows is None else batch.slice(0, rows - self.count)
            self._pending = batch.slice(head.num_rows)
            yield self._taken(head)

    def _taken(self, batch: pa.RecordBatch) -> pa.Table:
        width = len(self._names)
        if self._key is not None:
            own = batch.num_columns - 1 if batch.num_columns > width + 1 else 0
            self.tracker.track(batch.column(width), batch.column(own))
        kept = pa.table(batch.columns[:width], names=self._names)
        self.count += kept.num_rows
        self.size += kept.nbytes
        return kept


def read_raw(url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
    """Read left-over rows, batch by batch."""
    # Not memory-mapped: mapped pages would count as memory of the worker.
    with open_random(url, options) as source:
        yield from _raw_tables(source)


def _range_tables(
    content: FileContent, options: StorageOptions, sizes: list[int]
) -> Iterator[pa.Table]:
    """Read ranges of left-over rows; adds the bytes of each table to `sizes`."""
    for leftover_range in content:
        at = 0
        for table in read_raw(leftover_range.url, options):
            first = max(leftover_range.start - at, 0)
            last = min(leftover_range.stop - at, table.num_rows)
            if first < last:
                cut = table.slice(first, last - first)
                sizes.append(cut.nbytes)
                yield cut
            at += table.num_rows
            if at >= leftover_range.stop:
                break


def _raw_tables(source: pa.NativeFile | BinaryIO) -> Iterator[pa.Table]:
    for batch in pa.ipc.open_stream(source):
        yield pa.Table.from_batches([batch])


def _write_raw(sink: BinaryIO, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    with pa.ipc.new_stream(sink, schema) as writer:
        for table in tables:
            writer.write_table(conform(table, schema))


def waiting_path(work: str, url: str) -> str:
    """Return the path of a finished file until it is published."""
    return f"{work}/{url.rpartition('/')[2]}"


def _hidden(path: str) -> str:
    """Return the name of a file until it is complete."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}{PART_SUFFIX}"


_ENDING_SECONDS = 2
"""How long an ended stream waits for its threads: less than a run may take after SIGTERM."""
_ONE_STREAM = threading.Lock()
"""Its threads use every core, so that streams that are read at the same time take turns."""


class LeftToSparkError(Exception):
    """A block must be read by Spark."""


def driver_files(
    writer: BatchFileWriter,
    readers: BlockReaders,
    threads: int,
    ended: Callable[[], bool],
) -> Generator[WrittenFile, None, None]:
    """Write files from blocks of rows; yield each once it is finished.

    Args:
        readers: Each reads a block; None from one means that Spark must read all of them.
        threads: How many blocks are read and written at the same time.
        ended: Returns whether the run has ended, so that nobody needs the files.

    Raises:
        LeftToSparkError: Spark must read the rows.
        Exception: The files cannot be written.
    """
    waiting = iter(readers)
    lock, stopped = threading.Lock(), threading.Event()
    finished = SimpleQueue[WrittenFile | BaseException | None]()

    def batches() -> Iterator[pa.RecordBatch]:
        while not stopped.is_set() and not ended():
            with lock:
                read = next(waiting, None)
            if read is None:
                return
            rows = read()
            if rows is None:
                raise LeftToSparkError
            yield rows

    def write(task: int) -> None:
        try:
            for file, _ in BatchTask(writer, Reporter(None), None, None).files(batches(), task):
                finished.put(file)
            finished.put(None)
        except BaseException as error:
            stopped.set()
            finished.put(error)

    # None waits in the pool: `wait` would not see it cancelled.
    threads = max(1, min(threads, len(readers)))
    pool = ThreadPoolExecutor(threads)
    tasks = list[Future[None]]()
    with _ONE_STREAM:
        try:
            tasks.extend(pool.submit(write, task) for task in range(threads))
            running = threads
            while running:
                result = finished.get()
                if isinstance(result, BaseException):
                    raise result
                if result is None:
                    running -= 1
                else:
                    yield result
        except LeftToSparkError:
            # Spark writes into the same folder: no thread may add a file later.
            stopped.set()
            wait(tasks)
            raise
        finally:
            # Also if this thread is interrupted while it waits: a source may not answer.
            stopped.set()
            pool.shutdown(wait=False)
            wait(tasks, _ENDING_SECONDS)
