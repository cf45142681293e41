"""Many small streams after a large one, for which Spark has started: a job for each, or none.

Run as `python -m benchmarks.streams_after_large [--runs N] [--streams N]`. Records into Parquet on
`local[8]`: on few cores Spark would not start. The reference gives every batch to Spark.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import Measured, interleaved, median_seconds, run_piped
from benchmarks.processes import module as python_module
from benchmarks.results import publish
from benchmarks.small_loads import messages

LARGE_ROWS = 400_000
SETTINGS = {
    "format": "parquet",
    "path": "tables",
    "load_method": "append-only",
    "spark": {"master": "local[8]"},
}


def write_messages(path: Path, streams: int) -> None:
    """Write one stream of 400,000 records, some 70 MB, and streams of 5 records."""
    properties = {"id": {"type": "integer"}, "text": {"type": "string"}}
    begin = {"type": "SCHEMA", "stream": "large", "key_properties": []}
    record = {"type": "RECORD", "stream": "large", "record": {"id": 1, "text": "words " * 20}}
    with path.open("w") as file:
        file.write(json.dumps({**begin, "schema": {"properties": properties}}) + "\n")
        file.writelines([json.dumps(record) + "\n"] * LARGE_ROWS)
        file.writelines(json.dumps(message) + "\n" for message in messages(streams, 1))


def load(folder: Path, messages: str, **more: Any) -> Measured:
    """Load messages into new files, with more settings."""
    shutil.rmtree(folder / "tables", ignore_errors=True)
    (folder / "target.json").write_text(json.dumps({**SETTINGS, **more}))
    command = python_module("target_spark.cli", "--config", "target.json", "--input", messages)
    return run_piped([command], folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", type=int, default=100)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-streams-"))
    many = f"and {chosen.streams} streams"
    try:
        write_messages(folder / "large", 0)
        write_messages(folder / "many", chosen.streams)
        ways: dict[str, dict[str, Any]] = {
            "by threads": {},
            "by jobs": {"load_without_spark": False},
        }
        cases = {
            f"{name}, {way}": partial(load, folder, messages, **settings)
            for name, messages in {"large stream": "large", many: "many"}.items()
            for way, settings in ways.items()
        }
        results = interleaved(chosen.runs, cases)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    publish("streams_after_large", results, lambda name: f"{name.partition(', ')[0]}, by jobs")
    took = {name: median_seconds(measured) for name, measured in results.items()}
    for way in ways:
        each = (took[f"{many}, {way}"] - took[f"large stream, {way}"]) / chosen.streams
        print(f"each further stream {way}: {each:.3f} s")


if __name__ == "__main__":
    main()
