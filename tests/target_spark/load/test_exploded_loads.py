"""Streams of elements (`__explode__`), loaded: whole records or none, counts, both programs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mapped_bench import Bench, Loaded, plain, record, schema, state

from shared.errors import RecordError, SettingsError
from target_spark.core.balance import Counts
from target_spark.load.mapped_loader import MappedLoader

pytestmark = pytest.mark.spark

ITEM = {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}}
PROPERTIES = {
    "id": {"type": "integer"},
    "note": {"type": ["string", "null"]},
    "items": {"type": ["array", "null"], "items": ITEM},
}
RULE: dict[str, Any] = {
    "__source__": "orders",
    "__explode__": "items",
    "__index__": "position",
    "__key_properties__": ["order_id", "position"],
    "order_id": "__parent__['id']",
}
MAPS = {"lines": {**RULE, "part": "100 // n"}}


def items(count: int, bad: int = -1) -> list[dict[str, Any]]:
    return [{"sku": f"s{at}", "n": 0 if at == bad else at + 1} for at in range(count)]


ORDERS = [
    {"id": 1, "note": "x", "items": items(3)},
    {"id": 2, "items": []},
    {"id": 3, "items": None},
    {"id": 4, "items": items(30, bad=20)},
    {"id": 5, "items": items(1)},
    {"id": "six", "items": items(2)},
    {"id": 7, "items": items(25)},
]


def sent() -> list[dict[str, Any]]:
    rows = [record("orders", order) for order in ORDERS]
    return [schema("orders", PROPERTIES, "id"), *rows, state({"at": 7})]


def lines(loaded: Loaded) -> list[tuple[int, int]]:
    actual = plain(loaded.rows("lines", "order_id"))
    return sorted((row["order_id"], row["position"]) for row in actual)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counts]:
    """The counts of each table, as commits tell them."""
    counts: dict[str, Counts] = {}
    commit = MappedLoader.commit

    def noting(self: Any, batch: Any, results: Any) -> Any:
        actual = commit(self, batch, results)
        for name, one in actual.items():
            counts[name] = counts.get(name, Counts()) + one.counts
        return actual

    monkeypatch.setattr(MappedLoader, "commit", noting)
    return counts


@pytest.mark.parametrize("rows", [7, 10_000])
def test_a_record_is_loaded_whole_or_rejected_once(
    bench: Bench, spark: Any, reported: dict[str, Counts], rows: int
) -> None:
    """However Spark cuts the rows into Arrow batches; dead letters hold the record as it came."""
    letters = bench.folder / "letters"
    failure = {"policy": "SendToDLQ", "dead_letter_path": str(letters)}
    size = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
    try:
        loaded = bench.target(sent(), {"stream_maps": MAPS, "failure": failure})
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", size)
    expected = [(order, at) for order, count in ((1, 3), (5, 1), (7, 25)) for at in range(count)]
    assert lines(loaded) == expected
    assert loaded.states == [{"at": 7}]
    assert sorted(row["id"] for row in loaded.rows("orders")) == [1, 2, 3, 4, 5, 7]
    actual = [json.loads(x) for path in letters.iterdir() for x in path.read_bytes().splitlines()]
    rejected = {m["record"]["id"]: m for m in actual if m["type"] == "RECORD"}
    assert [m["record"] for _, m in sorted(rejected.items(), key=str)] == [ORDERS[5], ORDERS[3]]
    reason = "output 'lines': element 20: property 'part': ZeroDiv"
    assert rejected[4]["_sdc_error"]["reason"].startswith(reason)
    assert [m["type"] for m in actual] == ["SCHEMA", "RECORD"] * 2, "one for each output"
    counts = reported["lines"]
    assert (counts.received, counts.committed, counts.exploded) == (7, 29, 26)
    assert (counts.rejected, counts.filtered, counts.missing) == (1, 3, 0)


@pytest.mark.parametrize("form", ["RECORD", "jsonl"])
def test_records_without_elements_move_the_bookmark(bench: Bench, form: str) -> None:
    path = bench.folder / "orders.jsonl"
    orders = [{**order, "at": order["id"]} for order in (ORDERS[0], ORDERS[4], ORDERS[1])]
    orders[2]["at"] = 9
    path.write_text("".join(json.dumps(order) + "\n" for order in orders))
    ddl = "id long, at long, note string, items array<struct<sku:string,n:long>>"
    stream = {"name": "orders", "format": "json", "path": str(path), "schema": ddl}
    root = {"root": f"file://{bench.folder}/files"}
    encoding = {"format": "jsonl", "compression": "none"}
    batch = {"batch_config": {"encoding": encoding, "storage": root, "batch_size": 2}}
    key = {"replication_key": "at", "replication_method": "INCREMENTAL"}
    settings = {"streams": [{**stream, **key}], "stream_maps": {"orders": None, **MAPS}}
    messages = bench.tap({**settings, **(batch if form != "RECORD" else {})})
    actual = bench.target(messages, {"add_record_metadata": False})
    assert lines(actual) == [(1, 0), (1, 1), (1, 2), (5, 0)]
    [bookmark] = messages[-1]["value"]["bookmarks"].values()
    assert bookmark["replication_key_value"] == 9


def test_an_element_that_fails_ends_the_tap(bench: Bench) -> None:
    path = bench.folder / "orders.jsonl"
    path.write_text(json.dumps({"id": 1, "items": items(3, bad=2)}))
    ddl = "id long, items array<struct<sku:string,n:long>>"
    stream = {"name": "orders", "format": "json", "path": str(path), "schema": ddl}
    with pytest.raises(
        RecordError, match="element 2: property 'part': ZeroDivisionError"
    ) as failed:
        bench.tap({"streams": [stream], "stream_maps": MAPS})
    assert failed.value.exit_code == 5


def test_an_array_that_is_none_ends_the_load_before_data_moves(bench: Bench) -> None:
    maps = {"lines": {**RULE, "__explode__": "note"}}
    with pytest.raises(SettingsError, match="'note' is not an array of known contents") as failed:
        bench.target(sent(), {"stream_maps": maps})
    assert failed.value.exit_code == 2
    assert not (bench.folder / "out-1" / "lines").exists()


def test_the_share_of_errors_is_one_of_records(bench: Bench) -> None:
    """2 of 7 records, not of the 37 rows of both outputs."""
    settings = {"stream_maps": MAPS, "failure": {"policy": "LogAndContinue"}}
    with pytest.raises(RecordError, match="max_error_share"):
        bench.target(sent(), {**settings, "max_error_share": 0.28})
    assert bench.target(sent(), {**settings, "max_error_share": 0.29}).states == [{"at": 7}]
