"""BATCH through both programs into Parquet, compared with RECORD and a plain PySpark script.

Run as `python -m benchmarks.batch_path [--rows N] [--columns N] [--runs N] [--more-rows N]`.
Session starts are included on both sides. `--more-rows` measures memory with one BATCH of that
many rows; 0 skips it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import Measured, describe, interleaved, module, run_piped
from benchmarks.record_path import measure_plain, measure_record
from benchmarks.results import publish

ENCODINGS: dict[str, dict[str, str]] = {
    "parquet": {"format": "parquet", "compression": "snappy"},
    "arrow": {"format": "arrow", "compression": "lz4"},
    "arrow zstd": {"format": "arrow", "compression": "zstd"},
    "jsonl none": {"format": "jsonl", "compression": "none"},
    "jsonl zstd": {"format": "jsonl", "compression": "zstd"},
    "jsonl gzip": {"format": "jsonl", "compression": "gzip"},
}


def batch_commands(
    folder: Path, rows: int, columns: int, encoding: dict[str, str], batch_size: int
) -> list[list[str]]:
    tap_config: dict[str, Any] = {
        "streams": [{"name": "rows", "format": "rows", "row_count": rows, "column_count": columns}],
        "batch_config": {
            "encoding": encoding,
            "storage": {"root": str(folder / "batches")},
            "batch_size": batch_size,
        },
    }
    tap, target = folder / "tap-batch.json", folder / "target-batch.json"
    tap.write_text(json.dumps(tap_config))
    target.write_text(json.dumps({"path": str(folder / "out"), "batch_config": {"cleanup": True}}))
    return [
        module("tap_spark.cli", "--config", str(tap)),
        module("target_spark.cli", "--config", str(target)),
    ]


def measure_batch(
    folder: Path, rows: int, columns: int, encoding: dict[str, str], batch_size: int
) -> Measured:
    for name in ("out", "batches"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "batches").mkdir()
    return run_piped(batch_commands(folder, rows, columns, encoding, batch_size), folder)


def cases(folder: Path, rows: int, columns: int) -> dict[str, Callable[[], Measured]]:
    every: dict[str, Callable[[], Measured]] = {
        "plain script": partial(measure_plain, folder, rows, columns),
        "RECORD": partial(measure_record, folder, rows, columns),
    }
    for name, encoding in ENCODINGS.items():
        every[f"{name}, ten files"] = partial(
            measure_batch, folder, rows, columns, encoding, max(1, rows // 10)
        )
        every[f"{name}, one file"] = partial(measure_batch, folder, rows, columns, encoding, rows)
    return every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=150)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--more-rows", type=int, default=1_000_000)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-batch-"))
    try:
        results = interleaved(chosen.runs, cases(folder, chosen.rows, chosen.columns))
        publish("batch_path", results, "plain script")
        if chosen.more_rows:
            rows = chosen.more_rows
            more = measure_batch(folder, rows, chosen.columns, ENCODINGS["parquet"], rows)
            print(f"parquet, one BATCH of {rows} rows: {describe([more])}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
