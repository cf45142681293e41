"""The example of docs/extending: a destination in one file, installed as by somebody else."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from installed_packages import EXAMPLE, ROOT, install_example
from pipe_programs import Programs

pytestmark = pytest.mark.pipe


@pytest.fixture
def path(tmp_path: Path) -> str:
    """PYTHONPATH with the example installed."""
    install_example(tmp_path / "site")
    return os.pathsep.join([str(ROOT), str(tmp_path / "site")])


def test_a_pipe_into_the_destination_of_another_package(programs: Programs, path: str) -> None:
    programs.environ["PYTHONPATH"] = path
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


def test_the_example_passes_the_suite_for_authors(tmp_path: Path, path: str) -> None:
    shutil.copy(EXAMPLE / "test_sqlite_destination.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed, 5 skipped" in done.stdout


def test_the_example_is_short() -> None:
    lines = (EXAMPLE / "sqlite_destination.py").read_text().splitlines()
    assert len(lines) < 50
