"""`singer-spark run`: both programs use one Spark, which ends with the run however that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

import singer_spark

pytestmark = pytest.mark.pipe
RUN = "import singer_spark; raise SystemExit(singer_spark.jobs())"
MARK = "TEST_OF_ONE_SPARK"
SPARK = {"master": "local[2]", "conf": {"spark.driver.memory": "700m"}}
SECONDS = 120


def start(folder: Path, rows: int, **target: Any) -> subprocess.Popen[str]:
    """Start a run, all of whose work needs Spark."""
    stream = {"name": "rows", "format": "rows", "row_count": rows, "column_count": 3}
    tap = {
        "streams": [stream],
        "spark": SPARK,
        "batch_config": {"storage": {"root": str(folder / "batches")}},
    }
    target = {"path": "out", "spark": SPARK, "engine": "spark", **target}
    (folder / "job.yml").write_text(json.dumps({"jobs": {"rows": {"tap": tap, "target": target}}}))
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", RUN, "run", str(folder / "job.yml")],
        cwd=Path(singer_spark.__file__).parent,
        env={**os.environ, MARK: str(folder), "TMPDIR": str(folder / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
    )


def processes(folder: Path, word: str = "") -> Iterator[psutil.Process]:
    """Yield the processes of a run, whoever their parents are."""
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get(MARK) == str(folder)
            if is_ours and (not word or word in process.cmdline()):
                yield process
        except psutil.Error:
            pass


def javas(folder: Path) -> list[int]:
    return [process.pid for process in processes(folder) if process.name() == "java"]


def test_both_programs_use_one_spark(tmp_path: Path) -> None:
    # The tap starts Spark, and the packages of the target must be there.
    run = start(tmp_path, 50, format="delta")
    pids: set[int] = set()
    while run.poll() is None:
        pids.update(javas(tmp_path))
        time.sleep(0.2)
    log = run.communicate()[1]
    assert run.returncode == 0, log
    assert len(pids) == 1
    assert f"one Spark for both programs (Java process {pids.pop()})" in log
    assert DeltaTable(tmp_path / "out" / "rows").to_pyarrow_table().num_rows == 50
    [record] = (tmp_path / "runs" / "rows").glob("*Z.json")
    run_record = json.loads(record.read_text())
    for side in ("tap", "target"):
        assert run_record[side]["streams"]["rows"]["engine"] == "spark"
    assert list(processes(tmp_path)) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("program", "number"),
    [
        ("run", signal.SIGKILL),
        ("run", signal.SIGTERM),
        ("tap-spark", signal.SIGKILL),
        ("target-spark", signal.SIGKILL),
    ],
)
def test_spark_ends_with_a_run_that_does_not_end_well(
    tmp_path: Path, program: str, number: signal.Signals
) -> None:
    run = start(tmp_path, 100_000_000)
    try:
        until = time.monotonic() + SECONDS
        while not list((tmp_path / "tmp").glob("*/java.json")) and time.monotonic() < until:
            time.sleep(0.2)
        assert len(javas(tmp_path)) == 1
        [process] = processes(tmp_path, program)
        process.send_signal(number)
        _, log = run.communicate(timeout=SECONDS)
        assert run.returncode != 0, log
        # Nobody waits for the programs of a command that was killed.
        while list(processes(tmp_path)) and time.monotonic() < until:
            time.sleep(0.2)
        assert list(processes(tmp_path)) == [], log
    finally:
        for process in processes(tmp_path):
            process.kill()
