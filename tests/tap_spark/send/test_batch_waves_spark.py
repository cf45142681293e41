"""Files that grow, read in several waves: exact batch files, and STATE that is never ahead."""

from __future__ import annotations

import gzip
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shared.engine.engine import Engine
from shared.formats.file_formats import FORMATS
from shared.singer.stdout import MessageOutput
from tap_spark.config import SpoolSettings, tap_config
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.send.batch_plan import staging_folder_for
from tap_spark.send.line_output import LineOutput, StateWriter
from tap_spark.send.run import Run
from tap_spark.send.spool import Spool
from tap_spark.send.sync import sync_stream
from tap_spark.sources.files import resumable_files
from tap_spark.sources.source import source_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.costly]
SIZE = 100


@dataclass
class Bench:
    """A stream of CSV files with a column `id`."""

    spark: SparkSession
    path: Path
    next_id: int = 0
    catalog: dict[str, Any] | None = None
    state: dict[str, Any] = field(default_factory=dict)

    def grow(self, name: str, rows: int) -> None:
        path = self.path / "in" / name
        path.parent.mkdir(exist_ok=True)
        is_new = not path.exists()
        lines = [f"{n},{'x' * 50}\n" for n in range(self.next_id, self.next_id + rows)]
        text = "".join(["id,text\n", *lines] if is_new else lines).encode()
        with path.open("ab") as file:
            file.write(gzip.compress(text) if name.endswith(".gz") else text)
        self.next_id += rows

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "streams": [
                {
                    "name": "s",
                    "format": "csv",
                    "path": str(self.path / "in"),
                    "replication_method": "INCREMENTAL",
                }
            ],
            "batch_config": {
                "encoding": {"format": "parquet"},
                "storage": {"root": str(self.path / "out"), "prefix": "p/"},
                "batch_size": SIZE,
            },
        }

    def plan(self, state: dict[str, Any]) -> Any:
        config = tap_config(self.settings)
        self.catalog = self.catalog or catalog_for(self.spark, config)
        return plan_streams(config, self.catalog, state, 1)[0]

    def run(self) -> list[dict[str, Any]]:
        """Return the messages of a run from the state of the last one."""
        got: list[bytes] = []
        source, sink = os.pipe()
        reader = threading.Thread(
            target=lambda: got.extend(iter(lambda: os.read(source, 1 << 16), b""))
        )
        reader.start()
        output = LineOutput(MessageOutput(sink))
        batch = tap_config(self.settings).batch
        place = staging_folder_for(batch)
        assert place is not None
        with Spool(SpoolSettings(root=str(self.path / "spool"))) as spool, place:
            run = Run(Engine.of(lambda: self.spark), output, lambda: spool, batch, place)
            sync_stream(run, self.plan(self.state), StateWriter(self.state, output.write, 1e9))
        output.close()
        os.close(sink)
        reader.join(30)
        os.close(source)
        messages = [json.loads(line) for line in b"".join(got).splitlines()]
        self.state = messages[-1]["value"]
        return messages

    def rest_of(self, state: dict[str, Any]) -> set[int]:
        """Return the rows that a run from a state would read."""
        plan = self.plan(state)
        slices = source_for(plan.config).slices(self.spark, plan)
        return {row["id"] for piece in slices for row in piece.frame.select("id").collect()}

    def check(self, messages: list[dict[str, Any]], first: int, *, files: int) -> None:
        """Check one run: exact files, every row, and no STATE ahead of its files."""
        announced: list[int] = []
        sizes = []
        states = []
        for message in messages:
            if message["type"] == "BATCH":
                (url,) = message["manifest"]
                actual = [n for t in FORMATS["parquet"].read(url) for n in t["id"].to_pylist()]
                sizes.append(len(actual))
                announced += actual
            elif message["type"] == "STATE" and message["value"] not in states:
                states.append(message["value"])
                every = set(range(self.next_id))
                assert self.rest_of(message["value"]) >= every - set(range(first)) - set(announced)
        assert sizes == [SIZE] * (files - 1) + [self.next_id - first - SIZE * (files - 1)]
        assert sorted(announced) == list(range(first, self.next_id))
        assert len(states) > 1
        shown = {f"file://{path}" for path in (self.path / "out").rglob("*") if path.is_file()}
        assert shown >= {url for m in messages if m["type"] == "BATCH" for url in m["manifest"]}
        assert not [path for path in (self.path / "out").iterdir() if path.name.startswith(".")]
        assert list((self.path / "spool").iterdir()) == []


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(resumable_files, "WAVE_BYTES", 10_000)
    return Bench(spark, tmp_path)


def test_lines_of_files_that_grow(bench: Bench) -> None:
    bench.grow("a.csv", 350)
    bench.grow("b.csv", 77)
    bench.check(bench.run(), 0, files=5)
    first = bench.next_id
    bench.grow("a.csv", 133)
    bench.grow("b.csv", 150)
    bench.grow("c.csv", 260)
    bench.check(bench.run(), first, files=6)


def test_files_that_are_read_as_a_whole(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # Compressed files count by their own size: smaller waves, so that there are several.
    monkeypatch.setattr(resumable_files, "WAVE_BYTES", 300)
    bench.grow("a.csv.gz", 150)
    bench.grow("b.csv", 230)
    bench.grow("c.csv.gz", 45)
    bench.check(bench.run(), 0, files=5)
    first = bench.next_id
    for name in ("d.csv.gz", "e.csv", "f.csv"):
        bench.grow(name, 90)
    bench.check(bench.run(), first, files=3)


def test_a_run_without_anything_new_writes_no_file(bench: Bench) -> None:
    bench.grow("a.csv", 5)
    bench.run()
    assert [message["type"] for message in bench.run()] == ["SCHEMA", "STATE"]
    assert not [path for path in (bench.path / "out").iterdir() if path.name.startswith(".")]


def test_a_line_without_end_waits_for_a_later_batch(bench: Bench) -> None:
    bench.grow("a.csv", 220)
    path = bench.path / "in" / "a.csv"
    with path.open("a") as file:
        file.write("22")
    bench.check(bench.run(), 0, files=3)
    assert [message["type"] for message in bench.run()] == ["SCHEMA", "STATE"]
    with path.open("a") as file:
        file.write("0,x\n")
    (batch,) = [message for message in bench.run() if message["type"] == "BATCH"]
    (url,) = batch["manifest"]
    assert [row for t in FORMATS["parquet"].read(url) for row in t.to_pylist()] == [
        {"id": 220, "text": "x"}
    ]
