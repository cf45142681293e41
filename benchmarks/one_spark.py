"""`singer-spark run` with one Spark for both programs, with one each, and with a target in threads.

Run as `python -m benchmarks.one_spark [--messages BATCH RECORD] [--rows N] [--columns N]
[--runs N]`: the generator into Parquet. The generator always needs Spark.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import Measured, interleaved, run_piped
from benchmarks.processes import module as python_module
from benchmarks.results import publish

THREADS = "target in threads"
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    THREADS: ("threads", {}),
    # Programs with other settings than each other do not share.
    "two Sparks": ("spark", {"spark.singer.apart": "true"}),
    "one Spark": ("spark", {}),
}
SIZES = {"BATCH": (10_000_000, 10), "RECORD": (100_000, 150)}


def measure(
    folder: Path, messages: str, rows: int, columns: int, engine: str, conf: dict[str, str]
) -> Measured:
    for name in ("out", "batches", "state", "runs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    stream = {"name": "rows", "format": "rows", "row_count": rows, "column_count": columns}
    tap: dict[str, Any] = {"streams": [stream], "spark": {"conf": conf}}
    target: dict[str, Any] = {"path": "out", "engine": engine}
    if messages == "BATCH":
        storage = {"root": str(folder / "batches")}
        encoding = {"format": "parquet"}
        tap["batch_config"] = {"encoding": encoding, "storage": storage}
    (folder / "job.yml").write_text(json.dumps({"jobs": {"rows": {"tap": tap, "target": target}}}))
    return run_piped([python_module("shared.jobs", "run", str(folder / "job.yml"))], folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", choices=SIZES, nargs="*", default=list(SIZES))
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-one-spark-"))
    cases = {}
    for messages in chosen.messages:
        rows, columns = SIZES[messages]
        run = partial(measure, folder, messages, chosen.rows or rows, chosen.columns or columns)
        cases |= {f"{messages}: {name}": partial(run, *kind) for name, kind in KINDS.items()}
    try:
        results = interleaved(chosen.runs, cases)
        publish("one_spark", results, lambda name: f"{name.partition(':')[0]}: {THREADS}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
