"""DataFrame helpers of the sources: names, filters, and checks that fail the job.

Replication keys of text have the order of their values: dates and times, numbers, then as text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.arrow_types import mapped
from shared.formats.date_numbers import (
    MOMENT_CLASS,
    MOMENT_SHIFT,
    NUMBER_CLASS,
    NUMBER_SHIFT,
    PLACES,
    TEXT_CLASS,
    text_rank,
)
from shared.formats.record_text import json_column, plain_text
from shared.formats.spark_types import T
from shared.settings.texts import quoted
from shared.singer.messages import DELETED_AT
from shared.singer.platform import arrow_in_task
from shared.spark.session import try_cast
from tap_spark.sources.source_failures import BEGIN, END
from tap_spark.state.stream_plans import Resume, Slice, StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_MOMENT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?"
    r"(Z|z|[+-](?:0[0-9]|1[0-7]):?[0-5][0-9])?)?\z"
)
_NUMBER = r"^(-?)(0|[1-9][0-9]{0,19})(?:\.([0-9]{1,18}))?\z"


def rank_column(key: Column) -> Column:
    """Return what `text_rank` returns for the texts of a column."""
    day, clock, fraction, zone = (F.regexp_extract(key, _MOMENT, n) for n in range(1, 5))
    clock = F.when(clock == "", F.lit("00:00:00")).otherwise(F.rpad(clock, 8, ":00"))
    zone = F.when((zone == "") | (F.upper(zone) == "Z"), F.lit("+00:00")).otherwise(
        F.concat(F.substring(zone, 1, 3), F.lit(":"), F.substring(zone, -2, 2))
    )
    moment = try_cast(F.concat(day, F.lit("T"), clock, zone), "timestamp_ltz")
    shifted = F.unix_seconds(moment) + F.lit(MOMENT_SHIFT)
    as_moment = F.concat(
        F.lit(MOMENT_CLASS), F.lpad(shifted.cast("string"), 13, "0"), F.rpad(fraction, 9, "0")
    )
    sign, whole, places = (F.regexp_extract(key, _NUMBER, n) for n in range(1, 4))
    size = try_cast(F.concat(whole, F.rpad(places, PLACES, "0")), "decimal(38,0)")
    # A decimal has 38 digits: the digit that the shift adds is written before the others.
    rest = F.lit(str(NUMBER_SHIFT * 10**PLACES - 1)).cast("decimal(38,0)")
    below = (rest - size + F.lit(1)).cast("decimal(38,0)")
    positive = F.concat(F.lit("1"), F.lpad(size.cast("string"), 38, "0"))
    negative = F.when(size == 0, positive).otherwise(
        F.concat(F.lit("0"), F.lpad(below.cast("string"), 38, "0"))
    )
    as_number = F.concat(F.lit(NUMBER_CLASS), F.when(sign == "-", negative).otherwise(positive))
    return (
        F.when(key.rlike(_MOMENT) & moment.isNotNull(), as_moment)
        .when(key.rlike(_NUMBER), as_number)
        .otherwise(F.concat(F.lit(TEXT_CLASS), key))
    )


def is_at_or_above(key: Column, start: str) -> Column:
    """Return whether a text is not below another; one of another kind has no order to it."""
    rank, bound = rank_column(key), text_rank(start)
    return (rank >= F.lit(bound)) | (F.substring(rank, 1, 1) != F.lit(bound[0]))


def is_below(key: Column, end: str) -> Column:
    """Return whether a text is below another, or of another kind than a date, time or number."""
    rank, bound = rank_column(key), text_rank(end)
    if bound.startswith(TEXT_CLASS):
        # Sources can compare it themselves.
        return key < F.lit(end)
    return (rank < F.lit(bound)) | (F.substring(rank, 1, 1) != F.lit(bound[0]))


_Part = TypeVar("_Part")


def part_task(
    parts: Sequence[_Part], read: Callable[[_Part], Iterable[pa.RecordBatch]], name: str = "rows"
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what reads parts, for `mapInArrow`: numbers of parts in, their rows out.

    Args:
        name: What plans and Spark's pages show.
    """

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(parts[number])

    rows.__name__ = name
    return rows


def frame_of_parts(
    spark: SparkSession,
    parts: Sequence[_Part],
    read: Callable[[_Part], Iterable[pa.RecordBatch]],
    schema: T.StructType | str,
    most_tasks: int = sys.maxsize,
    name: str = "rows",
) -> DataFrame:
    """Return the rows of parts that tasks read, each one part or a few."""
    tasks = max(1, min(len(parts), most_tasks))
    numbers = spark.range(0, len(parts), 1, tasks)
    return numbers.mapInArrow(part_task(parts, read, name), schema)


CORRUPT, FILE = "_tap_spark_unreadable", "_tap_spark_file"
_SHOWN = 200
MAX_DECIMAL = 38


def col(name: str) -> Column:
    """Return the top-level column of exactly this name, which may have any characters."""
    return F.col(quoted(name))


def struct_from_text(text: str) -> T.StructType:
    """Read a schema from Spark's JSON text."""
    return T.StructType.fromJson(json.loads(text))


def prune(struct: T.StructType, schema: Mapping[str, Any]) -> T.StructType:
    """Return the fields, at any depth, that a JSON Schema has too, in the struct's order."""
    wanted = schema.get("properties")
    if not isinstance(wanted, Mapping):
        return struct
    return T.StructType(
        [
            T.StructField(field.name, _prune(field.dataType, wanted[field.name]), True)
            for field in struct.fields
            if field.name in wanted
        ]
    )


def _prune(dtype: T.DataType, schema: Mapping[str, Any]) -> T.DataType:
    if isinstance(dtype, T.StructType):
        return prune(dtype, schema)
    if isinstance(dtype, T.ArrayType) and isinstance(schema.get("items"), Mapping):
        return T.ArrayType(_prune(dtype.elementType, schema["items"]), True)
    return dtype


def widen_inferred(dtype: T.DataType) -> Any:
    """Widen an inferred type for later data: void to string, and decimals to all digits."""
    return mapped(dtype, _widened)


def _widened(leaf: T.DataType) -> T.DataType:
    if isinstance(leaf, T.DecimalType):
        return T.DecimalType(MAX_DECIMAL, leaf.scale)
    return T.StringType() if isinstance(leaf, T.NullType) else leaf


def without_void(dtype: T.DataType) -> Any:
    """Return the type with text for what is always null."""
    return mapped(dtype, lambda leaf: T.StringType() if isinstance(leaf, T.NullType) else leaf)


def fail_job(
    problem: str,
    *,
    value: Column | None = None,
    file: Column | None = None,
    hint: str = "",
) -> Column:
    """Return an expression that fails the job with a marked text; see `source_failures`."""
    parts = [F.lit(problem).alias("problem"), F.lit(hint).alias("hint")]
    if value is not None:
        parts.append(F.substring(value, 1, _SHOWN).alias("value"))
    if file is not None:
        parts.append(file.alias("file"))
    return F.raise_error(F.concat(F.lit(BEGIN), F.to_json(F.struct(*parts)), F.lit(END)))


def without_corrupt(frame: DataFrame, hint: str, file: Column | None = None) -> DataFrame:
    """Fail the job at a row that the parser could not read, if it keeps such rows."""
    if CORRUPT not in frame.columns:
        return frame
    file = F.input_file_name() if file is None else file
    failure = fail_job("a row cannot be read", value=col(CORRUPT), file=file, hint=hint)
    # Spark rejects queries that read only the column of unreadable rows.
    also = next((name for name in frame.columns if name != CORRUPT), CORRUPT)
    failure = F.when(col(also).isNull(), failure).otherwise(F.concat(failure, F.lit("")))
    good = F.when(col(CORRUPT).isNull(), F.lit(True)).otherwise(failure.cast("boolean"))
    return frame.filter(good).drop(CORRUPT)


def file_of(urls: Sequence[str]) -> Column:
    """Return the URL for the index in the column `file` of a frame of lines."""
    return F.get(F.split(F.lit("\n".join(urls)), "\n"), col("file"))


def planned_slice(frame: DataFrame, plan: StreamPlan, *, ordered: bool = False) -> Slice:
    """Return one slice of everything the plan asks for: columns, bounds and order."""
    frame = within_bounds(frame, plan)
    by_value = plan.resume is Resume.REPLICATION_KEY and _is_text(frame, plan)
    if plan.resume is Resume.REPLICATION_KEY and plan.config.sort_by_replication_key:
        key = col(str(plan.replication_key))
        frame = frame.orderBy((rank_column(key) if by_value else key).asc_nulls_first())
        ordered = True
    columns = map(col, plan.columns)
    return Slice(frame.select(*columns), ordered=ordered, text_key_by_value=by_value)


def _is_text(frame: DataFrame, plan: StreamPlan) -> bool:
    return frame.schema[str(plan.replication_key)].dataType == T.StringType()


def with_deleted_at(
    frame: DataFrame, deleted_at: Column, helpers: Collection[str] = ()
) -> DataFrame:
    """Return rows with `_sdc_deleted_at` as their last column, without helper columns.

    What a target has written as deleted, or a tap as a deletion, stays so.
    """
    if DELETED_AT in frame.columns:
        deleted_at = F.coalesce(deleted_at, col(DELETED_AT).cast("timestamp_ltz"))
    kept = [name for name in frame.columns if name not in (*helpers, DELETED_AT)]
    return frame.select(*map(col, kept), deleted_at.alias(DELETED_AT))


def with_text(plan: StreamPlan, part: Slice) -> Slice:
    """Return the slice with text in the columns that the catalog makes text, as in records."""
    texts = {
        field.name: _record_text(col(field.name), field.dataType)
        for field in (part.frame.schema.fields if plan.as_text else ())
        if field.name in plan.as_text
    }
    if not texts:
        return part
    names = part.frame.columns
    return replace(part, frame=part.frame.select(*(texts.get(n, col(n)).alias(n) for n in names)))


def _record_text(value: Column, dtype: T.DataType) -> Column:
    if isinstance(dtype, (T.StringType, T.FloatType, T.DoubleType)):
        return value.cast("string")
    is_written_as_text = (
        isinstance(dtype, (T.DatetimeType, T.BinaryType)) or "interval" in dtype.typeName()
    )
    return plain_text(value, dtype) if is_written_as_text else json_column(value, dtype)


def within_bounds(frame: DataFrame, plan: StreamPlan) -> DataFrame:
    """Keep rows between the plan's start and end value, and rows whose key is null, if wanted.

    A start value that does not fit the column's type does not filter rows.
    """
    if plan.resume is not Resume.REPLICATION_KEY:
        return frame
    key = col(str(plan.replication_key))
    dtype = frame.schema[str(plan.replication_key)].dataType
    if _is_text(frame, plan):
        if not plan.null_keys:
            # A range, outside of which are the texts of other kinds.
            low = "" if plan.start_value is None else text_rank(str(plan.start_value))
            rank, high = rank_column(key), text_rank(str(plan.end_value))
            return frame.filter((rank >= F.lit(low)) & (rank < F.lit(high)))
        if plan.start_value is not None:
            frame = frame.filter(is_at_or_above(key, str(plan.start_value)) | key.isNull())
        if plan.end_value is not None:
            frame = frame.filter(is_below(key, str(plan.end_value)) | key.isNull())
        return frame
    if plan.start_value is not None:
        start = try_cast(F.lit(str(plan.start_value)), dtype)
        frame = frame.filter((key >= start) | key.isNull() | start.isNull())
    if plan.end_value is not None:
        frame = frame.filter((key < F.lit(str(plan.end_value)).cast(dtype)) | key.isNull())
    return frame if plan.null_keys else frame.filter(key.isNotNull())


def missing_columns(columns: Iterable[str], present: Sequence[str]) -> list[str]:
    """Return the columns that are not present."""
    names = set(present)
    return [name for name in columns if name not in names]


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether columns may differ by case only."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
