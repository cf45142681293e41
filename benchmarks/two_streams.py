"""Memory of the target with two alternating streams, at some input and ten times as much.

Run as `python -m benchmarks.two_streams [--rows N] [--runs N]`.
Both streams are `append-only` without keys into Delta, line by line in turn, for which the
detection of replays keeps notes. Prints the ratio of the peak memory at ten times the input to that
at the input, for the driver alone and for all processes. Java's heap is fixed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.processes import Measured, describe, interleaved, run_piped
from benchmarks.processes import module as python_module

SCHEMA = {"properties": {"id": {"type": "integer"}, "text": {"type": "string"}}}
STATE_EVERY = 10_000


def generate(rows: int) -> None:
    """Write messages of both streams to standard output."""
    write = sys.stdout.write
    for name in "ab":
        write(
            json.dumps({"type": "SCHEMA", "stream": name, "schema": SCHEMA, "key_properties": []})
        )
        write("\n")
    text = "x" * 80
    for number in range(rows):
        stream = "ab"[number % 2]
        head = f'{{"type":"RECORD","stream":"{stream}","record":'
        write(f'{head}{{"id":{number},"text":"{text}"}}}}\n')
        if number % STATE_EVERY == STATE_EVERY - 1:
            write(f'{{"type":"STATE","value":{{"at":{number}}}}}\n')


def load(folder: Path, rows: int) -> Measured:
    """Load the given number of rows into new tables."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        settings = {
            "format": "delta",
            "path": f"{place}/lake",
            "batch_size_bytes": 16 * 2**20,
            "staging": {"file_bytes": 4 * 2**20},
            "spark": {"conf": {"spark.driver.memory": "1g"}},
        }
        config = Path(place) / "target.json"
        config.write_text(json.dumps(settings))
        source = python_module("benchmarks.two_streams", "--generate", str(rows))
        target = python_module("target_spark.cli", "--config", str(config))
        return run_piped([source, target], Path(place))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--generate", type=int)
    arguments = parser.parse_args()
    if arguments.generate is not None:
        generate(arguments.generate)
        return
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"input": arguments.rows, "ten times": arguments.rows * 10}
        cases = {name: partial(load, Path(folder), rows) for name, rows in sizes.items()}
        results = interleaved(arguments.runs, cases)
    for name, measured in results.items():
        print(f"{name}: {describe(measured)}")
    few, many = (min(m.own_mib[1] for m in results[name]) for name in sizes)
    print(f"driver alone: {few:.0f} -> {many:.0f} MiB, {many / few:.2f} x")
    few, many = (min(m.peak_mib[1] for m in results[name]) for name in sizes)
    print(f"all processes: {few:.0f} -> {many:.0f} MiB, {many / few:.2f} x")


if __name__ == "__main__":
    main()
