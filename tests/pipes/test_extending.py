"""The examples of docs/extending.md, installed as packages, through the real programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from extension_packages import install_examples
from pipe_programs import Programs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "extending"))

pytestmark = pytest.mark.pipe
STREAM = {"name": "days", "format": "calendar", "first_day": "2025-12-30", "last_day": "2026-01-02"}


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Programs that find the examples installed."""
    installed = tmp_path / "site"
    installed.mkdir()
    install_examples(installed)
    paths = (str(installed), os.environ.get("PYTHONPATH", ""))
    return Programs(tmp_path, environ={"PYTHONPATH": os.pathsep.join(paths)})


def test_a_source_of_another_package(programs: Programs) -> None:
    done = programs.run(programs.tap_command({"streams": [STREAM]}))
    assert done.returncode == 0, done.stderr.decode()
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [message["type"] for message in messages]
    assert kinds == ["SCHEMA", "ACTIVATE_VERSION", *["RECORD"] * 4, "ACTIVATE_VERSION", "STATE"]
    assert messages[2]["record"] == {"day": "2025-12-30", "year": 2025, "weekday": 2}
    assert messages[5]["record"] == {"day": "2026-01-02", "year": 2026, "weekday": 5}


def test_an_encoding_of_another_package(programs: Programs, tmp_path: Path) -> None:
    files = {"encoding": {"format": "arrow"}, "storage": {"root": str(tmp_path / "batches")}}
    result = programs.pipe(
        {"streams": [STREAM], "batch_config": files}, {"path": str(tmp_path / "out")}
    ).check()
    written = list((tmp_path / "batches").rglob("*.arrow"))
    assert written, result.tap_log
    rows = pq.read_table(tmp_path / "out" / "days").to_pylist()
    assert sorted(str(row["day"]) for row in rows) == [
        *("2025-12-30", "2025-12-31", "2026-01-01", "2026-01-02")
    ]


def test_the_suites_run_outside_of_this_project(programs: Programs) -> None:
    suite = programs.folder / "site" / "test_examples.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite)],
        capture_output=True,
        text=True,
        cwd=suite.parent,
        env=programs.env(),
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "failed" not in done.stdout
