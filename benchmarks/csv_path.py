"""A CSV file into Parquet: both programs by BATCH, a plain PySpark script, and dlt's Arrow way.

Run as `python -m benchmarks.csv_path [--mebibytes N] [--runs N] [--dlt]`. `--dlt` installs dlt into
an environment of its own in `.bench/dlt`. Plain Spark reads the file twice, as it infers types and
writes; a line tells its time without its start. Without metadata columns, which dlt and plain Spark
do not add either, the target adopts the files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import Measured, interleaved, median_seconds, module, run_piped
from benchmarks.results import FOLDER, publish

BLOCK_ROWS = 10_000
PLAIN = """
import sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
start = time.monotonic()
frame = spark.read.csv(sys.argv[1], header=True, inferSchema=True)
frame.write.mode("overwrite").parquet(sys.argv[2])
print(time.monotonic() - start, file=open(sys.argv[3], "w"))
"""
DLT = """
import sys
import dlt, pyarrow.csv
def batches():
    yield from map(pyarrow.Table.from_batches, ([b] for b in pyarrow.csv.open_csv(sys.argv[1])))
rows = dlt.resource(batches, name="rows")
pipeline = dlt.pipeline(
    "bench", destination=dlt.destinations.filesystem(bucket_url=f"file://{sys.argv[2]}"),
    dataset_name="out", pipelines_dir=sys.argv[2])
pipeline.run(rows, loader_file_format="parquet")
"""


def write_csv(path: Path, mebibytes: int, block: int = BLOCK_ROWS) -> None:
    """Write blocks of rows, until the file is large enough."""
    number = 0
    with path.open("w") as file:
        file.write("id,name,amount,active,day,at,note,code,ratio,city\n")
        while not number or file.tell() < mebibytes << 20:
            for _ in range(block):
                number += 1
                file.write(
                    f"{number},customer {number % 9973},{number % 100_003 / 8:.3f},"
                    f"{'true' if number % 3 else 'false'},2024-0{number % 9 + 1}-1{number % 9},"
                    f"2024-0{number % 9 + 1}-11 12:{number % 60:02}:{number % 59:02},"
                    f"some words about row {number * 7919 % 1_000_003},{number % 997},"
                    f"{number % 1013 / 1024:.6f},city {number % 211}\n"
                )


def pipe(folder: Path, *, metadata: bool, batch: bool = True) -> Measured:
    for name in ("out", "batches"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "batches").mkdir()
    tap: dict[str, Any] = {
        "streams": [{"name": "rows", "format": "csv", "path": str(folder / "rows.csv")}],
    }
    if batch:
        tap["batch_config"] = {
            "encoding": {"format": "parquet", "compression": "snappy"},
            "storage": {"root": str(folder / "batches")},
        }
    (folder / "tap.json").write_text(json.dumps(tap))
    target = {
        "path": str(folder / "out"),
        "batch_config": {"cleanup": True, "storage": {"root": str(folder / "batches")}},
        "add_record_metadata": metadata,
    }
    (folder / "target.json").write_text(json.dumps(target))
    commands = [
        module("tap_spark.cli", "--config", "tap.json"),
        module("target_spark.cli", "--config", "target.json"),
    ]
    return run_piped(commands, folder)


def script(folder: Path, python: str, text: str, *arguments: str) -> Measured:
    shutil.rmtree(folder / "other", ignore_errors=True)
    path = folder / "script.py"
    path.write_text(text)
    return run_piped([[python, str(path), str(folder / "rows.csv"), *arguments]], folder)


def plain(folder: Path, starts: list[float]) -> Measured:
    measured = script(folder, sys.executable, PLAIN, str(folder / "other"), str(folder / "took"))
    starts.append(measured.seconds - float((folder / "took").read_text()))
    return measured


def dlt_python() -> str:
    """Return the Python of an environment with dlt."""
    place = FOLDER / "dlt"
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        wanted = ["dlt[parquet,filesystem]"]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True)
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dlt", action="store_true")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-csv-"))
    starts: list[float] = []
    try:
        write_csv(folder / "rows.csv", chosen.mebibytes)
        cases: dict[str, Callable[[], Measured]] = {
            "both programs, BATCH Parquet": partial(pipe, folder, metadata=True),
            "the same, files adopted": partial(pipe, folder, metadata=False),
            "plain script": partial(plain, folder, starts),
        }
        if chosen.dlt:
            os.environ.setdefault("RUNTIME__DLTHUB_TELEMETRY", "false")
            python = dlt_python()
            cases["dlt, Arrow tables"] = partial(script, folder, python, DLT, str(folder / "other"))
        results = interleaved(chosen.runs, cases)
        publish("csv_path", results, "plain script")
        rest = median_seconds(results["plain script"]) - sorted(starts)[len(starts) // 2]
        print(f"plain script without the start of Spark: {rest:.1f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
