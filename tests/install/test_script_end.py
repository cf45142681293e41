"""The scripts end with the code of their run, whatever threads of libraries still do."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# Arrow's threads let go of Python's objects while the program ends.
CODE = """
import io, sys, threading, time
import pyarrow, pyarrow.parquet
import target_spark.cli, singer_spark

written = io.BytesIO()
table = pyarrow.table({f"c{number}": range(1000) for number in range(30)})
pyarrow.parquet.write_table(table, written, row_group_size=100)

def read():
    while True:
        pyarrow.parquet.read_table(io.BytesIO(written.getvalue()))

def run():
    for _ in range(3):
        threading.Thread(target=read, daemon=True).start()
    time.sleep(0.2)
    print("the last line", end="")
    return 3

target_spark.cli.main = run
sys.exit(singer_spark.target())
"""


@pytest.mark.parametrize("number", range(4))
def test_threads_that_still_read(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "the last line", "")


def test_functions_at_exit_run_before_the_end() -> None:
    code = (
        "import atexit, sys, target_spark.cli, singer_spark\n"
        "target_spark.cli.main = lambda: atexit.register(print, 'cleaned up') and 4\n"
        "sys.exit(singer_spark.target())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (4, "cleaned up\n", "")


@pytest.mark.parametrize("program", ["tap_spark", "target_spark"])
def test_modules_end_as_the_scripts_do(program: str) -> None:
    code = (
        "import os, runpy, sys\n"
        "sys.argv = ['program', '--version']\n"
        "end = os._exit\n"
        "os._exit = lambda code: print('ended with', code, flush=True) or end(code)\n"
        f"runpy.run_module('{program}.cli', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("ended with 0\n")


@pytest.mark.parametrize("program", ["tap", "target"])
def test_ctrl_c_while_modules_are_imported(program: str) -> None:
    code = (
        "import os, signal, sys, time, singer_spark\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == '{program}_spark.cli':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            time.sleep(10)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        f"sys.exit(singer_spark.{program}())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
