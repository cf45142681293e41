"""Generated rows by Arrow's kernels are those of Spark's functions."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from shared.formats.arrow_types import struct_to_arrow
from shared.spark.session import stream_arrow
from tap_spark.sources import spark_tables
from tap_spark.sources.spark_tables import GeneratedRows, generated_batch
from tap_spark.state.stream_plans import ArrowTasks, Slice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tasks_make_each_row_once() -> None:
    numbers = [pa.record_batch({"id": ids}) for ids in ([3, 1, 0], [2], [4, 5, 6])]
    created = GeneratedRows(23_456, 7, (0,))(numbers)
    ids = [number for batch in created for number in batch.column(0).to_pylist()]
    assert sorted(ids) == list(range(23_456))


@pytest.mark.spark
def test_values_are_those_of_spark(spark: SparkSession) -> None:
    for first in (0, random.randrange(2**35)):
        columns = [spark_tables._column(n).alias(f"c{n}") for n in range(25)]
        frame = spark.range(first, first + 2000, 1, 1).select(*columns)
        schema = struct_to_arrow(frame.schema)
        wanted = pa.Table.from_batches(stream_arrow(frame)).cast(schema)
        created = pa.Table.from_batches([generated_batch(first, 2000, range(25))])
        assert created.schema.types == schema.types
        assert created.to_pylist() == wanted.to_pylist()


@pytest.mark.spark
def test_rows_of_another_frame_are_not_those_of_the_tasks(spark: SparkSession) -> None:
    frame = spark.range(1)
    slice_ = Slice(frame, tasks=ArrowTasks(frame, frame, GeneratedRows(1, 1, (0,))))
    assert slice_.own_tasks is slice_.tasks
    assert replace(slice_, frame=frame.limit(1)).own_tasks is None
    assert replace(slice_, key_column="id").own_tasks is None
