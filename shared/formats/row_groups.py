"""Groups of rows of files: row groups of Parquet, record batches of Arrow.

Tasks share files by them. The footer of a Parquet file tells the number of its rows, and facts of
columns.

The columns of Parquet files can be copied byte for byte into another one, with further columns. Its
footer is that of a file without rows, with the row groups of the others. All that is copied was
written by Arrow, and each page has its checksum: anything else has to be read.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import pyarrow as pa
from isal import isal_zlib

from shared.formats.columnar_encoding import (
    BINARY,
    I16,
    I64,
    LIST,
    PARQUET,
    SLACK_BYTES,
    STRUCT,
    Struct,
    integer,
    orc_rows,
    packed_bytes,
    read_struct,
    struct_bytes,
    struct_in,
    structs_in,
)
from shared.storage.access import NO_OPTIONS, StorageOptions, delete
from shared.storage.files import open_output, open_random

Facts = list[Any]
"""Nulls, least and greatest value of a column; a bound is a number, a text, or None."""

MOST_COLUMNS = 1000
LONGEST_TEXT = 64


def parquet_profile(
    url: str, options: StorageOptions | None = None
) -> tuple[int, dict[str, Facts]]:
    """Return the rows of a file, and the facts of its first columns that are not nested.

    Args:
        url: The file.
        options: Options of its storage.

    Raises:
        OSError: The file cannot be opened.
        ArrowInvalid: It is not Parquet.
    """
    from pyarrow import parquet  # noqa: PLC0415

    with open_random(url, options) as source:
        footer = parquet.read_metadata(source)
    return footer.num_rows, footer_facts(footer)


def footer_facts(footer: Any) -> dict[str, Facts]:
    """Return the facts of the first columns that are not nested, of a `FileMetaData`."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    profile: dict[str, Facts] = {}
    for number in range(min(footer.num_columns, MOST_COLUMNS)):
        column = footer.schema.column(number)
        if column.path == column.name and column.max_repetition_level == 0:
            facts = _facts([group.column(number).statistics for group in groups])
            if facts is not None:
                profile[column.name] = facts
    return profile


def merged(one: Facts, other: Facts) -> Facts:
    """Return the facts of a column in two files; bounds of different types are dropped."""
    return [one[0] + other[0], _bound(min, one[1], other[1]), _bound(max, one[2], other[2])]


def _bound(choose: Any, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return None
    is_text = isinstance(one, str), isinstance(other, str)
    return None if is_text[0] != is_text[1] else choose(one, other)


def _facts(chunks: Sequence[Any]) -> Facts | None:
    if any(chunk is None or not chunk.has_null_count for chunk in chunks):
        return None
    nulls = sum(chunk.null_count for chunk in chunks)
    filled = [chunk for chunk in chunks if chunk.num_values]
    if not filled or not all(chunk.has_min_max for chunk in filled):
        return [nulls, None, None]
    try:
        least, greatest = min(c.min for c in filled), max(c.max for c in filled)
    except (OverflowError, ValueError, TypeError):
        return [nulls, None, None]  # a date that Python does not have
    return [nulls, _plain(least), _plain(greatest)]


def _plain(value: Any) -> int | float | str | None:
    """Return a bound as JSON has it; None for one without order as text, or too long."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.timezone.utc)
    if isinstance(value, dt.date):  # also one with a time
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else None
    if isinstance(value, float | decimal.Decimal):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, int) else None


def has_no_null(footer: Any, names: Sequence[str]) -> bool:
    """Return whether a footer shows that columns have a value in each row."""
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    if not places.keys() >= set(names):
        return False
    for name in names:
        place = places[name]
        if footer.schema.column(place).max_definition_level == 0:
            continue  # declared so
        for group in range(footer.num_row_groups):
            if not footer.row_group(group).num_rows:
                continue
            statistics = footer.row_group(group).column(place).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                return False
    return True


def spark_reads(footer: Any) -> bool:
    """Return whether Spark has the encodings and codecs of a file, as Arrow has more of them."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = (group.column(place) for group in groups for place in range(footer.num_columns))
    return not any(
        "BYTE_STREAM_SPLIT" in chunk.encodings or chunk.compression == "BROTLI" for chunk in chunks
    )


class GroupedEncoding(Protocol):
    """The module of an encoding whose files consist of groups of rows."""

    def read_groups(
        self, url: str, groups: range | None, options: StorageOptions | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of some groups (None: all), in bounded tables."""
        ...

    def group_sizes(self, url: str, options: StorageOptions | None = None) -> list[tuple[int, int]]:
        """Return bytes and rows of each group; empty if the file is not of this encoding."""
        ...


def read_footer(
    name: str, url: str, options: StorageOptions | None = None
) -> tuple[int | None, dict[str, Facts]]:
    """Return the rows that a file says it has, None if its encoding does not; facts of columns."""
    if name == "parquet":
        return parquet_profile(url, options)
    return orc_rows(url, options) if name == "orc" else None, {}


GROUPED = {"parquet": "columnar_encoding", "arrow": "arrow_encoding"}
"""The encodings that have groups, and their modules, which are imported with the first file."""


def grouped_encoding(name: str) -> GroupedEncoding:
    """Return the module of an encoding that has groups."""
    return cast("GroupedEncoding", import_module(f"shared.formats.{GROUPED[name]}"))


LEAST_BYTES = 1 << 20
"""Mean size of several row groups that are copied: smaller ones are better put together."""
MOST_BYTES, MOST_FOOTER_BYTES = 32 << 20, 4 << 20
"""Size of a column chunk, and of a footer, which are in memory; a footer as objects."""
_BLOCK_ROWS = 1 << 16
_MARK, _TAIL_BYTES, _WRITER = b"PAR1", 8, "parquet-cpp-arrow "
# Fields of the structs of a footer.
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4
_COLUMN_TYPE, _COLUMN_NAME = 1, 4
_CHUNKS, _PLAIN_BYTES, _GROUP_ROWS, _GROUP_START, _PACKED_BYTES, _NUMBER = 1, 2, 3, 5, 6, 7
_CHUNK_START, _CHUNK = 2, 3
_TYPE, _PATH, _CODEC, _VALUES, _CHUNK_PLAIN, _CHUNK_BYTES = 1, 3, 4, 5, 6, 7
_DATA_PAGE, _DICTIONARY_PAGE = 9, 11
_FIELDS = (
    {_CHUNKS, _PLAIN_BYTES, _GROUP_ROWS, _GROUP_START, _PACKED_BYTES, _NUMBER},
    {_CHUNK_START, _CHUNK},
    {*range(1, 8), _DATA_PAGE, _DICTIONARY_PAGE, 12, 13, 16},
)
"""Fields of a row group, a chunk and its metadata; others tell the places of further bytes."""
_PAGE_PLAIN, _PAGE_BYTES, _CHECKSUM, _DATA, _DATA_V2 = 2, 3, 4, 5, 8


class _OtherFileError(Exception):
    """A file has to be read."""


_UNFIT = (_OtherFileError, pa.ArrowException, ValueError)
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
        """Return whether `write` copies the files, as footers and first columns tell."""
        try:
            with ExitStack() as stack:
                files = [self._opened(stack, *source) for source in self.sources]
                self._whole(files, compression)
                for file in files:
                    for group in file.groups[:1]:
                        first = struct_in(structs_in(group, _CHUNKS)[0], _CHUNK)
                        _moved_chunk(pa.MockOutputStream(), file, first)
        except (*_UNFIT, IndexError):
            return False
        return True

    def _opened(self, stack: ExitStack, url: str, groups: range | None) -> _Opened:
        try:
            data = stack.enter_context(open_random(url, self.options))
            file = _file(data, groups)
        except (OSError, IndexError) as error:
            raise _OtherFileError from error
        footer = file.footer
        is_arrow = footer.created_by.startswith(_WRITER)
        if not (is_arrow and spark_reads(footer) and self.fits(footer)):
            raise _OtherFileError
        return file

    def _whole(self, files: Sequence[_Opened], compression: str) -> _Opened:
        """Return a file without rows with all columns, if they are those of the files."""
        # 1. The same columns in all files, as the table has them.
        first = files[0].columns
        if sorted(first.names) != sorted(self.own.names):
            raise _OtherFileError
        own = [self.own.field(one.name).with_nullable(one.nullable) for one in first]
        columns = pa.schema([*own, *self.added(0).schema], self.own.metadata)
        # 2. A footer as Arrow writes it for these columns. Those of the files must be equal to it
        #    field by field, as their pages are read by it.
        whole = _written(columns.empty_table(), compression)
        stored = structs_in(whole.tree, _SCHEMA)[1:]
        for file in files:
            others = structs_in(file.tree, _SCHEMA)[1:]
            if not file.columns.equals(pa.schema(own)) or stored[: len(others)] != others:
                raise _OtherFileError
        # 3. Small row groups would stay as small, and make readers slow: these are better read and
        #    joined.
        sizes = [integer(group, _PACKED_BYTES) for file in files for group in file.groups]
        if len(sizes) > 1 and sum(sizes) < LEAST_BYTES * len(sizes):
            raise _OtherFileError
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
                    new = _written(_repeated(block, integer(group, _GROUP_ROWS)), compression)
                    chunks = [*_moved(sink, file, group), *_moved(sink, new, new.groups[0])]
                    joined.append(_group(chunks, group, len(joined)))
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
    for number in numbers:
        packed_bytes(footer.row_group(number))
    end = data.size() - _TAIL_BYTES
    data.seek(end)
    size = int.from_bytes(data.read(_TAIL_BYTES)[:4], "little")
    if size > MOST_FOOTER_BYTES:
        raise _OtherFileError
    data.seek(end - size)
    tree, _ = read_struct(memoryview(data.read(size)))
    groups = [structs_in(tree, _GROUPS)[number] for number in numbers]
    for number, group in zip(numbers, groups, strict=True):
        if integer(group, _GROUP_ROWS) != footer.row_group(number).num_rows:
            raise _OtherFileError
    filled = [group for group in groups if integer(group, _GROUP_ROWS)]
    return _Opened(data, footer, tree, columns.remove_metadata(), filled)


def _written(table: pa.Table, compression: str) -> _Opened:
    """Return a file of one row group in memory."""
    from pyarrow import parquet  # noqa: PLC0415

    sink, rows = pa.BufferOutputStream(), max(1, table.num_rows)
    parquet.write_table(table, sink, compression=compression, row_group_size=rows, **PARQUET)
    return _file(pa.BufferReader(sink.getvalue()))


def _repeated(block: pa.Table, rows: int) -> pa.Table:
    """Return so many rows, of which those of a block are in memory."""
    count, rest = divmod(rows, block.num_rows)
    return pa.concat_tables([*[block] * count, block.slice(0, rest)])


def _moved(sink: pa.NativeFile, file: _Opened, group: Struct) -> list[Struct]:
    """Append the column chunks of a row group to a file; return what its footer says of them."""
    chunks = structs_in(group, _CHUNKS)
    metas = [struct_in(chunk, _CHUNK) for chunk in chunks]
    parts = zip(_FIELDS, ([group], chunks, metas), strict=True)
    # Other fields hold places in the old file (indexes, bloom filters), which the new one has not.
    if any(not one.keys() <= fields for fields, structs in parts for one in structs):
        raise _OtherFileError
    columns = structs_in(file.tree, _SCHEMA)[1:]
    own = [(one.get(_COLUMN_TYPE), (LIST, (BINARY, [one[_COLUMN_NAME][1]]))) for one in columns]
    are_own = [(meta.get(_TYPE), meta.get(_PATH)) for meta in metas] == own
    # A chunk of another column, or of fewer values than rows, would be found only by a reader.
    if not are_own or {integer(meta, _VALUES) for meta in metas} != {integer(group, _GROUP_ROWS)}:
        raise _OtherFileError
    return [_moved_chunk(sink, file, meta) for meta in metas]


def _moved_chunk(sink: pa.NativeFile, file: _Opened, meta: Struct) -> Struct:
    starts = {n: integer(meta, n) for n in (_DATA_PAGE, _DICTIONARY_PAGE) if n in meta}
    start, size = min(starts.values()), integer(meta, _CHUNK_BYTES)
    if size > MOST_BYTES:
        raise _OtherFileError
    try:
        file.data.seek(start)
        data = file.data.read_buffer(size)
    except OSError as error:
        raise _OtherFileError from error
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
            raise _OtherFileError from error
        page = data[at : at + integer(header, _PAGE_BYTES)]
        at += len(page)
        if _CHECKSUM not in header or len(page) != integer(header, _PAGE_BYTES):
            raise _OtherFileError
        if isal_zlib.crc32(page) != integer(header, _CHECKSUM) & 0xFFFFFFFF:
            raise _OtherFileError
        # Absolute: a negative number must not make room for another one that is too large.
        values -= abs(integer(struct_in(header, _DATA) or struct_in(header, _DATA_V2), 1))
        plain -= abs(integer(header, _PAGE_PLAIN))
    if values or plain < 0 or at != size:
        raise _OtherFileError


def _group(chunks: list[Struct], group: Struct, number: int) -> Struct:
    """Return a row group of some column chunks, of as many rows as another one."""
    metas = [struct_in(chunk, _CHUNK) for chunk in chunks]
    if len({integer(meta, _CODEC) for meta in metas}) > 1:
        raise _OtherFileError
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
