"""Tasks of executors, without Spark: exact files, files by bytes, left-over rows, keys, notes."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.formats.file_formats import FORMATS, Encoding
from shared.formats.line_encodings import ROW_GROUP_BYTES
from shared.storage.access import StorageOptions
from tap_spark.send import batch_tasks
from tap_spark.send.batch_plan import (
    NO_FILE,
    FileContent,
    FileNames,
    WrittenFile,
    file_names,
    full_contents,
    whole_leftover,
)
from tap_spark.send.batch_tasks import (
    BatchFileWriter,
    BatchTask,
    RepackTask,
    Reporter,
    TaskRows,
    read_raw,
    waiting_path,
)
from tap_spark.send.spool_files import FILTERED, KeyMax, TaskSpool, unpack_meta

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
TEXT = "ü" * 10


def batch(start: int, stop: int, *, keyed: bool = False) -> pa.RecordBatch:
    ids = list(range(start, stop))
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.int64()),
        "text": pa.array([TEXT] * len(ids), pa.string()),
    }
    if keyed:
        columns["key"] = columns["id"]
        columns["own"] = pa.array([json.dumps({"id": n}) for n in ids], pa.string())
    return pa.record_batch(columns)


def batches(*counts: int, keyed: bool = False) -> Iterator[pa.RecordBatch]:
    at = 0
    for count in counts:
        yield batch(at, at + count, keyed=keyed)
        at += count


@dataclass
class Bench:
    """A root, a folder for rests, and one for notes."""

    path: Path

    def __post_init__(self) -> None:
        for name in ("root", "rests", "notes"):
            (self.path / name).mkdir()

    def names(self) -> FileNames:
        return file_names(str(self.path / "root"), "", "tap", "s", ".parquet")

    def writer(self) -> BatchFileWriter:
        return BatchFileWriter(
            Encoding("parquet", "snappy"), self.names(), SCHEMA, StorageOptions()
        )

    def reporter(self) -> Reporter:
        return Reporter(TaskSpool(str(self.path / "notes"), "no lock", 1 << 20))

    def task(self, rows: int | None, key: str | None = None, size: int = 1 << 30) -> BatchTask:
        leftovers = str(self.path / "rests")
        return BatchTask(self.writer(), self.reporter(), key, rows, leftovers, size)

    def files(self) -> list[Path]:
        return sorted((self.path / "root").iterdir())


def reported(rows: Iterator[pa.RecordBatch]) -> list[tuple[WrittenFile, KeyMax | None]]:
    actual = [row for batch in rows for row in batch.to_pylist()]
    return [(WrittenFile(**json.loads(row["note"])), unpack_meta(row["meta"])[1]) for row in actual]


def ids(url: str) -> list[int]:
    return [n for table in FORMATS["parquet"].read(url) for n in table.column("id").to_pylist()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12))
def test_portions_hold_every_row_once(counts: list[int], size: int) -> None:
    source = TaskRows(batches(*counts), None, ["id", "text"])
    portions: list[list[int]] = []
    while source.more():
        source.count = 0
        tables = list(source.take(size, None))
        portions.append([n for table in tables for n in table.column("id").to_pylist()])
        assert source.count == len(portions[-1])
    assert [n for portion in portions for n in portion] == list(range(sum(counts)))
    assert all(len(portion) == size for portion in portions[:-1])


@pytest.mark.parametrize("counts", [(25,), (10, 10, 5), (3,) * 8 + (1,), (9, 1, 0, 15)])
def test_exact_files_and_left_over_rows(bench: Bench, counts: tuple[int, ...]) -> None:
    actual = [written for written, _ in reported(bench.task(10)(batches(*counts)))]
    assert [(w.rows, w.is_leftover) for w in actual] == [(10, False), (10, False), (5, True)]
    assert [n for w in actual[:2] for n in ids(w.url)] == list(range(20))
    leftover = [n for table in read_raw(actual[2].url) for n in table.column("id").to_pylist()]
    assert leftover == list(range(20, 25))
    assert Path(actual[2].url).parent == bench.path / "rests"
    assert [path.name for path in (bench.path / "rests").iterdir()] == [Path(actual[2].url).name]


def test_nothing_is_left_over_if_all_rows_fit(bench: Bench) -> None:
    actual = [written for written, _ in reported(bench.task(10)(batches(20)))]
    assert [(w.rows, w.is_leftover) for w in actual] == [(10, False), (10, False)]
    assert list((bench.path / "rests").iterdir()) == []


@pytest.mark.parametrize("counts", [(), (0,), (0, 0)])
def test_without_rows_no_file_is_written(bench: Bench, counts: tuple[int, ...]) -> None:
    assert reported(bench.task(10)(batches(*counts))) == []
    assert reported(bench.task(None)(batches(*counts))) == []
    assert bench.files() == []


def test_files_by_bytes(bench: Bench) -> None:
    size = pa.Table.from_batches([batch(0, 10)]).nbytes
    actual = reported(bench.task(None, size=2 * size)(batches(10, 10, 10, 10, 10)))
    assert [w.rows for w, _ in actual] == [20, 20, 10]
    assert [w.size for w, _ in actual] == [2 * size, 2 * size, size]
    assert [n for w, _ in actual for n in ids(w.url)] == list(range(50))


def test_the_greatest_key_of_each_file(bench: Bench) -> None:
    actual = reported(bench.task(4, "id")(batches(3, 6, keyed=True)))
    assert [key.value for _, key in actual if key] == [3, 7, 8]
    assert ids(actual[0][0].url) == [0, 1, 2, 3]


def marked(start: int, stop: int, left_out: Container[int]) -> pa.RecordBatch:
    """Return rows as `batch` makes them, some of them marked as filtered."""
    rows = batch(start, stop, keyed=True)
    marks = pa.array([number in left_out for number in range(start, stop)], pa.bool_())
    return pa.record_batch([*rows.columns, marks], names=[*rows.schema.names, FILTERED])


@pytest.mark.parametrize("size", [None, 3, 4])
@pytest.mark.parametrize(
    "left_out", [(), {0, 1}, {3, 4, 5}, {9}, {2, 5, 8, 9}, set(range(10)), {6, 7, 8, 9}]
)
def test_keys_of_filtered_rows_count_but_never_ahead(
    bench: Bench, size: int | None, left_out: set[int]
) -> None:
    kept = [number for number in range(10) if number not in left_out]
    rows = (marked(start, min(start + 3, 10), left_out) for start in range(0, 10, 3))
    written: list[int] = []
    newest = -1
    for file, key in reported(bench.task(size, "id", 1)(rows)):
        if file != NO_FILE:
            written += ids(file.url) if not file.is_leftover else kept[len(written) :]
        newest = max(newest, -1 if key is None else key.value)
        assert written == kept[: len(written)]
        assert all(number > newest for number in kept[len(written) :])
    assert (written, newest) == (kept, 9)


def test_notes_are_left_while_the_task_runs(bench: Bench) -> None:
    running = iter(bench.task(10)(batches(25)))
    next(running)
    (note,) = (bench.path / "notes").glob("*.lines")
    written = WrittenFile(**json.loads(note.read_text()))
    assert ids(written.url) == list(range(10))
    assert unpack_meta(note.with_suffix(".meta").read_text()) == (10, None)


def test_a_file_appears_when_it_is_whole(bench: Bench) -> None:
    def tables() -> Iterator[pa.Table]:
        one = pa.Table.from_batches([batch(0, 10_000)])
        yield pa.concat_tables([one] * (1 + ROW_GROUP_BYTES // one.nbytes))
        (part,) = bench.files()
        assert part.name.startswith(".")

    writer = bench.writer()
    url = writer.names.url(0, 1)
    writer.write(url, tables())
    assert [f"file://{path}" for path in bench.files()] == [url]


def test_a_folder_that_is_removed_does_not_come_back(bench: Bench) -> None:
    work = bench.path / "work"
    work.mkdir()

    def tables() -> Iterator[pa.Table]:
        work.rename(bench.path / "gone")
        yield pa.Table.from_batches([batch(0, 5)])

    writer = replace(bench.writer(), work=str(work))
    with pytest.raises(RuntimeError, match="No such file"):
        writer.write(writer.names.url(0, 1), tables())
    assert not work.exists()


def test_left_over_rows_are_written_beside_the_files_without_a_shared_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = bench.path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(batch_tasks.tempfile, "gettempdir", lambda: str(scratch))
    task = BatchTask(bench.writer(), Reporter(None), None, 10)
    *_, (leftover, _) = reported(task(batches(13)))
    assert leftover.is_leftover
    assert leftover.url.startswith(f"file://{bench.path}/root/tap--s-")
    assert [n for table in read_raw(leftover.url) for n in table.column("id").to_pylist()] == [
        10,
        11,
        12,
    ]
    assert list(scratch.iterdir()) == []
    assert list((bench.path / "notes").iterdir()) == []


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been forced to disk, in order."""
    done: list[str] = []

    def make_durable(path: str) -> None:
        assert Path(path).exists()
        done.append(path)

    monkeypatch.setattr(batch_tasks, "make_durable", make_durable)
    return done


def test_a_file_is_durable_before_it_appears_and_its_name_before_it_is_announced(
    bench: Bench, synced: list[str]
) -> None:
    ((written, _),) = reported(bench.task(None)(batches(5)))
    path = Path(written.url.removeprefix("file://"))
    assert synced == [str(path.with_name(f".{path.name}.part")), str(path.parent)]


def test_a_file_waits_whole_and_durable_for_the_driver(bench: Bench, synced: list[str]) -> None:
    work = bench.path / "work"
    work.mkdir()
    task = BatchTask(
        replace(bench.writer(), work=str(work)), bench.reporter(), None, 10, str(work / "..")
    )
    full, (leftover, _) = (pair for pair in reported(task(batches(13))))
    waiting = waiting_path(str(work), full[0].url)
    assert bench.files() == []
    assert synced == [waiting]
    assert ids(waiting) == list(range(10))
    assert [str(path) for path in work.iterdir()] == [waiting]
    assert leftover.is_leftover


def test_a_removed_folder_is_not_created_again(bench: Bench) -> None:
    work = bench.path / "gone"
    writer = replace(bench.writer(), work=str(work))
    with pytest.raises(RuntimeError, match="No such file"):
        writer.write(writer.names.url(0, 1), [pa.Table.from_batches([batch(0, 5)])])
    assert not work.exists()
    assert bench.files() == []


def failing(*counts: int) -> Iterator[pa.RecordBatch]:
    yield from batches(*counts)
    raise ValueError("the source is broken")


def test_a_failing_task_leaves_no_raw_rows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = bench.path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(batch_tasks.tempfile, "tempdir", str(scratch))
    task = BatchTask(bench.writer(), Reporter(None), None, 10)
    running = iter(task(failing(10, 4)))
    with pytest.raises(ValueError, match="broken"):
        for _ in running:
            # Nor would a killed one: what is being collected has no name.
            assert list(scratch.iterdir()) == []
    assert list(scratch.iterdir()) == []
    assert len(bench.files()) == 1


def test_a_root_that_fails_while_left_over_rows_are_kept_is_marked(bench: Bench) -> None:
    task = BatchTask(bench.writer(), Reporter(None), None, 10)
    (bench.path / "root").rmdir()
    (bench.path / "root").touch()
    with pytest.raises(RuntimeError, match=r"\[tap-spark batch files: "):
        list(task(batches(3)))


def test_left_over_rows_go_before_those_of_an_ordered_slice(bench: Bench) -> None:
    *_, (left, _) = reported(bench.task(10)(batches(17)))
    before = (replace(whole_leftover(left), start=3),)
    leftovers = str(bench.path / "rests")
    task = BatchTask(bench.writer(), bench.reporter(), "id", 10, leftovers, before=before)
    actual = reported(task(batches(9, 10, keyed=True)))
    assert [(w.rows, w.is_leftover) for w, _ in actual] == [(10, False), (10, False), (3, True)]
    assert ids(actual[0][0].url) == [13, 14, 15, 16, 0, 1, 2, 3, 4, 5]
    assert [key.value for _, key in actual if key] == [5, 15, 18]

    task = BatchTask(bench.writer(), bench.reporter(), None, 10, leftovers, before=before)
    ((leftover, _),) = reported(task(batches(2)))
    assert (leftover.rows, leftover.is_leftover) == (6, True)
    assert [n for t in read_raw(leftover.url) for n in t["id"].to_pylist()] == [
        13,
        14,
        15,
        16,
        0,
        1,
    ]
    assert (
        reported(
            BatchTask(bench.writer(), bench.reporter(), None, 10, leftovers, before=before)([])
        )
        == []
    )


def test_left_over_rows_are_joined(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    leftovers = []
    for task, counts in enumerate([(3, 3), (2,), (7,)]):
        monkeypatch.setattr(batch_tasks, "task_identity", lambda task=task: (task, task))
        leftovers += [w for w, _ in reported(bench.task(10)(batches(*counts)))]
    full, left = full_contents(map(whole_leftover, leftovers), 10)
    dealt: tuple[tuple[FileContent, ...], ...] = (full, (left,))
    actual = []
    for share in (0, 1):
        monkeypatch.setattr(batch_tasks, "task_identity", lambda share=share: (share, 9 + share))
        task = RepackTask(bench.writer(), bench.reporter(), dealt)
        actual += [w for w, _ in reported(task(iter([])))]
    assert [w.rows for w in actual] == [10, 5]
    assert ids(actual[0].url) == [0, 1, 2, 3, 4, 5, 0, 1, 0, 1]
    assert ids(actual[1].url) == [2, 3, 4, 5, 6]
    assert all(w.size > 0 and not w.is_leftover for w in actual)
