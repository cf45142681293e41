"""Sources that Spark itself has: tables and views of catalogs, SQL, generated rows.

Arrow's kernels generate the same rows in a task as `generated_frame`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.engine.engine import Engine
from shared.errors import SettingsError, Where
from shared.formats.spark_types import T
from shared.settings.texts import quoted
from shared.singer.platform import arrow_in_task
from tap_spark.sources.frame_helpers import col, planned_slice, within_bounds
from tap_spark.sources.frame_source import FrameSource
from tap_spark.sources.read_only_sql import as_subquery, check_reads
from tap_spark.sources.tables import name_parts
from tap_spark.state.stream_plans import Resume, RowForm, RowTasks, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


KINDS = ("int", "double", "decimal", "string", "boolean", "timestamp", "date", "bigint")
"""Types of the columns after `id` and `updated_at`, in turn."""
FIRST_MOMENT = 1_577_836_800  # 2020-01-01T00:00:00Z
SPAN_DAYS = 2000
NULL_EVERY = 20

_CELLS, _LEAST_ROWS = 400_000, 10_000
"""Values of a batch, and its rows if columns are many: each call of Arrow costs as much as some
thousand values, and fewer stay in the processor's cache."""
_DAY = 86_400
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SIGN = 62
"""Places that leave the sign alone of 64 bits below 2**62; Arrow shifts no further."""
_SEED = 42  # Of Spark's function `xxhash64`.


@dataclass(frozen=True)
class GeneratedRows:
    """Makes the rows of all tasks, for `mapInArrow`: numbers of tasks in, their rows out."""

    rows: int
    tasks: int
    positions: Sequence[int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        size = max(_LEAST_ROWS, _CELLS // len(self.positions))
        for batch in batches:
            for task in batch.column(0).to_pylist():
                start, stop = (self.rows * n // self.tasks for n in (task, task + 1))
                for first in range(start, stop, size):
                    yield generated_batch(first, min(size, stop - first), self.positions)


def generated_batch(first: int, rows: int, positions: Sequence[int]) -> pa.RecordBatch:
    """Return the rows from the `id` of the first one on; columns are named by number."""
    ids = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows), start=first - 1)
    seeds = _hash(ids.view(pa.uint64()))
    arrays = [_generated(ids, seeds, position) for position in positions]
    return pa.record_batch(arrays, [f"c{number}" for number in range(len(arrays))])


def _generated(ids: pa.Array, seeds: pa.Array, position: int) -> pa.Array:
    if position == 0:
        return ids
    if position == 1:
        return _instant(pc.multiply(pc.add(ids, FIRST_MOMENT), 1_000_000))
    bits = _hash_again(seeds, position)
    values = _MAKERS[KINDS[(position - 2) % len(KINDS)]](bits)
    if position % 3:
        return values
    return pc.if_else(pc.equal(_modulo(pc.add(ids, position), NULL_EVERY), 0), None, values)


@cache
def _constant(value: int) -> pa.Scalar:
    return pa.scalar(value % 2**64, pa.uint64())


def _rotated(bits: pa.Array, by: int) -> pa.Array:
    left, right = pc.shift_left(bits, _constant(by)), pc.shift_right(bits, _constant(64 - by))
    return pc.bit_wise_or(left, right)


def _mixed(bits: pa.Array) -> pa.Array:
    for shift, factor in ((33, _P2), (29, _P3), (32, 1)):
        bits = pc.bit_wise_xor(bits, pc.shift_right(bits, _constant(shift)))
        bits = pc.multiply(bits, _constant(factor)) if factor > 1 else bits
    return bits


def _hash(values: pa.Array) -> pa.Array:
    """Return XXH64 of integers of 64 bits, unsigned."""
    part = pc.multiply(_rotated(pc.multiply(values, _constant(_P2)), 31), _constant(_P1))
    bits = pc.bit_wise_xor(part, _constant(_SEED + _P5 + 8))
    return _mixed(pc.add(pc.multiply(_rotated(bits, 27), _constant(_P1)), _constant(_P4)))


def _hash_again(seeds: pa.Array, value: int) -> pa.Array:
    """Return XXH64 of one integer of 32 bits for each seed, signed."""
    bits = pc.bit_wise_xor(pc.add(seeds, _constant(_P5 + 4)), _constant(value * _P1))
    bits = _mixed(pc.add(pc.multiply(_rotated(bits, 23), _constant(_P2)), _constant(_P3)))
    return bits.view(pa.int64())


def _modulo(values: pa.Array, by: int) -> pa.Array:
    """Return the remainder, which is never negative; `by` is below 2**62."""
    rest = pc.subtract(values, pc.multiply(pc.divide(values, by), by))
    # Shifted, a negative one has all bits, others none: `if_else` takes three times as long.
    return pc.add(rest, pc.bit_wise_and(pc.shift_right(rest, _SIGN), by))


def _instant(micros: pa.Array) -> pa.Array:
    return micros.view(pa.timestamp("us", "UTC"))


def _timestamp(bits: pa.Array) -> pa.Array:
    seconds = pc.add(_modulo(bits, SPAN_DAYS * _DAY), FIRST_MOMENT)
    return _instant(pc.add(pc.multiply(seconds, 1_000_000), _modulo(bits, 1_000_000)))


def _decimal(bits: pa.Array) -> pa.Array:
    digits = _modulo(bits, 10**14).cast(pa.decimal128(19, 0))
    return pa.Array.from_buffers(pa.decimal128(18, 4), len(digits), digits.buffers())


def _hexadecimal(bits: pa.Array) -> pa.Array:
    words = array("Q", memoryview(bits.buffers()[1])[: 8 * len(bits)].tobytes())
    words.byteswap()
    digits = pa.py_buffer(words.tobytes().hex().upper().encode())
    texts = pa.Array.from_buffers(pa.binary(16), len(bits), [None, digits]).cast(pa.string())
    texts = pc.ascii_ltrim(texts, "0")
    return pc.if_else(pc.equal(texts, ""), "0", texts)


_MAKERS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "int": lambda bits: _modulo(bits, 2_000_000_001).cast(pa.int32()),
    "double": lambda bits: pc.divide(bits.cast(pa.float64(), safe=False), 2.0**40),
    "decimal": _decimal,
    "string": _hexadecimal,
    "boolean": lambda bits: pc.equal(pc.bit_wise_and(bits, 1), 0),
    "timestamp": _timestamp,
    "date": lambda bits: (
        pc.add(_modulo(bits, SPAN_DAYS), FIRST_MOMENT // _DAY).cast(pa.int32()).view(pa.date32())
    ),
    "bigint": lambda bits: bits,
}


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
        return spark.sql(self.text)


CELLS_PER_TASK = 2_500_000
MAX_TASKS = 10_000


def _moment(bits: Column) -> Column:
    seconds = F.pmod(bits, F.lit(SPAN_DAYS * 86_400)) + FIRST_MOMENT
    return F.timestamp_micros(seconds * 1_000_000 + F.pmod(bits, F.lit(1_000_000)))


MAKERS: Mapping[str, Callable[[Column], Column]] = {
    "int": lambda bits: F.pmod(bits, F.lit(2_000_000_001)).cast("int"),
    "double": lambda bits: bits / F.lit(2.0**40),
    "decimal": lambda bits: (F.pmod(bits, F.lit(10**14)).cast("decimal(18,0)") / 10_000).cast(
        "decimal(18,4)"
    ),
    "string": F.hex,
    "boolean": lambda bits: F.pmod(bits, F.lit(2)) == 0,
    "timestamp": _moment,
    "date": lambda bits: F.date_add(
        F.lit("2020-01-01").cast("date"), F.pmod(bits, F.lit(SPAN_DAYS)).cast("int")
    ),
    "bigint": lambda bits: bits,
}


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

    def schema(self, spark: SparkSession | None) -> T.StructType:  # noqa: ARG002
        """See `Source.schema`."""
        return generated_struct(self.columns)

    def schema_on_driver(self, engine: Engine) -> T.StructType:  # noqa: ARG002
        """See `DriverSource.schema_on_driver`."""
        return self.schema(None)

    def read_on_driver(self, plan: StreamPlan, form: RowForm | None, engine: Engine) -> None:
        """See `DriverSource.read_on_driver`: Spark has to."""

    def task_rows(self, plan: StreamPlan) -> RowTasks | None:
        """See `TaskSource.task_rows`: if all rows are wanted, as generated."""
        if plan.resume is not Resume.NOTHING or not plan.columns or plan.as_text:
            return None
        positions = [column_names(self.columns).index(name) for name in plan.columns]
        count = task_count(self.rows, self.columns)
        return RowTasks(count, GeneratedRows(self.rows, count, positions))

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """See `Source.slices`; the rows come in the order of `id`."""
        frame = generated_frame(spark, self.rows, self.columns, plan.columns)
        if plan.replication_key in ("id", "updated_at"):
            yield Slice(within_bounds(frame, plan).select(*map(col, plan.columns)), ordered=True)
            return
        slice_, rows = planned_slice(frame, plan), self.task_rows(plan)
        if rows is not None:
            slice_ = replace(slice_, tasks=replace(rows, frame=slice_.frame))
        yield slice_


def task_count(rows: int, columns: int) -> int:
    """Return how many tasks make the rows."""
    return min(MAX_TASKS, max(1, -(-rows * columns // CELLS_PER_TASK)))


_TYPES = {
    "int": T.IntegerType(),
    "double": T.DoubleType(),
    "decimal": T.DecimalType(18, 4),
    "string": T.StringType(),
    "boolean": T.BooleanType(),
    "timestamp": T.TimestampType(),
    "date": T.DateType(),
    "bigint": T.LongType(),
}
_OWN_KINDS = {"id": "bigint", "updated_at": "timestamp"}
_NEVER_NULL = ("string", "bigint")
"""Types whose values Spark knows not to be null."""


def generated_struct(columns: int) -> T.StructType:
    """Return the schema of `generated_frame`."""
    fields = []
    for position, name in enumerate(column_names(columns)):
        kind = _OWN_KINDS.get(name) or name.rpartition("_")[0]
        is_filled = name in _OWN_KINDS or (kind in _NEVER_NULL and position % 3)
        fields.append(T.StructField(name, _TYPES[kind], not is_filled))
    return T.StructType(fields)


def generated_frame(
    spark: SparkSession, rows: int, columns: int, names: Sequence[str] | None = None
) -> DataFrame:
    """Return the rows of a stream of so many columns, of which those of `names`, or all."""
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
    value = MAKERS[KINDS[(position - 2) % len(KINDS)]](F.xxhash64(F.col("id"), F.lit(position)))
    if position % 3:
        return value
    return F.when(F.pmod(F.col("id") + position, F.lit(NULL_EVERY)) != 0, value)
