"""Loads without Spark: by these settings it cannot be reached, or cannot start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pipe_programs import TAP, TARGET, Programs

pytestmark = [pytest.mark.pipe, pytest.mark.costly]
NOWHERE = {"remote": "sc://127.0.0.1:1"}
ID = {"id": {"type": "integer"}}
NO_MEMORY = {"master": "local[2]", "conf": {"spark.driver.memory": "1k"}}


def test_a_new_table_of_a_lake_needs_no_spark(programs: Programs, tmp_path: Path) -> None:
    """Nor do later rows: the file has grown, and only its new lines are read."""
    source, out = tmp_path / "s.csv", tmp_path / "out"
    source.write_text("id,name\n1,a\n")
    stream = {"name": "s", "format": "csv", "path": str(source)}
    tap = {"streams": [{**stream, "replication_method": "INCREMENTAL"}]}
    target = {"path": str(out), "format": "delta", "spark": NO_MEMORY}
    state = programs.pipe(tap, target).check().state
    with source.open("a") as file:
        file.write("2,b\n")
    programs.pipe(tap, target, state).check()
    rows = rows_of("delta", out / "s", "id", "name")
    assert rows == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_small_files_of_json_lines_need_no_spark(programs: Programs, tmp_path: Path) -> None:
    source, out = tmp_path / "s.jsonl", tmp_path / "out"
    source.write_text('{"id": 1, "name": "a"}\n')
    stream = {"name": "s", "format": "json", "path": str(source)}
    tap = {"streams": [{**stream, "replication_method": "INCREMENTAL"}], "spark": NO_MEMORY}
    target = {"path": str(out), "format": "delta", "spark": NO_MEMORY}
    state = programs.pipe(tap, target).check().state
    with source.open("a") as file:
        file.write('{"name": "b", "id": 2}\n')
    programs.pipe(tap, target, state).check()
    rows = rows_of("delta", out / "s", "id", "name")
    assert rows == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_rows_of_a_table_change_without_spark(programs: Programs, tmp_path: Path) -> None:
    """By key, with a new column, and by the table version of a FULL_TABLE run."""
    source, out = tmp_path / "s.csv", tmp_path / "out"
    stream = {"name": "s", "format": "csv", "path": str(source), "key_properties": ["id"]}
    target = {
        "path": str(out),
        "format": "delta",
        "load_method": "upsert",
        "hard_delete": True,
        "spark": NO_MEMORY,
    }
    for text in ("id,name\n1,a\n2,b\n", "id,name,more\n2,c,5\n3,d,6\n"):
        source.write_text(text)
        programs.pipe({"streams": [stream]}, target).check()
    assert rows_of("delta", out / "s", "id", "name", "more") == [
        {"id": 2, "name": "c", "more": 5}, {"id": 3, "name": "d", "more": 6},
    ]  # fmt: skip


def rows_of(form: str, folder: Path, *names: str) -> list[dict[str, Any]]:
    """Return the rows of a table by `id`, as a package reads them."""
    is_delta = form == "delta"
    table = DeltaTable(str(folder)).to_pyarrow_table() if is_delta else pq.read_table(folder)
    rows: list[dict[str, Any]] = table.sort_by("id").select(list(names)).to_pylist()
    return rows


def test_a_table_is_overwritten_without_spark(programs: Programs, tmp_path: Path) -> None:
    source, out = tmp_path / "s.csv", tmp_path / "out"
    stream = {"name": "s", "format": "csv", "path": str(source), "key_properties": ["id"]}
    target = {"path": str(out), "format": "delta", "load_method": "overwrite", "spark": NO_MEMORY}
    for text in ("id,name\n1,a\n2,b\n", "id,name\n2,c\n3,d\n"):
        source.write_text(text)
        programs.pipe({"streams": [stream]}, target).check()
    actual = rows_of("delta", out / "s", "id", "name")
    assert actual == [{"id": 2, "name": "c"}, {"id": 3, "name": "d"}]


def test_small_tables_come_and_go_without_spark(programs: Programs, tmp_path: Path) -> None:
    """The second FULL_TABLE run takes the place of the first by its table version."""
    source, out = tmp_path / "s.csv", tmp_path / "out"
    stream = {"name": "s", "format": "csv", "path": str(source), "replication_method": "FULL_TABLE"}
    tap = {"streams": [stream]}
    target = {
        "path": str(out),
        "hard_delete": True,
        "staging": {"root": str(tmp_path)},
        "spark": NOWHERE,
    }
    for rows in ([(1, "a"), (2, "b")], [(2, "c"), (3, "d")]):
        source.write_text("id,name\n" + "".join(f"{n},{name}\n" for n, name in rows))
        programs.pipe(tap, target).check()
        table = pq.read_table(out / "s")
        actual = zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True)
        assert sorted(actual) == rows


def test_a_map_that_copies_needs_no_spark(programs: Programs, tmp_path: Path) -> None:
    source, out = tmp_path / "s.csv", tmp_path / "out"
    source.write_text("id,name,secret\n1,a,x\n2,b,y\n")
    maps = {"s": {"name": None, "secret": None, "title": "name"}}
    tap = {"streams": [{"name": "s", "format": "csv", "path": str(source)}]}
    target = {"path": str(out), "staging": {"root": str(tmp_path)}, "spark": NOWHERE}
    programs.pipe(tap, {**target, "stream_maps": maps}).check()
    table = pq.read_table(out / "s")
    assert "name" not in table.column_names
    assert table.select(["id", "title"]).to_pylist() == [
        {"id": 1, "title": "a"}, {"id": 2, "title": "b"},
    ]  # fmt: skip


def test_a_map_that_computes_needs_no_spark(programs: Programs, tmp_path: Path) -> None:
    """Nor does flattening; a record that cannot be mapped is named and left out."""
    source, out = tmp_path / "s.jsonl", tmp_path / "out"
    source.write_text(
        '{"id": 1, "name": "ann", "tags": ["x", "y"], "in": {"n": 1}}\n'
        '{"id": 2, "name": null, "tags": [], "in": {"n": 2}}\n'
        '{"id": 3, "name": "bob", "tags": null, "in": null}\n'
    )
    maps = {"s": {"__filter__": "id < 3", "label": "f'{id}-{name.upper()}'", "name": None}}
    tap = {"streams": [{"name": "s", "format": "json", "path": str(source)}]}
    target = {
        "path": str(out),
        "staging": {"root": str(tmp_path)},
        "spark": NOWHERE,
        "failure": {"policy": "LogAndContinue"},
        "flattening_enabled": True,
        "flattening_max_depth": 2,
        "add_record_metadata": False,
    }
    done = programs.pipe(tap, {**target, "stream_maps": maps}).check()
    assert "property 'label': AttributeError" in done.target_log
    assert pq.read_table(out / "s").to_pylist() == [
        {"id": 1, "tags": '["x","y"]', "in__n": 1, "label": "1-ANN"}
    ]


def test_a_map_of_the_tap_needs_no_spark(programs: Programs, tmp_path: Path) -> None:
    """For BATCH files of CSV rows; the first record that cannot be mapped ends the run."""
    source, out = tmp_path / "s.csv", tmp_path / "out"
    source.write_text("id,name\n1,ann\n2,bob\n3,cid\n")
    maps = {"s": {"__filter__": "id > 1", "label": "f'{name.upper()}-{id}'", "name": None}}
    tap: dict[str, Any] = {
        "streams": [{"name": "s", "format": "csv", "path": str(source)}],
        "batch_config": {"encoding": {"format": "parquet"}, "storage": {"root": str(tmp_path)}},
        "stream_maps": maps,
        "spark": NO_MEMORY,
    }
    target = {"path": str(out), "spark": NO_MEMORY, "add_record_metadata": False}
    programs.pipe(tap, target).check()
    rows = [{"id": 2, "label": "BOB-2"}, {"id": 3, "label": "CID-3"}]
    assert pq.read_table(out / "s").to_pylist() == rows
    failing = {**tap, "stream_maps": {"s": {"share": "10 / (id - 2)"}}}
    done = programs.pipe(failing, target)
    assert done.tap_code == 5, done.tap_log
    assert "property 'share': ZeroDivisionError: division by zero" in done.tap_log
    assert pq.read_table(out / "s").num_rows == len(rows)


def test_paths_stand_for_settings(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,name\n1,a\n2,b\n")
    messages = programs.run([*TAP, str(tmp_path / "orders.csv")])
    assert messages.returncode == 0, messages.stderr
    loaded = programs.run([*TARGET, str(tmp_path / "loaded")], messages.stdout)
    assert loaded.returncode == 0, loaded.stderr
    table = pq.read_table(tmp_path / "loaded" / "orders")
    assert table.select(["id", "name"]).to_pylist() == [
        {"id": 1, "name": "a"}, {"id": 2, "name": "b"},
    ]  # fmt: skip


MANY = [
    ("parquet", 300, 200),
    ("delta", 300, 200),
    pytest.param("parquet", 5_000, 1_024, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("form", "count", "limit"), MANY)
def test_streams_take_no_descriptors_each(
    programs: Programs, tmp_path: Path, form: str, count: int, limit: int
) -> None:
    """More streams than the system allows files; a retry adds no rows."""
    lines = []
    for number in range(count):
        schema = {"properties": {"id": {"type": "integer"}}}
        start = {"type": "SCHEMA", "stream": f"s{number}", "schema": schema, "key_properties": []}
        lines += [start, {"type": "RECORD", "stream": f"s{number}", "record": {"id": 1}}]
    lines.append({"type": "STATE", "value": {"a": 1}})
    data = [f"{json.dumps(line)}\n".encode() for line in lines]
    settings = {"path": str(tmp_path / "out"), "format": form, "batch_wait_limit_seconds": 3_600}
    limited = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"]
    for end, code in ((b"cut off", 4), (data[-1], 0)):
        command = [*limited, *programs.target_command(settings)]
        done = programs.run(command, b"".join([*data[:-1], end]), timeout=1_800)
        assert done.returncode == code, done.stderr.decode()
    assert json.loads(done.stdout) == {"a": 1}
    for number in range(0, count, 50):
        assert rows_of(form, tmp_path / "out" / f"s{number}", "id") == [{"id": 1}]


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_nested_arrays(programs: Programs, tmp_path: Path, form: str) -> None:
    """As deep as a message may be: Parquet itself has fewer levels."""
    levels, node, value = 190, {"type": "integer"}, 7
    for _ in range(levels):
        node, value = {"type": "array", "items": node}, [value]
    lines = [
        {"type": "SCHEMA", "stream": "s", "schema": {"properties": {**ID, "v": node}}},
        {"type": "RECORD", "stream": "s", "record": {"id": 1, "v": value}},
        {"type": "STATE", "value": {"a": 1}},
    ]
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    target = {"path": str(tmp_path / "out"), "format": form, "spark": NO_MEMORY}
    done = programs.run(programs.target_command(target), data)
    assert done.returncode == 0, done.stderr.decode()
    ((text,),) = [row.values() for row in rows_of(form, tmp_path / "out" / "s", "v")]
    while isinstance(text, list):
        (text,) = text
        levels -= 1
    assert text == "[" * levels + "7" + "]" * levels
