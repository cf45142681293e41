"""Code that needs a Python process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Container
from pathlib import Path

import shared

ROOT = Path(shared.__file__).parents[1]


def run_code(
    code: str, *args: str, supplied: str = "", unset: Container[str] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run code that must end with 0, and return its output.

    Args:
        code: The code, which can import the project.
        args: Its arguments.
        supplied: Its input.
        unset: Variables of this process that it must not have.
        environ: Variables to add.
    """
    existing = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        input=supplied,
        capture_output=True,
        text=True,
        env={**existing, "PYTHONPATH": str(ROOT), **environ},
        check=True,
    )
