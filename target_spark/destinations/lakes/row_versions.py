"""Rows of flushes as versions of their keys in lake tables.

The state of a key after a record is that record, or none after a deletion. So a record makes a
version if it differs from the one before it, the first one from the newest version of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, TimestampType

from shared.formats.arrow_types import holds
from shared.formats.spark_types import T
from shared.maps.record_metadata import (
    DELETED_AT,
    IS_CURRENT,
    METADATA,
    RECEIVED_AT,
    VALID_FROM,
    VALID_TO,
)
from shared.settings.texts import quoted
from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.lakes.flush_frames import (
    ORDER,
    key_ranges,
    newest_rows,
    ordered_frame,
    refusing,
)
from target_spark.destinations.lakes.lake_format import LakeFormat, TableFlush
from target_spark.destinations.lakes.lake_sql import STEP, TARGET, near, versions_sql
from target_spark.destinations.lakes.lake_table import LakeTable, view_of
from target_spark.destinations.lakes.small_flush import part_keys
from target_spark.tables.row_layout import project, value_text
from target_spark.tables.table_changes import Projected, TableChange

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


def version_steps(
    rows: DataFrame, table: DataFrame, columns: VersionColumns, at: float
) -> DataFrame:
    """Return what a flush changes: versions to add and to close.

    Every version or deletion of a key is later than the one before it, by a microsecond at least.

    Args:
        rows: The rows of the flush, with the table's columns and `ORDER`.
        table: The table, or all its rows that can have a key of the flush.
        at: Time of records without any, seconds since the epoch.

    Returns:
        Rows with the columns of the table and `STEP`: `add`, or `close` for a version of the table
        that ends at `valid_to`.
    """
    # 1. Put the records of a key in a row, after its newest version in the table (`_STORED`).
    of_key = Window.partitionBy(*map(quoted, columns.keys))
    order = [F.asc_nulls_first(quoted(name)) for name in columns.order_by]
    in_order = of_key.orderBy(F.desc(_STORED), *order, ORDER)
    arrived, stored = _arrived(rows, columns, at), _newest_versions(table, rows, columns)
    events = arrived.unionByName(stored, allowMissingColumns=True)
    # 2. Drop records that are older than that version.
    if columns.order_by:
        rank = F.struct(*map(quoted, columns.order_by))
        least = F.max(F.when(F.col(_STORED), rank)).over(of_key)
        events = events.withColumn("__least", least)
        events = events.where(F.col("__least").isNull() | (rank >= F.col("__least")))
    # 3. Keep records that change the state: another row than before, a deletion of a row that was
    #    there, a row that comes back. Equal records in sequence make one version.
    was_gone = F.coalesce(F.lag(_GONE).over(in_order), F.lit(True))
    differs = ~F.col(_STATE).eqNullSafe(F.lag(_STATE).over(in_order))
    changes = F.when(F.col(_GONE), ~was_gone).otherwise(was_gone | differs)
    events = events.withColumn("__changes", F.col(_STORED) | changes).where("__changes")
    # 4. Make begins strictly rise: max(begin[i] - i) + i over the events so far moves each one that
    #    is not later than its predecessor to a microsecond after it, without a loop over rows.
    events = events.withColumn("__number", F.row_number().over(in_order))
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    start = F.max(F.col(_START) - F.col("__number")).over(so_far) + F.col("__number")
    events = events.withColumn(_START, start)
    # 5. Each version ends when the next event begins. A deletion only ends the one before it; the
    #    stored version is a step only if something follows it.
    events = events.withColumn("__next", F.lead(_START).over(in_order))
    events = events.where(~F.col(_GONE) & (~F.col(_STORED) | F.col("__next").isNotNull()))
    step = F.when(F.col(_STORED), "close").otherwise("add")
    created = {
        columns.valid_from: F.timestamp_micros(_START),
        columns.valid_to: F.timestamp_micros("__next"),
        columns.is_current: F.col("__next").isNull(),
    }
    kept = [F.col(quoted(name)) for name in rows.columns if name not in {*created, ORDER}]
    return events.select(*kept, *(c.alias(name) for name, c in created.items()), step.alias(STEP))


def _arrived(rows: DataFrame, columns: VersionColumns, at: float) -> DataFrame:
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
    pairs = {name: f"__key{number}" for number, name in enumerate(columns.keys)}
    keys = rows.select(*(F.col(quoted(name)).alias(key) for name, key in pairs.items())).distinct()
    same = (F.col(quoted(name)).eqNullSafe(F.col(key)) for name, key in pairs.items())
    result = table.join(keys, reduce(lambda one, other: one & other, same), "left_semi")
    result = newest_rows(result, columns.keys, [columns.valid_from])
    current = F.coalesce(F.col(quoted(columns.is_current)), F.lit(True))
    since, until = (F.unix_micros(quoted(c)) for c in (columns.valid_from, columns.valid_to))
    kept = dict.fromkeys((*columns.keys, *columns.order_by))
    return result.select(
        *(F.col(quoted(name)) for name in kept),
        F.lit(-1).cast("bigint").alias(ORDER),
        F.lit(True).alias(_STORED),
        (~current).alias(_GONE),
        F.when(current, since).otherwise(until).alias(_START),
        _state(result, columns).alias(_STATE),
    )


def _state(frame: DataFrame, columns: VersionColumns) -> SparkColumn:
    """Return the compared columns as one value that can be compared."""
    parts = [F.lit(0)]
    for name in columns.compared:
        dtype, value = frame.schema[name].dataType, F.col(quoted(name))
        # Maps and variants cannot be compared.
        is_text = holds(dtype, (T.MapType, T.VariantType))
        parts.append(value_text(value, dtype) if is_text else value)
    return F.struct(*(part.alias(f"c{number}") for number, part in enumerate(parts)))


def versioned(form: LakeFormat, rows: TableFlush, at: float) -> Committed:
    """Add the rows of a flush as versions of their keys; return what the commit tells.

    The MERGE reads the table for its source too: formats compare both reads with the commits of
    others, or let them read the same version of the table.

    The request has the columns of versions; `at` is the time of records that have none, in seconds
    since the epoch.
    """
    table, flush, change = rows.table, rows.flush, rows.change
    columns = _version_columns(rows.request, rows.now, change)
    items = {item.target: item for item in change.projection}
    ordered = ordered_frame(table.spark, flush.parts, flush.write.struct)
    order = Projected(ORDER, ORDER, LongType())
    frame = refusing(project(ordered, (*change.projection, order)), form.row_rules(rows.now))
    partitions = rows.now.partitions
    result = part_keys(flush.parts, [items[key] for key in columns.keys], partitions)
    ranges = form.searched((result or key_ranges(frame, columns.keys, partitions))[0])
    stored = table.rows.alias(TARGET).where(near(ranges) or "true")
    names = columns.valid_to, columns.is_current
    with view_of(table.spark, version_steps(frame, stored, columns, at)) as view:
        statement = versions_sql(ranges, list(items), *names, table.name, view)
        form.execute(table, statement, rows.mark)
    reported = form.changed_rows(table, rows.mark, versions=True)
    return Committed(reported, by_key=True, may_skip=True)


def _version_columns(request: TableRequest, now: LakeTable, change: TableChange) -> VersionColumns:
    targets = change.targets
    order = [targets[name] for name in request.order_by]
    is_time = bool(order) and isinstance(now.struct[order[0]].dataType, TimestampType)
    received = [targets[name] for name in (RECEIVED_AT,) if name in targets]
    supplied = change.supplied(request.struct.names)
    compared = [item.target for item in change.projection if item.target in supplied]
    ours = {target for source, target in targets.items() if source.startswith(METADATA)}
    return VersionColumns(
        keys=[targets[key] for key in request.keys],
        compared=[name for name in compared if name not in ours],
        order_by=order,
        times=[order[0], *received] if is_time else received,
        deleted=targets.get(DELETED_AT),
        valid_from=targets[VALID_FROM],
        valid_to=targets[VALID_TO],
        is_current=targets[IS_CURRENT],
    )
