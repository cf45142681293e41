"""Replication keys that can be bookmarks. Runs on executors, too."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tap_spark.state.date_numbers import DAY, INFINITY, MINUS_INFINITY


def finite(keys: pa.Array) -> pa.Array:
    """Replace infinite keys by nulls."""
    if pa.types.is_floating(keys.type):
        return pc.if_else(pc.is_finite(keys), keys, None)
    if not pa.types.is_temporal(keys.type):
        return keys
    is_date = pa.types.is_date32(keys.type)
    numbers = keys.cast(pa.int32() if is_date else pa.int64())
    for day in (MINUS_INFINITY, INFINITY):
        first = day if is_date else day * DAY
        after = first + (1 if is_date else DAY)
        inside = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, after))
        keys = pc.if_else(inside, None, keys)
    return keys
