"""A CSV file of 3,000 rows by RECORD into Parquet and Delta, beside a plain PySpark script.

Run as `python -m benchmarks.csv_small [--runs N]`. All starts are included.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.csv_path import plain, write_csv
from benchmarks.processes import Measured, interleaved, module, run_piped
from benchmarks.results import publish

ROWS = 3_000


def records(folder: Path, form: str) -> Measured:
    shutil.rmtree(folder / "out", ignore_errors=True)
    stream = {"name": "rows", "format": "csv", "path": str(folder / "rows.csv")}
    (folder / "tap.json").write_text(json.dumps({"streams": [stream]}))
    (folder / "target.json").write_text(json.dumps({"path": str(folder / "out"), "format": form}))
    commands = [
        module("tap_spark.cli", "--config", "tap.json"),
        module("target_spark.cli", "--config", "target.json"),
    ]
    return run_piped(commands, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-small-csv-"))
    try:
        write_csv(folder / "rows.csv", 0, ROWS)
        cases: dict[str, Callable[[], Measured]] = {
            "both programs, Parquet": partial(records, folder, "parquet"),
            "both programs, Delta": partial(records, folder, "delta"),
            "plain script, Parquet": partial(plain, folder, []),
        }
        publish("csv_small", interleaved(chosen.runs, cases), "plain script, Parquet")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
