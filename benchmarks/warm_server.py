"""Small loads by a warm Spark Connect server, by Spark of the program's own, and without Spark.

Run as `python -m benchmarks.warm_server [--runs N] [--port N]`. Starts `tap-spark spark-server`,
loads once to warm it, and stops it at the end.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import Measured, interleaved
from benchmarks.processes import module as python_module
from benchmarks.results import publish
from benchmarks.small_loads import ROWS, UPSERT_ROWS, load, messages
from benchmarks.upsert_path import Place, target

OWN = {"engine": "spark"}
SPARK = "Spark of its own"
WARM = "warm server"


def cases(place: Place, remote: dict[str, Any]) -> dict[str, Callable[[], Measured]]:
    """Return each load in each way; settings for the server are given."""
    append = partial(load, place.folder, "parquet", messages(1, 1), load_method="append-only")
    loads: dict[str, Callable[..., Measured]] = {
        f"{ROWS} rows into Parquet": append,
        f"upsert of {UPSERT_ROWS:,} rows into Delta": partial(target, place),
    }
    ways: dict[str, dict[str, Any]] = {
        WARM: remote,
        f"{WARM}, by Spark": {**remote, **OWN},
        SPARK: OWN,
        "without Spark": {},
    }
    return {
        f"{name}, {variant}": partial(run, **settings)
        for name, run in loads.items()
        for variant, settings in ways.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--port", type=int, default=15432)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-warm-"))
    server = python_module("tap_spark.cli", "spark-server")
    try:
        place = Place(folder, "delta", UPSERT_ROWS)
        place.make()
        start = [*server, "start", "--lake", "delta", "--port", str(chosen.port)]
        subprocess.run(start, check=True)
        remote = {"spark": {"remote": f"sc://localhost:{chosen.port}"}}
        every = cases(place, remote)
        for name, case in every.items():
            if WARM in name:
                case()
        results = interleaved(chosen.runs, every)
    finally:
        subprocess.run([*server, "stop"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    publish("warm_server", results, lambda name: f"{name.partition(', ')[0]}, {SPARK}")


if __name__ == "__main__":
    main()
