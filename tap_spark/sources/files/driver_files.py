"""Files of one format, as far as threads of the driver read them without Spark."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.types import DecimalType, StructType

from shared.engine.engine import Engine, Work
from shared.errors import SourceError, Where
from shared.formats.record_text import PLAIN_SCALE
from shared.singer.platform import usable_cores
from shared.storage.files import open_random
from shared.storage.urls import local_path, shown
from tap_spark.sources.files import paths
from tap_spark.sources.files.line_reader import FilePart, LineRange, cut_ranges
from tap_spark.sources.record_arrays import RecordTexts
from tap_spark.state.stream_plans import (
    MOST_THREADS,
    DriverBlocks,
    DriverRows,
    Method,
    Resume,
    RowForm,
    StreamPlan,
)
from tap_spark.stream_config import StreamConfig

_Block = TypeVar("_Block")
_Result = TypeVar("_Result")

BLOCK_BYTES = 4 * 1024 * 1024
LONGEST_BLOCK = 16 * 1024 * 1024
"""Bound of memory: bytes of a block with very long lines, beyond which Spark reads the files."""
AHEAD = 2
"""Bound of memory: blocks of each thread that wait for their turn."""
MOST_REMOTE_FILES = 100
"""Those of a stream that threads read as a whole: executors wait for more requests at a time."""


class DriverFiles:
    """Files of one format that threads may read, if no bookmark says where.

    Raises:
        SourceError: A local path does not exist.
    """

    def __init__(self, stream: StreamConfig) -> None:
        self.stream = stream
        self.key_properties = stream.key_properties
        self.paths = list(paths.resolve_paths(stream))
        self._incremental = stream.is_incremental

    @property
    def is_local(self) -> bool:
        """Return whether all paths are on the disk, of which Spark sees no more than the driver."""
        return all(local_path(path) is not None for path in self.paths)

    @property
    def weight(self) -> float:
        """Return the work of a byte that threads read; 0 if only Spark can. See `Work`."""
        return 0

    def schema_on_driver(self, engine: Engine) -> StructType | None:  # noqa: ARG002
        """See `DriverSource`."""
        return None

    def blocks_on_driver(
        self,
        plan: StreamPlan,  # noqa: ARG002
        struct: StructType,  # noqa: ARG002
        parts: Sequence[FilePart],  # noqa: ARG002
    ) -> DriverBlocks | None:
        """Return the rows in blocks, in the types of the catalog; None if Spark has to."""
        return None

    def plain_files(self) -> list[tuple[str, int]]:
        """Return all files with their sizes, if they are plain ones that the driver reaches."""
        try:
            files = paths.list_files(tuple(self.paths))
        except SourceError:
            if self._incremental or self.is_local:
                raise
            return []  # Spark may have credentials of its own.
        remote = sum(local_path(file.url) is None for file in files)
        if remote > MOST_REMOTE_FILES and not self._incremental:
            return []
        if any(file.partitioned or paths.is_read_whole(file.url) for file in files):
            return []
        if any(paths.is_hidden(file.url.rpartition("/")[2]) for file in files):
            return []
        return [(file.url, file.size) for file in files if file.size]

    def read_on_driver(
        self, plan: StreamPlan, form: RowForm | None, engine: Engine
    ) -> DriverRows | None:
        """See `DriverSource.read_on_driver`."""
        self._incremental = plan.method is Method.INCREMENTAL
        urls = [path for path in self.stream.paths if local_path(path) is None]
        if urls and len(self.stream.paths) > 1:
            # As Spark and paths on the disk do: the rows of the other paths are not the whole.
            for url in urls:
                if paths.leads_nowhere(url):
                    raise self._without_files(url)
        if form is None or not self.weight or plan.resume is Resume.REPLICATION_KEY:
            return None
        read_at = datetime.now(timezone.utc)
        parts = [(url, 0, size) for url, size in self.plain_files()]
        rows = self.rows_of(plan, form, engine, parts)
        return None if rows is None else replace(rows, read_at=read_at)

    def rows_of(
        self, plan: StreamPlan, form: RowForm, engine: Engine, parts: Sequence[FilePart]
    ) -> DriverRows | None:
        """Read parts of files; None if Spark has to."""
        size = sum(end - start for _, start, end in parts)
        if plan.source_schema is None or not size or not plan.columns:
            return None
        if not engine.takes(Work(plan.stream, size * self.weight)):
            return None
        struct = StructType.fromJson(json.loads(plan.source_schema))
        blocks = self.blocks_on_driver(plan, struct, parts)
        if blocks is None or form is RowForm.BLOCKS:
            return None if blocks is None else DriverRows(blocks=blocks)
        columns = StructType([struct[name] for name in plan.columns])
        return DriverRows(self._record_texts(blocks, columns))

    def texts_of(
        self, block: pa.RecordBatch, struct: StructType
    ) -> Iterator[pa.StringArray] | None:
        """Return the JSON text of the rows of a block; None if Spark has to write it."""
        decimals = [f.dataType for f in struct if isinstance(f.dataType, DecimalType)]
        if any(decimal.scale > PLAIN_SCALE for decimal in decimals):
            return None
        return RecordTexts(struct.names).of(block.columns)

    def _record_texts(
        self, blocks: DriverBlocks, struct: StructType
    ) -> Iterator[pa.StringArray | None]:
        """Yield the JSON text of each row; last of all None if Spark must read them."""

        def texts(read: Callable[[], pa.RecordBatch | None]) -> list[pa.StringArray] | None:
            block = read()
            arrays = None if block is None else self.texts_of(block, struct)
            return None if arrays is None else list(arrays)

        for arrays in mapped(texts, [*blocks.readers]):
            if arrays is None:
                yield None
                return
            yield from arrays

    @contextmanager
    def naming_paths(self) -> Iterator[None]:
        """Raise an error that names a path without files or bucket, not what Spark says then."""
        try:
            yield
        except Exception as error:
            empty = next((path for path in self.paths if self._is_empty(path)), None)
            if empty is None:
                raise
            raise self._without_files(empty) from error

    def _without_files(self, path: str) -> SourceError:
        hint = "check 'path'; names with '.' or '_' at the start do not count"
        return self.error("no file matches the path", hint, shown(path))

    def _is_empty(self, path: str) -> bool:
        try:
            return not paths.list_files((path,))
        except SourceError as error:
            # A folder on the disk that may not be read, or no such bucket.
            if local_path(path) is not None or isinstance(error.__cause__, FileNotFoundError):
                raise
            return False  # Spark may have credentials of its own.

    def option(self, name: str, default: str = "") -> str:
        """Return a reader option; its name may be in upper or lower case."""
        values = [
            value for key, value in self.stream.options.items() if key.lower() == name.lower()
        ]
        return values[-1] if values else default

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean reader option."""
        return self.option(name, str(default)).lower() == "true"

    def error(self, message: str, hint: str = "", file: str | None = None) -> SourceError:
        """Build an error that names this stream."""
        return SourceError(message, where=Where(stream=self.stream.name, file=file), hint=hint)

    def shown_path(self) -> str:
        """Return the path of the settings, for errors."""
        return ", ".join(map(shown, self.stream.paths))


def blocks_of(part: FilePart) -> list[LineRange]:
    """Cut a part of a file into blocks that threads read."""
    url, start, end = part
    return cut_ranges(url, 0, start, end, range_bytes=BLOCK_BYTES)


def block_bytes(block: LineRange) -> bytes | None:
    """Return the lines of a block; None if one is very long, or the file is shorter than it was.

    Raises:
        OSError: The file cannot be read.
    """
    with open_random(block.url) as file:
        start, end = block.bounds(file)
        if end - start > LONGEST_BLOCK:
            return None
        data = bytes(file.read_at(end - start, start)) if end > start else b""
    if len(data) < end - start:
        return None
    return data.replace(b"\r\n", b"\n") if b"\r" in data else data


def whole_columns(table: pa.Table) -> list[pa.Array]:
    """Return the columns of a table, each as one array."""
    # `combine_chunks` copies a single chunk, too.
    return [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]


def mapped(make: Callable[[_Block], _Result], blocks: Sequence[_Block]) -> Iterator[_Result]:
    """Apply a function to blocks; by threads if there are several."""
    threads = min(len(blocks), usable_cores(), MOST_THREADS)
    if threads <= 1:
        yield from map(make, blocks)
        return
    # Results keep the order of blocks. A bounded number waits, whatever the size of the files.
    waiting: deque[Future[_Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for block in blocks:
            waiting.append(pool.submit(make, block))
            if len(waiting) >= threads * AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
