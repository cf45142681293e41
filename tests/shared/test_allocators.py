"""Memory that a process has freed goes back to the machine."""

from __future__ import annotations

import sys

import pytest
from python_code import run_code

from shared.singer.platform import MAPPED_BYTES, PURGE_DELAY, return_memory_early

SET = {"MIMALLOC_PURGE_DELAY", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}
MODULES = ["tap_spark.cli", "target_spark.cli"]
MAIN = "from {} import main\nmain(['--version'])\n"
HELD = """
import ctypes
import resource

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def resident():
    with open("/proc/self/statm") as facts:
        return int(facts.read().split()[1]) * 4096 // 2**20

def faults(size):
    before = resource.getrusage(0).ru_minflt
    for _ in range(100):
        block = libc.malloc(size)
        ctypes.memset(block, 1, size)
        libc.free(block)
    return (resource.getrusage(0).ru_minflt - before) * 4096 / size

print(faults(1 << 20) > 50)
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
@pytest.mark.parametrize(
    ("before", "environ", "is_kept"),
    [
        ("sys.modules['pyspark.worker'] = sys", {}, True),
        ("", {}, False),
        ("sys.modules['pyspark.worker'] = sys", {"MALLOC_MMAP_THRESHOLD_": "5000000"}, False),
    ],
)
def test_a_worker_keeps_the_memory_of_a_block(
    before: str, environ: dict[str, str], is_kept: bool
) -> None:
    code = f"import sys\n{before}\nfrom shared.singer.platform import arrow_in_task\n"
    environ = {"MALLOC_MMAP_THRESHOLD_": str(MAPPED_BYTES), **environ}
    *_, kept = run_code(code + "arrow_in_task()\n" + HELD, unset=SET, **environ).stdout.split()
    assert (int(kept) >= 7) == is_kept


@pytest.mark.pipe
@pytest.mark.skipif(sys.platform != "linux", reason="not offered: the GNU C library")
@pytest.mark.parametrize("module", MODULES)
def test_large_blocks_are_returned_at_once(module: str) -> None:
    alone = run_code(HELD, unset=SET).stdout.split()
    assert int(alone[-1]) >= 7, "what the library keeps by itself"
    *_, asks_anew, kept = run_code(MAIN.format(module) + HELD, unset=SET).stdout.split()
    assert int(kept) <= 1
    assert asks_anew == "False", "small blocks are taken from what is free"


def test_values_of_the_user_stay_and_processes_inherit_others() -> None:
    environ = {"MIMALLOC_PURGE_DELAY": "500"}
    return_memory_early(environ)
    assert environ == {
        "MIMALLOC_PURGE_DELAY": "500",
        "MALLOC_MMAP_THRESHOLD_": str(MAPPED_BYTES),
        "MALLOC_TRIM_THRESHOLD_": str(MAPPED_BYTES),
    }
