"""Which task reads what, and which line of stdin a rejected line was."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.encodings import Encoding
from target_spark.load_tasks import MAX_REJECTS, Piece, Rejects, _lines_before, line_of
from target_spark.plans import InputFile
from target_spark.task_plan import plan_tasks

LINES = Encoding("singer")


def plan(*sizes: int, encoding: Encoding = LINES) -> list[list[tuple[str, int, int | None]]]:
    files = [InputFile(f"/none/{n}", encoding, None, size) for n, size in enumerate(sizes)]
    tasks = plan_tasks(files, lambda _: 0, task_bytes=100)
    return [[(p.file.url[-1], p.start, p.length) for p in task] for task in tasks]


def test_small_files_go_together_in_order() -> None:
    assert plan(40, 50, 30, 10) == [
        [("0", 0, None), ("1", 0, None)],
        [("2", 0, None), ("3", 0, None)],
    ]
    assert plan() == []
    assert plan(0, 0) == [[("0", 0, None), ("1", 0, None)]]


def test_large_files_are_split() -> None:
    assert plan(250) == [[("0", 0, 84)], [("0", 84, 84)], [("0", 168, 82)]]
    assert plan(150) == [[("0", 0, None)]]


@pytest.mark.parametrize("encoding", [Encoding("jsonl", "gzip"), Encoding("parquet")])
def test_what_cannot_be_split(encoding: Encoding) -> None:
    assert plan(1000, encoding=encoding) == [[("0", 0, None)]]


def test_mislabelled_compressed_file_is_not_split(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x1f\x8b" + b"0" * 300)
    [task] = plan_tasks([InputFile(str(path), LINES)], lambda _: 302, task_bytes=100)
    assert task == (Piece(InputFile(str(path), LINES)),)


def test_line_of_stdin() -> None:
    file = InputFile("x", LINES, line_map=((1, 10), (4, 100), (6, 7)))
    assert [line_of(file, n) for n in range(1, 8)] == [10, 11, 12, 100, 101, 7, 8]
    assert line_of(InputFile("x", LINES), 5) == 5


def test_lines_before_a_range(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"aa\nbb\ncc\n")
    file = InputFile(str(path), LINES)
    assert [_lines_before(Piece(file, start, 1)) for start in range(9)] == [
        0, 1, 1, 1, 2, 2, 2, 3, 3,
    ]  # fmt: skip


def test_rejects_are_bounded() -> None:
    rejects = Rejects()
    for line in range(MAX_REJECTS + 5):
        rejects.add("x", line, "bad")
    rows = rejects.rows()
    assert len(rows) == MAX_REJECTS + 1
    assert rows[-1] == {"kind": "more", "rows": 5}
