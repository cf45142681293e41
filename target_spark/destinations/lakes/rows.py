"""How the rows of flushes go into a table: appended, merged by key, or in place of all others."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING

from shared.arrow_types import as_nullable
from shared.json_schema import merge_structs
from shared.singer_columns import quoted
from shared.transforms.record_metadata import DELETED_AT
from target_spark.destinations import Flush
from target_spark.destinations.lakes import LakeFormat, LakeTable, Place
from target_spark.destinations.lakes.marks import Mark
from target_spark.destinations.lakes.merge import MergePlan, merge_sql
from target_spark.destinations.lakes.parts import (
    ORDER,
    frame_of,
    key_ranges,
    newest,
    ordered_frame,
)
from target_spark.plans import Part, TableRequest
from target_spark.tables.changes import VARIANT, Column, Projected, TableChange, of_columns
from target_spark.tables.spark_columns import project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Planner = Callable[["StructType | None", TableRequest, Mapping[str, str]], TableChange]


def appended(spark: SparkSession, flush: Flush, change: TableChange) -> DataFrame:
    """All rows of a flush, as the table's columns."""
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
    """Merges a flush into a table: of each key its newest row."""
    targets = _targets(change)
    keys = [targets[key] for key in request.keys]
    frame = appended(spark, flush, change)
    ranges, repeated = key_ranges(frame, keys, now.partitions)
    if repeated:
        rows = newest(ordered_frame(spark, flush.parts, flush.write.struct), request.keys)
        frame = project(rows, change.projection)
    given = _given(change, request)
    update = [item.target for item in change.projection if item.target in given]
    plan = MergePlan(
        keys=ranges,
        insert=[item.target for item in change.projection],
        update=[name for name in update if name not in keys],
        deleted=targets.get(DELETED_AT) if request.hard_delete else None,
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
    """The rows of a whole run for a table that is made anew.

    Args:
        spark: The session.
        flushes: All of the run, at least one.
        plan: Plans the change from columns, request and known names.
        names: Known from the table that was there.

    Returns:
        The rows: with keys, the newest of each. The columns, as `change.create`. The request.

    Raises:
        DestinationError: The stream's columns have changed their types during the run.
    """
    last = flushes[-1].request
    struct = reduce(merge_structs, (flush.request.struct for flush in flushes))
    request = replace(last, struct=struct)
    change = plan(None, request, names)
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
    """All rows of a table with other types for some columns, and the change that makes it anew."""
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
    found = plan(_struct_of(whole), flush.request, whole.mapping)
    if not order:
        return project(frame_of(spark, parts, struct), found.projection)
    frame = ordered_frame(spark, parts, struct, before)
    return project(frame, (*found.projection, *order))


def _struct_of(change: TableChange) -> StructType:
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    columns = change.create or ()
    made = StructType([StructField(column.name, column.dtype) for column in columns])
    return as_nullable(made)  # type: ignore[no-any-return]


def _targets(change: TableChange) -> dict[str, str]:
    """Stream's name → table's name of every column that rows go to."""
    return {item.source: item.target for item in change.projection if item.source is not None}


def _given(change: TableChange, request: TableRequest) -> set[str]:
    """Columns that rows of the stream have a say in, with those for other types of a column."""
    own = set(request.struct.names)
    named = of_columns(change.mapping).items()
    columns = {name for source, name in named if source.partition(VARIANT)[0] in own}
    return columns.union(item.target for item in change.projection if item.source is not None)


def _long() -> DataType:
    from pyspark.sql.types import LongType  # noqa: PLC0415

    return LongType()
