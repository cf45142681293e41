"""A job with both real programs: it keeps STATE and history, and says how it ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import singer_spark

pytestmark = pytest.mark.pipe

JOBS = """
environments: {dev: {variables: {OUT: loaded}}}
jobs:
  orders:
    tap: {streams: [{name: orders, format: csv, path: "in/*.csv", key_properties: [id],
                     replication_method: INCREMENTAL}]}
    target: {path: "${OUT}"}
  broken:
    tap: {streams: [{name: orders, format: csv, path: "none/*.csv"}]}
    target: {path: "${OUT}"}
"""


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run from another folder: paths are relative to the job file."""
    command = [sys.executable, "-c", "import singer_spark; raise SystemExit(singer_spark.jobs())"]
    return subprocess.run(
        [*command, args[0], str(folder / "job.yml"), *args[1:]],
        cwd=Path(singer_spark.__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_job_keeps_state_and_history(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text(JOBS)
    (tmp_path / "in").mkdir()
    csv = tmp_path / "in" / "orders.csv"
    csv.write_text("id,name\n1,a\n2,b\n")
    first = run(tmp_path, "run", "orders", "--env", "dev")
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    with csv.open("a") as file:
        file.write("3,c\n")
    second = run(tmp_path, "run", "orders", "--env", "dev")
    assert second.returncode == 0, second.stderr
    failed = run(tmp_path, "run", "broken", "--env", "dev")
    assert failed.returncode == 3, failed.stderr
    assert sorted(pq.read_table(tmp_path / "loaded/orders")["id"].to_pylist()) == [1, 2, 3]
    assert "orders" in json.loads((tmp_path / "state/orders.dev.json").read_text())["bookmarks"]
    listed = run(tmp_path, "runs", "--json")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(row["job"], row["exit_code"], row["loaded"]) for row in rows] == [
        ("broken", 3, 0), ("orders", 0, 1), ("orders", 0, 2)
    ]  # fmt: skip
    assert rows[0]["error"].startswith("tap-spark: stream 'orders'")
