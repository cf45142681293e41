"""Runs of parts: a failing stream beside others, and runs that only plan."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pipe_programs import Programs

pytestmark = pytest.mark.pipe
NAMES = ("bad", "good")
METHOD = {"replication_method": "INCREMENTAL"}


def test_the_streams_beside_a_failed_one_are_loaded(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text("id\n1\n2\n")
    streams = [
        {"name": name, "format": "csv", "path": str(tmp_path / f"{name}.csv"), **METHOD}
        for name in ("gone", "good")
    ]
    existing = {"files": {"x": {"offset": 5, "size": 5, "mtime": "1", "fingerprint": ""}}}
    state = {"bookmarks": {"gone": existing}}
    target = {"path": str(tmp_path / "out")}
    actual = programs.pipe({"streams": streams, "on_stream_failure": "continue"}, target, state)
    assert (actual.tap_code, actual.target_code) == (9, 0), actual.tap_log + actual.target_log
    errors = [line for line in actual.tap_log.splitlines() if "| ERROR " in line]
    assert len(errors) == 2
    assert "1 of 2 streams failed: stream 'gone', file " in errors[-1]
    assert actual.state["bookmarks"]["gone"] == existing
    assert "good" in actual.state["bookmarks"]
    assert sorted(pq.read_table(tmp_path / "out" / "good")["id"].to_pylist()) == [1, 2]


def test_what_a_target_cannot_load_ends_its_stream_alone(
    programs: Programs, tmp_path: Path
) -> None:
    """One stream has a bad record in its second flush, the rows of the other are all wanted."""

    def record(stream: str, number: object) -> dict[str, object]:
        return {"type": "RECORD", "stream": stream, "record": {"id": number}}

    def state(bad: int, good: int) -> dict[str, object]:
        return {"type": "STATE", "value": {"bookmarks": {"bad": bad, "good": good}}}

    schema = {"properties": {"id": {"type": "integer"}}}
    messages = [
        *({"type": "SCHEMA", "stream": s, "schema": schema, "key_properties": []} for s in NAMES),
        *(record("bad", 1), state(1, 0), record("good", 1), record("bad", "x"), state(2, 1)),
        *(record("bad", 3), record("good", 2), state(3, 2)),
    ]
    config = {"path": str(tmp_path / "out"), "format": "delta", "on_stream_failure": "continue"}
    summary = tmp_path / "summary.json"
    command = [*programs.target_command(config), "--summary", str(summary)]
    done = programs.run(command, "".join(f"{json.dumps(m)}\n" for m in messages).encode())
    log = done.stderr.decode()
    assert done.returncode == 9, log
    errors = [line for line in log.splitlines() if "| ERROR " in line]
    assert len(errors) == 2
    assert "stream 'bad', line 6" in errors[0]
    assert "1 of 2 streams failed: stream 'bad', line 6" in errors[1]
    assert json.loads(done.stdout.splitlines()[-1]) == {"bookmarks": {"bad": 1, "good": 2}}
    facts = json.loads(summary.read_text())
    assert facts["exit_code"] == 9
    assert "line 6" in facts["streams"]["bad"]["error"]
    assert "error" not in facts["streams"]["good"]
    deltalake = pytest.importorskip("deltalake")
    actual = {name: deltalake.DeltaTable(str(tmp_path / "out" / name)) for name in NAMES}
    rows = {
        name: sorted(table.to_pyarrow_table()["id"].to_pylist()) for name, table in actual.items()
    }
    assert rows == {"bad": [1], "good": [1, 2]}


def test_a_dry_run_writes_nothing(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    stream = {"name": "a", "format": "csv", "path": str(tmp_path / "a.csv")}
    command = programs.tap_command({"streams": [stream]})
    actual = programs.run([*command, "--dry-run"])
    assert (actual.returncode, actual.stdout) == (0, b"")
    [line] = actual.stderr.decode().splitlines()
    assert "stream 'a': FULL_TABLE of every row; 1 column(s): id; 1 file(s), 0.0 MB" in line
    gone = {**stream, "path": str(tmp_path / "gone.csv")}
    actual = programs.run([*programs.tap_command({"streams": [gone]}), "--dry-run"])
    assert (actual.returncode, actual.stdout) == (3, b"")


def test_a_dry_run_of_the_target_touches_nothing(programs: Programs, tmp_path: Path) -> None:
    """Its BATCH files stay although they would be deleted; rejected records go nowhere."""
    batch, letters, summary = (tmp_path / name for name in ("b.jsonl", "letters", "s.json"))
    batch.write_text('{"id":1}\n{"id":"x"}\n')
    messages = [
        {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}},
         "key_properties": []},
        {"type": "BATCH", "stream": "s", "manifest": [batch.as_uri()],
         "encoding": {"format": "jsonl", "compression": "none"}},
        {"type": "STATE", "value": {"n": 1}},
    ]  # fmt: skip
    config = {
        "path": str(tmp_path / "out"),
        "format": "delta",
        "batch_config": {"cleanup": True, "allowed_roots": [str(tmp_path)]},
        "failure": {"policy": "SendToDLQ", "dead_letter_path": str(letters)},
    }
    command = [*programs.target_command(config), "--dry-run", "--summary", str(summary)]
    done = programs.run(command, "".join(f"{json.dumps(m)}\n" for m in messages).encode())
    log = done.stderr.decode()
    assert (done.returncode, done.stdout) == (0, b""), log
    assert (
        f"stream 's': would append 1 row to '{tmp_path}/out/s' (1 rejected); "
        "create the table with the columns id bigint" in log
    )
    assert json.loads(summary.read_text())["dry_run"] is True
    assert batch.exists()
    assert not (tmp_path / "out").exists()
    assert not letters.exists()
