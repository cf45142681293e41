"""Where rows come from: one number per row, and the line of input found again by it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.formats.file_formats import Encoding
from target_spark.convert.converter import plan_tasks
from target_spark.convert.read_plan import Piece, ReadPlan, origin_of, split_origin
from target_spark.convert.read_rows import read_task
from target_spark.convert.rejected_originals import Originals
from target_spark.convert.task_reports import Rejects, read_rejects
from target_spark.core.load_plans import InputFile
from target_spark.destinations.destination import ROW_ORIGIN

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
COLUMNS = pa.schema([("n", pa.int64()), (ROW_ORIGIN, pa.int64())])


def plan_of(pieces: Sequence[Piece], folder: Path | None = None, **more: Any) -> ReadPlan:
    numbered = tuple(replace(piece, number=number) for number, piece in enumerate(pieces))
    rejects = str(folder) if folder else None
    return ReadPlan((numbered,), SCHEMA, COLUMNS, row_origin=ROW_ORIGIN, rejects=rejects, **more)


def places(read: ReadPlan) -> list[tuple[int, int]]:
    """Return the value and place of each row."""
    actual: list[tuple[int, int]] = []
    for table in read_task(read, read.tasks[0], Rejects()):
        actual += zip(table["n"].to_pylist(), table[ROW_ORIGIN].to_pylist(), strict=True)
    return actual


def reported(read: ReadPlan, folder: Path, wanted: Sequence[int]) -> list[tuple[str, int, bytes]]:
    """Return file, line and text of rows that failed, by their place."""
    originals, rejects = Originals(read), Rejects(str(folder))
    for place in wanted:
        originals.reject(place, "why", rejects)
    [url] = [row["url"] for row in rejects.rows() if row["kind"] == "reject file"]
    return [(reject.file, reject.line, text) for reject, text in read_rejects(url)]


@given(st.integers(0, 2**20), st.integers(0, 2**40 - 1))
def test_a_place_is_a_piece_and_a_line(piece: int, line: int) -> None:
    assert split_origin(origin_of(piece, line)) == (piece, line)


def lines_file(path: Path, lines: Sequence[str], packed: bool = False) -> InputFile:
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return InputFile(str(path), Encoding("jsonl", "gzip" if packed else "none"))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_lines_with_blanks_and_rejects_between(tmp_path: Path, packed: bool, ends: bool) -> None:
    lines = ['{"n": 0}', "", '{"n": "x"}', '{"n": 3}', "  ", "{", '{"n": 6, "more": [1]}']
    file = lines_file(tmp_path / "a.jsonl", lines, packed)
    if not ends and not packed:
        path = Path(file.url)
        path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    read = plan_of([Piece(file)])
    actual = places(read)
    assert [(n, split_origin(place)) for n, place in actual] == [
        (0, (0, 0)),
        (3, (0, 3)),
        (6, (0, 6)),
    ]
    rows = reported(read, tmp_path, [place for _, place in actual])
    assert [line for _, line, _ in rows] == [1, 4, 7]
    assert [text.decode() for _, _, text in rows] == [lines[0], lines[3], lines[6]]


@pytest.mark.parametrize("packed", [False, True])
def test_lines_of_later_blocks_are_counted_from_the_first(tmp_path: Path, packed: bool) -> None:
    wide = [f'{{"n": {n}, "text": "{"x" * 1000}"}}' for n in range(9000)]
    wide[3] = wide[5000] = ""
    file = lines_file(tmp_path / "a.jsonl", [*wide, '{"n": "no"}', '{"n": 9001}'], packed)
    assert [split_origin(place) for _, place in places(plan_of([Piece(file)]))][-1] == (0, 9001)
    read, rejects = plan_of([Piece(file)], tmp_path), Rejects(str(tmp_path))
    list(read_task(read, read.tasks[0], rejects))
    assert [row["rows"] for row in rejects.rows() if row["kind"] == "reject"] == [9001]


@given(
    st.lists(st.sampled_from(["good", "bad", "blank"]), min_size=1, max_size=60),
    st.integers(16, 200),
)
def test_any_mixture_of_lines_in_any_pieces(kinds: list[str], share: int) -> None:
    import tempfile

    texts = {"bad": '{"n": "no"}', "blank": ""}
    lines = [texts.get(kind, f'{{"n": {number}}}') for number, kind in enumerate(kinds)]
    with tempfile.TemporaryDirectory() as folder:
        file = lines_file(Path(folder) / "a.jsonl", lines)
        size = Path(file.url).stat().st_size
        tasks = plan_tasks([replace(file, size=size)], task_bytes=share)
        read = plan_of([piece for task in tasks for piece in task])
        actual = places(read)
        assert [n for n, _ in actual] == [n for n, kind in enumerate(kinds) if kind == "good"]
        if actual:
            rows = reported(read, Path(folder), [place for _, place in actual])
            assert [line - 1 for _, line, _ in rows] == [n for n, _ in actual]
            assert [json.loads(text)["n"] for _, _, text in rows] == [n for n, _ in actual]


def test_staged_lines_name_the_line_of_stdin(tmp_path: Path) -> None:
    path = tmp_path / "s"
    text = [json.dumps({"type": "RECORD", "stream": "s", "record": {"n": n}}) for n in range(4)]
    path.write_text("\n".join(text) + "\n")
    file = InputFile(str(path), Encoding("singer"), line_map=((1, 10), (3, 50)))
    read = plan_of([Piece(file)])
    rows = reported(read, tmp_path, [place for _, place in places(read)])
    assert [line for _, line, _ in rows] == [10, 11, 50, 51]
    assert [text.encode() for text in text] == [actual for _, _, actual in rows]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_rows_by_row_groups_and_several_files(tmp_path: Path, form: str) -> None:
    pieces = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.{form}"
        table = pa.table({"n": range(10), "x": ["t"] * 10})
        if form == "parquet":
            pq.write_table(table, path, row_group_size=3)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=3)
        file = InputFile(str(path), Encoding(form))
        pieces += [Piece(file, 0, 2, 0), Piece(file, 2, 2, 6)]
    read = plan_of(pieces)
    actual = places(read)
    assert [n for n, _ in actual] == [*range(10), *range(10)]
    wanted = [actual[1][1], actual[7][1], actual[15][1], actual[19][1]]
    rows = reported(read, tmp_path, wanted)
    assert [(Path(file).stem, line) for file, line, _ in rows] == [
        ("a", 2), ("a", 8), ("b", 6), ("b", 10),
    ]  # fmt: skip
    assert [json.loads(text) for _, _, text in rows] == [
        {"n": line - 1, "x": "t"} for _, line, _ in rows
    ]


def test_rows_of_csv_with_lines_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n,x\n0,a\n1,b,too,many\n2,c\nx,d\n4,e\n5\n6,g\n")
    read = plan_of([Piece(InputFile(str(path), Encoding("csv")))])
    actual = places(read)
    assert [(n, split_origin(place)[1]) for n, place in actual] == [(0, 0), (2, 2), (4, 4), (6, 6)]
    rows = reported(read, tmp_path, [place for _, place in actual])
    assert [line for _, line, _ in rows] == [1, 3, 5, 7]
    assert [json.loads(text)["x"] for _, _, text in rows] == ["a", "c", "e", "g"]


def test_places_out_of_order_are_found_all_the_same(tmp_path: Path) -> None:
    lines = [f'{{"n": {n}}}' for n in range(5)]
    files = [lines_file(tmp_path / name, lines) for name in ("a", "b")]
    read = plan_of([Piece(file) for file in files])
    wanted = [place for _, place in places(read)][::-1]
    rows = reported(read, tmp_path, wanted)
    assert [(Path(file).name, line) for file, line, _ in rows] == [
        (name, line) for name in ("b", "a") for line in range(5, 0, -1)
    ]


def test_nothing_is_read_again_where_no_text_is_wanted(tmp_path: Path) -> None:
    file = lines_file(tmp_path / "a", ['{"n": 1}'])
    read = plan_of([Piece(file)])
    [(_, place)] = places(read)
    Path(file.url).unlink()
    rejects = Rejects()
    Originals(read).reject(place, "why", rejects)
    assert [(r.file, r.line, r.reason) for r in rejects.reported] == [(file.url, 1, "why")]


def test_rejects_are_told_by_one_conversion_only(tmp_path: Path) -> None:
    file = lines_file(tmp_path / "a.jsonl", ['{"n": "x"}', '{"n": 1}'])
    for reports_rejects in (True, False):
        read = plan_of([Piece(file)], reports_rejects=reports_rejects)
        rejects = Rejects()
        tables = list(read_task(read, read.tasks[0], rejects))
        assert sum(table.num_rows for table in tables) == 1
        assert rejects.count == int(reports_rejects)
    path = tmp_path / "a.csv"
    path.write_text("n\nx\n1\n1,2\n")
    read = plan_of([Piece(InputFile(str(path), Encoding("csv")))], reports_rejects=False)
    rejects = Rejects()
    assert [t["n"].to_pylist() for t in read_task(read, read.tasks[0], rejects)] == [[1]]
    assert rejects.count == 0


def test_a_file_without_the_columns_that_are_read_is_still_one_of_the_stream(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"other": [1, 2]}), path)
    read = plan_of([Piece(InputFile(str(path), Encoding("parquet")))], names=("n", "other"))
    assert [n for n, _ in places(read)] == [None, None]
