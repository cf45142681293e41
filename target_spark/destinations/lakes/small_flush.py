"""The rows and keys of a small flush in Arrow, for changes of tables without Spark.

Why a newest row beside Spark's: a small MERGE is over before Spark plans it
(`benchmarks.small_loads`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import compute, types

from shared.storage.urls import local_path
from target_spark.core.load_plans import Part
from target_spark.destinations.lakes.lake_format import Keys, NeedsSparkError, TableFlush
from target_spark.destinations.lakes.lake_sql import MOST_VALUES, KeyRange, MergePlan
from target_spark.tables.table_changes import Projected

MOST_KEY_BYTES = 128 << 20
"""Parts with more bytes of keys are left to Spark."""
_LOOKED_UP_BYTES = 32
"""Bytes of a key in a table by which keys are found."""


def keys_in_parts(rows: TableFlush) -> Keys | None:
    """Return what the parts of a flush tell of its keys; None if Spark must tell."""
    columns = {item.target: item for item in rows.change.projection}
    targets = rows.change.targets
    keys = [columns[targets[key]] for key in rows.request.keys]
    return part_keys(rows.flush.parts, keys, rows.now.partitions)


def part_keys(
    parts: Sequence[Part], keys: Sequence[Projected], few: Sequence[str]
) -> tuple[tuple[KeyRange, ...], int] | None:
    """Return the ranges of the key columns, and the number of different keys.

    `few` are columns of the table whose single values are needed: its partitions.

    Returns:
        As `flush_frames.key_ranges`; None if Spark must tell: the parts are large or on another
        disk, or keys are cast or of a type whose equality is not Arrow's.
    """
    from pyarrow import parquet  # noqa: PLC0415

    paths = [local_path(part.url) for part in parts]
    if None in paths or not parts:
        return None
    if not all(key.source and key.how == "as is" and "." not in key.source for key in keys):
        return None
    places, names = [path for path in paths if path], [str(key.source) for key in keys]
    if sum(_key_bytes(path, names) for path in places) > MOST_KEY_BYTES:
        return None
    tables = []
    for path in places:
        with parquet.ParquetFile(path) as file:
            tables.append(file.read(columns=names, use_threads=False).select(names))
    table = pa.concat_tables(tables)
    if not all(map(is_exact, table.schema.types)):
        return None
    result = table.group_by(table.column_names, use_threads=False).aggregate([])
    pairs = zip(keys, result.columns, strict=True)
    ranges = (_range(key.target, column, key.target in few) for key, column in pairs)
    return tuple(ranges), result.num_rows


def _key_bytes(path: str, names: Sequence[str]) -> int:
    """Return the bytes of columns in a file, as their values are looked up."""
    from pyarrow import parquet  # noqa: PLC0415

    footer = parquet.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    stored = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema in names)
    return int(max(stored, _LOOKED_UP_BYTES * footer.num_rows))


def is_exact(dtype: pa.DataType) -> bool:
    """Return whether values of a type are equal and ordered as in Spark."""
    numbers = types.is_integer, types.is_boolean, types.is_decimal, types.is_date
    texts = types.is_timestamp, types.is_string, types.is_large_string, types.is_binary
    return any(test(dtype) for test in (*numbers, *texts))


def _range(name: str, column: pa.ChunkedArray, wants_values: bool) -> KeyRange:
    nulls = bool(column.null_count)
    zoneless = types.is_timestamp(column.type) and column.type.tz is None
    if types.is_binary(column.type) or zoneless:
        return KeyRange(name, nulls=nulls)
    result = compute.min_max(column)
    first, last = (_value(result[end]) for end in ("min", "max"))
    values = None
    if wants_values and first is not None:
        single = compute.unique(column).drop_null()
        if len(single) <= MOST_VALUES:
            values = tuple(map(_value, single))
    return KeyRange(name, first, last, nulls, None if values and None in values else values)


def _value(scalar: pa.Scalar) -> Any:
    """Return a value as Python has it; None if it has none for it."""
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):
        return None
    return value.astimezone(dt.timezone.utc) if isinstance(value, dt.datetime) else value


MOST_BYTES = 256 << 20
"""Larger tables, and flushes of more bytes in memory, are left to Spark."""

_ARRIVAL = "__arrival"


def merged_once(parts: Sequence[Part], plan: MergePlan, keys: int, most: int) -> pa.Table:
    """Return the newest row of each key in parts.

    Parts are on the same disk, with the columns of the table; `keys` is the number of different
    keys, and `most` limits the bytes of their rows in memory.

    Raises:
        NeedsSparkError: They are too large, or of types whose order is not Spark's.
    """
    rows = rows_of_parts(parts, plan.insert, most)
    if not all(is_exact(rows.schema.field(name).type) for name in plan.order_by):
        raise NeedsSparkError
    if keys < rows.num_rows:
        return newest_of_keys(rows, [key.column for key in plan.keys], plan.order_by)
    return rows


def rows_of_parts(parts: Sequence[Part], names: Sequence[str], most: int) -> pa.Table:
    """Return the rows of parts.

    Columns that the parts lack are left out; `most` limits the bytes of their rows in memory.

    Raises:
        NeedsSparkError: They are too large, or on other storage.
    """
    batches, size = [], 0
    for batch in _batches(parts, names):
        batches.append(batch)
        size += batch.nbytes
        if size > most:
            raise NeedsSparkError
    if not batches:
        raise NeedsSparkError
    return pa.Table.from_batches(batches)


def newest_of_keys(rows: pa.Table, keys: Sequence[str], order_by: Sequence[str]) -> pa.Table:
    """Return the newest row of each key, like `flush_frames.newest_rows`.

    Rows are in the order of arrival; `order_by` are columns of types whose order is Spark's.
    """
    order = places(rows)
    if order_by:
        # A value counts only among rows that have one: null is the least.
        columns = [c for name in order_by for c in (compute.is_valid(rows[name]), rows[name])]
        ordered = pa.table([*columns, order], names=[*map(str, range(len(columns))), _ARRIVAL])
        by = [(name, "ascending") for name in ordered.column_names]
        order = compute.sort_indices(ordered, sort_keys=by)
    rank = compute.array_sort_indices(order) if order_by else order
    ranked = rows.select(list(keys)).append_column(_ARRIVAL, rank)
    last = ranked.group_by(list(keys), use_threads=False).aggregate([(_ARRIVAL, "max")])
    return rows.take(order.take(last[f"{_ARRIVAL}_max"].combine_chunks()))


def places(rows: pa.Table) -> pa.Array:
    """Return the places of rows in their table, from 0."""
    return compute.subtract(compute.cumulative_sum(pa.repeat(1, rows.num_rows)), 1)


def _batches(parts: Sequence[Part], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet  # noqa: PLC0415

    for part in parts:
        path = local_path(part.url)
        if path is None:
            raise NeedsSparkError
        with parquet.ParquetFile(path) as file:
            stored = frozenset(file.schema_arrow.names)  # read anew at each access
            existing = [name for name in names if name in stored]
            for batch in file.iter_batches(columns=existing, use_threads=False):
                yield batch.select(existing)
