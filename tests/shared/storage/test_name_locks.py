"""Locks by name: one descriptor, released by the end of the process, safe against each other."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from open_files import open_below

from shared.storage.owned_folders import LOCKS_NAME, lock_name

HOLD = """
import sys
from pathlib import Path
from shared.storage.owned_folders import lock_name
lock = lock_name(Path(sys.argv[1]), "a")
print(flush=True)
sys.stdin.read()
"""
CONTEND = """
import random, sys, time
from pathlib import Path
from shared.storage.owned_folders import lock_name
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
draw = random.Random(seed)
until = time.monotonic() + 2
while time.monotonic() < until:
    name = draw.choice("abc")
    try:
        lock = lock_name(folder, name)
    except BlockingIOError:
        continue
    mark = folder / f"mark-{name}"
    mark.touch(exist_ok=False)
    mark.unlink()
    lock.release()
    print(name)
"""


def test_thousands_of_names_take_one_descriptor(tmp_path: Path) -> None:
    locks = [lock_name(tmp_path, f"stream {number}") for number in range(5_000)]
    assert open_below(tmp_path) == 1
    random.Random(1).shuffle(locks)
    for lock in locks:
        lock.release()
        lock.release()
    assert open_below(tmp_path) == 0
    assert os.listdir(tmp_path) == []


def test_a_process_takes_a_name_once(tmp_path: Path) -> None:
    lock = lock_name(tmp_path, "a")
    with pytest.raises(BlockingIOError):
        lock_name(tmp_path / ".", "a")
    other = lock_name(tmp_path, "b")
    lock.release()
    lock_name(tmp_path, "a").release()
    other.release()


def test_another_process_holds_its_name_until_it_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(BlockingIOError):
            lock_name(tmp_path, "a")
        lock_name(tmp_path, "b").release()
        assert os.listdir(tmp_path) == [LOCKS_NAME]
        other.kill()
        other.wait()
        lock_name(tmp_path, "a").release()
    assert os.listdir(tmp_path) == []


def test_a_removed_file_does_not_free_what_is_taken_later(tmp_path: Path) -> None:
    first = lock_name(tmp_path, "a")
    (tmp_path / LOCKS_NAME).unlink()
    second = lock_name(tmp_path, "b")
    first.release()
    with pytest.raises(BlockingIOError):
        lock_name(tmp_path, "b")
    second.release()
    assert os.listdir(tmp_path) == []


def test_many_processes_never_hold_one_name_together(tmp_path: Path) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", CONTEND, str(tmp_path), str(seed)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    taken: Counter[str] = Counter()
    for run in runs:
        out, _ = run.communicate()
        assert run.returncode == 0
        taken.update(out.split())
    assert min(taken[name] for name in "abc") > 0
    assert os.listdir(tmp_path) == []
