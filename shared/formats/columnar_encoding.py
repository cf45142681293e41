"""Parquet and ORC; bounded by what the pages of a Parquet file take in memory.

A footer tells encoded bytes only: an entry of a dictionary stands for every row that refers to it,
and a few bytes of run lengths stand for any number of values. Footers may also lie, so the headers
of the pages are compared with the footer while Arrow reads them.
https://parquet.apache.org/docs/file-format/data-pages/
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.line_encodings import (
    ROW_GROUP_BYTES,
    TABLE_ROWS,
    ContentError,
    check_mark,
    grouped,
)
from shared.storage import limits
from shared.storage.access import StorageOptions
from shared.storage.files import open_output, open_plain, open_random
from shared.storage.urls import local_path

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_OFFSET_BYTES = 8
SLACK_BYTES = 1 << 20
_LONGEST_HEADER = 1 << 20

# Thrift's compact protocol. A struct that was read is written with the same bytes.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12,
)  # fmt: skip
_INTEGERS = (I16, I32, I64)
_MORE, _LONG_LIST, _DOUBLE_BYTES = 0x80, 0x0F, 8

Struct = dict[int, tuple[int, Any]]
"""Field number → type and value: an integer, bytes (also of a double), a struct, or the type and
the values of a list; None for a boolean, which its type tells."""


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
    packed = sum(footer.column(number).total_compressed_size for number in columns)
    nested, row = _decoded_bytes(file, group, {})
    _check_nested(packed, nested)
    texts = [
        number
        for number in columns
        if footer.column(number).physical_type == "BYTE_ARRAY"
        and footer.column(number).has_dictionary_page
    ]
    most = sum(footer.column(number).total_uncompressed_size for number in texts)
    if min(rows, TABLE_ROWS) * most > limits.TABLE_BYTES:
        nested, row = _decoded_bytes(file, group, _longest_entries(file, group, texts, source))
        _check_nested(packed, nested)
    return int(max(1, min(TABLE_ROWS, limits.TABLE_BYTES // max(1, row))))


def _check_nested(packed: int, plain: int) -> None:
    if plain > max(limits.FREE_NESTED_BYTES, limits.MAX_RATIO * packed):
        raise ContentError(limits.decoded_text())


def _decoded_bytes(file: Any, group: int, entries: dict[int, int]) -> tuple[int, int]:
    """Return the bytes of all nested columns, and of one row; `entries` are the longest texts."""
    footer = file.metadata.row_group(group)
    rows, nested, row = max(1, footer.num_rows), 0, 0
    for number in range(footer.num_columns):
        chunk, column = footer.column(number), file.metadata.schema.column(number)
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
    return nested, row


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


def read_struct(data: memoryview, at: int = 0) -> tuple[Struct, int]:
    """Return a struct and the place behind it.

    Raises:
        IndexError: The bytes end within it.
        ContentError: They are something else.
    """
    fields: Struct = {}
    number = 0
    while True:
        head, at = data[at], at + 1
        kind = head & 0x0F
        if not kind:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        value = None
        if kind not in (TRUE, FALSE):
            value, at = _value(data, at, kind)
        fields[number] = kind, value


def integer(fields: Struct, number: int) -> int:
    """Return an integer of a struct; 0 if it has none."""
    kind, value = fields.get(number, (I64, 0))
    return int(value) if kind in _INTEGERS else 0


def struct_in(fields: Struct, number: int) -> Struct:
    """Return a struct of a struct; an empty one if it has none."""
    kind, value = fields.get(number, (STRUCT, {}))
    return value if kind == STRUCT else {}


def structs_in(fields: Struct, number: int) -> list[Struct]:
    """Return the structs of a list of a struct."""
    kind, value = fields.get(number, (LIST, (STRUCT, [])))
    return value[1] if kind == LIST and value[0] == STRUCT else []


def _value(data: memoryview, at: int, kind: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _zigzag(data, at)
    if kind == STRUCT:
        return read_struct(data, at)
    if kind in (LIST, SET):
        return _list(data, at)
    if kind in (TRUE, FALSE, BYTE):
        return data[at], at + 1
    if kind == BINARY:
        size, at = _varint(data, at)
    elif kind == DOUBLE:
        size = _DOUBLE_BYTES
    else:
        raise ContentError("it is damaged: the header of a page has an unknown form")
    if at + size > len(data):
        raise IndexError(size)
    return bytes(data[at : at + size]), at + size


def _list(data: memoryview, at: int) -> tuple[tuple[int, list[Any]], int]:
    size, kind, at = data[at] >> 4, data[at] & 0x0F, at + 1
    if size == _LONG_LIST:
        size, at = _varint(data, at)
    values = []
    for _ in range(size):
        value, at = _value(data, at, kind)
        values.append(value)
    return (kind, values), at


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        byte, at = data[at], at + 1
        number |= (byte & ~_MORE) << shift
        if not byte & _MORE:
            return number, at
        shift += 7


def struct_bytes(fields: Struct) -> bytes:
    """Return a struct as bytes."""
    text, before = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        step = number - before
        is_near = 0 < step <= _LONG_LIST
        text += bytes([step << 4 | kind]) if is_near else bytes([kind]) + _signed(number)
        if value is not None:
            text += _bytes(kind, value)
        before = number
    return bytes(text) + b"\0"


def _bytes(kind: int, value: Any) -> bytes:
    if kind in _INTEGERS:
        return _signed(value)
    if kind == STRUCT:
        return struct_bytes(value)
    if kind in (LIST, SET):
        below, values = value
        size = len(values)
        head = bytes([min(size, _LONG_LIST) << 4 | below])
        head += _unsigned(size) if size >= _LONG_LIST else b""
        return head + b"".join(_bytes(below, one) for one in values)
    if kind in (TRUE, FALSE, BYTE):
        return bytes([value])
    return _unsigned(len(value)) + value if kind == BINARY else bytes(value)


def _signed(number: int) -> bytes:
    return _unsigned(number << 1 if number >= 0 else (-number << 1) - 1)


def _unsigned(number: int) -> bytes:
    data = bytearray()
    while number >= _MORE:
        data.append(number & ~_MORE & 0xFF | _MORE)
        number >>= 7
    data.append(number)
    return bytes(data)


_PLACES, _ROWS = 256, 64
"""Places in which values are compared, and rows in each."""

_MOST_DISTINCT = 0.95
"""Share of distinct values up to which a column gets a dictionary. That of other columns is likely
to outgrow Parquet's limit of 1 MiB: the writer then gives it up, in every row group anew."""


def dictionary_paths(table: pa.Table) -> list[str]:
    """Return the Parquet paths of the columns to write with a dictionary.

    Args:
        table: The first rows of the file.
    """
    step = max(_ROWS, table.num_rows // _PLACES)
    starts = range(0, max(1, table.num_rows), step)
    # Runs of rows: values of a sorted column repeat beside each other.
    sample = pa.concat_tables(table.slice(start, _ROWS) for start in starts)
    return [
        path
        for number, field in enumerate(table.schema)
        if _repeats(sample.column(number))
        for path in _paths(field.type, field.name)
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    try:
        distinct = pc.count_distinct(column).as_py()
    except pa.ArrowNotImplementedError:  # of nested types, for example
        return True
    return bool(distinct <= _MOST_DISTINCT * (len(column) - column.null_count))


def _paths(kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the paths of a column's values in a file."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _paths(field.type, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        yield from _paths(kind.key_type, f"{path}.key_value.key")
        yield from _paths(kind.item_type, f"{path}.key_value.value")
    elif pa.types.is_nested(kind):
        yield from _paths(kind.value_type, f"{path}.list.element")
    else:
        yield path


_REMOTE_BUFFER_BYTES = 1024 * 1024
_LOCAL_BUFFER_BYTES = 256 * 1024
"""What is read ahead of each column."""


PARQUET = {"coerce_timestamps": "us", "version": "2.6", "write_page_checksum": True}
"""Settings of `pyarrow.parquet.ParquetWriter`: files as Spark writes them, with checksums."""


class ParquetFormat:
    """Parquet as Spark writes it: microseconds, exact decimals, snappy.

    Files that are gzipped as a whole (`.parquet.gz`) are read too.
    """

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`."""
        return read_groups(url, None, options)

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
        level: int | None = None,
    ) -> None:
        """See `Codec`."""
        from pyarrow import parquet  # noqa: PLC0415

        groups = grouped(tables, ROW_GROUP_BYTES)
        group = next(groups, None)
        with (
            open_output(url, options=options) as sink,
            parquet.ParquetWriter(
                sink,
                schema,
                compression=compression,
                compression_level=level,
                use_dictionary=True if group is None else dictionary_paths(group),
                **PARQUET,
            ) as writer,
        ):
            while group is not None:
                writer.write_table(group, row_group_size=max(1, group.num_rows))
                group = None  # before the next one is collected
                group = next(groups, None)


class OrcFormat:
    """ORC; instants are written as `timestamp with local time zone`."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`."""
        from pyarrow import orc  # noqa: PLC0415

        check_mark(url, b"ORC", "orc", options)
        with open_random(url, options) as source:
            file = orc.ORCFile(source)
            for stripe in range(file.nstripes):
                yield pa.Table.from_batches([file.read_stripe(stripe)])

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
    ) -> None:
        """See `Codec`."""
        from pyarrow import orc  # noqa: PLC0415

        codec = "uncompressed" if compression == "none" else compression
        with (
            open_output(url, options=options) as sink,
            orc.ORCWriter(sink, compression=codec) as writer,
        ):
            writer.write(schema.empty_table())
            for group in grouped(tables, ROW_GROUP_BYTES):
                writer.write(group)
                del group  # before the next one is collected


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


def orc_rows(url: str, options: StorageOptions | None = None) -> int:
    """Return the rows in the footer of an ORC file.

    Raises:
        OSError: The file cannot be opened, or is not ORC.
    """
    from pyarrow import orc  # noqa: PLC0415

    with open_random(url, options) as source:
        return int(orc.ORCFile(source).nrows)
