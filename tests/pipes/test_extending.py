"""The examples of docs/extending.md, installed as packages, through the real programs."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from extension_packages import DESTINATION_EXAMPLE, install_examples, python_path
from pipe_programs import Programs

pytestmark = [pytest.mark.pipe, pytest.mark.costly]
STREAM = {"name": "days", "format": "calendar", "first_day": "2025-12-30", "last_day": "2026-01-02"}


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Programs that find the examples installed."""
    install_examples(tmp_path / "site")
    return Programs(tmp_path, environ={"PYTHONPATH": python_path(tmp_path / "site")})


def test_a_source_of_another_package(programs: Programs) -> None:
    done = programs.run(programs.tap_command({"streams": [STREAM]}))
    assert done.returncode == 0, done.stderr.decode()
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [message["type"] for message in messages]
    assert kinds == ["SCHEMA", "ACTIVATE_VERSION", *["RECORD"] * 4, "ACTIVATE_VERSION", "STATE"]
    assert messages[2]["record"] == {"day": "2025-12-30", "year": 2025, "weekday": 2}
    assert messages[5]["record"] == {"day": "2026-01-02", "year": 2026, "weekday": 5}


def test_an_encoding_of_another_package(programs: Programs, tmp_path: Path) -> None:
    files = {"encoding": {"format": "ipc_stream"}, "storage": {"root": str(tmp_path / "batches")}}
    result = programs.pipe(
        {"streams": [STREAM], "batch_config": files}, {"path": str(tmp_path / "out")}
    ).check()
    written = list((tmp_path / "batches").rglob("*.arrows"))
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


def test_a_pipe_into_the_destination_of_another_package(programs: Programs) -> None:
    stream = {"name": "numbers", "format": "rows", "row_count": 500, "column_count": 3}
    file = programs.folder / "numbers.db"
    target = {"format": "sqlite", "sqlite": {"file": str(file)}, "batch_size_rows": 100}
    result = programs.pipe({"streams": [stream]}, target).check()
    assert result.states
    with closing(sqlite3.connect(file)) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(numbers)")]
        [(rows,)] = database.execute("SELECT count(*) FROM numbers")
        [(distinct,)] = database.execute(f"SELECT count(DISTINCT {columns[0]}) FROM numbers")
        [(flushes,)] = database.execute("SELECT count(*) FROM _flushes")
    assert (rows, distinct) == (500, 500)
    assert flushes > 1
    assert "_sdc_batched_at" in columns


def test_the_suite_for_destinations_runs_outside_of_this_project(programs: Programs) -> None:
    # Beside the example, pytest would load the plugins of the other examples.
    suite = shutil.copy(DESTINATION_EXAMPLE / "test_sqlite_destination.py", programs.folder)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", suite],
        cwd=programs.folder,
        env=programs.env(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed, 13 skipped" in done.stdout
