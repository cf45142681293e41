"""The keys of a small flush, read from its parts by the driver: Spark needs two shuffles for it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shared.storage.urls import local_path
from target_spark.core.load_plans import Part
from target_spark.destinations.lakes.merge import MOST_VALUES, KeyRange

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark.tables.table_changes import Projected

MOST_BYTES = 128 << 20
"""Parts of more bytes are left to Spark."""


def part_keys(
    parts: Sequence[Part], keys: Sequence[Projected], few: Sequence[str]
) -> tuple[tuple[KeyRange, ...], int] | None:
    """Return the ranges of the key columns, and the number of different keys.

    Args:
        parts: The parts of the flush.
        keys: The key columns, as they get into the table.
        few: Key columns of the table whose single values are needed: its partitions.

    Returns:
        As `flush_frames.key_ranges`; None if Spark must tell: the parts are large or on another
        disk, or keys are cast or of a type whose equality is not Arrow's.
    """
    paths = [local_path(part.url) for part in parts]
    if None in paths or sum(part.size for part in parts) > MOST_BYTES or not parts:
        return None
    if not all(key.source and key.how == "as is" and "." not in key.source for key in keys):
        return None
    table = _read([path for path in paths if path], [str(key.source) for key in keys])
    if not all(map(is_exact, table.schema.types)):
        return None
    found = table.group_by(table.column_names, use_threads=False).aggregate([])
    pairs = zip(keys, found.columns, strict=True)
    ranges = (_range(key.target, column, key.target in few) for key, column in pairs)
    return tuple(ranges), found.num_rows


def _read(paths: Sequence[str], names: Sequence[str]) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    return pa.concat_tables([_columns(parquet.ParquetFile(path), names) for path in paths])


def _columns(file: Any, names: Sequence[str]) -> pa.Table:
    with file:
        return file.read(columns=list(names), use_threads=False).select(list(names))


def is_exact(dtype: pa.DataType) -> bool:
    """Return whether values of a type are equal and ordered as in Spark."""
    from pyarrow import types  # noqa: PLC0415

    numbers = types.is_integer, types.is_boolean, types.is_decimal, types.is_date
    texts = types.is_timestamp, types.is_string, types.is_large_string, types.is_binary
    return any(test(dtype) for test in (*numbers, *texts))


def _range(name: str, column: pa.ChunkedArray, wants_values: bool) -> KeyRange:
    from pyarrow import compute, types  # noqa: PLC0415

    nulls = bool(column.null_count)
    zoneless = types.is_timestamp(column.type) and column.type.tz is None
    if types.is_binary(column.type) or zoneless:
        return KeyRange(name, nulls=nulls)
    found = compute.min_max(column)
    first, last = (_value(found[end]) for end in ("min", "max"))
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
