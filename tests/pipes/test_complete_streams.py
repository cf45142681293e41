"""`overwrite` holds the rows of one complete read of its stream, however the tap gets there."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pipe_programs import Programs

pytestmark = [pytest.mark.pipe, pytest.mark.costly]
SCHEMA = {"properties": {"id": {"type": "integer"}}}


def csv(path: Path, first: int, count: int) -> None:
    path.write_text("id\n" + "".join(f"{n}\n" for n in range(first, first + count)))


def ids(folder: Path, form: str = "parquet") -> list[int]:
    """Return the column `id` of a table, as another package reads it."""
    if form == "delta":
        table = DeltaTable(str(folder)).to_pyarrow_table()
    elif form == "json":
        texts = [file.read_text() for file in folder.glob("part-*.json")]
        return sorted(json.loads(line)["id"] for line in "".join(texts).splitlines())
    else:
        table = pq.read_table(folder)
    return sorted(table.column("id").to_pylist())


@pytest.fixture
def sources(tmp_path: Path) -> list[dict[str, str]]:
    for name in ("a", "b"):
        csv(tmp_path / f"{name}.csv", 0, 3)
    return [
        {"name": name, "format": "csv", "path": str(tmp_path / f"{name}.csv")}
        for name in ("a", "b")
    ]


def test_output_of_a_tap_that_is_cut_off_anywhere(
    programs: Programs, tmp_path: Path, sources: list[dict[str, str]]
) -> None:
    """The table `b` has all old rows or all new ones, wherever the second run's input ends."""
    target = programs.target_command({"path": str(tmp_path / "out"), "load_method": "overwrite"})
    first = programs.run(programs.tap_command({"streams": sources}))
    state = first.stdout.splitlines()[-1]
    (tmp_path / "state.json").write_bytes(state)
    csv(tmp_path / "b.csv", 10, 2)
    lines = {
        "first run": first.stdout.splitlines(keepends=True),
        "later run": programs.run(
            [*programs.tap_command({"streams": sources}), "--state", str(tmp_path / "state.json")]
        ).stdout.splitlines(keepends=True),
    }
    for name, messages in lines.items():
        own = [n for n, line in enumerate(messages) if b'"stream":"b"' in line]
        new = [0, 1, 2] if name == "first run" else [10, 11]
        assert programs.run(target, first.stdout).returncode == 0
        for cut in range(own[0] + 1, len(messages) + 1):
            done = programs.run(target, b"".join(messages[:cut]))
            is_whole = cut > own[-1] and done.returncode == 0
            assert is_whole or done.returncode == 9, (name, cut, done.stderr)
            actual = ids(tmp_path / "out" / "b")
            assert actual == (new if is_whole else [0, 1, 2]), (name, cut)
            if not is_whole:
                assert b"stream 'b': the input ended, but " in done.stderr


def test_a_stream_that_fails_beside_others(
    programs: Programs, tmp_path: Path, sources: list[dict[str, str]]
) -> None:
    strict = {"schema": "id INT", "options": {"mode": "FAILFAST"}}
    streams = [{**sources[0], **strict}, sources[1]]
    tap = {"streams": streams, "on_stream_failure": "continue"}
    target = {"path": str(tmp_path / "out"), "load_method": "overwrite"}
    # The first run, which nothing is wrong with, needs no Spark.
    state = programs.pipe({"streams": sources}, target).check().state
    csv(tmp_path / "b.csv", 10, 2)
    (tmp_path / "a.csv").write_text("id\n10\nx\n")
    actual = programs.pipe(tap, target, state)
    assert (actual.tap_code, actual.target_code) == (9, 9), actual.tap_log + actual.target_log
    assert "stream 'a': the input ended, but the tap reports that the" in actual.target_log
    assert ids(tmp_path / "out" / "a") == [0, 1, 2]
    assert ids(tmp_path / "out" / "b") == [10, 11]


@pytest.mark.parametrize(
    ("form", "again"),
    [("parquet", [1, 2]), ("json", []), ("delta", [1, 2])]
    + [
        pytest.param(form, again, marks=pytest.mark.slow)
        for form, again in [("parquet", []), ("json", [1, 2]), ("delta", [])]
    ],
)
def test_a_stream_that_the_tap_read_twice(
    programs: Programs, tmp_path: Path, form: str, again: list[int]
) -> None:
    """After a failure of its source a tap sends the rows anew, with another table version."""
    messages: list[dict[str, object]] = [
        {"type": "SCHEMA", "stream": "s", "schema": SCHEMA, "key_properties": []},
        *({"type": "RECORD", "stream": "s", "record": {"id": n}, "version": 1} for n in (1, 3)),
        *({"type": "RECORD", "stream": "s", "record": {"id": n}, "version": 2} for n in again),
        {"type": "ACTIVATE_VERSION", "stream": "s", "version": 2},
        {"type": "STATE", "value": {}},
    ]
    summary = tmp_path / "summary.json"
    config = {"path": str(tmp_path / "out"), "format": form, "load_method": "overwrite"}
    command = [*programs.target_command(config), "--summary", str(summary)]
    done = programs.run(command, "".join(f"{json.dumps(m)}\n" for m in messages).encode())
    assert done.returncode == 0, done.stderr
    assert ids(tmp_path / "out" / "s", form) == again
    actual = json.loads(summary.read_bytes())
    counts = actual["streams"]["s"]["tables"]["s"]
    assert (counts.get("committed", 0), counts["merged"]) == (len(again), 2), actual
