"""Generated rows by Arrow's kernels are those of Spark's functions."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from shared.formats.arrow_types import struct_to_arrow
from shared.singer.stdout import MessageOutput
from shared.spark.session import stream_arrow
from tap_spark.config import SpoolSettings
from tap_spark.send.line_output import ChunkInfo, LineOutput
from tap_spark.send.record_writer import write_records, write_task_records
from tap_spark.send.spool import Spool
from tap_spark.sources import spark_tables
from tap_spark.sources.spark_tables import (
    GeneratedRows,
    RowsSource,
    column_names,
    generated_batch,
    generated_frame,
    generated_struct,
)
from tap_spark.state.stream_plans import Resume, RowTasks, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tasks_make_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_tables, "_LEAST_ROWS", 1000)
    monkeypatch.setattr(spark_tables, "_CELLS", 2000)
    numbers = [pa.record_batch({"id": ids}) for ids in ([3, 1, 0], [2], [4, 5, 6])]
    created = list(GeneratedRows(23_456, 7, (0,))(numbers))
    ids = [number for batch in created for number in batch.column(0).to_pylist()]
    assert sorted(ids) == list(range(23_456))
    assert max(batch.num_rows for batch in created) == 2000


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
    slice_ = Slice(frame, tasks=RowTasks(1, GeneratedRows(1, 1, (0,)), frame))
    assert slice_.own_tasks is slice_.tasks
    assert replace(slice_, frame=frame.limit(1)).own_tasks is None
    assert replace(slice_, key_column="id").own_tasks is None


@pytest.mark.spark
def test_columns_are_those_of_spark(spark: SparkSession) -> None:
    assert generated_struct(30) == generated_frame(spark, 0, 30).schema


def _plan(*columns: str, rows: int = 1000, **more: Any) -> StreamPlan:
    own = {"row_count": rows, "column_count": 30}
    config = StreamConfig(name="s", format="rows", own=own)
    return StreamPlan("s", "s", config, {}, columns, **more)


def test_only_rows_that_are_read_as_generated_do_without_a_session() -> None:
    plan = _plan("id", "updated_at")
    source = RowsSource(plan.config)
    assert source.task_rows(plan) is not None
    assert source.task_rows(replace(plan, resume=Resume.REPLICATION_KEY)) is None
    assert source.task_rows(replace(plan, as_text=("id",))) is None
    assert source.task_rows(replace(plan, columns=())) is None


@pytest.mark.spark
def test_records_without_a_session_are_those_of_a_session(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_tables, "CELLS_PER_TASK", 9_000)
    names = column_names(30)
    random.shuffle(names)
    plan = _plan(*names[:20], version=3)
    source, counted = RowsSource(plan.config), list[ChunkInfo]()
    rows, (slice_,) = source.task_rows(plan), source.slices(spark, plan)
    assert rows is not None
    assert rows.count > 1

    def written(write: Callable[..., Any], *arguments: Any) -> list[Any]:
        path, settings = tmp_path / "lines", SpoolSettings(root=str(tmp_path / "spool"))
        with Spool(settings) as spool, path.open("wb") as file:
            output = LineOutput(MessageOutput(file.fileno()))
            write(*arguments, output, spool=spool, on_chunk=counted.append)
            output.close()
        lines = path.read_text().splitlines()
        return sorted((json.loads(line) for line in lines), key=json.dumps)

    by_tasks = written(partial(write_task_records, spark.sparkContext), plan, rows)
    by_session = written(partial(write_records, spark), plan, replace(slice_, tasks=None))
    for line in (*by_tasks, *by_session):
        del line["time_extracted"]
    assert len(by_tasks) == 1000
    assert by_tasks == by_session
    assert sum(chunk.rows for chunk in counted) == 2000
