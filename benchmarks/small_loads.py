"""Small loads, all starts included: no news, many small streams, a small upsert, further flushes.

Run as `python -m benchmarks.small_loads [--runs N] [--streams N] [--format iceberg]`. The target
loads tables by `upsert`. A small upsert is compared with a plain Spark script with the same MERGE.
Seconds for a further stream or flush are what a run with many takes longer than one with few.
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

from benchmarks.processes import Measured, interleaved, median_seconds, run_piped
from benchmarks.processes import module as python_module
from benchmarks.results import publish
from benchmarks.upsert_path import PROPERTIES, Place, by_hand, target

ROWS = 5
UPSERT_ROWS = 3376
FEW, MANY = 5, 25
"""Flushes of one stream: the first ones are slow in a new process."""


def messages(streams: int, flushes: int) -> list[dict[str, Any]]:
    """Return messages with flushes of the same rows for each stream."""
    schema = {"type": "object", "properties": PROPERTIES}
    lines: list[dict[str, Any]] = []
    for number in range(streams):
        name = f"s{number}"
        lines.append({"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": ["id"]})
        for flush in range(flushes):
            for key in range(ROWS):
                record = {"id": key, "name": f"name {key}", "round": flush}
                lines.append({"type": "RECORD", "stream": name, "record": record})
    return [*lines, {"type": "STATE", "value": {}}]


def load(folder: Path, form: str, sent: list[dict[str, Any]], **more: Any) -> Measured:
    """Load messages into new tables, with more settings."""
    shutil.rmtree(folder / "tables", ignore_errors=True)
    (folder / "messages").write_text("".join(json.dumps(message) + "\n" for message in sent))
    settings = {"format": form, "path": "tables", "load_method": "upsert", "batch_size_rows": ROWS}
    (folder / "target.json").write_text(json.dumps({**settings, **more}))
    command = python_module("target_spark.cli", "--config", "target.json", "--input", "messages")
    return run_piped([command], folder)


def report(name: str, results: dict[str, list[Measured]], streams: int) -> None:
    """Publish the cases; print what a further stream and flush take."""
    publish(
        name,
        results,
        lambda case: "MERGE by hand" if case in ("upsert", "MERGE by hand") else "one stream",
    )
    took = {case: median_seconds(measured) for case, measured in results.items()}
    stream = (took["many streams"] - took["one stream"]) / (streams - 1)
    flush = (took["many flushes"] - took["few flushes"]) / (MANY - FEW)
    print(f"each further stream: {stream:.2f} s; each further flush: {flush:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--format", choices=["delta", "iceberg"], default="delta")
    chosen = parser.parse_args()
    form = chosen.format
    folder = Path(tempfile.mkdtemp(prefix="bench-small-"))
    try:
        place = Place(folder, form, UPSERT_ROWS)
        place.make()
        cases: dict[str, Callable[[], Measured]] = {
            "no news": partial(load, folder, form, messages(1, 0)),
            "one stream": partial(load, folder, form, messages(1, 1)),
            "many streams": partial(load, folder, form, messages(chosen.streams, 1)),
            "few flushes": partial(load, folder, form, messages(1, FEW)),
            "many flushes": partial(load, folder, form, messages(1, MANY)),
            "upsert": partial(target, place),
            "MERGE by hand": partial(by_hand, place, False),
        }
        name = "small_loads" if form == "delta" else f"small_loads_{form}"
        report(name, interleaved(chosen.runs, cases), chosen.streams)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
