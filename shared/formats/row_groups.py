"""Groups of rows of Parquet files, read within bounds.

What pages take in memory bounds what is read at once. A footer tells encoded bytes only: an entry
of a dictionary stands for every row that refers to it, and a few bytes of run lengths for any
number of values. Footers may also lie: the headers of the pages are compared with them.
https://parquet.apache.org/docs/file-format/data-pages/
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.columnar_encoding import integer, read_struct, struct_in
from shared.formats.line_encodings import (
    JOINED,
    ROW_GROUP_BYTES,
    TABLE_ROWS,
    ContentError,
    check_mark,
)
from shared.storage import limits
from shared.storage.access import StorageOptions
from shared.storage.files import is_bomb, open_plain, open_random
from shared.storage.urls import local_path

MARK, TAIL_BYTES = b"PAR1", 8
OTHER_BYTES = len(MARK) + TAIL_BYTES
"""Bytes of a file beside its rows and footer; most have no others."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_OFFSET_BYTES = 8
_READ_BYTES, _LEAST_ROWS = 8 << 20, 1024
"""What wide rows that are read at once may take, if they are more than so few."""
SLACK_BYTES = LONGEST_HEADER = 1 << 20


class CheckedPages:
    """A Parquet file, as Arrow reads it, whose pages hold no more than its footer says.

    Writers differ in whether they count headers, so only twice as much, and a mebibyte, is a lie.
    """

    closed = False

    def __init__(self, source: pa.NativeFile, footer: Any, groups: Iterable[int]) -> None:
        self._source = source
        columns = range(footer.num_columns)
        self._chunks = [
            ColumnChunk(footer.row_group(group).column(number))
            for group in groups
            for number in columns
        ]
        self._chunks.sort(key=lambda chunk: chunk.start)
        self._ends = list(accumulate((chunk.end for chunk in self._chunks), max))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._source.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._source.seek(offset, whence))

    def close(self) -> None:
        self.closed = True

    def read(self, size: int = -1) -> pa.Buffer:
        """Return the next bytes, which Arrow does not copy.

        Raises:
            ContentError: They contain the header of a page that holds more than the footer says.
        """
        start = self.tell()
        data = self._source.read_buffer(size)
        for chunk in islice(self._chunks, bisect_right(self._ends, start), None):
            if chunk.start >= start + data.size:
                break
            chunk.look_at(start, memoryview(data).cast("B"))
        return data


class ColumnChunk:
    """A column chunk: its place, what its footer allows, and what its pages have taken of it."""

    def __init__(self, column: Any) -> None:
        first = column.dictionary_page_offset if column.has_dictionary_page else None
        self.start = min(first or column.data_page_offset, column.data_page_offset)
        self.end = self.start + column.total_compressed_size
        self._plain_left = 2 * column.total_uncompressed_size + SLACK_BYTES
        self._values_left = 2 * column.num_values + TABLE_ROWS
        self._header = self.start
        self._begun = b""

    def look_at(self, start: int, data: memoryview) -> None:
        """Check the pages whose headers end within these bytes of the file."""
        if self._begun and self._header + len(self._begun) == start:
            start, data = self._header, memoryview(self._begun + data)
        while start <= self._header < min(self.end, start + len(data)):
            try:
                header, size = read_struct(data, self._header - start)
            except IndexError:
                self._begun = bytes(data[self._header - start :])
                if len(self._begun) > LONGEST_HEADER:
                    raise ContentError("it is damaged: a page has no header") from None
                return
            self._begun = b""
            page = struct_in(header, 5) or struct_in(header, 8)
            self._plain_left -= abs(integer(header, 2))
            self._values_left -= abs(integer(page, 1))
            if min(self._plain_left, self._values_left) < 0:
                text = "it is damaged: a page holds more than the footer of the file says"
                raise ContentError(text)
            self._header = start + size + max(0, integer(header, 3))


def _rows_at_once(file: Any, group: int, source: Any) -> int:
    """Return how many rows of a row group take a bounded amount of memory."""
    footer = file.metadata.row_group(group)
    columns = range(footer.num_columns)
    rows = max(1, footer.num_rows)
    row = _row_bytes(file, group, {})
    texts = [
        number
        for number in columns
        if footer.column(number).physical_type == "BYTE_ARRAY"
        and footer.column(number).has_dictionary_page
    ]
    most = sum(footer.column(number).total_uncompressed_size for number in texts)
    if min(rows, TABLE_ROWS) * most > limits.TABLE_BYTES:
        row = _row_bytes(file, group, _longest_entries(file, group, texts, source))
    row = max(1, row)
    rows = min(TABLE_ROWS, max(_LEAST_ROWS, _READ_BYTES // row), limits.TABLE_BYTES // row)
    return int(max(1, rows))


def _row_bytes(file: Any, group: int, entries: dict[int, int]) -> int:
    """Return the bytes of one row; `entries` are the longest texts.

    Raises:
        ContentError: All nested columns may take more memory than any data does.
    """
    footer = file.metadata.row_group(group)
    rows, packed, nested, row = max(1, footer.num_rows), 0, 0, 0
    for number in range(footer.num_columns):
        chunk, column = footer.column(number), file.metadata.schema.column(number)
        packed += chunk.total_compressed_size
        plain = max(0, chunk.total_uncompressed_size)
        value = _WIDTHS.get(column.physical_type, max(column.length, 0) + _OFFSET_BYTES)
        value += entries.get(number, 0)
        if "DELTA_BYTE_ARRAY" in chunk.encodings:
            value += plain  # a value may repeat all of the one before it
        if column.max_repetition_level:
            # Any share of the values may stand in one row.
            decoded = chunk.num_values * (value + _OFFSET_BYTES) + plain
            nested += decoded
            row += decoded // rows
        else:
            row += value + plain // rows
    if nested > max(limits.FREE_NESTED_BYTES, limits.MAX_RATIO * packed):
        raise ContentError(limits.decoded_text())
    return row


def _longest_entries(file: Any, group: int, columns: list[int], source: Any) -> dict[int, int]:
    """Return the bytes of the longest entry in the dictionary of each of these columns."""
    from pyarrow import parquet  # noqa: PLC0415

    schema = file.metadata.schema
    paths = [schema.column(number).path for number in columns]
    reader = parquet.ParquetFile(source, metadata=file.metadata, read_dictionary=paths)
    longest = {}
    for number, path in zip(columns, paths, strict=True):
        batch = next(reader.iter_batches(1, [group], [path], use_threads=False), None)
        dictionaries = [] if batch is None else [*_dictionaries(batch.columns)]
        sizes = (pc.max(pc.binary_length(entries)).as_py() or 0 for entries in dictionaries)
        longest[number] = max(sizes, default=0)
    return longest


def _dictionaries(columns: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yield the dictionaries of columns, also of nested ones."""
    for column in columns:
        kind = column.type
        if pa.types.is_dictionary(kind):
            yield column.dictionary
        elif pa.types.is_struct(kind):
            yield from _dictionaries(column.field(number) for number in range(kind.num_fields))
        elif pa.types.is_map(kind):
            yield from _dictionaries([column.keys, column.items])
        elif pa.types.is_nested(kind):
            yield from _dictionaries([column.values])


_REMOTE_BUFFER_BYTES, _LOCAL_BUFFER_BYTES = 1 << 20, 256 << 10
"""What is read ahead of each column."""


def read_groups(
    url: str, groups: range | None, options: StorageOptions | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of some row groups of a Parquet file (None: all), in bounded tables.

    Raises:
        OSError: The file cannot be opened.
        pyarrow.ArrowInvalid: It is no Parquet file, or damaged, or holds more than any data would.
    """
    from pyarrow import parquet  # noqa: PLC0415

    codec = check_mark(url, MARK, "parquet", options, packed=True)
    with open_plain(url, codec, options) as source:
        footer = parquet.read_metadata(source)
        chosen = range(footer.num_row_groups) if groups is None else groups
        packed = [packed_bytes(footer.row_group(number)) for number in chosen]
        if source.size() > sum(packed) + footer.serialized_size + OTHER_BYTES and not chosen.start:
            check_whole(source, footer)
        largest = max(packed, default=0)
        # Remote storage answers one request for a group faster, but the group is then in memory.
        is_local = local_path(url) is not None
        pages = CheckedPages(source, footer, chosen)
        file = parquet.ParquetFile(
            pages,
            metadata=footer,
            pre_buffer=not is_local and largest <= ROW_GROUP_BYTES,
            buffer_size=_LOCAL_BUFFER_BYTES if is_local else _REMOTE_BUFFER_BYTES,
            page_checksum_verification=True,
        )
        none = True
        for group in chosen:
            rows = _rows_at_once(file, group, pages)
            for batch in file.iter_batches(rows, row_groups=[group], use_threads=False):
                none = False
                yield pa.Table.from_batches([batch])
        if none:
            yield file.schema_arrow.empty_table()


def check_whole(source: Any, footer: Any) -> None:
    """Raise ContentError if a file is two, one after the other: its footer tells of the last.

    Only indexes and filters of columns may stand between rows and footer.
    """
    groups = map(footer.row_group, reversed(range(footer.num_row_groups)))
    last: Any = next((group for group in groups if group.num_rows), None)
    columns = [last.column(number) for number in range(footer.num_columns if last else 0)]
    at = max([len(MARK), *(ColumnChunk(column).end for column in columns)])
    end = source.size() - footer.serialized_size - TAIL_BYTES
    for start in range(at, end, _READ_BYTES):
        source.seek(start)
        if MARK * 2 in source.read(min(_READ_BYTES + 2 * len(MARK), end - start)):
            raise ContentError(JOINED)


def packed_bytes(group: Any) -> int:
    """Return the compressed bytes of a row group; raise ContentError if it is a bomb."""
    columns = [group.column(number) for number in range(group.num_columns)]
    packed: int = sum(column.total_compressed_size for column in columns)
    plain = sum(column.total_uncompressed_size for column in columns)
    if is_bomb(packed, plain):
        raise ContentError(limits.bomb_text())
    return packed


def group_sizes(url: str, options: StorageOptions | None = None) -> list[tuple[int, int]]:
    """Return compressed bytes and rows of each row group; empty for a file of another kind.

    Raises:
        OSError: The file cannot be opened.
    """
    from pyarrow import parquet  # noqa: PLC0415

    with open_random(url, options) as source:
        try:
            footer = parquet.read_metadata(source)
        except pa.ArrowInvalid:
            return []
    sizes = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = map(group.column, range(group.num_columns))
        sizes.append((sum(column.total_compressed_size for column in columns), group.num_rows))
    return sizes


def spark_reads(footer: Any) -> bool:
    """Return whether Spark has the encodings and codecs of a file, as Arrow has more of them."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = (group.column(place) for group in groups for place in range(footer.num_columns))
    return not any(
        "BYTE_STREAM_SPLIT" in chunk.encodings or chunk.compression == "BROTLI" for chunk in chunks
    )
