"""Columns of Parquet files, copied byte for byte into another one with further columns.

Its footer is that of a file without rows, with the row groups of the others. All that is copied was
written by Arrow, and each page has its checksum: anything else has to be read.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
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
from shared.formats.line_encodings import ContentError
from shared.formats.row_groups import (
    LONGEST_HEADER,
    MARK,
    OTHER_BYTES,
    SLACK_BYTES,
    TAIL_BYTES,
    ColumnChunk,
    check_whole,
    packed_bytes,
    spark_reads,
)
from shared.storage.access import NO_OPTIONS, StorageOptions, delete
from shared.storage.files import open_output, open_random

LEAST_BYTES = 1 << 20
"""Mean size of several row groups that are copied: smaller ones are better put together."""
MOST_BYTES, MOST_FOOTER_BYTES = 32 << 20, 4 << 20
"""Size of a column chunk, and of a footer, which are in memory; a footer as objects."""
_BLOCK_ROWS = 1 << 16
_WRITER = "parquet-cpp-arrow "
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
                sink.write(MARK)
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
                sink.write(footer + len(footer).to_bytes(4, "little") + MARK)
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
        chunk = ColumnChunk(first.column(0))
        data.seek(chunk.start)
        size = min(max(0, chunk.end - chunk.start), LONGEST_HEADER)
        if _CHECKSUM not in read_struct(memoryview(data.read(size)))[0]:
            raise ContentError("its pages have no checksums")
    # 2. The footer as a tree: what Arrow shows of it is not all.
    packed = sum(packed_bytes(footer.row_group(number)) for number in numbers)
    if data.size() > packed + footer.serialized_size + OTHER_BYTES and not numbers.start:
        check_whole(data, footer)
    end = data.size() - TAIL_BYTES
    data.seek(end)
    size = int.from_bytes(data.read(TAIL_BYTES)[:4], "little")
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
