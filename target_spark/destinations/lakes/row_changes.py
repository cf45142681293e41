"""Rows of flushes for lake tables: appended, merged by key, or replacing all others.

Over a table of whole records, a view has a typed column for each property.

Why a newest row beside `small_flush`: a flush of any size, and the rows of the table with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql.types import LongType, StructField, StructType

from shared.errors import SettingsError, Where
from shared.formats.arrow_types import as_nullable
from shared.formats.spark_types import T
from shared.maps.record_metadata import DELETED_AT
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
    KeyRange,
    MergePlan,
    merge_sql,
    text_literal,
)
from target_spark.destinations.lakes.lake_table import LakeTable, Place
from target_spark.destinations.lakes.small_flush import part_keys
from target_spark.tables.row_layout import project
from target_spark.tables.table_changes import Column, Projected, TableChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


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
    order = (Projected(ORDER, ORDER, LongType()),) if last.keys else ()
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
