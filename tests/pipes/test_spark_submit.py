"""Both programs as applications of Spark's own spark-submit."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pipe_programs import TAP, TARGET, Programs
from spark_cluster import submit_command, submit_environment

# `server`: it needs a Java with all modules, which a wheel cannot bring.
pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.costly]
SCHEMA = {"properties": {"id": {"type": "integer"}}}
MESSAGES: list[dict[str, Any]] = [
    {"type": "SCHEMA", "stream": "s", "schema": SCHEMA, "key_properties": []},
    {"type": "RECORD", "stream": "s", "record": {"id": 1}},
    {"type": "STATE", "value": {"bookmark": 1}},
]
INPUT = b"".join(json.dumps(message).encode() + b"\n" for message in MESSAGES)
OTHER = {"master": "local[7]", "conf": {"spark.sql.session.timeZone": "Asia/Tokyo"}}


def of_tap(programs: Programs, config: dict[str, Any], *options: str) -> list[str]:
    return submit_command("tap-spark", *options) + programs.tap_command(config)[len(TAP) :]


def of_target(programs: Programs, config: dict[str, Any], *options: str) -> list[str]:
    return submit_command("target-spark", *options) + programs.target_command(config)[len(TARGET) :]


@pytest.fixture
def submitted(programs: Programs) -> Programs:
    programs.environ |= submit_environment()
    return programs


def test_a_pipe(submitted: Programs, tmp_path: Path) -> None:
    """Only STATE reaches standard output; what spark-submit was given goes before the settings."""
    (tmp_path / "rows.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "events").mkdir()
    (tmp_path / "states").write_text("before\n")
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.driver.memory": "700m",
        "spark.sql.session.timeZone": "Europe/Paris",
    }
    options = ["--master", "local[2]", "--name", "by-submit"]
    options += [part for pair in conf.items() for part in ("--conf", "=".join(pair))]
    # An option that the driver does not know, so that Spark reads the file.
    options_of_spark = {"encoding": "UTF-8"}
    path = str(tmp_path / "rows.jsonl")
    stream = {"name": "s", "format": "json", "path": path, "options": options_of_spark}
    tap = of_tap(submitted, {"streams": [stream], "spark": OTHER}, *options)
    into = {"path": str(tmp_path / "out"), "spark": OTHER}  # too small a load for Spark
    target = of_target(submitted, into, *options)
    script = f"{shlex.join(tap)} 2>>tap.log | {shlex.join(target)} >>states 2>>target.log"
    done = submitted.run(["bash", "-o", "pipefail", "-c", script])
    logs = [(tmp_path / f"{name}.log").read_text() for name in ("tap", "target")]
    assert done.returncode == 0, "".join(logs)
    first, *states = (tmp_path / "states").read_text().splitlines()
    assert first == "before"
    assert "bookmarks" in json.loads(states[-1])
    assert all(isinstance(json.loads(state), dict) for state in states)
    rows = [row for part in (tmp_path / "out" / "s").glob("*.parquet") for row in _rows(part)]
    assert sorted(row["id"] for row in rows) == [1, 2]
    for log in logs:
        assert "| INFO     | t" in log
    assert "SparkContext: Running Spark" in logs[0]
    [actual] = [_conf(path) for path in (tmp_path / "events").rglob("events_*")]
    assert actual["spark.master"] == "local[2]"
    assert actual["spark.app.name"] == "by-submit"
    assert actual["spark.sql.session.timeZone"] == "Europe/Paris"
    assert actual["spark.scheduler.mode"] == "FAIR"  # a default of ours


def _rows(part: Path) -> list[dict[str, Any]]:
    return pq.read_table(part).to_pylist()


def _conf(path: Path) -> dict[str, str]:
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerEnvironmentUpdate":
            return dict(event["Spark Properties"])
    raise AssertionError(f"no environment in {path}")


def test_jars_that_are_missing_are_named(submitted: Programs, tmp_path: Path) -> None:
    """Java runs already; the exit code is the one of the program."""
    (tmp_path / "messages").write_bytes(b"\n" + INPUT)
    config = {"path": str(tmp_path / "out"), "format": "delta", "engine": "spark"}
    command = shlex.join(of_target(submitted, config, "--master", "local[1]"))
    # The file's first line belongs to another reader.
    done = submitted.run(["bash", "-c", f"(read line; {command}) < messages"])
    assert done.returncode == 7
    assert done.stdout == b""
    [line] = [line for line in done.stderr.decode().splitlines() if "| ERROR" in line]
    assert "jars that the settings need (add --packages io.delta:delta-spark_4.1_2.13:" in line


def test_the_end_of_spark_submit_ends_the_run(submitted: Programs, tmp_path: Path) -> None:
    config = {"path": str(tmp_path / "out")}
    process = subprocess.Popen(
        of_target(submitted, config, "--master", "local[1]"), stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path, env=submitted.env(),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        process.stdin.write(INPUT)
        process.stdin.flush()
        while not list(tmp_path.glob("out/.s*")):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        err = process.stderr.read()  # until Python closes it, too; the input stays open
        assert process.wait(60) == 143
    finally:
        process.kill()
        process.stdin.close()
    assert b"stopped by SIGTERM" in err
