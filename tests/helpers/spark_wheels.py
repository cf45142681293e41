"""Wheels of PySpark, which comes as sources, built once: uv would build one for each environment.

`python tests/helpers/spark_wheels.py 4.1 4.3` prints their folders; it needs nothing installed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DAYS = 7
"""After so many, a newer release may be there."""


def kept() -> Path:
    """Return the folder of what is kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "singer-spark-tests"


def spark_wheel(line: str) -> Path:
    """Return the folder with the wheel of a release, such as `4.1`."""
    folder = kept() / f"pyspark-{line}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists() or folder.stat().st_mtime < time.time() - DAYS * 86400:
            with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
                options = [
                    "--quiet",
                    "--no-cache-dir",
                    "--no-deps",
                    "--wheel-dir",
                    f"{parent}/wheel",
                ]
                # Jars are compressed already.
                options.append("--config-settings=--build-option=--compression=stored")
                pip = [sys.executable, "-m", "pip", "wheel", *options, f"pyspark=={line}.*"]
                subprocess.run(pip, check=True, stdout=sys.stderr)
                shutil.rmtree(folder, ignore_errors=True)
                (Path(parent) / "wheel").rename(folder)
    return folder


if __name__ == "__main__":
    sys.stdout.writelines(f"{spark_wheel(line)}\n" for line in sys.argv[1:])
