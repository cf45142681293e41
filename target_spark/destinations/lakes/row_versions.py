"""Records as versions of their keys: which versions begin, and which ones of the table end.

The state of a key after a record is that record, or none after a deletion. So a record changes
something if it differs from the one before it, the first one from the newest version of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from shared.maps.record_metadata import VERSION_COLUMNS
from shared.types.record_text import quoted
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.lakes.flush_frames import ORDER
from target_spark.destinations.lakes.merge import STEP
from target_spark.tables.spark_columns import value_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_STORED, _GONE, _START, _STATE = "__stored", "__gone", "__start", "__state"


@dataclass(frozen=True)
class VersionColumns:
    """The columns of a table with versions, by their names there.

    Attributes:
        keys: Key columns.
        compared: Columns that make a version if they change.
        order_by: Columns that tell whether a record is older than a version; may be empty.
        times: Columns with the time at which a record became valid; the first value counts.
        deleted: Column that marks a deletion, with its time; None if the stream lacks it.
        valid_from: Begin of a version.
        valid_to: Its end; null while it is current.
        is_current: Whether it is current; null, for a row without versions, counts as true.
    """

    keys: Sequence[str]
    compared: Sequence[str]
    order_by: Sequence[str]
    times: Sequence[str]
    deleted: str | None
    valid_from: str
    valid_to: str
    is_current: str


def with_versions(request: TableRequest) -> TableRequest:
    """Return the request of a table with the columns of versions, which the stream cannot set."""
    from shared.releases.spark_types import T  # noqa: PLC0415

    if request.method != "history":
        return request
    own = [field for field in request.struct if field.name not in VERSION_COLUMNS]
    kinds = (T.TimestampType(), T.TimestampType(), T.BooleanType())
    added = [T.StructField(name, kind) for name, kind in zip(VERSION_COLUMNS, kinds, strict=True)]
    return replace(request, struct=T.StructType([*own, *added]))


def version_steps(
    rows: DataFrame, table: DataFrame, columns: VersionColumns, at: float
) -> DataFrame:
    """Return what a flush changes: versions to add and to close.

    Every version or deletion of a key is later than the one before it, by a microsecond at least.

    Args:
        rows: The rows of the flush, with the table's columns and `ORDER`.
        table: The table, or all its rows that can have a key of the flush.
        columns: Names of columns.
        at: Time of records without any, seconds since the epoch.

    Returns:
        Rows with the columns of the table and `STEP`: `add`, or `close` for a version of the table
        that ends at `valid_to`.
    """
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    of_key = Window.partitionBy(*map(quoted, columns.keys))
    order = [F.asc_nulls_first(quoted(name)) for name in columns.order_by]
    in_order = of_key.orderBy(F.desc(_STORED), *order, ORDER)
    arrived, stored = _arrived(rows, columns, at), _newest_versions(table, rows, columns)
    events = arrived.unionByName(stored, allowMissingColumns=True)
    if columns.order_by:
        rank = F.struct(*map(quoted, columns.order_by))
        least = F.max(F.when(F.col(_STORED), rank)).over(of_key)
        events = events.withColumn("__least", least)
        events = events.where(F.col("__least").isNull() | (rank >= F.col("__least")))
    was_gone = F.coalesce(F.lag(_GONE).over(in_order), F.lit(True))
    differs = ~F.col(_STATE).eqNullSafe(F.lag(_STATE).over(in_order))
    changes = F.when(F.col(_GONE), ~was_gone).otherwise(was_gone | differs)
    events = events.withColumn("__changes", F.col(_STORED) | changes).where("__changes")
    events = events.withColumn("__number", F.row_number().over(in_order))
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    start = F.max(F.col(_START) - F.col("__number")).over(so_far) + F.col("__number")
    events = events.withColumn(_START, start)
    events = events.withColumn("__next", F.lead(_START).over(in_order))
    events = events.where(~F.col(_GONE) & (~F.col(_STORED) | F.col("__next").isNotNull()))
    step = F.when(F.col(_STORED), "close").otherwise("add")
    made = {
        columns.valid_from: F.timestamp_micros(_START),
        columns.valid_to: F.timestamp_micros("__next"),
        columns.is_current: F.col("__next").isNull(),
    }
    kept = [F.col(quoted(name)) for name in rows.columns if name not in {*made, ORDER}]
    return events.select(*kept, *(c.alias(name) for name, c in made.items()), step.alias(STEP))


def _arrived(rows: DataFrame, columns: VersionColumns, at: float) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    times = [F.unix_micros(quoted(name)) for name in columns.times]
    start = F.coalesce(*times, F.lit(round(at * 1e6)))
    gone = F.lit(False)
    if columns.deleted is not None:
        deleted = F.col(quoted(columns.deleted))
        start, gone = F.coalesce(F.unix_micros(deleted), start), deleted.isNotNull()
    own = [F.col(quoted(name)) for name in rows.columns]
    return rows.select(
        *own,
        F.lit(False).alias(_STORED),
        gone.alias(_GONE),
        start.alias(_START),
        _state(rows, columns).alias(_STATE),
    )


def _newest_versions(table: DataFrame, rows: DataFrame, columns: VersionColumns) -> DataFrame:
    """Return the newest version in the table of each key of the flush, current or not."""
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    pairs = {name: f"__key{number}" for number, name in enumerate(columns.keys)}
    keys = rows.select(*(F.col(quoted(name)).alias(key) for name, key in pairs.items())).distinct()
    same = (F.col(quoted(name)).eqNullSafe(F.col(key)) for name, key in pairs.items())
    found = table.join(keys, reduce(lambda one, other: one & other, same), "left_semi")
    window = Window.partitionBy(*map(quoted, columns.keys))
    latest = F.row_number().over(window.orderBy(F.desc_nulls_last(quoted(columns.valid_from))))
    found = found.withColumn("__rank", latest).where("__rank = 1")
    current = F.coalesce(F.col(quoted(columns.is_current)), F.lit(True))
    since, until = (F.unix_micros(quoted(c)) for c in (columns.valid_from, columns.valid_to))
    kept = dict.fromkeys((*columns.keys, *columns.order_by))
    return found.select(
        *(F.col(quoted(name)) for name in kept),
        F.lit(-1).cast("bigint").alias(ORDER),
        F.lit(True).alias(_STORED),
        (~current).alias(_GONE),
        F.when(current, since).otherwise(until).alias(_START),
        _state(found, columns).alias(_STATE),
    )


def _state(frame: DataFrame, columns: VersionColumns) -> Column:
    """Return the compared columns as one value that can be compared."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    parts = [F.lit(0)]
    for name in columns.compared:
        dtype, value = frame.schema[name].dataType, F.col(quoted(name))
        parts.append(value_text(value, dtype) if _lacks_equality(dtype) else value)
    return F.struct(*(part.alias(f"c{number}") for number, part in enumerate(parts)))


def _lacks_equality(dtype: DataType) -> bool:
    from shared.releases.spark_types import T  # noqa: PLC0415

    if isinstance(dtype, T.StructType):
        return any(_lacks_equality(field.dataType) for field in dtype)
    if isinstance(dtype, T.ArrayType):
        return _lacks_equality(dtype.elementType)
    return isinstance(dtype, (T.MapType, T.VariantType))
