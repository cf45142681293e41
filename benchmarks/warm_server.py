"""Small loads by a warm Spark Connect server, by Spark of the program's own, and without Spark.

Run as `python -m benchmarks.warm_server [--runs N] [--port N]`. Starts `tap-spark spark-server`,
loads once to warm it, and stops it at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import Measured, interleaved, run_piped
from benchmarks.processes import module as python_module
from benchmarks.results import publish
from benchmarks.small_loads import ROWS, UPSERT_ROWS, messages
from benchmarks.upsert_path import Place, target

OWN = {"load_without_spark": False}
SPARK = "Spark of its own"


def append(folder: Path, **more: Any) -> Measured:
    """Load a few records into Parquet files."""
    shutil.rmtree(folder / "files", ignore_errors=True)
    lines = "".join(json.dumps(message) + "\n" for message in messages(1, 1))
    (folder / "records").write_text(lines)
    (folder / "append.json").write_text(json.dumps({"path": "files", **more}))
    command = python_module("target_spark.cli", "--config", "append.json", "--input", "records")
    return run_piped([command], folder)


def cases(place: Place, remote: dict[str, Any]) -> dict[str, Callable[[], Measured]]:
    """Return each load in each way; settings for the server are given."""
    loads: dict[str, Callable[..., Measured]] = {
        f"{ROWS} rows into Parquet": partial(append, place.folder),
        f"upsert of {UPSERT_ROWS:,} rows into Delta": partial(target, place),
    }
    ways: dict[str, dict[str, Any]] = {"warm server": remote, SPARK: OWN, "without Spark": {}}
    return {
        f"{name}, {way}": partial(load, **settings)
        for name, load in loads.items()
        for way, settings in ways.items()
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
        remote = {
            "spark": {"remote": f"sc://localhost:{chosen.port}"},
            "staging": {"root": str(folder / "staging")},
            **OWN,
        }
        every = cases(place, remote)
        for name, case in every.items():
            if name.endswith("warm server"):
                case()
        results = interleaved(chosen.runs, every)
    finally:
        subprocess.run([*server, "stop"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    publish("warm_server", results, lambda name: f"{name.rpartition(', ')[0]}, {SPARK}")


if __name__ == "__main__":
    main()
