"""The tap as a process that is stopped: by its reader, by signals, by force."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from shared.storage.owned_folders import remove_stale
from tap_spark.send.spool import PREFIX

pytestmark = [pytest.mark.pipe, pytest.mark.costly]
ROOT = Path(__file__).parents[3]
ENOUGH = 100_000


@dataclass
class Tap:
    """A running tap with more rows than anyone will read."""

    process: subprocess.Popen[bytes]
    log: Path
    spool: Path

    def read_some(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read(ENOUGH)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def rest(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read()


@pytest.fixture
def tap(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tap]:
    config = tmp_path / "config.json"
    spool = tmp_path / "spool"
    stream = {"name": "rows", "format": "rows", "row_count": 50_000_000, "column_count": 8}
    supplied = dict(getattr(request, "param", {}))
    own = ("stall_limit_seconds", "heartbeat_seconds")
    settings = {name: supplied.pop(name) for name in own if name in supplied}
    stream |= supplied
    config.write_text(
        json.dumps(
            {
                **settings,
                "streams": [stream],
                "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "700m"}},
                "spool": {"root": str(spool), "bytes": 20_000_000},
            }
        )
    )
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tap_spark.cli", "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
        )
    yield Tap(process, log, spool)
    process.kill()
    process.wait(30)
    if process.stdout is not None:
        process.stdout.close()


def all_gone(processes: list[psutil.Process], seconds: float = 15) -> bool:
    """Return whether every process ends in time; a JVM has noticed that we are gone."""
    return not psutil.wait_procs(processes, timeout=seconds)[1]


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 130, "interrupt")],
)
def test_a_signal_ends_the_run_in_order(
    tap: Tap, number: signal.Signals, code: int, word: str
) -> None:
    head = tap.read_some()
    assert head.startswith(b'{"type":"SCHEMA"')
    family = tap.family()
    assert family
    sent = time.monotonic()
    tap.process.send_signal(number)
    rest = tap.rest()
    assert tap.process.wait(30) == code, tap.log.read_text()
    assert time.monotonic() - sent < 10
    lines = (head + rest).splitlines(keepends=True)
    assert lines[-1].endswith(b"\n")
    assert {json.loads(line)["type"] for line in lines} == {
        "SCHEMA",
        "ACTIVATE_VERSION",
        "RECORD",
    }
    log = tap.log.read_text()
    assert "Traceback" not in log
    assert len([line for line in log.splitlines() if "ERROR" in line]) == 1, log
    assert word.lower() in log.lower()
    assert all_gone(family)
    assert list(tap.spool.iterdir()) == []


@pytest.mark.parametrize("tap", [{"replication_key": "id"}], indirect=True)
def test_sigterm_ends_the_run_with_the_state_of_its_last_record(tap: Tap) -> None:
    head = tap.read_some()
    tap.process.send_signal(signal.SIGTERM)
    messages = [json.loads(line) for line in (head + tap.rest()).splitlines()]
    assert tap.process.wait(30) == 143, tap.log.read_text()
    record, state = messages[-2:]
    mark = state["value"]["bookmarks"]["rows"]
    assert (record["type"], record["record"]["id"]) == ("RECORD", mark["replication_key_value"])


def test_a_signal_while_the_reader_sleeps_still_ends_the_run(tap: Tap) -> None:
    tap.read_some()
    time.sleep(2)  # the pipe and the spool fill up
    family = tap.family()
    sent = time.monotonic()
    tap.process.send_signal(signal.SIGTERM)
    assert tap.process.wait(30) == 143
    assert time.monotonic() - sent < 10
    assert all_gone(family)
    assert list(tap.spool.iterdir()) == []


STALLS = {"stall_limit_seconds": 16, "heartbeat_seconds": 1}


@pytest.mark.parametrize("tap", [STALLS], indirect=True)
def test_a_reader_that_sleeps_for_too_long_ends_the_run(tap: Tap) -> None:
    tap.read_some()
    family = tap.family()
    assert tap.process.wait(90) == 12
    log = tap.log.read_text()
    assert re.search(r"no progress for \d s: waiting for the source or Spark", log)
    assert re.search(r"no progress for \d s: waiting for the reader of standard output", log)
    assert "no progress for 8 s; the run ends after 16 s" in log
    assert "setting 'stall_limit_seconds': no message was written for 16 s" in log
    assert all_gone(family)
    assert list(tap.spool.iterdir()) == []


def test_a_closed_pipe_ends_the_run(tap: Tap) -> None:
    tap.read_some()
    family = tap.family()
    assert tap.process.stdout is not None
    tap.process.stdout.close()
    assert tap.process.wait(30) == 8, tap.log.read_text()
    log = tap.log.read_text()
    assert "Traceback" not in log
    assert "ERROR" not in log, "the reader may have had enough, like `head`"
    assert log.count("the reader of standard output has gone away") == 1
    assert all_gone(family)
    assert list(tap.spool.iterdir()) == []


def test_a_killed_tap_leaves_no_process_and_a_spool_that_the_next_run_removes(tap: Tap) -> None:
    tap.read_some()
    family = tap.family()
    tap.process.send_signal(signal.SIGKILL)
    tap.process.wait(30)
    assert all_gone(family)
    assert len(remove_stale(tap.spool, PREFIX)) == 1
    assert list(tap.spool.iterdir()) == []
