"""Loads, their history, the return to one of them, and the load after that."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pipe_programs import TARGET, Programs

pytestmark = pytest.mark.pipe

STREAMS = ("a", "b")
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "v": {"type": "integer"}}}


def messages(first: int, end: int) -> bytes:
    """Return what a tap sends of two streams: each row once, and STATE after each stream."""
    lines: list[dict[str, Any]] = []
    marks = {name: {"next": first} for name in STREAMS}
    for name in STREAMS:
        lines.append({"type": "SCHEMA", "stream": name, "schema": SCHEMA, "key_properties": ["id"]})
        for number in range(first, end):
            record = {"id": number % 5, "v": number}
            lines.append({"type": "RECORD", "stream": name, "record": record})
        marks[name] = {"next": end}
        lines.append({"type": "STATE", "value": {"bookmarks": dict(marks)}})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def loaded(config: dict[str, Any]) -> dict[str, list[tuple[int, int]]]:
    """Return the rows of all tables as a reader other than Spark has them."""
    deltalake = pytest.importorskip("deltalake")
    tables = {name: deltalake.DeltaTable(f"{config['path']}/{name}") for name in STREAMS}
    return {
        name: sorted((r["id"], r["v"]) for r in table.to_pyarrow_table().to_pylist())
        for name, table in tables.items()
    }


def call(
    programs: Programs, name: str, config: dict[str, Any], *args: str
) -> subprocess.CompletedProcess[bytes]:
    """Run `history` or `rewind`."""
    return programs.run(command(programs, name, config, *args))


def command(programs: Programs, name: str, config: dict[str, Any], *args: str) -> list[str]:
    return [*TARGET, name, *programs.target_command(config)[len(TARGET) :], *args]


def load(programs: Programs, config: dict[str, Any], first: int, end: int) -> dict[str, Any]:
    result = programs.run(programs.target_command(config), stdin=messages(first, end))
    assert result.returncode == 0, result.stderr.decode()
    state: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return state


def settings(folder: Path, method: str) -> dict[str, Any]:
    return {
        "path": str(folder / "lake"),
        "format": "delta",
        "load_method": method,
        "add_record_metadata": False,
    }


@pytest.mark.slow
def test_a_rewind_that_was_killed_is_repeated_and_the_load_goes_on(
    programs: Programs, tmp_path: Path
) -> None:
    config = settings(tmp_path, "append-only")
    then = load(programs, config, 0, 4)
    earlier = loaded(config)
    load(programs, config, 4, 9)
    all_rows = loaded(config)
    listed = call(programs, "history", config, "--json")
    assert listed.returncode == 0, listed.stderr.decode()
    entries = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(e["stream"], e["rows"]) for e in entries if e["rows"]] in (
        [("b", 5), ("a", 5), ("b", 4), ("a", 4)],
        [("a", 5), ("b", 5), ("a", 4), ("b", 4)],
        [("b", 5), ("a", 5), ("a", 4), ("b", 4)],
        [("a", 5), ("b", 5), ("b", 4), ("a", 4)],
    )
    run = entries[-1]["run"]
    shown = call(programs, "history", config, "--table", "a").stdout.decode().splitlines()
    assert [line.split()[-1] for line in shown[1:]] == ['{"next":9}', '{"next":4}']

    with (tmp_path / "lake" / ".b.commit-lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # The rewind waits for it between the tables.
        killed = subprocess.Popen(
            command(programs, "rewind", config, "--to", run),
            cwd=tmp_path,
            env=programs.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        waited = time.monotonic() + 240
        while loaded(config)["a"] != earlier["a"]:
            assert killed.poll() is None, killed.communicate()[1].decode()
            assert time.monotonic() < waited
            time.sleep(0.1)
        killed.kill()
        assert killed.communicate()[0] == b""
        assert killed.returncode == -signal.SIGKILL
    assert loaded(config) == {"a": earlier["a"], "b": all_rows["b"]}

    repeated = call(programs, "rewind", config, "--to", run)
    assert repeated.returncode == 0, repeated.stderr.decode()
    assert loaded(config) == earlier
    (line,) = repeated.stdout.splitlines()
    assert json.loads(line) == then
    versions = len(list((tmp_path / "lake" / "a" / "_delta_log").glob("*.json")))
    assert versions == 4, "created, two loads, one return"

    load(programs, config, json.loads(line)["bookmarks"]["a"]["next"], 9)
    assert loaded(config) == all_rows


def test_what_cannot_be_restored_is_said(programs: Programs, tmp_path: Path) -> None:
    config = {"path": str(tmp_path / "out"), "format": "parquet"}
    for name, args in (("history", []), ("rewind", ["--to", "x"])):
        result = call(programs, name, config, *args)
        assert (result.returncode, result.stdout) == (2, b"")
        assert b"'parquet' does not keep earlier versions of a table" in result.stderr
