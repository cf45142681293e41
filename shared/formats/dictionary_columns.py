"""Columns of a Parquet file whose values repeat, so that a dictionary of them pays."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

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
