"""The rows of a flush as a frame: appended, or merged by key; and those that break rules.

`order` is a hidden column that numbers rows in the order of arrival.

Why a newest row beside `small_flush`: a flush of any size, and the rows of the table with it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from shared.formats.arrow_types import TEXT_ONLY, mapped
from shared.maps.record_metadata import DELETED_AT
from shared.settings.texts import quoted
from target_spark.core.balance import Committed
from target_spark.core.load_plans import Part
from target_spark.destinations.destination import ROW_ORIGIN, Refusal
from target_spark.destinations.lakes.lake_format import Keys, LakeFormat, TableFlush
from target_spark.destinations.lakes.lake_sql import (
    MOST_VALUES,
    KeyRange,
    RowRule,
    merge_sql,
    text_literal,
)
from target_spark.destinations.lakes.lake_table import DEFAULT, literal_path, view_of
from target_spark.tables.row_layout import project
from target_spark.tables.table_changes import Projected

ORDER = "__arrival"
_ROWS_IN_PART = 1 << 40
"""More rows than one part can have."""


def frame_of(spark: SparkSession, parts: Sequence[Part], struct: StructType) -> DataFrame:
    """Return all rows of the parts, with the stream's columns; variants are text."""
    stored = StructType([StructField(f.name, mapped(f.dataType, _as_text)) for f in struct])
    urls = [literal_path(part.url) for part in parts]
    if urls:
        return spark.read.schema(stored).parquet(*urls)
    # An empty frame that takes no job.
    return spark.range(0).select(*(F.lit(None).cast(f.dataType).alias(f.name) for f in stored))


def ordered_frame(
    spark: SparkSession, parts: Sequence[Part], struct: StructType, before: int = 0
) -> DataFrame:
    """Return a frame like `frame_of`, with the column `ORDER`: bigint, in order of arrival.

    `before` is the number of parts before these.
    """
    if not parts:
        return frame_of(spark, parts, struct).withColumn(ORDER, F.lit(0).cast("bigint"))
    names = (text_literal(part.url.rpartition("/")[2]) for part in parts)
    rows = ", ".join(f"({name}, {n}L)" for n, name in enumerate(names, before))
    numbers = spark.sql(f"SELECT * FROM VALUES {rows} AS p(__arrival_file, __arrival_part)")  # noqa: S608
    frame = frame_of(spark, parts, struct).select(
        "*",
        F.col("_metadata.file_name").alias("__arrival_file"),
        F.col("_metadata.row_index").alias("__arrival_row"),
    )
    position = F.col("__arrival_part") * F.lit(_ROWS_IN_PART) + F.col("__arrival_row")
    joined = frame.join(F.broadcast(numbers), "__arrival_file").withColumn(ORDER, position)
    return joined.drop("__arrival_file", "__arrival_part", "__arrival_row")


def newest_rows(frame: DataFrame, keys: Sequence[str], order_by: Sequence[str]) -> DataFrame:
    """Return the row of each key with the greatest values in the columns `order_by`.

    There, null is the least; in keys it is a value like any other.
    """
    order = [F.desc_nulls_last(quoted(name)) for name in order_by]
    window = Window.partitionBy(*map(quoted, keys)).orderBy(*order)
    rank = "__rank"
    return frame.withColumn(rank, F.row_number().over(window)).where(f"{rank} = 1").drop(rank)


def key_ranges(
    frame: DataFrame, keys: Sequence[str], few: Sequence[str] = ()
) -> tuple[tuple[KeyRange, ...], int]:
    """Return the ranges of the key columns, and the number of different keys; by one Spark job.

    `few` are keys whose single values are needed: the table's partitions.
    """
    types = {field.name: field.dataType for field in frame.schema}
    count = "__count"
    grouped = frame.select(*map(quoted, keys)).distinct()
    wanted = [F.count(F.lit(1)).alias(count)]
    for number, key in enumerate(keys):
        bounds = _plain(F.min(quoted(key)), types[key]), _plain(F.max(quoted(key)), types[key])
        wanted += [bounds[0].alias(f"first{number}"), bounds[1].alias(f"last{number}")]
        wanted.append(F.bool_or(F.col(quoted(key)).isNull()).alias(f"null{number}"))
    [row] = [result.asDict() for result in grouped.agg(*wanted).collect()]
    ranges = tuple(_range(row, number, key, types[key]) for number, key in enumerate(keys))
    return tuple(_with_values(frame, result, few) for result in ranges), row[count]


def _range(row: Mapping[str, Any], number: int, key: str, dtype: DataType) -> KeyRange:
    first, last = (_value(row[f"{end}{number}"], dtype) for end in ("first", "last"))
    return KeyRange(key, first, last, bool(row[f"null{number}"]))


def _with_values(frame: DataFrame, bounds: KeyRange, few: Sequence[str]) -> KeyRange:
    if bounds.column not in few or bounds.first is None:
        return bounds
    column = F.col(quoted(bounds.column))
    dtype = frame.schema[bounds.column].dataType
    rows = (
        frame.select(_plain(column, dtype).alias("v")).distinct().limit(MOST_VALUES + 2).collect()
    )
    values = tuple(_value(row[0], dtype) for row in rows if row[0] is not None)
    if len(rows) > MOST_VALUES or None in values:
        return bounds
    return replace(bounds, values=values)


def _as_text(dtype: DataType) -> DataType:
    """Return the type in Parquet parts, in which some types are text."""
    return StringType() if isinstance(dtype, TEXT_ONLY) else dtype


def _plain(column: Column, dtype: DataType) -> Column:
    """Return a value that Python can always hold: timestamps and dates as numbers."""
    if isinstance(dtype, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(dtype, T.DateType):
        return F.unix_date(column)
    exact = (T.IntegralType, T.StringType, T.DecimalType, T.BooleanType)
    return column if isinstance(dtype, exact) else F.lit(None).cast("string")


def _value(value: Any, dtype: DataType) -> Any:
    if value is None:
        return None
    try:
        if isinstance(dtype, T.TimestampType):
            return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(
                microseconds=value
            )
        if isinstance(dtype, T.DateType):
            return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    except OverflowError:
        return None
    return value


_PART, _HELD = "__part", "__held"


def refused_rows(rows: TableFlush, rules: Sequence[RowRule]) -> list[Refusal]:
    """Return the rows of a flush that break a rule, in the order of arrival; by one Spark job.

    The parts of the flush tell the origins of their rows.
    """
    if not rules:
        return []
    holds = (F.coalesce(F.expr(rule.condition), F.lit(False)) for rule in rules)
    number = F.coalesce(*(F.when(~one, F.lit(n)) for n, one in enumerate(holds))).alias("number")
    frame = _as_stored(rows).select(_PART, ROW_ORIGIN, number).where("number IS NOT NULL")
    places = {part.url.rpartition("/")[2]: n for n, part in enumerate(rows.flush.parts)}
    sources = {item.target: item.source for item in rows.change.projection}
    broken = sorted({(places[part], origin, n) for part, origin, n in frame.collect()})
    return [
        Refusal(rows.flush.parts[part].url, origin, _reason(rules[n], sources.get(rules[n].column)))
        for part, origin, n in broken
    ]


def _reason(rule: RowRule, source: str | None) -> str:
    if not rule.column:
        return rule.reason
    named = f"column '{rule.column}'" if source is None else f"property '{source}'"
    return f"{named}: {rule.reason}"


def _as_stored(rows: TableFlush) -> DataFrame:
    """Return the rows of a flush that do not only delete, with all columns of the table."""
    flush, request, projection = rows.flush, rows.request, rows.change.projection
    origin = StructField(ROW_ORIGIN, LongType())
    struct = StructType([*flush.write.struct, origin])
    frame = frame_of(rows.table.spark, flush.parts, struct)
    frame = frame.select("*", F.col("_metadata.file_name").alias(_PART))
    beside = Projected(ROW_ORIGIN, ROW_ORIGIN, LongType()), Projected(_PART, _PART, StringType())
    frame = project(frame, (*projection, *beside))
    targets = {item.source: item.target for item in projection}
    deleted = targets.get(DELETED_AT) if request.hard_delete else None
    if request.method == "upsert" and deleted is not None:
        frame = frame.where(F.col(quoted(deleted)).isNull())
    own = rows.change.supplied(request.struct.names)
    others = [field for field in rows.now.struct if field.name not in own]
    if others and request.is_upsert:
        keys = [targets[key] for key in request.keys]
        return _with_held(frame, rows.table.rows, keys, others)
    missing = [field for field in others if field.name not in frame.columns]
    return frame.withColumns({field.name: _default(field) for field in missing})


def _with_held(
    frame: DataFrame, table: DataFrame, keys: Sequence[str], others: Sequence[StructField]
) -> DataFrame:
    """Return rows with columns that they do not set, as the rows with their keys have them."""
    names = [field.name for field in others]
    held = table.select(
        *(F.col(quoted(key)).alias(f"{_HELD}{n}") for n, key in enumerate(keys)),
        F.struct(*map(quoted, names)).alias(_HELD),
    )
    pairs = [F.col(quoted(k)).eqNullSafe(F.col(f"{_HELD}{n}")) for n, k in enumerate(keys)]
    bare = frame.select(*(quoted(c) for c in frame.columns if c not in names))
    joined = bare.join(held, reduce(lambda one, other: one & other, pairs), "left")
    return joined.withColumns(
        {
            field.name: F.when(
                F.col(_HELD).isNotNull(), F.col(f"{_HELD}.{quoted(field.name)}")
            ).otherwise(_default(field))
            for field in others
        }
    )


def _default(field: StructField) -> Column:
    return F.expr((field.metadata or {}).get(DEFAULT) or "NULL").cast(field.dataType)


def refusing(frame: DataFrame, rules: Sequence[RowRule], deleted: str | None = None) -> DataFrame:
    """Return rows that end what reads them if one breaks a rule that the format does not check.

    Rows with a value in the column `deleted` only delete.
    """
    for rule in rules:
        if rule.is_unchecked and rule.column in frame.columns:
            holds = F.expr(rule.condition)
            holds = holds if deleted is None else holds | F.col(quoted(deleted)).isNotNull()
            refused = F.raise_error(F.lit(_reason(rule, None)))
            frame = frame.where(F.when(holds, True).otherwise(refused))
    return frame


def appended(rows: TableFlush) -> DataFrame:
    """Return all rows of a flush, projected to the table's columns."""
    flush = rows.flush
    frame = frame_of(rows.table.spark, flush.parts, flush.write.struct)
    return project(frame, rows.change.projection)


def upserted(form: LakeFormat, rows: TableFlush, result: Keys | None) -> Committed:
    """Merge a flush into a table: the newest row of each key; return what the commit tells.

    `result` is what `keys_in_parts` tells.
    """
    table, flush, request, change = rows.table, rows.flush, rows.request, rows.change
    frame = appended(rows)
    keys = [change.targets[key] for key in request.keys]
    ranges, count = result or key_ranges(frame, keys, rows.now.partitions)
    # Only a flush with repeated keys needs a sort by key.
    if count < flush.rows:
        ordered = ordered_frame(table.spark, flush.parts, flush.write.struct)
        newest = newest_rows(ordered, request.keys, [*request.order_by, ORDER])
        frame = project(newest, change.projection)
    plan = rows.merge_plan(form.searched(ranges))
    frame = refusing(frame, form.row_rules(rows.now), plan.deleted)
    with view_of(table.spark, frame) as view:
        form.execute(table, merge_sql(plan, table.name, view), rows.mark)
    return plan.result(form.changed_rows(table, rows.mark), count)
