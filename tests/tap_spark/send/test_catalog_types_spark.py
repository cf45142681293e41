"""Columns that the catalog makes text: records and batch files follow the SCHEMA."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from case_matrix import matrix

from shared.engine.engine import Engine
from shared.singer.stdout import MessageOutput
from tap_spark.config import tap_config
from tap_spark.plan.discovery import catalog_for
from tap_spark.send import sync

pytestmark = pytest.mark.spark
STRING = {"type": ["string", "null"]}
FILES = {
    "csv": "id,price,day\n1,1.50,2024-01-02\n",
    "json": '{"id": 1, "price": 1.50, "day": "2024-01-02"}\n',
    "fixed_width": "11.502024-01-02\n",
    "xml": "<t><r><id>1</id><price>1.50</price><day>2024-01-02</day></r></t>",
}


def source(form: str, folder: Path) -> dict[str, Any]:
    path = folder / f"a.{form}"
    settings: dict[str, Any] = {"name": "s", "format": form, "path": str(path)}
    if form == "parquet":
        table = pa.table({"id": [1], "price": [1.5], "day": ["2024-01-02"]})
        pq.write_table(table, path)
    elif form == "sql":
        del settings["path"]
        settings["query"] = "select 1 id, 1.50 price, date '2024-01-02' day, array(1, 2) list"
    else:
        path.write_text(FILES[form])
    if form == "fixed_width":
        lengths = {"id": 1, "price": 4, "day": 10}
        settings["columns"] = [{"name": n, "length": k} for n, k in lengths.items()]
    if form == "xml":
        settings["options"] = {"rowTag": "r"}
    return settings


@pytest.mark.parametrize(("form", "batch"), matrix([*FILES, "parquet", "sql"], [False, True]))
def test_records_follow_the_catalog(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, batch: bool
) -> None:
    monkeypatch.setattr(sync, "engine_of", lambda *_, **__: Engine.of(lambda: spark))
    settings: dict[str, Any] = {"streams": [source(form, tmp_path)]}
    if batch:
        storage = {"root": (tmp_path / "batch").as_uri()}
        settings["batch_config"] = {"encoding": {"format": "parquet"}, "storage": storage}
    config = tap_config(settings)
    catalog = catalog_for(spark, config)
    properties = catalog["streams"][0]["schema"]["properties"]
    properties |= dict.fromkeys(properties, STRING)
    out = tmp_path / "out.jsonl"
    with out.open("wb") as file:
        output = MessageOutput(os.dup(file.fileno()))
        sync.run_sync(config, catalog, None, output)
        output.close()
    messages = [json.loads(line) for line in out.read_text().splitlines()]
    actual = [m["record"] for m in messages if m["type"] == "RECORD"]
    for message in messages:
        if message["type"] == "BATCH":
            actual += pq.read_table(message["manifest"][0].removeprefix("file://")).to_pylist()
    (record,) = actual
    price = "1.5" if form == "parquet" else "1.50"
    assert {k: record[k] for k in ("id", "price", "day")} == {
        "id": "1", "price": price, "day": "2024-01-02",
    }  # fmt: skip
    assert record.get("list") in (None, "[1,2]")
    schema = next(m["schema"] for m in messages if m["type"] == "SCHEMA")
    assert all(node == STRING for node in schema["properties"].values())
