"""Rows of flushes for lake tables: appended, merged by key, or replacing all others."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING

from shared.maps.record_metadata import DELETED_AT
from shared.types.arrow_types import as_nullable
from shared.types.record_text import quoted
from target_spark.core.load_plans import Part, TableRequest
from target_spark.destinations.destination import Flush
from target_spark.destinations.lakes.commit_marks import Mark
from target_spark.destinations.lakes.flush_frames import (
    ORDER,
    frame_of,
    key_ranges,
    newest,
    ordered_frame,
)
from target_spark.destinations.lakes.lake_format import LakeFormat, LakeTable, Place
from target_spark.destinations.lakes.merge import MergePlan, merge_sql
from target_spark.destinations.lakes.part_keys import part_keys
from target_spark.tables.spark_columns import project
from target_spark.tables.table_changes import Column, Projected, TableChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Planner = Callable[["StructType | None", TableRequest, Mapping[str, str]], TableChange]


def appended(spark: SparkSession, flush: Flush, change: TableChange) -> DataFrame:
    """Return all rows of a flush, projected to the table's columns."""
    return project(frame_of(spark, flush.parts, flush.write.struct), change.projection)


def upserted(
    form: LakeFormat,
    spark: SparkSession,
    place: Place,
    flush: Flush,
    request: TableRequest,
    now: LakeTable,
    change: TableChange,
    mark: Mark,
) -> None:
    """Merge a flush into a table: the newest row of each key.

    If the table holds none of its keys, its parts may become files of the table as they are.
    """
    targets = _targets(change)
    keys = [targets[key] for key in request.keys]
    deleted = targets.get(DELETED_AT) if request.hard_delete else None
    columns = {item.target: item for item in change.projection}
    found = part_keys(flush.parts, [columns[key] for key in keys], now.partitions)
    may_adopt = found is not None and not found[1] and deleted is None
    if found and may_adopt and form.adopt(place, flush, now, change, mark, found[0]):
        return
    frame = appended(spark, flush, change)
    ranges, repeated = found or key_ranges(frame, keys, now.partitions)
    if repeated:
        rows = newest(ordered_frame(spark, flush.parts, flush.write.struct), request.keys)
        frame = project(rows, change.projection)
    given = change.given(request.struct.names)
    update = [item.target for item in change.projection if item.target in given]
    plan = MergePlan(
        keys=ranges,
        insert=[item.target for item in change.projection],
        update=[name for name in update if name not in keys],
        deleted=deleted,
    )
    view = f"flush_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        form.execute(spark, merge_sql(plan, place.table, f"`{view}`"), place, mark)
    finally:
        spark.catalog.dropTempView(view)


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
    change = _whole([flush.request for flush in flushes], plan, names)
    request = replace(flushes[-1].request, struct=_stream_of(change))
    order = (Projected(ORDER, ORDER, _long(), "as is"),) if request.keys else ()
    frames: list[DataFrame] = []
    before = 0
    for _, run in groupby(flushes, key=lambda flush: flush.request.struct.json()):
        group = list(run)
        parts = [part for flush in group for part in flush.parts]
        frames.append(_group(spark, parts, before, group[0], plan, change, order))
        before += len(parts)
    frame = reduce(lambda one, other: one.unionByName(other), frames)
    if request.keys:
        targets = _targets(change)
        frame = newest(frame, [targets[key] for key in request.keys]).drop(ORDER)
        if request.hard_delete and DELETED_AT in targets:
            frame = frame.where(frame[quoted(targets[DELETED_AT])].isNull())
    return frame, change, request


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


def _whole(
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
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    fields: dict[str, StructField] = {}
    for column in change.create or ():
        made = StructField(column.source, column.dtype, column.nullable)
        fields.setdefault(column.source, made)
    return StructType(list(fields.values()))


def _group(
    spark: SparkSession,
    parts: Sequence[Part],
    before: int,
    flush: Flush,
    plan: Planner,
    whole: TableChange,
    order: tuple[Projected, ...],
) -> DataFrame:
    struct = flush.write.struct
    table = as_nullable(_struct_of(whole.create or ()))
    found = plan(table, flush.request, whole.mapping)
    if not order:
        return project(frame_of(spark, parts, struct), found.projection)
    frame = ordered_frame(spark, parts, struct, before)
    return project(frame, (*found.projection, *order))


def _struct_of(columns: Iterable[Column]) -> StructType:
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    return StructType([StructField(c.name, c.dtype, c.nullable) for c in columns])


def _targets(change: TableChange) -> dict[str, str]:
    """Return stream's name → table's name of every column that rows set."""
    return {item.source: item.target for item in change.projection if item.source is not None}


def _long() -> DataType:
    from pyspark.sql.types import LongType  # noqa: PLC0415

    return LongType()
