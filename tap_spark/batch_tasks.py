"""Writes batch files; runs on the executors. No Python object is made per row."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from shared.conform import conform
from shared.encodings import FORMATS, Encoding
from shared.storage import StorageOptions, local_path, open_output, open_random
from tap_spark.batch_plan import FILE_BYTES, STORAGE_FAILED, FileNames, Join, Written, note_of
from tap_spark.line_chunks import KeyMax, KeyWatch, pack_meta
from tap_spark.spool_files import SpoolPlace, begun, chunk_name, leave_note, task_identity

NOTE_SCHEMA = "partition int, number int, note string, meta string"
PART_SUFFIX = ".part"
REST_SUFFIX = ".rest"
_NOTES = pa.schema(
    [
        ("partition", pa.int32()),
        ("number", pa.int32()),
        ("note", pa.string()),
        ("meta", pa.string()),
    ]
)


@dataclass(frozen=True)
class FileWriter:
    """Writes one finished file.

    Attributes:
        encoding: Of the files.
        names: Of the files.
        schema: Columns of the files.
        options: Of the storage.
    """

    encoding: Encoding
    names: FileNames
    schema: pa.Schema
    options: StorageOptions

    def write(self, url: str, tables: Iterable[pa.Table]) -> None:
        """Write a file; on local disk it appears when it is whole, as on object stores."""
        path = local_path(url)
        part = url if path is None else _hidden(path)
        conformed = (conform(table, self.schema) for table in tables)
        with _marked(self.options):
            FORMATS[self.encoding.format].write(
                part, self.schema, conformed, self.encoding.compression, self.options
            )
            if path is not None:
                os.replace(part, path)  # noqa: PTH105


@dataclass(frozen=True)
class Reporter:
    """Tells the driver of files while others are still being written.

    Attributes:
        place: Where notes are left; None where executors share no disk with the driver, which
            then gets them with the result.
    """

    place: SpoolPlace | None

    def tell(
        self, partition: int, task: int, number: int, written: Written, key: KeyMax | None
    ) -> pa.RecordBatch:
        """Tell of a file."""
        note, meta = json.dumps(note_of(written)), pack_meta(written.rows, key)
        if self.place is not None:
            leave_note(self.place.path(chunk_name(partition, task, number)), note, meta)
        row = {"partition": partition, "number": number, "note": note, "meta": meta}
        return pa.RecordBatch.from_pylist([row], schema=_NOTES)


class BatchTask:
    """Writes the rows of partitions into batch files.

    Args:
        writer: Of the files.
        reporter: Of their names.
        key: Name of the replication key; None where there is none to follow.
        rows: Exact rows of a file: what a partition has left over goes to a file in Arrow's own
            format; None for files bounded by `file_bytes`.
        rest_folder: Local folder for left-over rows; None where tasks share no disk: they then go
            where the files go.
        file_bytes: Bytes in memory of the rows of a file.
    """

    def __init__(
        self,
        writer: FileWriter,
        reporter: Reporter,
        key: str | None,
        rows: int | None,
        rest_folder: str | None = None,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._writer = writer
        self._reporter = reporter
        self._key = key
        self._rows = rows
        self._rest_folder = rest_folder
        self._file_bytes = file_bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on the batches of one partition; yields a note on each file."""
        pa.set_cpu_count(1)
        partition, task = task_identity()
        place = self._reporter.place
        with begun(place, partition) if place is not None else nullcontext():
            rows = RowSource(batches, self._key, self._writer.schema.names)
            number = 0
            while rows.more():
                number += 1
                url = self._writer.names.url(task, number)
                write = self._one if self._rows is None else self._exact
                written = write(url, rows)
                yield self._reporter.tell(partition, task, number, written, rows.watch.take())

    def _one(self, url: str, rows: RowSource) -> Written:
        rows.count = rows.size = 0
        self._writer.write(url, rows.take(None, self._file_bytes))
        return Written(url, rows.count, rows.size)

    def _exact(self, url: str, rows: RowSource) -> Written:
        """Collect rows on disk first: whether they fill a file is known only then."""
        rows.count = rows.size = 0
        raw = self._raw_path(url)
        _write_raw(raw, self._writer.schema, rows.take(self._rows, None))
        if rows.count == self._rows:
            self._writer.write(url, read_raw(raw))
            Path(raw).unlink()
            return Written(url, rows.count, rows.size)
        return Written(self._keep(raw, url), rows.count, rows.size, is_rest=True)

    def _raw_path(self, url: str) -> str:
        folder = self._rest_folder or tempfile.gettempdir()
        return f"{folder}/{url.rpartition('/')[2]}{REST_SUFFIX}"

    def _keep(self, raw: str, url: str) -> str:
        """Give the place of left-over rows that every executor can read."""
        if self._rest_folder is not None:
            return raw
        kept = f"{url}{REST_SUFFIX}"
        with (
            open_output(kept, options=self._writer.options) as sink,
            Path(raw).open("rb") as source,
        ):
            while block := source.read(1 << 20):
                sink.write(block)
        Path(raw).unlink()
        return kept


class JoinTask:
    """Writes files from pieces of left-over rows.

    Args:
        writer: Of the files.
        reporter: Of their names.
        shares: For each partition the files it makes.
    """

    def __init__(
        self, writer: FileWriter, reporter: Reporter, shares: tuple[tuple[Join, ...], ...]
    ) -> None:
        self._writer = writer
        self._reporter = reporter
        self._shares = shares

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run on a partition whose number says which share it makes; yields a note per file."""
        for _ in batches:
            pass
        pa.set_cpu_count(1)
        partition, task = task_identity()
        place = self._reporter.place
        with begun(place, partition) if place is not None else nullcontext():
            for number, join in enumerate(self._shares[partition], start=1):
                url = self._writer.names.url(task, number)
                sizes: list[int] = []
                self._writer.write(url, self._tables(join, sizes))
                rows = sum(piece.stop - piece.start for piece in join)
                written = Written(url, rows, sum(sizes))
                yield self._reporter.tell(partition, task, number, written, None)

    def _tables(self, join: Join, sizes: list[int]) -> Iterator[pa.Table]:
        for piece in join:
            at = 0
            for table in read_raw(piece.url, self._writer.options):
                first, last = max(piece.start - at, 0), min(piece.stop - at, table.num_rows)
                if first < last:
                    cut = table.slice(first, last - first)
                    sizes.append(cut.nbytes)
                    yield cut
                at += table.num_rows
                if at >= piece.stop:
                    break


class RowSource:
    """Gives the rows of a partition in portions, and follows the replication key.

    Args:
        batches: The file's columns, then (for a key) the key, and where the first column is not
            the record itself a last one with the key as a record.
        key: Name of the replication key, or None.
        names: Of the file's columns.

    Attributes:
        watch: The greatest key taken so far.
        count: Rows taken.
        size: Bytes of the rows taken.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], key: str | None, names: list[str]
    ) -> None:
        self.watch = KeyWatch(key, envelope=False)
        self.count = 0
        self.size = 0
        self._key = key
        self._names = names
        self._batches = iter(batches)
        self._pending: pa.RecordBatch | None = None

    def more(self) -> bool:
        """Whether there are rows left."""
        while self._pending is None or not self._pending.num_rows:
            self._pending = next(self._batches, None)
            if self._pending is None:
                return False
        return True

    def take(self, rows: int | None, size: int | None) -> Iterator[pa.Table]:
        """Take whole batches until there are so many bytes, or exactly so many rows."""
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
            self.watch.see(batch.column(width), batch.column(own))
        kept = pa.table(batch.columns[:width], names=self._names)
        self.count += kept.num_rows
        self.size += kept.nbytes
        return kept


def read_raw(url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
    """Read left-over rows, a batch at a time."""
    # Not mapped: pages of a mapped file would count as memory of the worker.
    with open_random(url, options) as source:
        for batch in pa.ipc.open_stream(source):
            yield pa.Table.from_batches([batch])


def _write_raw(path: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for table in tables:
            writer.write_table(conform(table, schema))


@contextmanager
def _marked(options: StorageOptions) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = " ".join(options.without_secrets(error.strerror or str(error)).split())
        raise RuntimeError(STORAGE_FAILED.format(text)) from error


def _hidden(path: str) -> str:
    """Give the name of a file until it is whole."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}{PART_SUFFIX}"
