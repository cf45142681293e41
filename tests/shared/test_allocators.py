"""Memory that a process has freed goes back to the machine."""

from __future__ import annotations

import sys

import pytest
from python_code import run_code

from shared.singer.platform import MAPPED_BYTES, PURGE_DELAY, return_memory_early

SET = {"MIMALLOC_PURGE_DELAY", "MALLOC_MMAP_THRESHOLD_"}
MODULES = ["tap_spark.cli", "target_spark.cli"]
MAIN = "from {} import main\nmain(['--version'])\n"
HELD = """
import ctypes

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def resident():
    with open("/proc/self/statm") as facts:
        return int(facts.read().split()[1]) * 4096 // 2**20

before = resident()
for _ in range(2):
    block = libc.malloc(8 << 20)
    ctypes.memset(block, 1, 8 << 20)
    libc.free(block)
print(resident() - before)
"""


@pytest.mark.pipe
@pytest.mark.parametrize("module", MODULES)
def test_arrow_returns_memory_early(module: str) -> None:
    shown = run_code(MAIN.format(module) + "import pyarrow", unset=SET, MIMALLOC_VERBOSE="1")
    assert f"'purge_delay': {PURGE_DELAY} " in shown.stderr


@pytest.mark.pipe
@pytest.mark.skipif(sys.platform != "linux", reason="not offered: the GNU C library")
@pytest.mark.parametrize("module", MODULES)
def test_large_blocks_are_returned_at_once(module: str) -> None:
    assert int(run_code(HELD, unset=SET).stdout) >= 7, "what the library keeps by itself"
    assert int(run_code(MAIN.format(module) + HELD, unset=SET).stdout.split()[-1]) <= 1


def test_values_of_the_user_stay_and_processes_inherit_others() -> None:
    environ = {"MIMALLOC_PURGE_DELAY": "500"}
    return_memory_early(environ)
    assert environ == {
        "MIMALLOC_PURGE_DELAY": "500",
        "MALLOC_MMAP_THRESHOLD_": str(MAPPED_BYTES),
    }
