"""What a killed tap leaves of its batch files: nothing, once the next run has begun."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.pipe, pytest.mark.costly]

COUNT = 100_000
SIZE = 500


def config(folder: Path, rows: int) -> dict[str, Any]:
    return {
        "streams": [{"name": "s", "format": "rows", "row_count": rows, "column_count": 3}],
        "spool": {"root": str(folder / "spool")},
        "batch_config": {
            "encoding": {"format": "parquet"},
            "storage": {"root": str(folder / "batches"), "prefix": "day/x-"},
            "batch_size": SIZE,
        },
    }


def announced(lines: list[bytes]) -> list[Path]:
    messages = [json.loads(line) for line in lines if line.endswith(b"\n")]
    manifests = [m["manifest"] for m in messages if m["type"] == "BATCH"]
    return [Path(url.removeprefix("file://")) for (url,) in manifests]


def hidden(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.name.startswith(".")]


def killed_run(programs: Any, folder: Path, after: int) -> list[bytes]:
    """Kill the tap once so many BATCH messages are out and a file waits; give its lines."""
    root = folder / "batches"
    with (folder / "tap.log").open("wb") as log:
        tap = subprocess.Popen(
            programs.tap_command(config(folder, COUNT)),
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
        )
    assert tap.stdout is not None
    lines = []
    while len(announced(lines)) < after:
        lines.append(tap.stdout.readline())
        assert lines[-1], (folder / "tap.log").read_text()
    until = time.monotonic() + 60
    while not list(root.glob(".tap-spark-batch-*/*.parquet")):
        assert time.monotonic() < until
        time.sleep(0.001)
    tap.kill()
    lines += tap.stdout.readlines()
    tap.stdout.close()
    assert tap.wait(60) == -9
    return lines


@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_the_next_run_removes_what_a_killed_one_left(programs, tmp_path, after):
    root = tmp_path / "batches"
    cut = announced(killed_run(programs, tmp_path, after))
    left = hidden(root)
    assert left
    shown = {path for path in root.rglob("*.parquet") if path.parent == root / "day"}
    assert shown >= set(cut)
    # Of the one that was being announced nobody can know whether its message was read.
    assert len(shown - set(cut)) <= 1

    result = programs.run(programs.tap_command(config(tmp_path, 3 * SIZE + 1)))
    assert result.returncode == 0, result.stderr.decode()
    again = announced(result.stdout.splitlines(keepends=True))
    assert hidden(root) == []
    assert {path for path in root.rglob("*") if path.is_file()} == shown | set(again)
    assert list((tmp_path / "spool").iterdir()) == []
    assert [pq.read_table(path).num_rows for path in cut] == [SIZE] * len(cut)
    assert [pq.read_table(path).num_rows for path in again] == [SIZE, SIZE, SIZE, 1]
