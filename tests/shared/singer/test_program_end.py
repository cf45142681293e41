"""How a program ends once it has an exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest
from python_code import ROOT

pytestmark = pytest.mark.pipe
PROGRAM = """
import atexit, time
from concurrent.futures import ThreadPoolExecutor
from shared.singer.platform import run_to_exit

def main():
    atexit.register(print, "at exit", flush=True)
    ThreadPoolExecutor(1).submit(time.sleep, 60)
    return 143

run_to_exit(main)
"""


def test_functions_at_exit_run_and_threads_of_pools_are_not_awaited() -> None:
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(
        command, cwd=ROOT, timeout=30, check=False, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (143, "at exit\n")
