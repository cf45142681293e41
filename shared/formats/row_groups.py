"""Groups of rows of Parquet files: read within bounds, and copied byte for byte.

What pages take in memory bounds what is read at once. A footer tells encoded bytes only: an entry
of a dictionary stands for every row that refers to it, and a few bytes of run lengths for any
number of values. Footers may also lie: the headers of the pages are compared with them.
https://parquet.apache.org/docs/file-format/data-pages/

The columns of files can be copied into another one, with further columns. Its footer is that of a
file without rows, with the row groups of the others. All that is copied was written by Arrow, and
each page has its checksum: anything else has to be read.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from shared.formats.columnar_encoding import (
    BINARY,
    I16,
    I64,
    LIST,
    PARQUET,
    STRUCT,
    Struct,
    integer,
    read_struct,
    struct_bytes,
    struct_in,
    structs_in,
)
from shared.formats.line_encodings import (
    ROW_GROUP_BYTES,
    TABLE_ROWS,
    ContentError,
    check_mark,
)
from shared.storage import limits
from shared.storage.access import NO_OPTIONS, StorageOptions, delete
from shared.storage.files import open_output, open_plain, open_random
from shared.storage.urls import local_path

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_OFFSET_BYTES = 8
_READ_BYTES, _LEAST_ROWS = 8 << 20, 1024
"""What wide rows that are read at once may take, if they are more than so few."""
SLACK_BYTES = _LONGEST_HEADER = 1 << 20


class CheckedPages:
    """A Parquet file, as Arrow reads it, whose pages hold no more than its footer says.

    Writers differ in whether they count headers, so only twice as much, and a mebibyte, is a lie.

    Args:
        source: The file.
        footer: Its `pyarrow.parquet.FileMetaData`.
        groups: The row groups that are read.
    """

    closed = False

    def __init__(self, source: pa.NativeFile, footer: Any, groups: Iterable[int]) -> None:
        self._source = source
        columns = range(footer.num_columns)
        self._chunks = [
            _Chunk(footer.row_group(group).column(number)) for group in groups for number in columns
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

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; see `read_buffer`."""
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        """Return the next bytes.

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


class _Chunk:
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
                if len(self._begun) > _LONGEST_HEADER:
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


def rows_at_once(file: Any, group: int, source: Any) -> int:
    """Return how many rows of a row group take a bounded amount of memory.

    Args:
        file: A `pyarrow.parquet.ParquetFile`.
        group: Number of the row group.
        source: What the file is read from.

    Raises:
        ContentError: A single row may take more memory than any data does.
    """
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

    check_mark(url, b"PAR1", "parquet", options, packed=True)
    with open_plain(url, options) as source:
        footer = parquet.read_metadata(source)
        chosen = range(footer.num_row_groups) if groups is None else groups
        largest = max((packed_bytes(footer.row_group(number)) for number in chosen), default=0)
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
            rows = rows_at_once(file, group, pages)
            for batch in file.iter_batches(rows, row_groups=[group], use_threads=False):
                none = False
                yield pa.Table.from_batches([batch])
        if none:
            yield file.schema_arrow.empty_table()


def packed_bytes(group: Any) -> int:
    """Return the compressed bytes of a row group; raise ContentError if it is a bomb."""
    columns = [group.column(number) for number in range(group.num_columns)]
    packed: int = sum(column.total_compressed_size for column in columns)
    plain = sum(column.total_uncompressed_size for column in columns)
    if limits.is_bomb(packed, plain):
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


LEAST_BYTES = 1 << 20
"""Mean size of several row groups that are copied: smaller ones are better put together."""
MOST_BYTES, MOST_FOOTER_BYTES = 32 << 20, 4 << 20
"""Size of a column chunk, and of a footer, which are in memory; a footer as objects."""
_BLOCK_ROWS = 1 << 16
_MARK, _TAIL_BYTES, _WRITER = b"PAR1", 8, "parquet-cpp-arrow "
# Fields of the structs of a footer.
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4
_CHUNKS, _PLAIN_BYTES, _GROUP_ROWS, _GROUP_START, _PACKED_BYTES, _NUMBER = 1, 2, 3, 5, 6, 7
_CHUNK_START, _CHUNK, _COLUMN_TYPE, _COLUMN_NAME = 2, 3, 1, 4
_TYPE, _PATH, _CODEC, _VALUES, _CHUNK_PLAIN, _CHUNK_BYTES = 1, 3, 4, 5, 6, 7
_DATA_PAGE, _DICTIONARY_PAGE = 9, 11
_FIELDS = (
    {_CHUNKS, _PLAIN_BYTES, _GROUP_ROWS, _GROUP_START, _PACKED_BYTES, _NUMBER},
    {_CHUNK_START, _CHUNK},
    {*range(1, 8), _DATA_PAGE, _DICTIONARY_PAGE, 12, 13, 16},
)
"""Fields of a row group, a chunk and its metadata; others tell the places of further bytes."""
_PAGE_PLAIN, _PAGE_BYTES, _CHECKSUM, _DATA, _DATA_V2 = 2, 3, 4, 5, 8


_UNFIT = (pa.ArrowException, ValueError)
"""What is raised for a file that is not copied: the reader says what is wrong with it, if any."""


@dataclass(frozen=True)
class ColumnCopy:
    """Files whose columns are copied.

    Attributes:
        sources: The files in the order of their rows, each with row groups, or None for all.
        own: Their columns.
        added: Returns so many rows of further columns, whose values are the same in all rows.
        fits: Returns whether a file with this footer, a `FileMetaData`, can be copied.
        options: Options of the storage of the files.
    """

    sources: Sequence[tuple[str, range | None]]
    own: pa.Schema
    added: Callable[[int], pa.Table]
    fits: Callable[[Any], bool]
    options: StorageOptions = NO_OPTIONS

    def write(self, url: str, compression: str, options: StorageOptions = NO_OPTIONS) -> int | None:
        """Write all rows into a new file; write nothing if there are none.

        Args:
            url: The file.
            compression: That of all columns.
            options: Options of its storage.

        Returns:
            The number of rows; None if they have to be read.

        Raises:
            OSError: The file cannot be written.
        """
        try:
            with ExitStack() as stack:
                files = [self._opened(stack, *source) for source in self.sources]
                whole = self._whole(files, compression)
                groups = [(file, group) for file in files for group in file.groups]
                rows = sum(integer(group, _GROUP_ROWS) for _, group in groups)
                if rows:
                    self._write(url, whole, groups, compression, options)
                return rows
        except _UNFIT:
            return None

    def fitting(self, compression: str) -> bool:
        """Return whether `write` copies the files, as their footers and first pages tell."""
        try:
            with ExitStack() as stack:
                self._whole([self._opened(stack, *one) for one in self.sources], compression)
        except _UNFIT:
            return False
        return True

    def _opened(self, stack: ExitStack, url: str, groups: range | None) -> _Opened:
        try:
            data = stack.enter_context(open_random(url, self.options))
            file = _file(data, groups)
        except (OSError, IndexError) as error:
            raise ContentError("its footer cannot be read") from error
        footer = file.footer
        is_arrow = footer.created_by.startswith(_WRITER)
        if not (is_arrow and spark_reads(footer) and self.fits(footer)):
            raise ContentError("it is of another writer, or some of its rows do not fit")
        return file

    def _whole(self, files: Sequence[_Opened], compression: str) -> _Opened:
        """Return a file without rows with all columns, if they are those of the files."""
        # 1. The same columns in all files, as the table has them.
        first = files[0].columns
        if sorted(first.names) != sorted(self.own.names):
            raise ContentError("it has other columns")
        own = [self.own.field(one.name).with_nullable(one.nullable) for one in first]
        columns = pa.schema([*own, *self.added(0).schema], self.own.metadata)
        # 2. A footer as Arrow writes it for these columns. Those of the files must be equal to it
        #    field by field, as their pages are read by it.
        whole = _written(columns.empty_table(), compression)
        stored = structs_in(whole.tree, _SCHEMA)[1:]
        for file in files:
            others = structs_in(file.tree, _SCHEMA)[1:]
            if not file.columns.equals(pa.schema(own)) or stored[: len(others)] != others:
                raise ContentError("it has columns of other types")
        # 3. Small row groups would stay as small, and make readers slow: these are better read and
        #    joined.
        sizes = [integer(group, _PACKED_BYTES) for file in files for group in file.groups]
        if len(sizes) > 1 and sum(sizes) < LEAST_BYTES * len(sizes):
            raise ContentError("it has small row groups")
        # 4. Row groups of which the footer tells what can be moved, with the codec of new columns.
        groups = [(file, group) for file in files for group in file.groups]
        if groups:
            new = _written(self.added(1), compression)
            groups += [(new, group) for group in new.groups]
        if len({codec for file, group in groups for codec in _codecs(file, group)}) > 1:
            raise ContentError("its columns have different codecs")
        return whole

    def _write(
        self,
        url: str,
        whole: _Opened,
        groups: Sequence[tuple[_Opened, Struct]],
        compression: str,
        options: StorageOptions,
    ) -> None:
        block = self.added(_BLOCK_ROWS)
        joined: list[Struct] = []
        try:
            with open_output(url, options=options) as sink:
                sink.write(_MARK)
                for file, group in groups:
                    # The added columns are encoded for this row group: dictionaries make them some
                    # hundred bytes.
                    count, rest = divmod(integer(group, _GROUP_ROWS), _BLOCK_ROWS)
                    added = pa.concat_tables([*[block] * count, block.slice(0, rest)])
                    new = _written(added, compression)
                    moved = [
                        _moved_chunk(sink, one, struct_in(chunk, _CHUNK))
                        for one, old in ((file, group), (new, new.groups[0]))
                        for chunk in structs_in(old, _CHUNKS)
                    ]
                    joined.append(_group(moved, group, len(joined)))
                rows = sum(integer(group, _GROUP_ROWS) for group in joined)
                grown: Struct = {_ROWS: (I64, rows), _GROUPS: (LIST, (STRUCT, joined))}
                footer = struct_bytes(whole.tree | grown)
                sink.write(footer + len(footer).to_bytes(4, "little") + _MARK)
        except _UNFIT:
            delete(url, options)
            raise


@dataclass(frozen=True)
class _Opened:
    """An open file: its footer, as Arrow reads it and whole, columns and row groups with rows."""

    data: pa.NativeFile
    footer: Any
    tree: Struct
    columns: pa.Schema
    groups: Sequence[Struct]


def _file(data: pa.NativeFile, chosen: range | None = None) -> _Opened:
    from pyarrow import parquet  # noqa: PLC0415

    file = parquet.ParquetFile(data)
    footer, columns = file.metadata, file.schema_arrow
    numbers = range(footer.num_row_groups) if chosen is None else chosen
    # 1. Most files of others lack checksums: a page shows it.
    first = next((one for one in map(footer.row_group, numbers) if one.num_rows), None)
    if first is not None:
        chunk = _Chunk(first.column(0))
        data.seek(chunk.start)
        size = min(max(0, chunk.end - chunk.start), _LONGEST_HEADER)
        if _CHECKSUM not in read_struct(memoryview(data.read(size)))[0]:
            raise ContentError("its pages have no checksums")
    # 2. The footer as a tree: what Arrow shows of it is not all.
    for number in numbers:
        packed_bytes(footer.row_group(number))
    end = data.size() - _TAIL_BYTES
    data.seek(end)
    size = int.from_bytes(data.read(_TAIL_BYTES)[:4], "little")
    if size > MOST_FOOTER_BYTES:
        raise ContentError("its footer is large")
    data.seek(end - size)
    tree, _ = read_struct(memoryview(data.read(size)))
    groups = [structs_in(tree, _GROUPS)[number] for number in numbers]
    for number, group in zip(numbers, groups, strict=True):
        if integer(group, _GROUP_ROWS) != footer.row_group(number).num_rows:
            raise ContentError("its footer is damaged")
    filled = [group for group in groups if integer(group, _GROUP_ROWS)]
    return _Opened(data, footer, tree, columns.remove_metadata(), filled)


def _written(table: pa.Table, compression: str) -> _Opened:
    """Return a file of one row group in memory."""
    from pyarrow import parquet  # noqa: PLC0415

    sink, rows = pa.BufferOutputStream(), max(1, table.num_rows)
    parquet.write_table(table, sink, compression=compression, row_group_size=rows, **PARQUET)
    return _file(pa.BufferReader(sink.getvalue()))


def _codecs(file: _Opened, group: Struct) -> set[int]:
    """Return the codecs of a row group whose column chunks can be moved to another file.

    Raises:
        ContentError: They cannot, as the footer tells.
    """
    chunks = structs_in(group, _CHUNKS)
    metas = [struct_in(chunk, _CHUNK) for chunk in chunks]
    parts = zip(_FIELDS, ([group], chunks, metas), strict=True)
    # Other fields hold places in the old file (indexes, bloom filters), which the new one has not.
    if any(not one.keys() <= fields for fields, structs in parts for one in structs):
        raise ContentError("its footer tells of more than columns")
    columns = structs_in(file.tree, _SCHEMA)[1:]
    own = [(one.get(_COLUMN_TYPE), (LIST, (BINARY, [one[_COLUMN_NAME][1]]))) for one in columns]
    are_own = [(meta.get(_TYPE), meta.get(_PATH)) for meta in metas] == own
    # A chunk of another column, or of fewer values than rows, would be found only by a reader.
    if not are_own or {integer(meta, _VALUES) for meta in metas} != {integer(group, _GROUP_ROWS)}:
        raise ContentError("its footer is damaged")
    if any(integer(meta, _CHUNK_BYTES) > MOST_BYTES for meta in metas):
        raise ContentError("a column is large")
    return {integer(meta, _CODEC) for meta in metas}


def _moved_chunk(sink: pa.NativeFile, file: _Opened, meta: Struct) -> Struct:
    starts = {n: integer(meta, n) for n in (_DATA_PAGE, _DICTIONARY_PAGE) if n in meta}
    start, size = min(starts.values()), integer(meta, _CHUNK_BYTES)
    try:
        file.data.seek(start)
        data = file.data.read_buffer(size)
    except OSError as error:
        raise ContentError("it is cut off") from error
    _check_pages(memoryview(data).cast("B"), meta)
    # Places are counted from the beginning of the file: all of the chunk move by the same step.
    step = sink.tell() - start
    sink.write(data)
    moved = {number: (I64, place + step) for number, place in starts.items()}
    return {_CHUNK_START: (I64, 0), _CHUNK: (STRUCT, meta | moved)}


def _check_pages(data: memoryview, meta: Struct) -> None:
    """Compare the pages of a column chunk with their checksums, and with what its footer says.

    A reader must not need more memory for them than it says; see `CheckedPages`.
    """
    at, size, values = 0, integer(meta, _CHUNK_BYTES), integer(meta, _VALUES)
    plain = 2 * integer(meta, _CHUNK_PLAIN) + SLACK_BYTES
    while at < size:
        try:
            header, at = read_struct(data, at)
        except IndexError as error:
            raise ContentError("a page has no header") from error
        page = data[at : at + integer(header, _PAGE_BYTES)]
        at += len(page)
        if _CHECKSUM not in header or len(page) != integer(header, _PAGE_BYTES):
            raise ContentError("a page has no checksum, or is cut off")
        if isal_zlib.crc32(page) != integer(header, _CHECKSUM) & 0xFFFFFFFF:
            raise ContentError("a page is damaged")
        # Absolute: a negative number must not make room for another one that is too large.
        values -= abs(integer(struct_in(header, _DATA) or struct_in(header, _DATA_V2), 1))
        plain -= abs(integer(header, _PAGE_PLAIN))
    if values or plain < 0 or at != size:
        raise ContentError("its pages hold other than the footer says")


def _group(chunks: list[Struct], group: Struct, number: int) -> Struct:
    """Return a row group of some column chunks, of as many rows as another one."""
    metas = [struct_in(chunk, _CHUNK) for chunk in chunks]
    plain, packed = (sum(integer(meta, n) for meta in metas) for n in (_CHUNK_PLAIN, _CHUNK_BYTES))
    starts = [integer(metas[0], n) for n in (_DATA_PAGE, _DICTIONARY_PAGE) if n in metas[0]]
    return {
        _CHUNKS: (LIST, (STRUCT, chunks)),
        _PLAIN_BYTES: (I64, plain),
        _GROUP_ROWS: group[_GROUP_ROWS],
        _GROUP_START: (I64, min(starts)),
        _PACKED_BYTES: (I64, packed),
        _NUMBER: (I16, number),
    }
