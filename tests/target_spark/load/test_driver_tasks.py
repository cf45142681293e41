"""Batches that the driver converts: when, and that the rows are those of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shared.errors import DestinationError, MessageError, Where
from shared.formats.file_formats import Encoding
from shared.settings.batch.batch_settings import FailurePolicy
from target_spark.core.load_plans import Batch, InputFile, LoadResult, StreamSchema
from target_spark.core.transient_failures import may_pass
from target_spark.load.driver_tasks import (
    BATCH_BYTES,
    EVALUATED_BYTES,
    FEW_CORES,
    LINE_BYTES,
    SMALL_BYTES,
    DriverTasks,
    work_of,
)
from target_spark.load.load_tasks import results
from target_spark.load.loader import Loader
from target_spark.run_settings import TargetConfig

SCHEMA = StreamSchema(
    "s",
    {
        "properties": {
            "id": {"type": "integer"},
            "text": {"type": ["string", "null"]},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "tags": {"type": ["array", "null"], "items": {"type": "string"}},
        }
    },
)


class Starter:
    """Spark, which is up as soon as it has been started."""

    def __init__(self) -> None:
        self.starts = 0

    def start(self) -> None:
        self.starts += 1

    def tasks(self, session: Any = None, cores: int = 0) -> DriverTasks:
        return DriverTasks(lambda: session, self.start, cores)


def test_small_batches_are_taken_until_spark_is_up() -> None:
    spark = Starter()
    tasks = spark.tasks()
    assert tasks.take(LINE_BYTES / 2)
    assert spark.starts == 0
    assert tasks.take(LINE_BYTES)
    assert spark.starts == 1, "together they are many"
    assert not tasks.take(LINE_BYTES + 1)


@pytest.mark.parametrize("cores", [0, FEW_CORES])
def test_small_batches_are_taken_while_spark_is_up(cores: int) -> None:
    spark = Starter()
    tasks = spark.tasks(session="up", cores=cores)
    assert all(tasks.take(SMALL_BYTES) for _ in range(99))
    assert not tasks.take(SMALL_BYTES + 1)
    assert not tasks.take(1, evaluated=True)
    assert spark.starts == 0


def test_a_large_batch_starts_spark() -> None:
    spark = Starter()
    assert not spark.tasks().take(LINE_BYTES + 1)
    assert spark.starts == 1


def test_few_cores_need_no_spark_for_any_number_of_batches() -> None:
    spark = Starter()
    tasks = spark.tasks(cores=FEW_CORES)
    assert all(tasks.take(BATCH_BYTES) for _ in range(9))
    assert spark.starts == 0
    assert not tasks.take(BATCH_BYTES + 1)
    assert spark.starts == 1
    assert not spark.tasks(cores=FEW_CORES + 1).take(LINE_BYTES + 1)


@pytest.mark.parametrize("cores", [0, FEW_CORES])
def test_maps_are_evaluated_until_a_start_of_spark_pays(cores: int) -> None:
    spark = Starter()
    tasks = spark.tasks(cores=cores)
    assert tasks.take(EVALUATED_BYTES, evaluated=True)
    assert tasks.take(EVALUATED_BYTES)
    assert spark.starts == 0
    assert tasks.take(1, evaluated=True)
    assert spark.starts == 1, "all batches with maps together are many"
    assert not spark.tasks(cores=cores).take(EVALUATED_BYTES + 1, evaluated=True)
    assert spark.starts == 2


def test_compressed_lines_are_more_work_and_columns_less() -> None:
    lines = work_of(Encoding("jsonl", "none"), 1000)
    assert work_of(Encoding("parquet", "snappy"), 1000) < lines
    assert lines < work_of(Encoding("jsonl", "gzip"), 1000)
    assert lines < work_of(Encoding("parquet", "snappy"), 1000, evaluated=True), "has more records"


def echo(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield results([{"kind": "part", "url": str(number)}])


def test_every_task_runs_once() -> None:
    rows = Starter().tasks().run(echo, 20, "/t", Where())
    assert [row["url"] for row in rows] == [str(number) for number in range(20)]


def failing(error: Exception) -> Callable[..., Iterator[pa.RecordBatch]]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if next(iter(batches)).column(0)[0].as_py():
            raise error
        yield results([])

    return task


def test_a_failure_is_told_as_one_of_executors() -> None:
    tasks = Starter().tasks()
    with pytest.raises(DestinationError, match=r"cannot write to '/t': Broken pipe") as caught:
        tasks.run(failing(BrokenPipeError(32, "Broken pipe")), 2, "/t", Where())
    assert may_pass(caught.value)
    with pytest.raises(MessageError) as named:
        tasks.run(failing(MessageError("bad")), 2, "/t", Where(stream="s"))
    assert named.value.where.stream == "s"


def staged(folder: Path) -> InputFile:
    rows: list[Any] = [
        {"id": 1, "text": "a\n", "at": "2026-07-01T12:00:00Z", "tags": ["x"]},
        {"id": "no number"},
        {"id": 2},
        {"id": 3, "text": "ü", "tags": []},
    ]
    lines = [json.dumps({"type": "RECORD", "stream": "s", "record": row}) for row in rows]
    path = folder / "in.singer"
    path.write_text("\n".join(lines) + "\n")
    size = path.stat().st_size
    return InputFile(str(path), Encoding("singer"), None, size, ((1, 10),))


def columnar(folder: Path) -> InputFile:
    table = pa.table({"id": range(5000), "text": [None, "b"] * 2500})
    pq.write_table(table, folder / "in.parquet", row_group_size=100)
    return InputFile(str(folder / "in.parquet"), Encoding("parquet", "snappy"))


def ragged(folder: Path) -> InputFile:
    (folder / "in.csv").write_text('id,text\n1,a\n2\n"3","b\nc"\n')
    return InputFile(str(folder / "in.csv"), Encoding("csv", "none"))


def never() -> Any:
    raise AssertionError("Spark is asked for")


@pytest.mark.spark
@pytest.mark.parametrize("given", [staged, columnar, ragged])
@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_rows_and_rejects_are_those_of_spark(
    given: Callable[[Path], InputFile], form: str, tmp_path: Path, spark: Any
) -> None:
    file = given(tmp_path)
    failure = FailurePolicy("SendToDLQ", dead_letter_path="x")

    def loaded(name: str, loader: Callable[[TargetConfig], Loader]) -> tuple[LoadResult, Any]:
        path = tmp_path / name
        own = TargetConfig(path=str(path), format=form, failure=failure, add_record_metadata=False)
        using = loader(own)
        batch = Batch(SCHEMA, (file,), "t-1", 7, 0.0)
        result = using.convert(batch)
        using.commit(batch, [result])
        using.finish("s")
        using.close()
        rows = spark.read.format(form).load(str(path / "s")).orderBy("id").collect()
        return result, rows

    ours, rows = loaded("driver", lambda own: Loader(own, never, Starter().tasks()))
    theirs, expected = loaded("spark", lambda own: Loader(own, lambda: spark))
    assert rows == expected
    assert rows
    placeless = {"parts": (), "reject_files": ()}
    assert replace(ours, **placeless) == replace(theirs, **placeless)
    assert len(ours.reject_files) == len(theirs.reject_files)
