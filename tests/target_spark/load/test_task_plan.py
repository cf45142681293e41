"""Which task reads what, and which line of stdin a rejected line was."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shared.encodings.encoding_format import grouped_encoding
from shared.engine.engine import Report
from shared.errors import DestinationError, settled
from shared.formats.file_formats import Encoding
from shared.storage.files import open_output
from target_spark.convert import converter
from target_spark.convert.converter import TASK_BYTES, plan_tasks
from target_spark.convert.read_lines import line_of, lines_before
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.read_rows import read_task
from target_spark.convert.task_reports import MAX_REJECTS, Rejects, read_rejects
from target_spark.core.load_plans import InputFile, Reject

LINES = Encoding("singer")


def plan(*sizes: int, encoding: Encoding = LINES) -> list[list[tuple[str, int, int | None]]]:
    files = [InputFile(f"/none/{n}", encoding, None, size) for n, size in enumerate(sizes)]
    tasks = plan_tasks(files, task_bytes=100)
    return [[(p.file.url[-1], p.start, p.length) for p in task] for task in tasks]


def test_small_files_go_together_in_order() -> None:
    assert plan(40, 30, 50, 10) == [
        [("0", 0, None), ("1", 0, None)],
        [("2", 0, None), ("3", 0, None)],
    ]
    assert plan() == []
    assert plan(0, 0) == [[("0", 0, None), ("1", 0, None)]]


@pytest.mark.parametrize(
    ("sizes", "cores", "expected"),
    [
        ([8] * 13, 2, [6, 7]),  # 104 MiB
        ([8] * 5, 2, [2, 3]),
        ([8] * 3, 2, [3]),  # a task is not smaller than necessary
        ([8] * 13, 1, [6, 7]),
        ([8] * 13, 8, [2, 2, 2, 3, 2, 2]),
        ([8] * 20, 2, [5, 5, 5, 5]),  # 160 MiB: three tasks would leave a core idle
        ([60, 1, 1, 1], 2, [1, 3]),
        ([60, 60, 60], 2, [1, 1, 1]),
        ([50], 2, [1]),
    ],
)
def test_files_are_dealt_out_evenly(sizes: list[int], cores: int, expected: list[int]) -> None:
    files = [InputFile(f"/none/{n}", LINES, None, size << 20) for n, size in enumerate(sizes)]
    tasks = plan_tasks(files, TASK_BYTES, cores=cores)
    assert [len(task) for task in tasks] == expected
    assert [piece.file for task in tasks for piece in task] == files


@pytest.mark.parametrize(
    ("size", "form", "cores", "tasks"),
    [
        (64, LINES, 1, 1),
        (64, LINES, 2, 2),
        (64, LINES, 8, 4),  # a task is not smaller than necessary
        (30, LINES, 2, 1),
        (65, LINES, 2, 2),
        (20, Encoding("jsonl", "gzip"), 2, 1),
    ],
)
def test_cores_share_the_lines_of_a_file_if_tasks_leave_no_files(
    size: int, form: Encoding, cores: int, tasks: int
) -> None:
    file = InputFile("/none/0", form, None, size << 20)
    planned = plan_tasks([file], TASK_BYTES, cores=cores, shares_lines=True)
    assert len(planned) == tasks
    assert len(plan_tasks([file], TASK_BYTES, cores=cores)) == 1
    if tasks > 1:
        pieces = [piece for task in planned for piece in task]
        assert [piece.start for piece in pieces[1:]] == [
            piece.start + (piece.length or 0) for piece in pieces[:-1]
        ]


def test_large_files_are_split() -> None:
    assert plan(250) == [[("0", 0, 84)], [("0", 84, 84)], [("0", 168, 82)]]
    assert plan(150) == [[("0", 0, None)]]


@pytest.mark.parametrize(
    ("size", "cores", "expected"), [(257, 2, 2), (257, 1, 1), (257, 8, 5), (64, 2, 1), (200, 3, 3)]
)
def test_staged_lines_are_split_among_all_cores(
    tmp_path: Path, size: int, cores: int, expected: int
) -> None:
    file = InputFile("/none/0", LINES, None, size << 20)
    tasks = plan_tasks([file], cores=cores)
    assert len(tasks) == expected
    (tmp_path / "0").write_text("{}\n")
    other = InputFile(str(tmp_path / "0"), Encoding("jsonl"), None, size << 20)
    assert plan_tasks([other], cores=cores) == plan_tasks([other], TASK_BYTES, cores=cores)


def test_what_cannot_be_split(tmp_path: Path) -> None:
    assert plan(1000, encoding=Encoding("csv")) == [[("0", 0, None)]]
    with pytest.raises(FileNotFoundError):
        plan(1000, encoding=Encoding("parquet"))


def write_parquet(path: str, table: pa.Table, rows: int) -> None:
    pq.write_table(table, path, row_group_size=rows)


def write_arrow(path: str, table: pa.Table, rows: int) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_stream(path: str, table: pa.Table, rows: int) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


@pytest.mark.parametrize(
    ("form", "write"),
    [("parquet", write_parquet), ("arrow", write_arrow), ("arrow", write_stream)],
)
def test_columnar_files_are_split_by_row_groups(
    tmp_path: Path, form: str, write: Callable[[str, pa.Table, int], None]
) -> None:
    path = str(tmp_path / "x")
    table = pa.table({"a": list(range(1000)), "b": [str(n) * 9 for n in range(1000)]})
    write(path, table, 100)
    size = Path(path).stat().st_size
    file = InputFile(path, Encoding(form), size=size)
    tasks = plan_tasks([file], task_bytes=size // 3)
    pieces = [piece for task in tasks for piece in task]
    assert len(tasks) in {3, 4}
    assert sum(piece.length or 0 for piece in pieces) == 10
    for piece in pieces:
        groups = range(piece.start, piece.start + (piece.length or 0))
        actual = pa.concat_tables(grouped_encoding(form).read_groups(path, groups))
        assert actual.column("a")[0].as_py() == piece.rows_before == piece.start * 100
    assert sum(rows for _, rows in grouped_encoding(form).group_sizes(path)) == 1000
    Path(path).write_bytes(b"PAR1" + b"0" * 1000)
    assert plan_tasks([file], task_bytes=size // 3) == ((Piece(file),),)


def test_row_groups_of_one_file_keep_all_cores_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "x")
    write_parquet(path, pa.table({"a": list(range(1000))}), 100)
    file, size = InputFile(path, Encoding("parquet")), Path(path).stat().st_size
    monkeypatch.setattr(converter, "LEAST_BYTES", size // 4)
    actual = [len(plan_tasks([replace(file, size=size)], cores=cores)) for cores in (1, 2, 8)]
    assert actual == [1, 2, 3]  # a task is not smaller than necessary


def test_compressed_lines_are_shared(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x1f\x8b" + b"0" * 998)
    for label in ("none", "gzip"):
        file = InputFile(str(path), Encoding("jsonl", label))
        tasks = plan_tasks([replace(file, size=1000)], task_bytes=100)
        assert [(p.start, p.length) for task in tasks for p in task] == [
            (0, 250), (250, 250), (500, 250), (750, 250),
        ]  # fmt: skip
        assert len(tasks) == 4
    assert len(plan_tasks([replace(file, size=40)], task_bytes=100)) == 1


def test_line_of_stdin() -> None:
    file = InputFile("x", LINES, line_map=((1, 10), (4, 100), (6, 7)))
    assert [line_of(file, n) for n in range(1, 8)] == [10, 11, 12, 100, 101, 7, 8]
    assert line_of(InputFile("x", LINES), 5) == 5


def testlines_before_a_range(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"aa\nbb\ncc\n")
    file = InputFile(str(path), LINES)
    assert [lines_before(Piece(file, start, 1), None) for start in range(9)] == [
        0, 1, 1, 1, 2, 2, 2, 3, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "code"), [(errno.E2BIG, 2), (errno.ENOSPC, 6)])
def test_the_cause_of_a_failed_task_decides_the_exit_code(number: int, code: int) -> None:
    def run(*_: object) -> list[Report]:
        raise DestinationError("the server refuses it") from OSError(number, "it has failed")

    runs, work = SimpleNamespace(run=run), SimpleNamespace(stream="s")
    with pytest.raises(DestinationError, match=r"^stream .s.: the server") as caught:
        converter.reports(runs, None, 1, work, "t")  # type: ignore[arg-type]
    assert settled(caught.value).exit_code == code


def test_rejects_are_bounded(tmp_path: Path) -> None:
    rejects = Rejects()
    assert rejects.rows() == []
    for line in range(MAX_REJECTS + 5):
        rejects.add(Reject("x", line, "bad"), b"")
    rows = rejects.rows()
    assert len(rows) == MAX_REJECTS + 1
    assert rows[-1] == {"kind": "rejected", "rows": MAX_REJECTS + 5}


def test_all_rejects_are_in_the_file(tmp_path: Path) -> None:
    rejects = Rejects(str(tmp_path))
    for line in range(MAX_REJECTS + 5):
        rejects.add(Reject("x", line, "bad"), b'{"a":%d}' % line)
    [file] = [row["url"] for row in rejects.rows() if row["kind"] == "reject file"]
    actual = list(read_rejects(file))
    assert len(actual) == MAX_REJECTS + 5
    assert actual[7] == (Reject("x", 7, "bad"), b'{"a":7}')


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_lines_of_rejects_in_shares(tmp_path: Path, codec: str) -> None:
    url = str(tmp_path / "x")
    lines = [b'{"a":%d}' % n for n in range(200_000)]
    lines[7] = lines[150_001] = b'{"a":"x"}'
    with open_output(url, codec) as sink:
        sink.write(b"\n".join(lines))
    size = Path(url).stat().st_size
    file, rejects, rows = InputFile(url, Encoding("jsonl")), Rejects(), 0
    schema = {"properties": {"a": {"type": "integer"}}}
    plan = ReadPlan((), schema, pa.schema([("a", pa.int64())]))
    for start in range(0, size, size // 3 + 1):
        for table in read_task(plan, [Piece(file, start, size // 3 + 1)], rejects):
            rows += table.num_rows
    assert rows == 199_998
    assert [reject.line for reject in rejects.reported] == [8, 150_002]
