"""`singer-spark run`: both programs use one Spark, which ends with the run however that ends."""

from __future__ import annotations

import contextlib
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
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import singer_spark
from shared.spark.conf import NO_CODE

pytestmark = [pytest.mark.pipe, pytest.mark.costly]
RUN = "import singer_spark; raise SystemExit(singer_spark.jobs())"
MARK = "TEST_OF_ONE_SPARK"
SPARK = {"master": "local[2]", "conf": {"spark.driver.memory": "700m", **NO_CODE}}
SECONDS = 120
MIB = 1 << 20


def start(folder: Path, rows: int, messages: str = "BATCH", **target: Any) -> subprocess.Popen[str]:
    """Start a run, all of whose work needs Spark."""
    stream = {"name": "rows", "format": "rows", "row_count": rows, "column_count": 3}
    batch = {"batch_config": {"storage": {"root": str(folder / "batches")}}}
    # Tasks that write lines wait for the target early.
    tap = {"streams": [stream], "spark": SPARK, "spool": {"bytes": MIB}}
    tap |= batch if messages == "BATCH" else {}
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
    """Return the Java processes, without their copies that are about to run another program."""
    parents: dict[int, int] = {}
    for process in processes(folder):
        with contextlib.suppress(psutil.Error):
            if process.name() == "java":
                parents[process.pid] = process.ppid()
    return [pid for pid, parent in parents.items() if parent not in parents]


@pytest.mark.parametrize(
    ("messages", "rows", "target"),
    [
        # The tap starts Spark, and the packages of the target must be there.
        ("BATCH", 50, {"format": "delta"}),
        # More lines than wait between both: those of the tap's tasks hold no core of the target's.
        ("RECORD", 60_000, {"batch_size_bytes": 2 * MIB}),
    ],
)
def test_both_programs_use_one_spark(tmp_path: Path, messages: str, rows: int, target: Any) -> None:
    run = start(tmp_path, rows, messages, **target)
    pids: set[int] = set()
    until = time.monotonic() + SECONDS
    while run.poll() is None and time.monotonic() < until:
        pids.update(javas(tmp_path))
        time.sleep(0.2)
    run.send_signal(signal.SIGTERM)
    log = run.communicate()[1]
    assert run.returncode == 0, log
    assert len(pids) == 1
    assert f"one Spark for both programs (Java process {pids.pop()})" in log
    table = tmp_path / "out" / "rows"
    loaded = DeltaTable(table).to_pyarrow_table() if "format" in target else pq.read_table(table)
    assert loaded.num_rows == rows
    [record] = (tmp_path / "runs" / "rows").glob("*Z.json")
    run_record = json.loads(record.read_text())
    for side in ("tap", "target"):
        assert run_record[side]["streams"]["rows"]["engine"] == "spark"
    # Workers end when they see that Java has ended, for which the run has waited.
    until = time.monotonic() + 10
    while list(processes(tmp_path)) and time.monotonic() < until:
        time.sleep(0.2)
    assert list(processes(tmp_path)) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("program", "number", "messages"),
    [
        ("run", signal.SIGKILL, "RECORD"),
        ("run", signal.SIGTERM, "BATCH"),
        ("tap-spark", signal.SIGKILL, "BATCH"),
        ("target-spark", signal.SIGKILL, "RECORD"),
    ],
)
def test_spark_ends_with_a_run_that_does_not_end_well(
    tmp_path: Path, program: str, number: signal.Signals, messages: str
) -> None:
    run = start(tmp_path, 100_000_000, messages)
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
