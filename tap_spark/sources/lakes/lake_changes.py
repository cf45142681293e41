"""The changes a destination needs, computed by Spark from a table's old and new rows.

Rows have the number of their commit (`ORDER`), its time (`AT`), and whether they are a row before
(`OLD`) or after the commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.maps.record_metadata import DELETED_AT
from shared.types.record_text import json_text
from tap_spark.sources.frame_helpers import col

ORDER, OLD, AT = "_tap_spark_order", "_tap_spark_old", "_tap_spark_at"
_COUNT, _COPY, _HAS_NEW, _TEXT = (
    "_tap_spark_count",
    "_tap_spark_copy",
    "_tap_spark_has_new",
    "_tap_spark_text_",
)


def with_commit_columns(frame: DataFrame, order: Column, old: Column, at: Column) -> DataFrame:
    """Add the columns `ORDER`, `OLD` and `AT`."""
    return frame.select(
        "*", order.cast("long").alias(ORDER), old.alias(OLD), at.cast("timestamp").alias(AT)
    )


def both_versions(before: DataFrame, after: DataFrame, at: Column) -> DataFrame:
    """Return all rows of two versions of a table, as if one had replaced the other."""
    first = with_commit_columns(before, F.lit(0), F.lit(True), at)
    return first.unionAll(with_commit_columns(after, F.lit(0), F.lit(False), at))


def net_changes(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keep only rows that changed.

    A row that a commit deletes and inserts unchanged is not a change. With a key, an old row is
    dropped if the same commit has a new row of the key; the old rows that remain are deletions.
    Without a key every old row remains, and destinations get an update as two rows.

    Args:
        frame: Rows with `ORDER`, `OLD` and `AT`.
        keys: Columns of the primary key; may be empty.
    """
    changed = _without_unchanged(frame)
    if not keys:
        return changed
    same_key = Window.partitionBy(ORDER, *map(col, keys))
    has_new = F.max(~col(OLD)).over(same_key)
    seen = changed.withColumn(_HAS_NEW, has_new)
    return seen.filter(~(col(OLD) & col(_HAS_NEW))).drop(_HAS_NEW)


def as_records(frame: DataFrame, *, ordered: bool) -> DataFrame:
    """Return the records: `_sdc_deleted_at` comes last, and only deleted rows have it.

    Args:
        frame: Rows with `ORDER`, `OLD` and `AT`.
        ordered: Sort by commit, deletions first.
    """
    if ordered:
        frame = frame.orderBy(col(ORDER), col(OLD).desc())
    return _with_deleted_at(frame, F.when(col(OLD), col(AT)))


def as_first_records(frame: DataFrame) -> DataFrame:
    """Return the rows of a version as records; none of them is deleted."""
    return _with_deleted_at(frame, F.lit(None).cast("timestamp"))


def _with_deleted_at(frame: DataFrame, deleted_at: Column) -> DataFrame:
    kept = [name for name in frame.columns if name not in (ORDER, OLD, AT, DELETED_AT)]
    if DELETED_AT in frame.columns:  # a table that a target wrote: its own deletions stay
        deleted_at = F.coalesce(deleted_at, col(DELETED_AT).cast("timestamp"))
    return frame.select(*map(col, kept), deleted_at.alias(DELETED_AT))


def _without_unchanged(frame: DataFrame) -> DataFrame:
    """Return the difference of new and old rows of each commit; equal rows count separately."""
    fields = [field for field in frame.schema.fields if field.name not in (ORDER, OLD, AT)]
    texts = {f.name: f"{_TEXT}{n}" for n, f in enumerate(fields) if not _groups_exactly(f.dataType)}
    frame = frame.select(
        "*",
        *(
            json_text(col(f.name), f.dataType).alias(texts[f.name])
            for f in fields
            if f.name in texts
        ),
    )
    groups = [col(ORDER), *(col(texts.get(field.name, field.name)) for field in fields)]
    counted = frame.groupBy(*groups).agg(
        F.sum(F.when(col(OLD), -1).otherwise(1)).alias(_COUNT),
        F.first(col(AT)).alias(AT),
        *(F.first(col(name)).alias(name) for name in texts),
    )
    copies = F.array_repeat(F.lit(True), F.abs(col(_COUNT)).cast("int"))
    return (
        counted.filter(col(_COUNT) != 0)
        .select(
            *(col(field.name) for field in fields),
            col(ORDER),
            (col(_COUNT) < 0).alias(OLD),
            col(AT),
            F.explode(copies).alias(_COPY),
        )
        .drop(_COPY)
    )


def _groups_exactly(dtype: T.DataType) -> bool:
    """Return whether Spark can group by the type exactly; it takes -0.0 for 0.0, for example."""
    if isinstance(dtype, T.StructType):
        return all(_groups_exactly(field.dataType) for field in dtype.fields)
    if isinstance(dtype, T.ArrayType):
        return _groups_exactly(dtype.elementType)
    if isinstance(dtype, T.StringType):
        return dtype.simpleString() == "string"  # in a collation 'a' may equal 'A'
    exact = (T.IntegralType, T.DecimalType, T.BooleanType, T.BinaryType)
    return isinstance(dtype, (*exact, T.DateType, T.TimestampType, T.TimestampNTZType))
