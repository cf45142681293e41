"""Rows that several threads read in parts, and keys beyond Python's years."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.driver_rows import driver_rows, records_of_batch
from tap_spark.state.stream_plans import Method, Resume, RowForm, StreamPlan
from tap_spark.stream_config import StreamConfig

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def plan(columns: tuple[str, ...], **more: Any) -> StreamPlan:
    return StreamPlan("s", "s", StreamConfig("s", "jdbc"), {}, columns, **more)


def test_threads_share_parts_and_lose_no_block() -> None:
    struct = T.StructType([T.StructField("n", T.LongType())])

    def part(first: int, blocks: int) -> Iterator[pa.RecordBatch]:
        for number in range(blocks):
            time.sleep(0.001)
            yield pa.record_batch({"n": [first + number]})

    parts = [part(0, 40), part(100, 1), part(200, 15)]
    rows = driver_rows(plan(("n",)), struct, parts, RowForm.BLOCKS, NOW)
    assert rows.blocks is not None
    # Readers may pass through a generator, which ends for all threads at once.
    waiting, lock, actual = (read for read in rows.blocks.readers), threading.Lock(), list[int]()

    def work() -> None:
        while True:
            with lock:
                read = next(waiting, None)
            if read is None:
                return
            block = read()
            actual.extend(block.column(0).to_pylist() if block is not None else ())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(actual) == [*range(40), 100, *range(200, 215)]


def test_a_part_that_fails_lets_no_thread_wait() -> None:
    def part() -> Iterator[pa.RecordBatch]:
        raise OSError("gone")
        yield

    struct = T.StructType([T.StructField("n", T.LongType())])
    blocks = driver_rows(plan(("n",)), struct, [part()], RowForm.BLOCKS, NOW).blocks
    assert blocks is not None
    readers = iter(blocks.readers)
    with pytest.raises(OSError, match="gone"):
        next(readers)()
    assert next(readers, None) is None


def test_infinite_keys_move_no_bookmark_and_far_ones_are_written() -> None:
    days = pa.array([2_932_896, -719_162, 2_932_900, 10], pa.int32()).view(pa.date32())
    key = plan(
        ("d",), method=Method.INCREMENTAL, resume=Resume.REPLICATION_KEY, replication_key="d"
    )
    struct = T.StructType([T.StructField("d", T.DateType())])
    rows = driver_rows(key, struct, [iter([pa.record_batch({"d": days})])], RowForm.RECORDS, NOW)
    texts = [text for array in rows.records or () for text in (array or pa.array([])).to_pylist()]
    assert texts == [
        *('{"d":"9999-12-31"}', '{"d":"0001-01-01"}'),
        *('{"d":"+10000-01-04"}', '{"d":"1970-01-11"}'),
    ]
    assert rows.newest is not None
    assert rows.newest() == "+10000-01-04"


def test_moments_of_all_years_as_text() -> None:
    values = [None, 0, -63_500_000_000_000_000, 253_402_300_800_000_001]
    numbers = pa.array(values, pa.int64())
    kinds = {"z": pa.timestamp("us", "UTC"), "n": pa.timestamp("us")}
    batch = pa.record_batch({name: numbers.view(kind) for name, kind in kinds.items()})
    struct = T.StructType(
        [T.StructField("z", T.TimestampType()), T.StructField("n", T.TimestampNTZType())]
    )
    texts = [text for array in records_of_batch(batch, struct) for text in array.to_pylist()]
    assert texts == [
        '{"z":null,"n":null}',
        '{"z":"1970-01-01T00:00:00.000000+00:00","n":"1970-01-01T00:00:00.000000"}',
        '{"z":"-0043-10-07T07:06:40.000000+00:00","n":"-0043-10-07T07:06:40.000000"}',
        '{"z":"+10000-01-01T00:00:00.000001+00:00","n":"+10000-01-01T00:00:00.000001"}',
    ]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_floats_that_json_lacks_change_no_other(kind: pa.DataType) -> None:
    values = pa.array([1.1, float("nan"), None, float("inf"), float("-inf"), 1e20, 0.0], kind)
    dtype = T.FloatType() if kind == pa.float32() else T.DoubleType()
    struct = T.StructType([T.StructField("f", dtype)])
    batch = pa.record_batch({"f": values})
    texts = [text for array in records_of_batch(batch, struct) for text in array.to_pylist()]
    wanted = ["1.1", '"NaN"', "null", '"Infinity"', '"-Infinity"', "1.0E20", "0.0"]
    assert texts == [f'{{"f":{text}}}' for text in wanted]


def test_decimals_of_many_places_end_without_zeros() -> None:
    values = [Decimal("-882277.1983038760"), Decimal("0E-10"), Decimal("1E-10"), Decimal(9) ** 28]
    batch = pa.record_batch({"n": pa.array(values, pa.decimal128(38, 10))})
    struct = T.StructType([T.StructField("n", T.DecimalType(38, 10))])
    texts = [text for array in records_of_batch(batch, struct) for text in array.to_pylist()]
    wanted = ["-882277.198303876", "0", "0.0000000001", "523347633027360537213511521"]
    assert texts == [f'{{"n":{text}}}' for text in wanted]
