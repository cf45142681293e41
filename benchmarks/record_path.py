"""RECORD through both programs into Parquet, compared with a plain PySpark script.

Run as `python -m benchmarks.record_path [--rows N] [--more-rows N] [--columns N] [--runs N]`.
Session starts are included on both sides; `--more-rows` measures the growth of memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import Measured, describe, interleaved, module, run_piped
from benchmarks.results import publish


def record_commands(folder: Path, rows: int, columns: int) -> list[list[str]]:
    stream = {"name": "rows", "format": "rows", "row_count": rows, "column_count": columns}
    tap, target = folder / "tap.json", folder / "target.json"
    tap.write_text(json.dumps({"streams": [stream]}))
    target.write_text(json.dumps({"path": str(folder / "out")}))
    return [
        module("tap_spark.cli", "--config", str(tap)),
        module("target_spark.cli", "--config", str(target)),
    ]


def measure_record(folder: Path, rows: int, columns: int) -> Measured:
    shutil.rmtree(folder / "out", ignore_errors=True)
    return run_piped(record_commands(folder, rows, columns), folder)


def measure_plain(folder: Path, rows: int, columns: int) -> Measured:
    command = module("benchmarks.plain_spark", str(rows), str(columns), str(folder / "plain"))
    return run_piped([command], folder)


def report(results: dict[str, list[Measured]], more: Sequence[Measured]) -> None:
    publish("record_path", results, "plain script")
    if more:
        print(f"more rows: {describe(more)}")
        few = [max(result.peak_mib[i] for result in results["RECORD"]) for i in range(2)]
        many = [max(result.peak_mib[i] for result in more) for i in range(2)]
        growth = [f"{b / a:.2f}" for a, b in zip(few, many, strict=True)]
        print(f"peak memory, many rows over few (tap, target): {', '.join(growth)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--more-rows", type=int, default=1_000_000, help="0: leave out")
    parser.add_argument("--columns", type=int, default=150)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-record-"))
    try:
        results = interleaved(
            chosen.runs,
            {
                "plain script": lambda: measure_plain(folder, chosen.rows, chosen.columns),
                "RECORD": lambda: measure_record(folder, chosen.rows, chosen.columns),
            },
        )
        more = (
            [measure_record(folder, chosen.more_rows, chosen.columns)] if chosen.more_rows else []
        )
        report(results, more)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
