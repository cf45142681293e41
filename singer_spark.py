"""The scripts of this project: check that `shared` is this project's, then run the program.

spark-submit runs this file with the name of the program: `spark-submit singer_spark.py tap-spark`.

Other distributions bring packages named `shared`, too. One of them may come first on Python's path,
or overwrite files of this one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

_MODULES = {
    "tap-spark": "tap_spark.cli",
    "target-spark": "target_spark.cli",
    "singer-spark": "shared.jobs",
}


def tap() -> int:
    """Run tap-spark and return its exit code."""
    return _run("tap-spark")


def target() -> int:
    """Run target-spark and return its exit code."""
    return _run("target-spark")


def jobs() -> int:
    """Run singer-spark and return its exit code."""
    return _run("singer-spark")


def main() -> int:
    """Run the program that the first argument names, perhaps started by spark-submit."""
    if sys.argv[1:2] not in [["tap-spark"], ["target-spark"]]:
        sys.exit("singer_spark.py: the first argument must be tap-spark or target-spark")
    return _run(sys.argv.pop(1), submitted="PYSPARK_GATEWAY_PORT" in os.environ)


def _run(program: str, *, submitted: bool = False) -> int:
    try:
        from shared import IS_OF_SINGER_SPARK  # noqa: F401, PLC0415
    except ImportError:
        sys.exit(
            f"{program}: 'shared' is not the package of singer-spark but {_other()}; install "
            "singer-spark into an environment of its own (`pipx install singer-spark` or "
            "`uv tool install singer-spark`)"
        )
    if submitted:
        join = import_module("shared.spark.running_java").join_submitted
        try:
            join()
        except import_module("shared.errors").SparkStartError as error:
            sys.stderr.write(f"{program}: {error}\n")
            return int(error.exit_code)
    run = import_module("shared.singer.platform").run_to_exit
    with _plain_interrupt():
        main = import_module(_MODULES[program]).main
    code: int = run(main)
    return code


@contextmanager
def _plain_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process at once while it only imports modules: no traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _other() -> str:
    spec = find_spec("shared")
    if spec is None:
        return "missing"
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "unknown")


if __name__ == "__main__":
    sys.exit(main())
