"""Upsert into Delta and Iceberg tables, compared with a plain Spark MERGE.

Run as `python -m benchmarks.upsert_path [--rows N] [--table N] [--keys recent spread] [--runs N]
[--format delta iceberg]`. Half of the rows exist in the table: the last ones of it, or rows of all
its files. Session starts are included on both sides; each run gets a fresh copy of the table, whose
creation is not measured. Each format is compared with a MERGE into a table of the same format.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import Measured, interleaved, run_piped
from benchmarks.processes import module as python_module
from benchmarks.results import publish
from shared.spark.spark_release import installed

PROPERTIES = {
    "id": {"type": "integer"},
    "name": {"type": ["string", "null"]},
    "code": {"type": ["integer", "null"]},
    "rate": {"type": ["number", "null"]},
    "active": {"type": ["boolean", "null"]},
    "at": {"type": ["string", "null"], "format": "date-time"},
    "digest": {"type": ["string", "null"]},
    "big": {"type": ["integer", "null"]},
    "note": {"type": ["string", "null"]},
    "round": {"type": ["integer", "null"]},
}


class Place:
    """Create a folder with the new rows, the table, and a copy of the original table."""

    def __init__(
        self, folder: Path, form: str, rows: int, stored: int | None = None, keys: str = "recent"
    ) -> None:
        self.folder, self.form, self.rows = folder, form, rows
        self.stored, self.keys = stored or rows // 2, keys
        self.new, self.lake, self.before = folder / "new", folder / "lake", folder / "before"
        self.table = f"delta.`{self.lake}/rows`" if form == "delta" else "plain.rows"

    def plain(self, **more: Any) -> Measured:
        settings: dict[str, Any] = {
            "package": installed().packages[self.form],
            "format": self.form,
            **more,
        }
        if self.form == "iceberg":
            settings["conf"] = {"spark.sql.catalog.plain.warehouse": str(self.lake)}
        return run_piped(
            [python_module("benchmarks.plain_merge", json.dumps(settings))], self.folder
        )

    def make(self) -> None:
        table = {"table": self.table, "first": 0, "count": self.stored}
        new = {"path": str(self.new), "first": self.stored - self.rows // 2, "count": self.rows}
        if self.keys == "spread":
            new |= {"first": 0, "step": 2 * self.stored // self.rows}
        self.plain(make=[table, new])
        self.lake.rename(self.before)

    def renew(self) -> None:
        shutil.rmtree(self.lake, ignore_errors=True)
        shutil.copytree(self.before, self.lake)


def by_hand(place: Place, newest: bool) -> Measured:
    place.renew()
    return place.plain(path=str(place.new), table=place.table, newest=newest)


def target(place: Place, **more: Any) -> Measured:
    place.renew()
    files = sorted(f"file://{path}" for path in place.new.glob("*.parquet"))
    schema = {"type": "object", "properties": PROPERTIES}
    messages: list[dict[str, Any]] = [
        {"type": "SCHEMA", "stream": "rows", "schema": schema, "key_properties": ["id"]},
        {
            "type": "BATCH",
            "stream": "rows",
            "encoding": {"format": "parquet", "compression": "snappy"},
            "manifest": files,
        },
        {"type": "STATE", "value": {}},
    ]
    text = "".join(json.dumps(message) + "\n" for message in messages)
    (place.folder / "messages").write_text(text)
    settings = {
        "format": place.form,
        "path": str(place.lake),
        "load_method": "upsert",
        "add_record_metadata": False,
        **more,
    }
    (place.folder / "target.json").write_text(json.dumps(settings))
    command = python_module("target_spark.cli", "--config", "target.json", "--input", "messages")
    return run_piped([command], place.folder)


def series(place: Place, runs: int) -> dict[str, list[Measured]]:
    """Measure one format with one choice of keys."""
    form = place.form if place.keys == "recent" else f"{place.form}, {place.keys} keys"
    try:
        place.make()
        cases: dict[str, Callable[[], Measured]] = {
            f"{form}, target-spark": partial(target, place),
            f"{form}, target-spark by Spark": partial(target, place, engine="spark"),
            f"{form}, MERGE by hand": partial(by_hand, place, False),
            f"{form}, MERGE by hand, newest of each key": partial(by_hand, place, True),
        }
        if place.form == "iceberg":
            del cases[f"{form}, target-spark by Spark"]  # as the line before it
        return interleaved(runs, cases)
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--table", type=int, help="rows of the table; by default half of --rows")
    parser.add_argument("--keys", nargs="+", choices=["recent", "spread"], default=["recent"])
    parser.add_argument("--runs", type=int, default=3)
    formats = ["delta", "iceberg"]
    parser.add_argument("--format", nargs="+", choices=formats, default=formats)
    chosen = parser.parse_args()
    results: dict[str, list[Measured]] = {}
    for form in chosen.format:
        for keys in chosen.keys:
            folder = Path(tempfile.mkdtemp(prefix="bench-upsert-"))
            place = Place(folder, form, chosen.rows, chosen.table, keys)
            results |= series(place, chosen.runs)
    of_hand = re.compile(", (target-spark|MERGE).*")
    publish("upsert_path", results, lambda name: of_hand.sub(", MERGE by hand", name))


if __name__ == "__main__":
    main()
