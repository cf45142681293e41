"""A user that the operating system has only a number for, as containers do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pipe_programs import Programs

AS_NUMBER = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]

HAS_NUMBERS = shutil.which("unshare") and not subprocess.run([*AS_NUMBER, "true"]).returncode

pytestmark = [
    pytest.mark.pipe,
    pytest.mark.once,
    pytest.mark.skipif(not HAS_NUMBERS, reason="no user namespaces"),
]


def test_spark_needs_no_account(tmp_path: Path) -> None:
    """Java would take `?` for the home folder, and Hadoop would not log in.

    Spark asks Hadoop for the user before it adds jars, also those that Ivy fetches.
    """
    programs = Programs(tmp_path, environ={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    config = {"format": "iceberg", "path": str(tmp_path / "lake"), "engine": "spark"}
    lines = [
        {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}}},
        {"type": "RECORD", "stream": "s", "record": {"id": 1}},
        {"type": "STATE", "value": {"a": 1}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    command = [*AS_NUMBER, "env", "HOME=/nonexistent", *programs.target_command(config)]
    result = programs.run(command, text)
    assert result.returncode == 0, result.stderr.decode()
    assert json.loads(result.stdout) == {"a": 1}
    [file] = (tmp_path / "lake/s/data").glob("*.parquet")
    assert pq.read_table(file)["id"].to_pylist() == [1]
    assert not list(tmp_path.glob("?"))
    assert not Path("/nonexistent").exists()
