"""The rows of a small flush in Arrow, for changes of tables without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shared.storage.urls import local_path
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.part_keys import is_exact

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from target_spark.core.load_plans import Part
    from target_spark.destinations.lakes.merge import MergePlan
    from target_spark.tables.table_changes import TableChange

MOST_BYTES = 256 << 20
"""Larger tables, and flushes of more bytes in memory, are left to Spark."""

_ARRIVAL = "__arrival"


def merged_once(parts: Sequence[Part], plan: MergePlan, keys: int, most: int) -> pa.Table:
    """Return the newest row of each key in parts.

    Args:
        parts: Parts on the same disk, with the table's columns.
        plan: Keys and columns.
        keys: Number of different keys.
        most: Bytes of their rows in memory.

    Raises:
        NeedsSparkError: They are too large, or of types whose order is not Spark's.
    """
    rows = rows_of(parts, plan.insert, most)
    if not all(is_exact(rows.schema.field(name).type) for name in plan.order_by):
        raise NeedsSparkError
    if keys < rows.num_rows:
        return newest(rows, [key.column for key in plan.keys], plan.order_by)
    return rows


def rows_of(parts: Sequence[Part], names: Sequence[str], most: int) -> pa.Table:
    """Return the rows of parts.

    Args:
        parts: Parts of which at least one has rows.
        names: Columns; those that the parts lack are left out.
        most: Bytes of their rows in memory.

    Raises:
        NeedsSparkError: They are too large, or on other storage.
    """
    import pyarrow as pa  # noqa: PLC0415

    batches, size = [], 0
    for batch in _batches(parts, names):
        batches.append(batch)
        size += batch.nbytes
        if size > most:
            raise NeedsSparkError
    if not batches:
        raise NeedsSparkError
    return pa.Table.from_batches(batches)


def newest(rows: pa.Table, keys: Sequence[str], order_by: Sequence[str]) -> pa.Table:
    """Return the newest row of each key, like `flush_frames.newest`.

    Args:
        rows: In the order of arrival.
        keys: Key columns; null is a value like any other.
        order_by: Columns of types whose order is Spark's.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

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
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    return compute.subtract(compute.cumulative_sum(pa.repeat(1, rows.num_rows)), 1)


def has_exact_bounds(dtype: pa.DataType) -> bool:
    """Return whether formats store bounds of a type that files can be skipped by."""
    from pyarrow import types  # noqa: PLC0415

    return bool(types.is_integer(dtype) or types.is_string(dtype) or types.is_date(dtype))


def same_columns(change: TableChange, struct: StructType) -> bool:
    """Return whether parts have the table's names and types; variants are text in parts.

    Args:
        change: The projection of rows.
        struct: Columns of the parts.
    """
    from shared.types.spark_conform import loose  # noqa: PLC0415

    given = {item.source: item for item in change.projection if item.source is not None}
    return given.keys() == set(struct.names) and all(
        item.how == "as is"
        and item.target == name
        and not item.names
        and loose(item.dtype) == loose(struct[name].dataType)
        and "variant" not in item.dtype.simpleString()
        for name, item in given.items()
    )


def _batches(parts: Sequence[Part], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet  # noqa: PLC0415

    for part in parts:
        path = local_path(part.url)
        if path is None:
            raise NeedsSparkError
        with parquet.ParquetFile(path) as file:
            stored = frozenset(file.schema_arrow.names)  # read anew at each access
            known = [name for name in names if name in stored]
            for batch in file.iter_batches(columns=known, use_threads=False):
                yield batch.select(known)
