"""Chunk files without Spark: rotation, space shared by partitions, order, a prompt end."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tap_spark.send import spool_files
from tap_spark.send.spool_files import (
    CopyProgress,
    SpoolWriter,
    TaskSpool,
    chunk_name,
    file_sizes,
    is_spool_locked,
    partition_of,
    read_progress,
    unpack_meta,
    write_progress,
)

MIB = 1024 * 1024


def record(**values: Any) -> str:
    return json.dumps({"type": "RECORD", "stream": "s", "record": values}) + "\n"


def batch(lines: list[str | None], keys: pa.Array | None = None) -> pa.RecordBatch:
    columns = {"line": pa.array(lines, pa.string())}
    return pa.record_batch(columns if keys is None else {**columns, "key": keys})


class SpoolBench:
    """A spool folder as the driver would keep it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path.parent / "lock"
        fd = os.open(self.lock, os.O_CREAT | os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        self.fd = fd

    def place(self, limit: int = MIB, *, ordered: bool = False) -> TaskSpool:
        return TaskSpool(str(self.path), str(self.lock), limit, ordered)

    def writer(self, key: str | None = None, chunk: int = 100, limit: int = MIB) -> SpoolWriter:
        return SpoolWriter(self.place(limit), key, chunk)

    def names(self, suffix: str) -> list[Path]:
        return sorted(self.path.glob("*" + suffix))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[SpoolBench]:
    folder = tmp_path / "spool"
    folder.mkdir()
    bench = SpoolBench(folder)
    yield bench
    if bench.fd >= 0:
        os.close(bench.fd)


def test_spool_writer_rotates(bench: SpoolBench) -> None:
    texts = [record(k=number) for number in range(50)]
    counts = list(bench.writer("k")([batch(texts, pa.array(range(50)))]))
    assert counts[0].to_pydict() == {"rows": [50], "replaced": ["{}"]}
    chunks = bench.names(".lines")
    assert len(chunks) > 10
    assert not bench.names(".part")
    lines = sorted(line for chunk in chunks for line in chunk.read_text().splitlines(True))
    assert lines == sorted(texts)
    for chunk in chunks:
        rows, key = unpack_meta(chunk.with_suffix(".meta").read_text())
        values = [json.loads(line)["record"]["k"] for line in chunk.read_text().splitlines()]
        assert rows == len(values)
        assert key is not None
        assert key.value == max(values)
        assert chunk.stat().st_mode & 0o777 == 0o600


def test_small_batches_share_a_chunk(bench: SpoolBench) -> None:
    batches = [batch(["a\n"]) for _ in range(20)]
    list(bench.writer(chunk=1000)(batches))
    assert [chunk.read_text() for chunk in bench.names(".lines")] == ["a\n" * 20]


def test_one_huge_line(bench: SpoolBench) -> None:
    huge = "x" * MIB + "\n"
    list(bench.writer(chunk=100, limit=4 * MIB)([batch(["a\n", huge, "b\n"])]))
    chunks = b"".join(sorted(chunk.read_bytes() for chunk in bench.names(".lines")))
    assert sorted(chunks.decode().splitlines(True)) == ["a\n", "b\n", huge]


@pytest.mark.parametrize("batches", [[], [batch([])], [batch([None, None])]])
def test_nothing_to_spool(bench: SpoolBench, batches: list[pa.RecordBatch]) -> None:
    assert next(iter(bench.writer()(batches))).to_pydict() == {"rows": [0], "replaced": ["{}"]}
    assert bench.names("") == []


def test_a_task_waits_for_space(bench: SpoolBench) -> None:
    texts = [f"{number:049}\n" for number in range(200)]  # 10 kB
    thread = threading.Thread(
        target=lambda: list(bench.writer(chunk=100, limit=500)([batch(texts)])), daemon=True
    )
    thread.start()
    seen: list[str] = []
    peak = 0
    while thread.is_alive() or bench.names(".lines"):
        time.sleep(0.03)
        peak = max(peak, sum(size for _, size in file_sizes(str(bench.path))))
        for chunk in bench.names(".lines"):
            seen += chunk.read_text().splitlines(True)
            chunk.unlink()
    assert sorted(seen) == texts
    assert peak <= 600


def test_a_waiting_task_ends_with_its_driver(
    bench: SpoolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_files, "_OWNER_CHECK_SECONDS", 0.05)
    os.close(bench.fd)
    bench.fd = -1
    with pytest.raises(RuntimeError, match="has ended"):
        list(bench.writer(limit=10)([batch(["x" * 99 + "\n"] * 3)]))


def test_a_missing_folder_is_reported_by_number(bench: SpoolBench) -> None:
    bench.path.rmdir()
    with pytest.raises(RuntimeError, match=r"\[tap-spark spool errno 2\]"):
        list(bench.writer()([batch(["a\n"])]))


def test_a_lock_is_seen_from_another_descriptor(bench: SpoolBench, tmp_path: Path) -> None:
    assert is_spool_locked(str(bench.lock))
    os.close(bench.fd)
    bench.fd = -1
    assert not is_spool_locked(str(bench.lock))
    assert not is_spool_locked(str(tmp_path / "no such file"))


def test_names_sort_as_rows_do() -> None:
    names = [chunk_name(2, 9, 0), chunk_name(2, 10, 0), chunk_name(2, 10, 11), chunk_name(10, 1, 2)]
    assert names == sorted(names)
    assert [partition_of(name) for name in names] == [2, 2, 2, 10]


def test_progress_round_trips(tmp_path: Path) -> None:
    assert read_progress(str(tmp_path)) == CopyProgress()
    write_progress(str(tmp_path), CopyProgress(12, MIB))
    assert read_progress(str(tmp_path)) == CopyProgress(12, MIB)
    assert [path.name for path in tmp_path.iterdir()] == ["progress"]


def put(bench: SpoolBench, partition: int, size: int) -> None:
    (bench.path / (chunk_name(partition, 0, 0) + ".lines")).write_bytes(b"x" * size)


@pytest.mark.parametrize(
    ("progress", "sizes", "full"),
    [
        (CopyProgress(0), {}, [False, False, False]),
        (CopyProgress(0), {1: 51}, [False, True, True]),
        (CopyProgress(0), {1: 25, 2: 26}, [False, True, True]),
        (CopyProgress(0), {0: 51}, [True, False, False]),
        (CopyProgress(1), {0: 30, 1: 30}, [True, True, False]),
        (CopyProgress(0, 50), {1: 100}, [False, False, False]),
        (CopyProgress(0, 50), {1: 101}, [False, True, True]),
        (CopyProgress(0, 50), {0: 51}, [True, False, False]),
    ],
)
def test_space_is_shared_by_the_copied_and_later_partitions(
    bench: SpoolBench, progress: CopyProgress, sizes: dict[int, int], full: list[bool]
) -> None:
    write_progress(str(bench.path), progress)
    for partition, size in sizes.items():
        put(bench, partition, size)
    place = bench.place(100, ordered=True)
    assert [place.is_full_for(partition) for partition in range(3)] == full


def test_without_order_all_share_the_space(bench: SpoolBench) -> None:
    put(bench, 5, 100)
    assert not bench.place(100).is_full_for(0)
    put(bench, 6, 1)
    assert bench.place(100).is_full_for(0)


def test_partitions_mark_their_begin_and_end(
    bench: SpoolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_files, "task_identity", lambda: (3, 7))
    begun, ended = bench.path / "0000000003.begun", bench.path / "0000000003.ended"

    def batches() -> Iterator[pa.RecordBatch]:
        assert is_spool_locked(str(begun))
        assert not ended.exists()
        yield batch(["a\n"])

    list(SpoolWriter(bench.place(ordered=True), None, 100)(batches()))
    assert ended.exists()
    assert not is_spool_locked(str(begun))
    assert [path.name for path in bench.names(".lines")] == [chunk_name(3, 7, 0) + ".lines"]


def test_a_partition_that_fails_does_not_end(bench: SpoolBench) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(["a\n"])
        raise ValueError("bad row")

    with pytest.raises(ValueError, match="bad row"):
        list(SpoolWriter(bench.place(ordered=True), None, 100)(batches()))
    assert bench.names(".ended") == []
    (begun,) = bench.names(".begun")
    assert not is_spool_locked(str(begun))
