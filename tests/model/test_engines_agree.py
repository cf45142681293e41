"""Random inputs through both engines: the same rows, types, STATE, rejected records and errors."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import threads
from whole_runs import Output, run_lines

from shared.engine.engine import Engine
from shared.errors import SingerSparkError
from target_spark.config import target_config
from target_spark.load.loader import Loader
from target_spark.load.mapped_loader import MappedLoader
from target_spark.receive import rejected_input

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.costly]

Random = random.Random
RUNS, FEW = 5, 2
"""Inputs of a seed, which share its session and fixtures; those of the first one are few."""

KINDS: dict[str, tuple[dict[str, Any], Callable[[Random], Any]]] = {
    "int": ({"type": ["integer", "null"]}, lambda r: r.randint(-(2 ** r.randint(1, 62)), 2**62)),
    "number": ({"type": ["number", "null"]}, lambda r: r.randint(-(10**9), 10**9) / 1000),
    "money": (
        {"type": ["number", "null"], "multipleOf": 0.01},
        lambda r: r.randint(-99999, 99999) / 100,
    ),
    "text": (
        {"type": ["string", "null"]},
        lambda r: "".join(r.choices(["a", "Zoë", " ", '"', ",", "\n", "🎉", "\\"], k=3)),
    ),
    "flag": ({"type": ["boolean", "null"]}, lambda r: r.random() < 0.5),
    "at": (
        {"type": ["string", "null"], "format": "date-time"},
        lambda r: (
            f"20{r.randint(10, 40)}-0{r.randint(1, 9)}-1{r.randint(0, 9)}T03:0{r.randint(0, 9)}:00Z"
        ),
    ),
    "day": (
        {"type": ["string", "null"], "format": "date"},
        lambda r: f"19{r.randint(10, 99)}-0{r.randint(1, 9)}-1{r.randint(0, 9)}",
    ),
    "list": (
        {"type": ["array", "null"], "items": {"type": ["integer", "null"]}},
        lambda r: [r.choice([None, 1, 2**40]) for _ in range(r.randint(0, 3))],
    ),
    "object": (
        {"type": ["object", "null"], "properties": {"x": {"type": ["integer", "null"]}}},
        lambda r: {"x": r.choice([None, 7])} if r.random() < 0.8 else {},
    ),
}
NESTED = {"list", "object"}
BAD = ["no number", 1.5, {"x": "y"}, [[]], True, 10**30, "2020-13-45", -1]
ENCODINGS = [("jsonl", "none"), ("jsonl", "gzip"), ("parquet", "snappy")]
BATCH_COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string())])
MAPS = [None, None, {"s": {"added": "text", "__else__": None, "id": "id"}}]


@dataclass
class Case:
    """One input, and the settings of its load."""

    random: Random
    form: str
    folder: Path
    kinds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        r = self.random
        flat = [name for name in KINDS if self.form != "csv" or name not in NESTED]
        self.kinds = ["int", "text", *r.sample(flat, r.randint(1, 4))]
        properties = {f"{kind}_{n}": KINDS[kind][0] for n, kind in enumerate(self.kinds)}
        properties["text"] = properties.pop("text_1")
        self.schema = {"type": "object", "properties": {"id": {"type": "integer"}, **properties}}
        self.settings: dict[str, Any] = {
            "format": self.form,
            "failure": {"policy": r.choice(["FailBatch", "LogAndContinue", "LogAndContinue"])},
            "add_record_metadata": False,
            "validate_records": r.random() < 0.8,
        }
        if self.form == "delta":
            self.settings["load_method"] = r.choice(["append-only", "upsert"])
        # A bad row ends the run, with or without the smaller batches before it without a STATE.
        if r.random() < 0.3 and self.settings["failure"]["policy"] == "LogAndContinue":
            self.settings["batch_size_rows"] = 7
        maps = r.choice(MAPS)
        if maps is not None and self.settings.get("load_method") != "upsert":
            self.settings["stream_maps"] = maps
        self.lines = self._lines()

    def _record(self, number: int) -> dict[str, Any]:
        r, row = self.random, {"id": number}
        for name in self.schema["properties"]:
            kind = name.partition("_")[0]
            if name == "id" or r.random() < 0.1:
                continue
            row[name] = None if r.random() < 0.1 else KINDS[kind][1](r)
            if r.random() < 0.01:
                row[name] = r.choice(BAD)
        if r.random() < 0.02:
            row["undeclared"] = 1
        return row

    def _lines(self) -> list[str]:
        r, number = self.random, 0
        begin = {"type": "SCHEMA", "stream": "s", "schema": self.schema, "key_properties": ["id"]}
        messages: list[dict[str, Any]] = [begin]
        for at in range(r.randint(1, 3)):
            rows = [self._record(r.randint(0, 30)) for _ in range(r.randint(0, 25))]
            number += len(rows)
            if r.random() < 0.4:
                messages.append(self._batch(rows, at))
            else:
                messages += [{"type": "RECORD", "stream": "s", "record": row} for row in rows]
            messages.append({"type": "STATE", "value": {"at": at}})
        return [json.dumps(message) for message in messages]

    def _batch(self, rows: list[dict[str, Any]], at: int) -> dict[str, Any]:
        form, compression = self.random.choice(ENCODINGS)
        path = self.folder / f"batch-{at}.{form}"
        if form == "parquet":
            ids = [row["id"] for row in rows]
            texts = [row.get("text") for row in rows]
            columns = {
                "id": pa.array(ids, pa.int64()),
                "text": pa.array(map(str, texts), pa.string()),
            }
            pq.write_table(pa.table(columns), path)
        else:
            text = "".join(json.dumps(row) + "\n" for row in rows).encode()
            path.write_bytes(gzip.compress(text) if compression == "gzip" else text)
        encoding = {"format": form, "compression": compression}
        return {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": [path.as_uri()]}


@dataclass(frozen=True)
class Outcome:
    """What a run leaves and says."""

    rows: list[str]
    types: str
    states: list[bytes]
    logged: list[str]
    error: str


def loaded(case: Case, engine: Engine, spark: Any, log: pytest.LogCaptureFixture) -> Outcome:
    """Load a case in a folder of the engine's own."""
    place = case.folder / f"out-{engine.choice}"
    config = target_config({**case.settings, "path": str(place), "engine": engine.choice})
    loader = (MappedLoader if config.transforms.active else Loader)(config, engine)
    output, error = Output(), ""
    log.clear()
    try:
        run_lines(config, loader, case.folder, case.lines, engine, output)
    except SingerSparkError as failure:
        error = str(failure)
    rejected = [one.getMessage() for one in log.records if one.name == rejected_input.__name__]
    table = place / "s"
    rows, types = [], ""
    if table.exists():
        frame = spark.read.format(case.form).load(str(table))
        rows, types = sorted(map(repr, frame.collect())), frame.schema.simpleString()
    texts = (re.sub(r"\S*/(?:out|staging)\S*", "", text) for text in (error, *rejected))
    error, *logged = (text.replace(engine.choice, "") for text in texts)
    return Outcome(rows, types, output.written, sorted(logged), error)


def compare(form: str, seed: int, folder: Path, spark: Any, log: pytest.LogCaptureFixture) -> None:
    for number in range(RUNS if seed else FEW):
        own = folder / str(number)
        own.mkdir()
        case = Case(Random(f"{form}-{seed}-{number}"), form, own)
        by_threads = loaded(case, threads(), spark, log)
        by_spark = loaded(case, Engine.of(lambda: spark), spark, log)
        assert by_threads == by_spark, case.settings


@pytest.mark.parametrize("form", ["parquet", "orc", "csv"])
def test_files(
    form: str, seed: int, tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    compare(form, seed, tmp_path, spark, caplog)


@pytest.mark.server
def test_delta_tables(
    seed: int, tmp_path: Path, lake_spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    compare("delta", seed, tmp_path, lake_spark, caplog)
