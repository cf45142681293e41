"""Sources that Spark itself has: tables and views of catalogs, SQL, generated rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from shared.errors import SettingsError, Where
from tap_spark.sources.frame_helpers import col, planned_slice, quoted, within_bounds
from tap_spark.sources.frame_source import FrameSource
from tap_spark.sources.generated_rows import (
    FIRST_MOMENT,
    KINDS,
    NULL_EVERY,
    SPAN_DAYS,
    GeneratedRows,
)
from tap_spark.sources.read_only_sql import as_subquery, check_reads
from tap_spark.sources.tables import name_parts
from tap_spark.state.stream_plans import ArrowTasks, Resume, Slice, StreamPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.state.stream_plans import StreamPlan
    from tap_spark.stream_config import StreamConfig


class TableSource(FrameSource):
    """A table or view.

    Raises:
        SettingsError: The setting `table` is not a table name.
    """

    def __init__(self, stream: StreamConfig) -> None:
        super().__init__(stream)
        try:
            self.name = spark_name(name_parts(stream.table or ""))
        except ValueError as error:
            where = Where(stream=stream.name, setting="table")
            raise SettingsError(str(error), where=where) from error

    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:  # noqa: ARG002
        """See `FrameSource.frame`."""
        return spark.read.options(**self.stream.options).table(self.name)


def spark_name(parts: Sequence[str]) -> str:
    """Join the parts of a name so that Spark SQL reads each of them literally."""
    return ".".join(map(quoted, parts))


class SqlSource(FrameSource):
    """The rows of a query.

    Raises:
        SettingsError: It is not exactly one statement that reads.
    """

    def __init__(self, stream: StreamConfig) -> None:
        super().__init__(stream)
        query = stream.query or ""
        check_reads(query, "spark", Where(stream=stream.name, setting="query"))
        # Spark runs commands at once, but rejects them in a subquery if the check missed them.
        self.text = f"SELECT * FROM {as_subquery(query, 'spark')}"  # noqa: S608

    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:  # noqa: ARG002
        """See `FrameSource.frame`."""
        return spark.sql(self.text)


CELLS_PER_TASK = 1_000_000
MAX_TASKS = 10_000

Maker = Callable[[Column], Column]


def _moment(bits: Column) -> Column:
    seconds = F.pmod(bits, F.lit(SPAN_DAYS * 86_400)) + FIRST_MOMENT
    return F.timestamp_micros(seconds * 1_000_000 + F.pmod(bits, F.lit(1_000_000)))


MAKERS: Mapping[str, Maker] = {
    "int": lambda bits: F.pmod(bits, F.lit(2_000_000_001)).cast("int"),
    "double": lambda bits: bits / F.lit(2.0**40),
    "decimal": lambda bits: F.pmod(bits, F.lit(10**14)).cast("decimal(18,0)") / 10_000,
    "string": F.hex,
    "boolean": lambda bits: F.pmod(bits, F.lit(2)) == 0,
    "timestamp": _moment,
    "date": lambda bits: F.date_add(
        F.lit("2020-01-01").cast("date"), F.pmod(bits, F.lit(SPAN_DAYS)).cast("int")
    ),
    "bigint": lambda bits: bits,
}
CASTS = {"decimal": "decimal(18,4)"}


def column_names(count: int) -> list[str]:
    """Return the column names: `id`, `updated_at`, then by type and position."""
    names = ["id", "updated_at"]
    names += [f"{KINDS[(n - 2) % len(KINDS)]}_{n + 1}" for n in range(2, count)]
    return names[:count]


class RowsSource:
    """`row_count` rows of `column_count` columns; the same on every run."""

    def __init__(self, stream: StreamConfig) -> None:
        self.stream = stream
        self.key_properties = stream.key_properties or ("id",)
        self.rows: int = stream.own["row_count"]
        self.columns: int = stream.own["column_count"]

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        return generated_frame(spark, 0, self.columns).schema

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """See `Source.slices`; the rows come in the order of `id`."""
        frame = generated_frame(spark, self.rows, self.columns, plan.columns)
        if plan.replication_key in ("id", "updated_at"):
            yield Slice(within_bounds(frame, plan).select(*map(col, plan.columns)), ordered=True)
        else:
            yield self._slice(spark, planned_slice(frame, plan), plan)

    def _slice(self, spark: SparkSession, slice_: Slice, plan: StreamPlan) -> Slice:
        """Let tasks make the rows if all of them are wanted, as planned."""
        if plan.resume is not Resume.NOTHING or not plan.columns:
            return slice_
        positions = [column_names(self.columns).index(name) for name in plan.columns]
        tasks = task_count(self.rows, self.columns)
        read = GeneratedRows(self.rows, tasks, positions)
        numbers = spark.range(0, tasks, 1, tasks)
        return replace(slice_, tasks=ArrowTasks(slice_.frame, numbers, read))


def task_count(rows: int, columns: int) -> int:
    """Return how many tasks make the rows."""
    return min(MAX_TASKS, max(1, -(-rows * columns // CELLS_PER_TASK)))


def generated_frame(
    spark: SparkSession, rows: int, columns: int, names: Sequence[str] | None = None
) -> DataFrame:
    """Return a frame of generated rows.

    Args:
        spark: The session.
        rows: How many rows.
        columns: How many columns the stream has.
        names: The columns to return, in this order; None for all.
    """
    every = column_names(columns)
    positions = {name: position for position, name in enumerate(every)}
    wanted = [name for name in (every if names is None else names) if name in positions]
    return spark.range(0, rows, 1, task_count(rows, columns)).select(
        *(_column(positions[name]).alias(name) for name in wanted)
    )


def _column(position: int) -> Column:
    if position == 0:
        return F.col("id")
    if position == 1:
        return F.timestamp_seconds(F.col("id") + FIRST_MOMENT)
    kind = KINDS[(position - 2) % len(KINDS)]
    bits = F.xxhash64(F.col("id"), F.lit(position))
    value = MAKERS[kind](bits)
    value = value.cast(CASTS[kind]) if kind in CASTS else value
    nullable = position % 3 == 0
    empty = F.pmod(F.col("id") + position, F.lit(NULL_EVERY)) == 0
    return F.when(~empty, value) if nullable else value
