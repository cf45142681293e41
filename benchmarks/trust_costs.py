"""CPU time that balanced counts, summaries and STATE in commits take, in the target's process.

Run as `python -m benchmarks.trust_costs [--rows N] [--columns N]`. The target loads RECORDs into
Parquet, and twice by upsert into a Delta table: all keys are new, then all exist. Spark is not
started. Every function of these features is timed by the CPU time of its thread, and compared with
that of the whole process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from benchmarks.processes import module

FUNCTIONS = {
    "counts": (
        "target_spark.load.guards.balance:check_conversion",
        "target_spark.load.guards.balance:check_commit",
        "target_spark.convert.write_tasks:read_footer",
    ),
    "STATE in commits": ("target_spark.convert.stream_tables:stored_state",),
    "summary and report": (
        "target_spark.load.guards.lineage:columns_of",
        "shared.singer.run_summary:html_report",
        *(
            f"shared.singer.run_summary:RunSummary.{name}"
            for name in ("add", "add_to_table", "note", "profile", "moved", "count", "as_dict")
        ),
    ),
}


_lock = threading.Lock()


def timed(work: Callable[..., Any], kind: str, spent: Counter[str]) -> Callable[..., Any]:
    """Return a function that adds the CPU time of its thread to `spent`."""

    @wraps(work)
    def call(*args: Any, **keywords: Any) -> Any:
        start = time.thread_time_ns()
        try:
            return work(*args, **keywords)
        finally:
            with _lock:
                spent[kind] += time.thread_time_ns() - start

    return call


def run_inside(args: list[str]) -> None:
    """Run the target in this process; print the CPU seconds of each kind, and of all."""
    spent: Counter[str] = Counter()
    for kind, names in FUNCTIONS.items():
        for name in names:
            place, _, path = name.partition(":")
            owner: Any = importlib.import_module(place)
            *inside, last = path.split(".")
            for part in inside:
                owner = getattr(owner, part)
            setattr(owner, last, timed(getattr(owner, last), kind, spent))
    cli = importlib.import_module("target_spark.cli")
    code = cli.main(args)
    times = os.times()
    whole = times.user + times.system + times.children_user + times.children_system
    seconds = {kind: spent[kind] / 1e9 for kind in FUNCTIONS}
    print(json.dumps({"code": code, "whole": whole, **seconds}), file=sys.stderr)


def shares(folder: Path, name: str, settings: dict[str, Any]) -> None:
    """Run the target over the messages; print what each kind takes of the whole."""
    config = folder / f"{name}.json"
    config.write_text(json.dumps({"path": str(folder / name), **settings}))
    files = ["--summary", str(folder / "summary.json"), "--report", str(folder / "report.html")]
    command = module("benchmarks.trust_costs", "--inside", "--config", str(config), *files)
    with (folder / "messages").open("rb") as messages:
        done = subprocess.run(
            command, stdin=messages, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True
        )
    measured = json.loads(done.stderr.splitlines()[-1])
    assert measured.pop("code") == 0, done.stderr.decode()
    whole = measured.pop("whole")
    parts = ", ".join(f"{kind} {100 * spent / whole:.2f} %" for kind, spent in measured.items())
    total = 100 * sum(measured.values()) / whole
    print(f"{name}: {whole:.1f} CPU s, of which {total:.2f} %: {parts}")


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        run_inside(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=30)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-trust-"))
    try:
        stream = {"name": "rows", "format": "rows", "row_count": chosen.rows}
        tap = {"streams": [{**stream, "column_count": chosen.columns}]}
        (folder / "tap.json").write_text(json.dumps(tap))
        tap_command = module("tap_spark.cli", "--config", str(folder / "tap.json"))
        with (folder / "messages").open("wb") as file:
            subprocess.run(tap_command, stdout=file, stderr=subprocess.DEVNULL, check=True)
        shares(folder, "parquet", {})
        upsert = {"format": "delta", "load_method": "upsert"}
        for _ in range(2):
            shares(folder, "delta", {**upsert, "batch_size_rows": chosen.rows // 4})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
