"""Signals and kills against the run loop as a process of its own (fake loader, no Spark)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from shared.cli import documented_error
from target_spark.receive.action_executor import Workers, caught_signals

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "tests" / "helpers" / "target_fakes.py"
SCHEMA = '{"type":"SCHEMA","stream":"s","schema":{},"key_properties":[]}\n'


def start(folder: Path, delay: float = 0.0, **settings) -> subprocess.Popen[bytes]:
    (folder / "rows").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder), str(delay), json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(folder / "log").open("wb"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        bufsize=0,
    )


def wait_for(path: Path, pattern: str) -> None:
    end = time.monotonic() + 30
    while not list(path.glob(pattern)):
        assert time.monotonic() < end, f"no {pattern} in {path}"
        time.sleep(0.01)


def record(number: int) -> str:
    return f'{{"type":"RECORD","stream":"s","record":{{"id":{number}}}}}\n'


def state(number: int) -> str:
    return f'{{"type":"STATE","value":{number}}}\n'


def rows(folder: Path) -> list[int]:
    files = (folder / "rows").glob("*.done")
    return sorted(json.loads(line)["id"] for f in files for line in f.read_text().splitlines())


def send(target: subprocess.Popen[bytes], *texts: str) -> None:
    assert target.stdin is not None
    target.stdin.write("".join(texts).encode())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_idle_run_ends_at_once(tmp_path, number, code):
    target = start(tmp_path, batch_size_rows=2)
    send(target, SCHEMA, record(1), record(2), state(2), record(3), state(3))
    assert target.stdout.readline() == b"2\n"
    target.send_signal(number)
    began = time.monotonic()
    out, _ = target.communicate(timeout=20)
    assert time.monotonic() - began < 3
    assert (target.returncode, out) == (code, b"")
    assert rows(tmp_path) == [1, 2]
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_running_commit_ends_and_its_state_goes_out(tmp_path):
    target = start(tmp_path, delay=1.0, batch_size_rows=1)
    send(target, SCHEMA, record(1), state(1), record(2), state(2))
    wait_for(tmp_path / "rows", "committing")
    target.send_signal(signal.SIGTERM)
    out, _ = target.communicate(timeout=20)
    assert target.returncode == 143
    committed = rows(tmp_path)
    assert committed in ([1], [1, 2])
    assert out.splitlines()[-1] == b"%d" % committed[-1]


def test_what_a_signal_breaks_is_no_failure_of_its_own():
    with closing(Workers()) as workers, caught_signals(workers.wakeup_fd) as signals:
        signal.raise_signal(signal.SIGTERM)
    assert (signals.error.exit_code, documented_error(RuntimeError("x")).exit_code) == (143, 143)


def test_a_second_signal_does_not_wait(tmp_path):
    target = start(tmp_path, delay=30.0, batch_size_rows=1)
    send(target, SCHEMA, record(1), state(1))
    wait_for(tmp_path / "rows", "committing")
    target.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert target.poll() is None
    target.send_signal(signal.SIGTERM)
    assert target.wait(timeout=5) == 143
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_signal_is_heard_while_input_streams_in(tmp_path):
    target = start(tmp_path, batch_size_rows=1000)
    feeder = subprocess.Popen(
        [sys.executable, "-c", f"import sys\ntry:\n  sys.stdout.write({SCHEMA!r})\n"
         f"  while True: sys.stdout.write({record(1) * 1000!r})\nexcept OSError: pass"],
        stdout=target.stdin, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    target.stdin.close()
    wait_for(tmp_path / "rows", "*.done")
    target.send_signal(signal.SIGINT)
    try:
        assert target.wait(timeout=10) == 130
    finally:
        target.stdout.close()
        feeder.kill()
        feeder.wait()


def test_a_kill_at_any_moment_loses_nothing_that_state_covers(tmp_path, seed):
    chance = random.Random(seed)
    target = start(tmp_path, delay=0.01, batch_size_rows=chance.choice([1, 3, 10]))
    count = 401
    send(target, SCHEMA, *(record(n) + state(n) for n in range(count)))
    wait_for(tmp_path / "rows", "*.done")
    time.sleep(chance.uniform(0.0, 0.3))
    target.kill()
    out, _ = target.communicate()
    states = [int(line) for line in out.splitlines()]
    kept = rows(tmp_path)
    assert target.returncode == -signal.SIGKILL
    assert 0 < len(kept) < count
    assert kept == list(range(len(kept)))
    assert states == sorted(states)
    if states:
        assert len(kept) > states[-1]
    again = start(tmp_path)
    following = states[-1] + 1 if states else 0
    send(again, SCHEMA, *(record(n) + state(n) for n in range(following, count)))
    out, _ = again.communicate(timeout=20)
    assert (again.returncode, out.splitlines()[-1:]) == (0, [b"400"])
    assert set(rows(tmp_path)) == set(range(count))
    assert list((tmp_path / "staging").iterdir()) == []
