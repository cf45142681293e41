"""The examples of docs/extending.md, installed as packages, through the real programs."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

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


def test_packages_of_others_in_one_pipe(programs: Programs, tmp_path: Path) -> None:
    """A source, as RECORD and by an encoding as BATCH, into a destination."""
    tap = {
        "streams": [STREAM, {**STREAM, "name": "filed"}],
        "batch_config": {
            "encoding": {"format": "ipc_stream"},
            "storage": {"root": str(tmp_path / "batches")},
            "include_streams": ["filed"],
        },
    }
    sent = programs.run(programs.tap_command(tap))
    assert sent.returncode == 0, sent.stderr.decode()
    messages = [json.loads(line) for line in sent.stdout.splitlines()]
    of_days = [m for m in messages if m.get("stream", "days") == "days"][:-1]
    kinds = [message["type"] for message in of_days]
    assert kinds == ["SCHEMA", "ACTIVATE_VERSION", *["RECORD"] * 4, "ACTIVATE_VERSION", "STATE"]
    assert of_days[2]["record"] == {"day": "2025-12-30", "year": 2025, "weekday": 2}
    assert of_days[5]["record"] == {"day": "2026-01-02", "year": 2026, "weekday": 5}
    assert list((tmp_path / "batches").rglob("*.arrows")), sent.stderr

    file = tmp_path / "numbers.db"
    target = {"format": "sqlite", "sqlite": {"file": str(file)}, "batch_size_rows": 2}
    loaded = programs.run(programs.target_command(target), sent.stdout)
    assert loaded.returncode == 0, loaded.stderr.decode()
    assert loaded.stdout
    with closing(sqlite3.connect(file)) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(days)")]
        days = {
            name: [json.loads(text) for (text,) in database.execute(f"SELECT day FROM {name}")]
            for name in ("days", "filed")
        }
        [(flushes,)] = database.execute("SELECT count(*) FROM _flushes")
    expected = ["2025-12-30", "2025-12-31", "2026-01-01", "2026-01-02"]
    assert {name: sorted(each) for name, each in days.items()} == {
        "days": expected,
        "filed": expected,
    }
    assert flushes > 2
    assert "_sdc_batched_at" in columns


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
