"""CSV files of any size read by the driver, in blocks of whole lines that several threads share.

A block is parsed by `plain_csv`, or left to Spark.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from shared.storage.files import open_random
from tap_spark.sources.files import text_forms
from tap_spark.sources.files.file_inspector import next_line_start
from tap_spark.sources.files.line_reader import FilePart, LineRange, cut_ranges
from tap_spark.sources.files.plain_csv import HEADER_BYTES, PlainCsv
from tap_spark.state.stream_plans import MOST_THREADS

_Made = TypeVar("_Made")

BLOCK_BYTES = 4 * 1024 * 1024
LONGEST_BLOCK = 16 * 1024 * 1024
"""Bound of memory: bytes of a block with very long lines, beyond which Spark reads the files."""
AHEAD = 2
"""Bound of memory: blocks of each thread that wait for their turn."""


@dataclass(frozen=True)
class CsvBlocks:
    """The lines of files of one layout.

    Attributes:
        parser: How lines are parsed.
        header: The header of each file; None without one.
        width: The number of columns.
        ranges: The blocks, without headers.
    """

    parser: PlainCsv
    header: tuple[str, ...] | None
    width: int
    ranges: Sequence[LineRange]

    def columns(self, block: LineRange) -> list[pa.StringArray] | None:
        """Read a block into columns of text; None if Spark may read it in another way.

        Raises:
            OSError: The file cannot be read.
        """
        data = _data(block)
        return None if data is None else self.parser.columns(data, self.width)

    def forms(self) -> list[int | None] | None:
        """Return the forms of each column over all blocks; None if Spark must read them.

        Raises:
            OSError: A file cannot be read.
        """
        known: list[list[int | None]] = []
        for found in self.each(lambda columns: [text_forms.add_forms(None, c) for c in columns]):
            if found is None:
                return None
            known.append(found)
        return text_forms.union(known, self.width)

    def each(self, make: Callable[[list[pa.StringArray]], _Made | None]) -> Iterator[_Made | None]:
        """Yield what is made of the columns of each block; last of all None if Spark must read it.

        Several threads read the blocks.

        Raises:
            OSError: A file cannot be read.
        """

        def made(block: LineRange) -> _Made | None:
            columns = self.columns(block)
            return None if columns is None else make(columns)

        for found in _mapped(made, self.ranges):
            yield found
            if found is None:
                return


def csv_blocks(parser: PlainCsv, parts: Sequence[FilePart]) -> CsvBlocks | None:
    """Find the layout of files from the head of each, and cut them into blocks.

    Args:
        parser: How lines are parsed.
        parts: What to read of each file.

    Returns:
        None if no file has a line, if layouts differ, or if only Spark can tell.

    Raises:
        OSError: A file cannot be read.
    """
    found: CsvBlocks | None = None
    ranges: list[LineRange] = []
    for url, start, end in parts:
        head = _head(parser, url, start, end)
        if head is None:
            return None
        header, width, first = head
        if not width:
            continue
        if found is not None and (found.header, found.width) != (header, width):
            return None
        found = CsvBlocks(parser, header, width, ranges)
        ranges += cut_ranges(url, 0, first, end, range_bytes=BLOCK_BYTES, header=False)
    return found


def _head(
    parser: PlainCsv, url: str, start: int, end: int
) -> tuple[tuple[str, ...] | None, int, int] | None:
    """Return the header, the number of columns, and where the rows start.

    Without a line there are no columns. None if Spark must tell.
    """
    from_start = parser.header or not start
    at = 0 if from_start else start
    with open_random(url) as file:
        data = bytes(file.read_at(min(HEADER_BYTES, end - at), at))
    is_whole = at + len(data) >= end
    begin = len(data) - len(data.lstrip(b"\r\n"))
    if begin == len(data):
        return (None, 0, end) if is_whole else None
    stop = data.find(b"\n", begin) + 1
    if not stop and not is_whole:
        return None
    stop = stop or len(data)
    line = parser.first_line(data[:stop].replace(b"\r\n", b"\n"))
    if line is None:
        return None
    fields, _ = line
    if not parser.header:
        return None, len(fields), start
    return fields, len(fields), max(start, stop)


def _data(block: LineRange) -> bytes | None:
    """Return the lines of a block; None if one is very long, or the file is shorter than it was."""
    with open_random(block.url) as file:
        start = block.start
        if not block.aligned:
            start = next_line_start(file, start, block.limit)
        end = block.limit
        if block.stop < end:
            end = next_line_start(file, block.stop, end)
        if end - start > LONGEST_BLOCK:
            return None
        data = bytes(file.read_at(end - start, start)) if end > start else b""
    if len(data) < end - start:
        return None
    return data.replace(b"\r\n", b"\n") if b"\r" in data else data


def _mapped(
    make: Callable[[LineRange], _Made | None], blocks: Sequence[LineRange]
) -> Iterator[_Made | None]:
    """Apply a function to blocks; by threads if there are several."""
    threads = min(len(blocks), os.cpu_count() or 1, MOST_THREADS)
    if threads <= 1:
        yield from map(make, blocks)
        return
    waiting: deque[Future[_Made | None]] = deque()
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
