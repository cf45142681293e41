"""Many small streams after one beyond `spark_above`, for which Spark has started.

Run as `python -m benchmarks.streams_after_large [--runs N] [--streams N]`. Records into Parquet.
The reference gives every batch to Spark.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import interleaved, median_seconds
from benchmarks.results import publish
from benchmarks.small_loads import load, messages

LARGE, LARGE_ROWS = "large stream", 1_600_000
SETTINGS = {
    "load_method": "append-only",
    "batch_size_rows": None,
}
WAYS: dict[str, dict[str, Any]] = {"by the rule": {}, "by Spark": {"engine": "spark"}}


def large_first(streams: int) -> list[dict[str, Any]]:
    """Return one stream of 1,600,000 records, some 300 MB, and streams of 5 records."""
    properties = {"id": {"type": "integer"}, "text": {"type": "string"}}
    begin = {"type": "SCHEMA", "stream": "large", "key_properties": []}
    record = {"type": "RECORD", "stream": "large", "record": {"id": 1, "text": "words " * 20}}
    large = [{**begin, "schema": {"properties": properties}}, *[record] * LARGE_ROWS]
    return [*large, *messages(streams, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", type=int, default=100)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-streams-"))
    many = f"and {chosen.streams} streams"
    try:
        cases = {
            f"{name}, {variant}": partial(load, folder, "parquet", sent, **SETTINGS, **settings)
            for name, sent in {LARGE: large_first(0), many: large_first(chosen.streams)}.items()
            for variant, settings in WAYS.items()
        }
        results = interleaved(chosen.runs, cases)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    publish("streams_after_large", results, lambda name: f"{name.partition(', ')[0]}, by Spark")
    took = {name: median_seconds(measured) for name, measured in results.items()}
    for variant in WAYS:
        each = (took[f"{many}, {variant}"] - took[f"{LARGE}, {variant}"]) / chosen.streams
        print(f"each further stream {variant}: {each:.3f} s")


if __name__ == "__main__":
    main()
