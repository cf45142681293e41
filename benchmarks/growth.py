"""Time and memory of both programs over the number of rows, beside a plain PySpark script.

Run as `python -m benchmarks.growth [--rows N ...] [--columns N] [--runs N] [--without CASE ...]`.
Writes `.bench/growth.png` as well, if matplotlib is installed and no case is left out.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.batch_path import ENCODINGS, measure_batch
from benchmarks.processes import Measured, interleaved
from benchmarks.record_path import measure_plain, measure_record
from benchmarks.results import FOLDER, publish

WAYS = ("plain script", "RECORD", "BATCH Parquet")
BATCH_ROWS = 1_000_000
"""Rows of a file: as a user would set it, so that memory does not follow from the file."""


def cases(folder: Path, rows: Sequence[int], columns: int) -> dict[str, Callable[[], Measured]]:
    every: dict[str, Callable[[], Measured]] = {}
    for count in rows:
        size = min(count, BATCH_ROWS)
        every |= {
            name_of(WAYS[0], count): partial(measure_plain, folder, count, columns),
            name_of(WAYS[1], count): partial(measure_record, folder, count, columns),
            name_of(WAYS[2], count): partial(
                measure_batch, folder, count, columns, ENCODINGS["parquet"], size
            ),
        }
    return every


def name_of(variant: str, rows: int) -> str:
    return f"{variant}, {rows:,} rows"


def plain_of(name: str) -> str:
    return f"{WAYS[0]}, {name.partition(', ')[2]}"


def plot(results: Mapping[str, Sequence[Measured]], rows: Sequence[int], path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(10, 4), layout="constrained")
    time, memory = figure.subplots(1, 2)
    for variant in WAYS:
        measured = [results[name_of(variant, count)] for count in rows]
        seconds = [statistics.median(run.seconds for run in runs) for runs in measured]
        peaks = [max(sum(run.peak_mib) for run in runs) for runs in measured]
        time.plot(rows, seconds, marker="o", label=variant)
        memory.plot(rows, peaks, marker="o", label=variant)
    time.set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds")
    memory.set(xscale="log", xlabel="rows", ylabel="peak memory of all processes, MiB")
    memory.set_ylim(bottom=0)
    time.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--without", nargs="*", default=[], choices=WAYS[1:])
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-growth-"))
    every = cases(folder, chosen.rows, chosen.columns)
    wanted = {n: case for n, case in every.items() if n.partition(",")[0] not in chosen.without}
    try:
        results = interleaved(chosen.runs, wanted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    publish("growth", results, plain_of)
    if chosen.without:
        return
    try:
        plot(results, chosen.rows, FOLDER / "growth.png")
    except ImportError:
        print("no picture: matplotlib is not installed")


if __name__ == "__main__":
    main()
