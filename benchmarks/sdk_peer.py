"""A CSV file into files by programs of the Meltano SDK, beside both programs here.

Run as `python -m benchmarks.sdk_peer [--mebibytes N] [--runs N]`. Installs the SDK and a target
made with it, both from PyPI, into an environment of their own in `.bench/sdk`. The SDK's tap has
the rows of `csv.DictReader`, with types; its target is `target-csv`. Its BATCH files are what the
SDK writes: JSON lines with gzip. Here they are Parquet, as is what the target writes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.csv_path import pipe, write_csv
from benchmarks.processes import Measured, interleaved, run_piped
from benchmarks.results import FOLDER, publish

PACKAGES = ("singer-sdk==0.54.9", "meltanolabs-target-csv==0.5.0")
TAP = """
import csv
from singer_sdk import Stream, Tap, typing as th
TYPES = {
    "id": th.IntegerType, "amount": th.NumberType, "active": th.BooleanType, "day": th.DateType,
    "at": th.DateTimeType, "code": th.IntegerType, "ratio": th.NumberType,
}
NAMES = ("id", "name", "amount", "active", "day", "at", "note", "code", "ratio", "city")
class Rows(Stream):
    name = "rows"
    primary_keys = ()
    schema = th.PropertiesList(
        *(th.Property(name, TYPES.get(name, th.StringType)) for name in NAMES)
    ).to_dict()
    def get_records(self, context):
        with open(self.config["path"], newline="") as file:
            for row in csv.DictReader(file):
                row["id"], row["code"] = int(row["id"]), int(row["code"])
                row["amount"], row["ratio"] = float(row["amount"]), float(row["ratio"])
                row["active"] = row["active"] == "true"
                yield row
class TapRows(Tap):
    name = "tap-rows"
    config_jsonschema = th.PropertiesList(th.Property("path", th.StringType)).to_dict()
    def discover_streams(self):
        return [Rows(self)]
TapRows.cli()
"""
BATCH = {
    "encoding": {"format": "jsonl", "compression": "gzip"},
    "batch_size": 100_000,
}


def sdk_programs() -> Path:
    """Return the programs of an environment with the SDK and its target."""
    place = FOLDER / "sdk"
    if not (place / "bin" / "target-csv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        install = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES]
        subprocess.run(install, check=True)
    return place / "bin"


def sdk(folder: Path, programs: Path, *, batch: bool) -> Measured:
    for name in ("other", "batches"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    tap: dict[str, Any] = {"path": str(folder / "rows.csv")}
    if batch:
        tap["batch_config"] = {**BATCH, "storage": {"root": f"file://{folder / 'batches'}"}}
    (folder / "sdk-tap.json").write_text(json.dumps(tap))
    (folder / "sdk-target.json").write_text(json.dumps({"output_path": str(folder / "other")}))
    (folder / "tap.py").write_text(TAP)
    commands = [
        [str(programs / "python"), "tap.py", "--config", "sdk-tap.json"],
        [str(programs / "target-csv"), "--config", "sdk-target.json"],
    ]
    measured = run_piped(commands, folder)
    _check_lines(folder)
    return measured


def _check_lines(folder: Path) -> None:
    """Check that the target has written every row."""
    files = list((folder / "other").rglob("*.csv"))
    rows = sum(sum(1 for _ in path.open()) - 1 for path in files)
    with (folder / "rows.csv").open() as file:
        assert rows == sum(1 for _ in file) - 1, f"{rows} rows in {files}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=20)
    parser.add_argument("--runs", type=int, default=2)
    chosen = parser.parse_args()
    programs = sdk_programs()
    folder = Path(tempfile.mkdtemp(prefix="bench-sdk-"))
    try:
        write_csv(folder / "rows.csv", chosen.mebibytes)
        results = interleaved(
            chosen.runs,
            {
                "both programs, RECORD": partial(pipe, folder, metadata=True, batch=False),
                "both programs, BATCH Parquet": partial(pipe, folder, metadata=True),
                "SDK, RECORD": partial(sdk, folder, programs, batch=False),
                "SDK, BATCH JSON lines": partial(sdk, folder, programs, batch=True),
            },
        )
        publish("sdk_peer", results, "SDK, RECORD")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
