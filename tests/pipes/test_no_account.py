"""A user that the operating system has only a number for, as containers do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipe_programs import Programs

AS_NUMBER = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]

pytestmark = [pytest.mark.pipe, pytest.mark.once]


def test_spark_needs_no_account(tmp_path: Path) -> None:
    """Java would take `?` for the home folder, and Hadoop would not log in."""
    if not shutil.which("unshare") or subprocess.run([*AS_NUMBER, "true"]).returncode:
        pytest.skip("no user namespaces")
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "in.parquet")
    programs = Programs(tmp_path)
    stream = {"name": "s", "format": "parquet", "path": str(tmp_path / "in.parquet")}
    command = programs.tap_command({"engine": "spark", "streams": [stream]})
    result = programs.run([*AS_NUMBER, "env", "HOME=/nonexistent", *command])
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.count(b'"RECORD"') == 3
    assert not list(tmp_path.glob("?"))
