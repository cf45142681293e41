"""Rows of files that cannot be rows of a table, such as those whose text is not UTF-8.

Arrow does not check the text of columnar files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shared.formats.row_values import plain_rows, row_text

NOT_TEXT = "text that is not UTF-8 is not Unicode text"
_BYTES = {
    pa.string(): pa.binary(),
    pa.string_view(): pa.binary_view(),
    pa.large_string(): pa.large_binary(),
}


@dataclass(frozen=True)
class RefusedRow:
    """A row of a file that cannot be one of its table.

    Attributes:
        number: Its place in the file, from 1; the header and blank lines do not count.
        reason: What is wrong with it, in one line.
        text: The row as CSV.
    """

    number: int
    reason: str
    text: bytes


def row_numbers(before: int, refused: Sequence[RefusedRow]) -> Callable[[int], int]:
    """Return a function from a row's place in a table, from 0, to its number in the file, from 1.

    Args:
        before: Rows of the file, also malformed ones, before those of the table.
        refused: The malformed rows that `read_csv` yielded with it.
    """
    places = [row.number - 1 - before - count for count, row in enumerate(refused)]
    return lambda place: before + place + 1 + bisect_right(places, place)


def without_bad_text(table: pa.Table, before: int) -> tuple[pa.Table, list[RefusedRow]]:
    """Return the rows of a table whose text is UTF-8, and the others.

    Args:
        table: Rows of a file.
        before: Rows of the file before them.

    Returns:
        The first ones, and the others with U+FFFD for what is not UTF-8.
    """
    suspects = [n for n, column in enumerate(table.columns) if not _is_valid(column)]
    for n in suspects:
        column = table.column(n)
        kind = _retyped(column.type, {})
        if kind != column.type:  # The values of a dictionary are not those of the rows.
            table = table.set_column(n, table.column_names[n], column.cast(kind))
    rows = range(table.num_rows)
    bad = {row for n in suspects for row in _bad_rows(table.column(n), rows)}
    if not bad:
        return table, []
    others = table.take(pa.array(sorted(bad), pa.int64()))
    for n in suspects:
        others = others.set_column(n, table.schema.field(n), _repaired(others.column(n)))
    texts = map(row_text, plain_rows(others))
    refused = [
        RefusedRow(before + row + 1, NOT_TEXT, text)
        for row, text in zip(sorted(bad), texts, strict=True)
    ]
    kept = pa.array([row for row in rows if row not in bad], pa.int64())
    return table.take(kept), refused


def _is_valid(column: pa.ChunkedArray) -> bool:
    if _as_bytes(column.type) == column.type:
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _bad_rows(column: pa.ChunkedArray, rows: range) -> Iterator[int]:
    """Halve the rows until each that is not valid stands alone."""
    if _is_valid(column.take(pa.array(rows, pa.int64()))):
        return
    if len(rows) == 1:
        yield rows[0]
        return
    middle = len(rows) // 2
    yield from _bad_rows(column, rows[:middle])
    yield from _bad_rows(column, rows[middle:])


def _repaired(column: pa.ChunkedArray) -> pa.Array:
    # No cast: PyArrow 24 and 25 abort if rows with maps were taken before.
    kind = _as_bytes(column.type)
    values = (value for chunk in column.chunks for value in chunk.view(kind).to_pylist())
    return pa.array([_decoded(value, column.type) for value in values], column.type)


def _decoded(value: Any, kind: pa.DataType) -> Any:
    is_ = pa.types
    if value is None or _as_bytes(kind) == kind:
        return value
    if is_.is_struct(kind):
        return {field.name: _decoded(value[field.name], field.type) for field in kind}
    if is_.is_map(kind):
        return [(_decoded(k, kind.key_type), _decoded(v, kind.item_type)) for k, v in value]
    if _is_list(kind):
        return [_decoded(part, kind.value_type) for part in value]
    return value.decode(errors="replace")


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Return a type with bytes instead of texts; the same if it has none."""
    return _retyped(kind, _BYTES)


def _retyped(kind: pa.DataType, types: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    """Return a type without dictionaries, and with some types replaced at each depth."""
    is_ = pa.types
    if is_.is_dictionary(kind):
        return _retyped(kind.value_type, types)
    if is_.is_struct(kind):
        return pa.struct([field.with_type(_retyped(field.type, types)) for field in kind])
    if is_.is_map(kind):
        return pa.map_(_retyped(kind.key_type, types), _retyped(kind.item_type, types))
    if not _is_list(kind):
        return types.get(kind, kind)
    items = kind.value_field.with_type(_retyped(kind.value_type, types))
    if is_.is_fixed_size_list(kind):
        return pa.list_(items, kind.list_size)
    return pa.large_list(items) if is_.is_large_list(kind) else pa.list_(items)


def _is_list(kind: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))
