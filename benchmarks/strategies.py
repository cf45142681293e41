"""Latency of the batch strategies: seconds until the first and until 99 % of the rows are durable.

Run as `python -m benchmarks.strategies [--rows N ...] [--limit SECONDS] [--only NAME ...]`. The
target loads RECORD messages with a STATE after each percent, at full speed, into Parquet, with the
defaults of each strategy. A row is durable once the target has written a STATE after it; time
counts from the start of the program. A run ends after the limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.processes import module
from benchmarks.results import markdown, save
from shared.settings.batch_settings import STRATEGIES

NO_STRATEGY = "none: 256 MiB or 60 s"
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "text": {"type": "string"}},
}


def write_messages(path: Path, rows: int) -> None:
    step = max(1, rows // 100)
    with path.open("w") as file:
        head = {"type": "SCHEMA", "stream": "rows", "schema": SCHEMA, "key_properties": ["id"]}
        file.write(json.dumps(head) + "\n")
        for number in range(1, rows + 1):
            record = f'{{"id":{number},"text":"{number:0100}"}}'
            file.write(f'{{"type":"RECORD","stream":"rows","record":{record}}}\n')
            if number % step == 0 or number == rows:
                file.write(f'{{"type":"STATE","value":{{"at":{number}}}}}\n')


def settings_of(strategy: str) -> Mapping[str, Any]:
    return {} if strategy == NO_STRATEGY else {"batch": {"strategy": strategy}}


def durable_at(
    folder: Path, messages: Path, strategy: str, limit: float
) -> list[tuple[float, int]]:
    """Return when how many rows were durable."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        config = Path(place) / "target.json"
        config.write_text(json.dumps({"path": f"{place}/out", **settings_of(strategy)}))
        command = module("target_spark.cli", "--config", str(config), "--input", str(messages))
        start = time.monotonic()
        with (Path(place) / "log").open("wb") as log:
            running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        timer = threading.Timer(limit, running.terminate)
        timer.start()
        assert running.stdout is not None
        moments = []
        for line in running.stdout:
            seconds = time.monotonic() - start
            if seconds <= limit:
                moments.append((seconds, int(json.loads(line)["at"])))
        code = running.wait()
        is_late = not timer.is_alive()
        timer.cancel()
        if code and not is_late:
            raise RuntimeError((Path(place) / "log").read_text()[-2000:])
    return moments


def seconds_to(durable: list[tuple[float, int]], rows: float) -> float | None:
    return next((seconds for seconds, at in durable if at >= rows), None)


def shown(seconds: float | None, limit: float) -> str:
    return f"over {limit:.0f}" if seconds is None else f"{seconds:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--limit", type=float, default=60.0)
    names = [NO_STRATEGY, *STRATEGIES]
    parser.add_argument("--only", nargs="+", default=names, help="names of strategies")
    chosen = parser.parse_args()
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bench-strategies-") as folder:
        for rows in chosen.rows:
            messages = Path(folder) / f"{rows}.jsonl"
            write_messages(messages, rows)
            for name in chosen.only:
                durable = durable_at(Path(folder), messages, name, chosen.limit)
                first, most = seconds_to(durable, 1), seconds_to(durable, rows * 0.99)
                cases.append({"strategy": name, "rows": rows, "first": first, "most": most})
                print(f"  {rows:,} rows, {name}: first {first}, 99 % {most}", flush=True)
    head = ["strategy", *(f"{rows:,} rows: first, 99 %" for rows in chosen.rows)]
    lines = []
    for name in chosen.only:
        own = [case for case in cases if case["strategy"] == name]
        cells = [
            f"{shown(case['first'], chosen.limit)}, {shown(case['most'], chosen.limit)}"
            for case in own
        ]
        lines.append([f"`{name}`" if name in STRATEGIES else name, *cells])
    save("strategies", markdown(head, lines), cases)


if __name__ == "__main__":
    main()
