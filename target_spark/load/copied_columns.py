"""Columns that a map only copies: they bypass Spark's rows, in Arrow.

The reader of the records sends these columns ahead of their rows, as one value: an Arrow stream.
The writer joins them with the rows that Spark has made, by their origins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from shared.maps.record_metadata import COLUMNS
from target_spark.destinations.destination import ROW_ORIGIN
from target_spark.load.load_frames import plain_types
from target_spark.validation.missing_keys import column_at

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shared.maps.transform import Cell, Transform

_STREAM_BYTES = 4 << 20


@dataclass(frozen=True)
class Copy:
    """A column of the table that records contain unchanged.

    Attributes:
        name: Name of the table's column.
        path: The record's column, and the fields that lead into it.
    """

    name: str
    path: tuple[str, ...]


def without_copies(
    transform: Transform, table: StructType, *, metadata: bool, made: Collection[str] = ()
) -> tuple[Transform, tuple[Copy, ...]]:
    """Separate the columns that a map computes from those that it copies.

    Args:
        transform: The map.
        table: The columns of the table.
        metadata: Whether the records have metadata columns.
        made: Columns that Spark makes in any case.

    Returns:
        The map without its copies, and the copies: none if a record may have several rows.
    """
    if transform.explode is not None:
        return transform, ()
    kinds = plain_types(table)

    def is_copy(cell: Cell) -> bool:
        plain = cell.made is None and cell.finish is None and cell.name not in made
        return plain and kinds.get(cell.name) == cell.data_type

    copies = [Copy(cell.name, cell.path) for cell in transform.cells if is_copy(cell)]
    if metadata:
        copies += [Copy(field.name, (field.name,)) for field in table if field.name in COLUMNS]
    others = tuple(cell for cell in transform.cells if not is_copy(cell))
    return replace(transform, cells=others), tuple(copies)


def select_copies(copies: Sequence[Copy], table: pa.Table) -> pa.Table:
    """Return the copied columns of records, under their names in the table."""
    columns = [column_at(table, copy.path) for copy in copies]
    return pa.table(columns, names=[copy.name for copy in copies])


def packed(copies: Sequence[Copy], table: pa.Table) -> Iterator[tuple[bytes, pa.Table]]:
    """Yield records in parts, each after its copied columns as an Arrow stream.

    Args:
        copies: The columns.
        table: Records with their origins.
    """
    beside = select_copies(copies, table).append_column(ROW_ORIGIN, table.column(ROW_ORIGIN))
    step = max(1, table.num_rows * _STREAM_BYTES // max(1, beside.nbytes))
    for first in range(0, table.num_rows, step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, beside.schema) as stream:
            stream.write_table(beside.slice(first, step))
        yield sink.getvalue().to_pybytes(), table.slice(first, step)


class CopiedColumnJoiner:
    """Joins copied columns with the rows that Spark made; both are in the records' order."""

    def __init__(self) -> None:
        self._streams: list[pa.Buffer] = []

    def takes(self, value: pa.Buffer) -> bool:
        """Take a value of the rejects' column; return whether it is an Arrow stream.

        Later rows belong to this stream or to later ones.
        """
        is_stream = bytes(value.slice(0, 1)) != b"{"
        if is_stream:
            self._streams.append(value)
        return is_stream

    def joined(self, rows: pa.Table, origins: pa.Array) -> pa.Table:
        """Return the rows with their copied columns.

        Args:
            rows: The rows that Spark made from records of the taken streams.
            origins: Origins of these rows.
        """
        if not self._streams:
            return rows
        known = pa.concat_tables([pa.ipc.open_stream(data).read_all() for data in self._streams])
        # Only rows of the last one can come yet.
        del self._streams[:-1]
        found = pc.index_in(origins, known.column(ROW_ORIGIN))
        joined = _picked(known.drop_columns([ROW_ORIGIN]), found)
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            joined = joined.append_column(name, column)
        return joined


def _picked(table: pa.Table, origins: pa.Array) -> pa.Table:
    """Return some rows of a table by ascending numbers; do not copy if all are taken."""
    count = len(origins)
    first = origins[0].as_py() if count else 0
    if count and origins[-1].as_py() - first == count - 1:
        return table.slice(first, count)
    return table.take(origins)
