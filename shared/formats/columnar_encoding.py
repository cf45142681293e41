"""Parquet and ORC, and what their footers tell: the number of rows, and facts of columns.

A footer of Parquet is a struct of Thrift, which Arrow shows in part.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.encodings.encoding_format import grouped_encoding
from shared.formats.line_encodings import ROW_GROUP_BYTES, ContentError, check_mark, grouped
from shared.storage.access import StorageOptions
from shared.storage.files import open_output, open_random

# Thrift's compact protocol. A struct that was read is written with the same bytes.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12,
)  # fmt: skip
_INTEGERS = (I16, I32, I64)
_MORE, _LONG_LIST, _DOUBLE_BYTES = 0x80, 0x0F, 8

Struct = dict[int, tuple[int, Any]]
"""Field number → type and value: an integer, bytes (also of a double), a struct, or the type and
the values of a list; None for a boolean, which its type tells."""

Facts = list[Any]
"""Nulls, least and greatest value of a column; a bound is a number, a text, or None."""

MOST_COLUMNS = 1000
LONGEST_TEXT = 64


def footer_facts(footer: Any) -> dict[str, Facts]:
    """Return the facts of the first columns that are not nested, of a `FileMetaData`."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    profile: dict[str, Facts] = {}
    for number in range(min(footer.num_columns, MOST_COLUMNS)):
        column = footer.schema.column(number)
        if column.path == column.name and column.max_repetition_level == 0:
            facts = column_facts([group.column(number).statistics for group in groups])
            if facts is not None:
                profile[column.name] = [facts[0], _plain(facts[1]), _plain(facts[2])]
    return profile


def merged_facts(one: Facts, other: Facts) -> Facts:
    """Return the facts of a column in two files; bounds of different types are dropped."""
    return [one[0] + other[0], _bound(min, one[1], other[1]), _bound(max, one[2], other[2])]


def _bound(choose: Any, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return None
    is_text = isinstance(one, str), isinstance(other, str)
    return None if is_text[0] != is_text[1] else choose(one, other)


def column_facts(chunks: Sequence[Any]) -> Facts | None:
    """Return the facts of a column, bounds as Python has them; None if a chunk tells no nulls.

    Args:
        chunks: The statistics of its chunks, as Arrow has them; None for a chunk without any.
    """
    if any(chunk is None or not chunk.has_null_count for chunk in chunks):
        return None
    nulls = sum(chunk.null_count for chunk in chunks)
    filled = [chunk for chunk in chunks if chunk.num_values]
    if not filled or not all(chunk.has_min_max for chunk in filled):
        return [nulls, None, None]
    try:
        return [nulls, min(c.min for c in filled), max(c.max for c in filled)]
    except (OverflowError, ValueError, TypeError):
        return [nulls, None, None]  # Parquet has dates before year 1 and after 9999


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
    groups = [one for one in map(footer.row_group, range(footer.num_row_groups)) if one.num_rows]
    for place in map(places.__getitem__, names):
        if footer.schema.column(place).max_definition_level == 0:
            continue  # declared so
        chunks = [group.column(place).statistics for group in groups]
        if any(one is None or not one.has_null_count or one.null_count for one in chunks):
            return False
    return True


_PLACES, _ROWS = 256, 64
"""Places in which values are compared, and rows in each."""

_MOST_DISTINCT = 0.95
"""Share of distinct values up to which a column gets a dictionary. That of other columns is likely
to outgrow Parquet's limit of 1 MiB: the writer then gives it up, in every row group anew."""


def dictionary_paths(table: pa.Table) -> list[str]:
    """Return the Parquet paths to write with a dictionary, by the first rows of a file."""
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


PARQUET = {"coerce_timestamps": "us", "version": "2.6", "write_page_checksum": True}
"""Settings of `pyarrow.parquet.ParquetWriter`: files as Spark writes them, with checksums."""


class ParquetFormat:
    """Parquet as Spark writes it: microseconds, exact decimals, snappy.

    Files that are gzipped as a whole (`.parquet.gz`) are read too.
    """

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`."""
        return grouped_encoding("parquet").read_groups(url, None, options)

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


def read_footer(
    name: str, url: str, options: StorageOptions | None = None
) -> tuple[int | None, dict[str, Facts]]:
    """Return the rows that a file says it has, None if its encoding does not; facts of columns.

    Raises:
        OSError: The file cannot be opened, or is not ORC.
        ArrowInvalid: It is not Parquet.
    """
    if name not in {"parquet", "orc"}:
        return None, {}
    with open_random(url, options) as source:
        if name == "orc":
            from pyarrow import orc  # noqa: PLC0415

            return int(orc.ORCFile(source).nrows), {}
        from pyarrow import parquet  # noqa: PLC0415

        footer = parquet.read_metadata(source)
    return footer.num_rows, footer_facts(footer)


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
            number, at = _value(data, at, I16)
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
        number, at = _varint(data, at)
        return (number >> 1) ^ -(number & 1), at
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
