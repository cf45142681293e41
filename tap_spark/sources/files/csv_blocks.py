"""CSV files of any size read by the driver, in blocks of whole lines that several threads share.

Spark's parser has answers of its own for damaged or unusual lines. So `plain_csv` reads only bytes
that leave no choice: UTF-8 lines with equally many fields, each either without quotes or quoted as
RFC 4180 has it. It returns None for everything else, and Spark reads the files.

Why beside `csv_files`: threads read plain files faster than Spark starts (`benchmarks.csv_small`).
"""

from __future__ import annotations

import csv
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.csv as pa_csv

from shared.storage.files import open_random
from tap_spark.sources.files import text_types
from tap_spark.sources.files.file_positions import next_line_start
from tap_spark.sources.files.line_reader import FilePart, LineRange, cut_ranges
from tap_spark.state.stream_plans import MOST_THREADS

HEADER_BYTES = 64 * 1024
"""Bytes at the start of a file in which its header is looked for."""

MOST_COLUMNS = 10_000
_OPTIONS = {"header", "sep", "delimiter"}
_SEPARATORS = {",": ",", ";": ";", "|": "|", "\t": "\t", "\\t": "\t"}
_UNUSUAL = (b"\x00", b"\r", b"\xef\xbb\xbf")
"""What may be a line end, or a byte order mark."""

_SPACES = rb"[\x00-\x09\x0b-\x20]+(?:\n|\Z)"
_FIRST_OF_SPACES, _LATER_OF_SPACES = re.compile(_SPACES), re.compile(rb"\n" + _SPACES)
"""A line of nothing but spaces. As one pattern of two choices, they would take thirty times as
long: Python looks for a literal start fast."""


@dataclass(frozen=True)
class PlainCsv:
    """How lines of one stream are parsed.

    Attributes:
        separator: One character.
        header: Whether each file starts with a header line.
    """

    separator: str
    header: bool

    def first_line(self, head: bytes) -> tuple[tuple[str, ...], int] | None:
        """Return the fields of the first line that is not blank, and where the line ends.

        Args:
            head: The start of a file, with the whole line; line feeds end lines.

        Returns:
            None if there is no such line, or Spark may read it in another way.
        """
        start = len(head) - len(head.lstrip(b"\n"))
        end = head.find(b"\n", start)
        end = len(head) if end < 0 else end
        line = self._checked(head[start:end])
        if not line:
            return None
        try:
            (fields,) = csv.reader([line.decode()], delimiter=self.separator, strict=True)
        except csv.Error:
            return None
        return (tuple(fields), end) if len(fields) <= MOST_COLUMNS else None

    def columns(self, data: bytes, count: int) -> list[pa.StringArray] | None:
        """Parse lines into columns of text; an empty field is null.

        Args:
            data: Whole lines without a header; line feeds end lines.
            count: The number of columns.

        Returns:
            None if Spark may read the lines in another way.
        """
        if not data.strip(b"\n"):
            return [pa.array([], pa.string())] * count
        if not self._checked(data):
            return None
        names = [f"c{number}" for number in range(count)]
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(data),
                pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
                pa_csv.ParseOptions(delimiter=self.separator, newlines_in_values=False),
                pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [column.combine_chunks() for column in table.columns]

    def _checked(self, data: bytes) -> bytes:
        """Return the data if they leave no choice to a parser; else nothing."""
        if any(sign in data for sign in _UNUSUAL):
            return b""
        if _FIRST_OF_SPACES.match(data) or _LATER_OF_SPACES.search(data):
            return b""
        try:
            data.decode()
        except UnicodeDecodeError:
            return b""
        if b'"' in data:
            around = re.escape(self.separator.encode()) + b"\\n"
            quoted = rb'(?<![^%b])"[^"\n]*(?:""[^"\n]*)*"(?=[%b]|\Z)' % (around, around)
            # A quote that is left is not part of a quoted field.
            if b'"' in re.sub(quoted, b"", data):
                return b""
        return data


def plain_csv(options: Mapping[str, str], *, header: bool) -> PlainCsv | None:
    """Return how lines are parsed; None if an option asks for more.

    Args:
        options: The stream's reader options.
        header: Whether each file starts with a header line.
    """
    values = {name.lower(): value for name, value in options.items()}
    separators = [values[name] for name in ("sep", "delimiter") if name in values] or [","]
    separator = _SEPARATORS.get(str(separators[0]))
    if values.keys() - _OPTIONS or len(separators) > 1 or separator is None:
        return None
    return PlainCsv(separator, header)


_Result = TypeVar("_Result")

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
        forms: list[list[int | None]] = []
        for block_forms in self.each(
            lambda columns: [text_types.add_forms(None, c) for c in columns]
        ):
            if block_forms is None:
                return None
            forms.append(block_forms)
        return text_types.union(forms, self.width)

    def each(
        self, make: Callable[[list[pa.StringArray]], _Result | None]
    ) -> Iterator[_Result | None]:
        """Yield what is made of the columns of each block; last of all None if Spark must read it.

        Several threads read the blocks.

        Raises:
            OSError: A file cannot be read.
        """

        def parsed(block: LineRange) -> _Result | None:
            columns = self.columns(block)
            return None if columns is None else make(columns)

        for result in _mapped(parsed, self.ranges):
            yield result
            if result is None:
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
    csv: CsvBlocks | None = None
    ranges: list[LineRange] = []
    for url, start, end in parts:
        head = _head(parser, url, start, end)
        if head is None:
            return None
        header, width, first = head
        if not width:
            continue
        if csv is not None and (csv.header, csv.width) != (header, width):
            return None
        csv = CsvBlocks(parser, header, width, ranges)
        ranges += cut_ranges(url, 0, first, end, range_bytes=BLOCK_BYTES, header=False)
    return csv


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
    make: Callable[[LineRange], _Result | None], blocks: Sequence[LineRange]
) -> Iterator[_Result | None]:
    """Apply a function to blocks; by threads if there are several."""
    threads = min(len(blocks), os.cpu_count() or 1, MOST_THREADS)
    if threads <= 1:
        yield from map(make, blocks)
        return
    waiting: deque[Future[_Result | None]] = deque()
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
