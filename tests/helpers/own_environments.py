"""Programs from PyPI in environments of their own, kept between runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def installed_program(requirement: str, program: str) -> Path:
    """Return a program of a package; install it if it is not there.

    Args:
        requirement: The package with its version: `meltano==4.4.1`.
        program: Name of the program.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = requirement.replace("==", "-")
    folder = cache / "singer-spark-tests" / f"{name}-py{version}"
    found = folder / "bin" / program
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(folder / "bin" / "pip"), "install", "-q", requirement]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(folder)
            if os.environ.get("SINGER_SPARK_REQUIRE_SERVERS"):
                pytest.fail(f"{requirement} could not be installed: {done.stderr[-500:]}")
            pytest.skip(f"{requirement} could not be installed from PyPI")
    return found
