"""Both ends of a pipe: exit codes, signals, and nobody who is left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shared import jobs
from shared.jobs import Command, Ends, run_pipe

GOOD = Ends(0, 0)


def run(folder: Path, tap: str, target: str) -> Ends:
    return run_pipe(
        Command(["sh", "-c", tap]),
        Command(["sh", "-c", target]),
        folder,
        {"PATH": os.environ["PATH"]},
    )


@pytest.mark.parametrize(
    ("ends", "empty", "program", "code"),
    [
        (GOOD, None, None, 0),
        (Ends(3, 0), None, "tap", 3),
        (Ends(0, 6), None, "target", 6),
        (Ends(3, 4), None, "tap", 3),  # An input that was cut off.
        (Ends(8, 6), None, "target", 6),
        (Ends(141, 6), None, "target", 6),
        (Ends(143, 6, tap_stopped=True), None, "target", 6),
        (Ends(143, 143), None, "tap", 143),
        (Ends(8, 0), None, "tap", 8),
        (Ends(99, 0), 99, None, 99),
        (Ends(99, 6), 99, "target", 6),
        (Ends(3, 0), 99, "tap", 3),
    ],
)
def test_the_end_that_failed_first_counts(
    ends: Ends, empty: int | None, program: str | None, code: int
) -> None:
    assert (ends.failed(empty), ends.code(empty)) == (program, code)


def test_messages_go_from_one_to_the_other(tmp_path: Path) -> None:
    assert run(tmp_path, "echo message; exit 3", "cat > got; exit 4") == Ends(3, 4)
    assert (tmp_path / "got").read_text() == "message\n"


def test_a_killed_program_ends_as_in_a_shell(tmp_path: Path) -> None:
    assert run(tmp_path, "kill -9 $$", "cat > got") == Ends(137, 0)


def test_a_tap_without_its_target_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, "yes", "exit 6") == Ends(128 + signal.SIGPIPE, 6)
    monkeypatch.setattr(jobs, "_GRACE_AFTER_FAILURE", 0.1)
    assert run(tmp_path, "exec sleep 60", "exit 6") == Ends(143, 6, tap_stopped=True)


def test_descriptors_and_variables_are_inherited(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"secret")
    os.close(write)
    tap = Command(["sh", "-c", f"cat /dev/fd/{read}; echo $X"], [read])
    run_pipe(tap, Command(["sh", "-c", "cat > got"]), tmp_path, {**os.environ, "X": "y"})
    os.close(read)
    assert (tmp_path / "got").read_text() == "secrety\n"


COUNTING = (
    "trap 'echo t >> {name}' TERM; trap 'echo i >> {name}' INT; echo up > {name};"
    " for n in 1 2 3 4 5 6 7 8; do sleep 0.1; done; exit 7"
)
RUNNER = """
import os, sys
from pathlib import Path
from shared.jobs import Command, run_pipe
tap, target = (Command(["sh", "-c", text]) for text in sys.argv[1:])
print(run_pipe(tap, target, Path(), os.environ).code())
"""


def runner(folder: Path, tap: str, target: str) -> subprocess.Popen[bytes]:
    root = str(Path(jobs.__file__).resolve().parents[2])
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, tap, target],
        cwd=folder,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
        start_new_session=True,
    )


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("to_group", [False, True])
def test_each_signal_reaches_both_once(tmp_path: Path, to_group: bool) -> None:
    """Also from a terminal, which sends it to the whole process group of the runner."""
    process = runner(tmp_path, *(COUNTING.format(name=name) for name in ("tap", "target")))
    files = [tmp_path / "tap", tmp_path / "target"]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files))
    (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert [file.read_text().split() for file in files] == [["up", "i"]] * 2
    assert (process.returncode, out) == (0, b"7\n")  # It waits for both.


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells children of such an end")
def test_no_program_outlives_a_runner_that_is_killed(tmp_path: Path) -> None:
    text = "echo $$ > {name}.pid; exec sleep 600"
    process = runner(tmp_path, *(text.format(name=name) for name in ("tap", "target")))
    files = [tmp_path / "tap.pid", tmp_path / "target.pid"]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files))
    process.kill()
    process.communicate(timeout=60)
    for file in files:
        wait_for(lambda file=file: not is_running(int(file.read_text())))


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
