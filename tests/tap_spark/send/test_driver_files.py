"""Batch files that threads of the driver write from blocks."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shared.formats.file_formats import Encoding
from shared.storage.access import StorageOptions
from tap_spark.send import batch_tasks
from tap_spark.send.batch_plan import file_names
from tap_spark.send.batch_tasks import BatchFileWriter, LeftToSparkError, driver_files

SCHEMA = pa.schema([("id", pa.int64())])


def block(number: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number], pa.int64())], schema=SCHEMA)


@pytest.fixture
def writer(tmp_path: Path) -> BatchFileWriter:
    names = file_names(str(tmp_path), "", "tap", "s", ".parquet")
    return BatchFileWriter(Encoding("parquet", "snappy"), names, SCHEMA, StorageOptions())


@pytest.mark.parametrize("threads", [1, 3])
def test_each_block_is_in_one_file(
    writer: BatchFileWriter, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(batch_tasks.BatchTask.__init__, "__defaults__", (None, 80, ()))
    readers = [lambda n=n: block(n) for n in range(50)]
    files = list(driver_files(writer, readers, threads, lambda: False))
    assert len({file.url for file in files}) == len(files) >= 5
    assert sum(file.rows for file in files) == 50
    paths = [file.url.removeprefix("file://") for file in files]
    actual = [n for path in paths for n in pq.read_table(path)["id"].to_pylist()]
    assert (actual if threads == 1 else sorted(actual)) == list(range(50))


def test_nothing_to_read_is_no_file(writer: BatchFileWriter) -> None:
    assert list(driver_files(writer, [], 2, lambda: False)) == []


def test_a_file_is_told_while_others_are_written(
    writer: BatchFileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_tasks.BatchTask.__init__, "__defaults__", (None, 8, ()))
    announced = threading.Event()

    def late() -> pa.RecordBatch:
        assert announced.wait(60)
        return block(2)

    files = driver_files(writer, [lambda: block(1), late], 1, lambda: False)
    assert next(files).rows == 1
    announced.set()
    assert [file.rows for file in files] == [1]


def test_one_block_for_spark_stops_the_others(writer: BatchFileWriter) -> None:
    read: list[int] = []

    def reader(number: int) -> pa.RecordBatch | None:
        read.append(number)
        return None if number == 3 else block(number)

    readers = [lambda n=n: reader(n) for n in range(1000)]
    with pytest.raises(LeftToSparkError):
        list(driver_files(writer, readers, 2, lambda: False))
    assert len(read) < 1000


def test_a_run_that_has_ended_reads_no_further(writer: BatchFileWriter) -> None:
    read: list[int] = []

    def reader(number: int) -> pa.RecordBatch:
        read.append(number)
        return block(number)

    readers = [lambda n=n: reader(n) for n in range(1000)]
    list(driver_files(writer, readers, 2, lambda: len(read) >= 5))
    assert len(read) < 10


def test_a_failure_of_a_block_is_raised(writer: BatchFileWriter) -> None:
    def broken() -> pa.RecordBatch:
        raise OSError("no disk")

    with pytest.raises(RuntimeError, match="no disk"):
        list(driver_files(writer, [lambda: block(1), broken], 1, lambda: False))


def test_a_source_that_does_not_answer_holds_no_end_up(
    writer: BatchFileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_tasks, "_ENDING_SECONDS", 0.1)
    answer, ended = threading.Event(), threading.Event()

    def silent() -> pa.RecordBatch:
        answer.wait(60)
        ended.set()
        return block(1)

    def broken() -> pa.RecordBatch:
        raise ValueError("an end")

    with pytest.raises(ValueError, match="an end"):
        list(driver_files(writer, [silent, broken], 2, lambda: False))
    assert not ended.is_set()
    answer.set()
