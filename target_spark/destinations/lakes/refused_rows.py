"""The rows of a flush that break rules of their table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from shared.maps.record_metadata import DELETED_AT
from target_spark.destinations.destination import ROW_ORIGIN, Refusal
from target_spark.destinations.lakes.flush_frames import frame_of
from target_spark.destinations.lakes.lake_format import TableFlush
from target_spark.destinations.lakes.lake_table import DEFAULT
from target_spark.destinations.lakes.merge import quoted
from target_spark.destinations.lakes.row_rules import RowRule
from target_spark.tables.spark_columns import project
from target_spark.tables.table_changes import Projected

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

_PART, _HELD = "__part", "__held"


def refused_rows(spark: SparkSession, rows: TableFlush, rules: Sequence[RowRule]) -> list[Refusal]:
    """Return the rows of a flush that break a rule, in the order of arrival; by one Spark job.

    Args:
        spark: The table's session.
        rows: The flush, whose parts tell the origins of their rows, and its table.
        rules: The rules.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if not rules:
        return []
    number = F.coalesce(*(_broken(rule, n) for n, rule in enumerate(rules))).alias("number")
    frame = _as_stored(spark, rows).select(_PART, ROW_ORIGIN, number).where("number IS NOT NULL")
    places = {part.url.rpartition("/")[2]: n for n, part in enumerate(rows.flush.parts)}
    sources = {item.target: item.source for item in rows.change.projection}
    broken = sorted({(places[part], origin, n) for part, origin, n in frame.collect()})
    return [
        Refusal(rows.flush.parts[part].url, origin, _reason(rules[n], sources.get(rules[n].column)))
        for part, origin, n in broken
    ]


def _broken(rule: RowRule, number: int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.when(~F.coalesce(F.expr(rule.condition), F.lit(False)), F.lit(number))


def _reason(rule: RowRule, source: str | None) -> str:
    if not rule.column:
        return rule.reason
    named = f"column '{rule.column}'" if source is None else f"property '{source}'"
    return f"{named}: {rule.reason}"


def _as_stored(spark: SparkSession, rows: TableFlush) -> DataFrame:
    """Return the rows of a flush with all columns that the table would give them.

    Without those that only delete others.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql.types import LongType, StringType, StructField, StructType  # noqa: PLC0415

    flush, request, projection = rows.flush, rows.request, rows.change.projection
    origin = StructField(ROW_ORIGIN, LongType())
    frame = frame_of(spark, flush.parts, StructType([*flush.write.struct, origin]))
    frame = frame.select("*", F.col("_metadata.file_name").alias(_PART))
    beside = Projected(ROW_ORIGIN, ROW_ORIGIN, LongType()), Projected(_PART, _PART, StringType())
    frame = project(frame, (*projection, *beside))
    targets = {item.source: item.target for item in projection}
    deleted = targets.get(DELETED_AT) if request.hard_delete else None
    if request.method == "upsert" and deleted is not None:
        frame = frame.where(F.col(quoted(deleted)).isNull())
    own = rows.change.given(request.struct.names)
    others = [field for field in rows.now.struct if field.name not in own]
    if others and request.method == "upsert" and request.keys:
        keys = [targets[key] for key in request.keys]
        return _with_held(frame, spark.table(rows.place.table), keys, others)
    missing = [field for field in others if field.name not in frame.columns]
    return frame.withColumns({field.name: _default(field) for field in missing})


def _with_held(
    frame: DataFrame, table: DataFrame, keys: Sequence[str], others: Sequence[StructField]
) -> DataFrame:
    """Return rows with columns that they do not set, as the rows with their keys have them."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

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
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.expr((field.metadata or {}).get(DEFAULT) or "NULL").cast(field.dataType)
