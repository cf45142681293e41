"""Rows of flushes for lake tables: appended, merged by key, versioned, or replacing all others.

The state of a key after a record is that record, or none after a deletion. So a record makes a
version if it differs from the one before it, the first one from the newest version of the table.

Over a table of whole records, a view has a typed column for each property.

Why a newest row beside `small_flush`: a flush of any size, and the rows of the table with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from shared.errors import SettingsError, Where
from shared.formats.arrow_types import as_nullable
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
from target_spark.core.load_plans import DOCUMENT, Backfill, TableRequest
from target_spark.destinations.destination import Flush
from target_spark.destinations.lakes.flush_frames import (
    ORDER,
    frame_of,
    key_ranges,
    newest,
    ordered_frame,
)
from target_spark.destinations.lakes.lake_format import Keys, LakeFormat, Planner, TableFlush
from target_spark.destinations.lakes.lake_sql import (
    STEP,
    TARGET,
    KeyRange,
    MergePlan,
    merge_sql,
    near,
    text_literal,
    versions_sql,
)
from target_spark.destinations.lakes.lake_table import LakeTable, Place
from target_spark.destinations.lakes.small_flush import part_keys
from target_spark.tables.row_layout import project, value_text
from target_spark.tables.table_changes import Column, Projected, TableChange

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
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
    window = Window.partitionBy(*map(quoted, columns.keys))
    latest = F.row_number().over(window.orderBy(F.desc_nulls_last(quoted(columns.valid_from))))
    result = result.withColumn("__rank", latest).where("__rank = 1")
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
        parts.append(value_text(value, dtype) if _lacks_equality(dtype) else value)
    return F.struct(*(part.alias(f"c{number}") for number, part in enumerate(parts)))


def _lacks_equality(dtype: DataType) -> bool:
    if isinstance(dtype, T.StructType):
        return any(_lacks_equality(field.dataType) for field in dtype)
    if isinstance(dtype, T.ArrayType):
        return _lacks_equality(dtype.elementType)
    return isinstance(dtype, (T.MapType, T.VariantType))


def appended(spark: SparkSession, flush: Flush, change: TableChange) -> DataFrame:
    """Return all rows of a flush, projected to the table's columns."""
    return project(frame_of(spark, flush.parts, flush.write.struct), change.projection)


def keys_in_parts(rows: TableFlush) -> Keys | None:
    """Return what the parts of a flush tell of its keys; None if Spark must tell."""
    columns = {item.target: item for item in rows.change.projection}
    targets = targets_of(rows.change)
    keys = [columns[targets[key]] for key in rows.request.keys]
    return part_keys(rows.flush.parts, keys, rows.now.partitions)


def upserted(
    form: LakeFormat, spark: SparkSession, rows: TableFlush, result: Keys | None
) -> Committed:
    """Merge a flush into a table: the newest row of each key; return what the commit tells.

    `result` is what `keys_in_parts` tells.
    """
    flush, request, change = rows.flush, rows.request, rows.change
    frame = appended(spark, flush, change)
    targets = targets_of(change)
    keys = [targets[key] for key in request.keys]
    ranges, count = result or key_ranges(frame, keys, rows.now.partitions)
    # Only a flush with repeated keys needs a sort by key.
    if count < flush.rows:
        ordered = ordered_frame(spark, flush.parts, flush.write.struct)
        frame = project(newest(ordered, request.keys, request.order_by), change.projection)
    plan = merge_plan(rows, ranges)
    with view_of(spark, frame) as view:
        form.execute(spark, merge_sql(plan, rows.place.table, view), rows.place, rows.mark)
    return merge_result(plan, form.changed_rows(spark, rows.place, rows.mark), count)


def merge_plan(rows: TableFlush, ranges: tuple[KeyRange, ...]) -> MergePlan:
    request, change = rows.request, rows.change
    targets, supplied = targets_of(change), change.supplied(request.struct.names)
    keys = {targets[key] for key in request.keys}
    update = [item.target for item in change.projection if item.target in supplied]
    return MergePlan(
        keys=ranges,
        insert=[item.target for item in change.projection],
        update=[name for name in update if name not in keys],
        deleted=targets.get(DELETED_AT) if request.hard_delete else None,
        order_by=[targets[name] for name in request.order_by],
    )


def merge_result(plan: MergePlan, changed: int | None, count: int) -> Committed:
    """Return what a MERGE of so many keys has changed."""
    may_skip = plan.deleted is not None or not plan.update or bool(plan.order_by)
    if changed is not None:
        # A key that the table has more than once is changed in each of its rows.
        changed = min(changed, count)
    return Committed(changed, count, by_key=True, may_skip=may_skip)


def versioned(form: LakeFormat, spark: SparkSession, rows: TableFlush, at: float) -> Committed:
    """Add the rows of a flush as versions of their keys; return what the commit tells.

    The MERGE reads the table for its source too: formats compare both reads with the commits of
    others, or let them read the same version of the table.

    Args:
        form: The table format.
        spark: The table's session.
        rows: The flush and its table; its request has the columns of versions.
        at: Time of records that have none, seconds since the epoch.
    """
    flush, change, place = rows.flush, rows.change, rows.place
    columns = _version_columns(rows.request, rows.now, change)
    items = {item.target: item for item in change.projection}
    ordered = ordered_frame(spark, flush.parts, flush.write.struct)
    order = Projected(ORDER, ORDER, _long())
    frame = project(ordered, (*change.projection, order))
    partitions = rows.now.partitions
    result = part_keys(flush.parts, [items[key] for key in columns.keys], partitions)
    ranges, _ = result or key_ranges(frame, columns.keys, partitions)
    table = spark.table(place.table).alias(TARGET).where(near(ranges) or "true")
    names = columns.valid_to, columns.is_current
    with view_of(spark, version_steps(frame, table, columns, at)) as view:
        statement = versions_sql(ranges, list(items), *names, place.table, view)
        form.execute(spark, statement, place, rows.mark)
    reported = form.changed_rows(spark, place, rows.mark, versions=True)
    return Committed(reported, by_key=True, may_skip=True)


def _version_columns(request: TableRequest, now: LakeTable, change: TableChange) -> VersionColumns:
    targets = targets_of(change)
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


@contextmanager
def view_of(spark: SparkSession, frame: DataFrame) -> Iterator[str]:
    """Yield the quoted name of a view of a frame."""
    name = f"flush_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield f"`{name}`"
    finally:
        spark.catalog.dropTempView(name)


def overwritten(
    spark: SparkSession, flushes: Sequence[Flush], plan: Planner, names: Mapping[str, str]
) -> tuple[DataFrame, TableChange, TableRequest]:
    """Return the rows of a whole run for a table to replace.

    Args:
        spark: The session.
        flushes: All flushes of the run, at least one.
        plan: Plans the change from columns, request and known names.
        names: Known names from the old table.

    Returns:
        The rows: with keys, the newest of each. The columns, as `change.create`. The request.

    Raises:
        DestinationError: The stream's columns have changed their types during the run, and the
            settings do not resolve that.
    """
    change = whole_change([flush.request for flush in flushes], plan, names)
    request = replace(flushes[-1].request, struct=_stream_of(change))
    table = _struct_of(change.create or ())
    return rows_of_run(spark, flushes, plan, table, change.mapping), change, request


def rows_of_run(
    spark: SparkSession,
    flushes: Sequence[Flush],
    plan: Planner,
    table: StructType,
    names: Mapping[str, str],
) -> DataFrame:
    """Return the rows of a whole run with a table's columns; with keys, the newest of each.

    Args:
        spark: The session.
        flushes: All flushes of the run, at least one.
        plan: Plans the change from columns, request and known names.
        table: Columns that can hold all rows.
        names: Names of the stream's columns in the table.
    """
    loosened = StructType(
        [StructField(f.name, as_nullable(f.dataType), True, f.metadata) for f in table]
    )
    last = flushes[-1].request
    order = (Projected(ORDER, ORDER, _long(), "as is"),) if last.keys else ()
    frames: list[DataFrame] = []
    before = 0
    for _, run in groupby(flushes, key=lambda flush: flush.request.struct.json()):
        group = list(run)
        parts = [part for flush in group for part in flush.parts]
        result = plan(loosened, group[0].request, names).projection
        struct = group[0].write.struct
        rows = (
            ordered_frame(spark, parts, struct, before) if order else frame_of(spark, parts, struct)
        )
        frames.append(project(rows, (*result, *order)))
        before += len(parts)
    frame = reduce(lambda one, other: one.unionByName(other), frames)
    if not last.keys:
        return frame
    frame = newest(frame, [names.get(key, key) for key in last.keys]).drop(ORDER)
    deleted = names.get(DELETED_AT, DELETED_AT)
    if last.hard_delete and deleted in table.names:
        frame = frame.where(frame[quoted(deleted)].isNull())
    return frame


def range_sql(backfill: Backfill, now: LakeTable) -> str:
    """Return the condition for the rows of a range."""
    name = now.names.get(backfill.column, backfill.column)
    kind = now.struct[name].dataType.simpleString()
    first, end = (f"CAST({text_literal(t)} AS {kind})" for t in (backfill.since, backfill.until))
    return f"{quoted(name)} >= {first} AND {quoted(name)} < {end}"


def recast(
    spark: SparkSession, place: Place, now: LakeTable, change: TableChange
) -> tuple[DataFrame, TableChange]:
    """Return all rows of a table with new types for some columns, and the change to rewrite it."""
    types = dict(change.rewrite)
    items, columns = [], []
    for field in now.struct:
        dtype = types.get(field.name, field.dataType)
        how = "cast" if field.name in types else "as is"
        items.append(Projected(field.name, field.name, dtype, how))
        comment = (field.metadata or {}).get("comment")
        columns.append(Column(field.name, field.name, dtype, field.nullable, comment))
    whole = replace(change, create=tuple(columns), mapping={**now.names, **change.mapping})
    return project(spark.table(place.table), tuple(items)), whole


def whole_change(
    requests: Sequence[TableRequest], plan: Planner, names: Mapping[str, str]
) -> TableChange:
    """Return the change that creates a table for all requests; the last one describes it."""
    columns: dict[str, Column] = {}
    change = TableChange(mapping=names)
    for _, same in groupby(requests, key=lambda request: request.struct.json()):
        request = replace(next(same), schema=requests[-1].schema)
        table = _struct_of(columns.values()) if columns else None
        change = plan(table, request, change.mapping)
        columns = {name: _changed(column, change) for name, column in columns.items()}
        columns |= {column.name: column for column in (*(change.create or ()), *change.add)}
    return replace(change, create=tuple(columns.values()))


def _changed(column: Column, change: TableChange) -> Column:
    """Return a column after a change."""
    types = {item.target: item.dtype for item in change.projection}
    nullable = column.nullable or column.name in change.nullable
    return replace(column, dtype=types.get(column.name, column.dtype), nullable=nullable)


def _stream_of(change: TableChange) -> StructType:
    """Return the columns of a stream that exactly fits the table."""
    fields: dict[str, StructField] = {}
    for column in change.create or ():
        created = StructField(column.source, column.dtype, column.nullable)
        fields.setdefault(column.source, created)
    return StructType(list(fields.values()))


def _struct_of(columns: Iterable[Column]) -> StructType:
    return StructType([StructField(c.name, c.dtype, c.nullable) for c in columns])


def targets_of(change: TableChange) -> dict[str, str]:
    """Return stream's name → table's name of every column that rows set."""
    return {item.source: item.target for item in change.projection if item.source is not None}


def _long() -> DataType:
    return LongType()


def view_sql(place: Place, request: TableRequest, names: Mapping[str, str]) -> str:
    """Return the statement that creates or replaces the view `<table>_view`.

    Args:
        place: Location of the table.
        request: The request with the columns of the view.
        names: Stream's name → table's name of the table's columns.

    Raises:
        SettingsError: The table is in a folder: views are kept in catalogs.
    """
    if place.folder is not None or not place.table.endswith("`"):
        raise SettingsError(
            "a view needs a catalog",
            where=Where(stream=request.stream, setting="generate_view"),
            hint="set `catalog` instead of `path`, or `generate_view` to false",
        )
    own = [name for name in request.struct.names if name != DOCUMENT]
    columns = [f"{quoted(names.get(name, name))} AS {quoted(name)}" for name in own]
    document = quoted(names.get(DOCUMENT, DOCUMENT))
    taken = {name.casefold() for name in own}
    for field in _struct(request):
        if field.name.casefold() not in taken:
            taken.add(field.name.casefold())
            columns.append(
                f"{_value(document, field.name, field.dataType)} AS {quoted(field.name)}"
            )
    view = f"{place.table[:-1]}_view`"
    return f"CREATE OR REPLACE VIEW {view} AS SELECT {', '.join(columns)} FROM {place.table}"  # noqa: S608


def _struct(request: TableRequest) -> StructType:
    return request.view or StructType([])


def _value(document: str, name: str, dtype: DataType) -> str:
    """Return one property of the record; null if it is not of its type."""
    path = text_literal(f"$[{_in_brackets(name)}]")
    texts = (
        T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType, T.TimeType,
        T.BinaryType, T.CharType, T.VarcharType, T.GeometryType, T.GeographyType, T.NullType,
    )  # fmt: skip
    if isinstance(dtype, (T.StructType, T.ArrayType, T.MapType, T.VariantType)):
        return f"try_variant_get({document}, {path}, 'variant')"
    if isinstance(dtype, T.BinaryType):
        return f"unbase64(try_variant_get({document}, {path}, 'string'))"
    kind = "string" if isinstance(dtype, texts) else dtype.simpleString()
    return f"try_variant_get({document}, {path}, '{kind}')"


def _in_brackets(name: str) -> str:
    """Return a key in a variant's path, which has two kinds of quotes and cannot escape them."""
    return f'"{name}"' if '"' not in name else f"'{name}'"
