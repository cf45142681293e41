"""The scripts `tap-spark` and `target-spark`: check that `shared` is this project's, then run.

Other distributions bring packages named `shared`, too. One of them may come first on Python's path,
or overwrite files of this one.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec


def tap() -> int:
    """Run tap-spark and return its exit code."""
    return _run("tap-spark")


def target() -> int:
    """Run target-spark and return its exit code."""
    return _run("target-spark")


def _run(program: str) -> int:
    try:
        from shared import IS_OF_SINGER_SPARK  # noqa: F401, PLC0415
    except ImportError:
        sys.exit(
            f"{program}: 'shared' is not the package of singer-spark but {_found()}; install "
            "singer-spark into an environment of its own (`pipx install singer-spark` or "
            "`uv tool install singer-spark`)"
        )
    code: int = import_module(f"{program.replace('-', '_')}.cli").main()
    return code


def _found() -> str:
    spec = find_spec("shared")
    if spec is None:
        return "missing"
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "unknown")
