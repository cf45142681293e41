"""Maps in the tap: messages of each output, STATE by the key as it was read, rows that fail."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from mapped_bench import Bench, of_type, records

from shared.errors import RecordError, SettingsError
from shared.formats.json_schema import spark_to_json_schema
from tap_spark.config import tap_config
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import DELETED_AT
from tap_spark.send.stream_outputs import outputs_of
from tap_spark.state.stream_plans import Method, Resume, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

pytestmark = pytest.mark.spark

CSV = "id,name,price,at\n1,Ann,1.5,2026-01-01\n2,Bob,2.25,2026-01-03\n3,,0.5,2026-01-02\n"
IN_PYTHON = "id in [int(str(one)) for one in [1, 3]]"
DDL = "id long, name string, price double, at date"


def settings(bench: Bench, maps: Any = None, **more: Any) -> dict[str, Any]:
    path = bench.csv("orders", CSV)
    stream = {"name": "orders", "format": "csv", "path": path, "schema": DDL}
    own = {"options": {"header": True}, "key_properties": ["id"], **more.pop("stream", {})}
    return {"streams": [{**stream, **own}], "stream_maps": maps or {}, **more}


def sent_files(messages: list[dict[str, Any]], stream: str) -> list[dict[str, Any]]:
    """Return the rows of the files that BATCH messages name."""
    rows: list[dict[str, Any]] = []
    for message in of_type(messages, "BATCH"):
        for url in message["manifest"] if message["stream"] == stream else ():
            path = Path(urlsplit(url).path)
            form = message["encoding"]["format"]
            if form == "jsonl":
                rows += map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
            elif form == "csv":
                with gzip.open(path) as file:
                    rows += pc.read_csv(file).to_pylist()
            else:
                rows += pq.read_table(path).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def batches(bench: Bench, form: str, size: int | None = None) -> dict[str, Any]:
    codec = "gzip" if form in {"jsonl", "csv"} else "zstd"
    config: dict[str, Any] = {
        "encoding": {"format": form, "compression": codec},
        "storage": {"root": f"file://{bench.folder}/files"},
    }
    return config if size is None else {**config, "batch_size": size}


def test_messages_are_those_of_the_outputs(bench: Bench) -> None:
    maps = {
        "orders": {"name": "name.lower() if name else 'none'", "double": "price * 2", "at": None},
        "names": {"__source__": "orders", "__else__": None, "id": "id", "__filter__": "id < 3"},
    }
    messages = bench.tap(settings(bench, maps))
    assert [message["stream"] for message in of_type(messages, "SCHEMA")] == ["orders", "names"]
    first, second = of_type(messages, "SCHEMA")
    assert list(first["schema"]["properties"]) == ["id", "name", "price", "double"]
    assert (first["key_properties"], second["key_properties"]) == (["id"], ["id"])
    assert records(messages, "orders") == [
        {"id": 1, "name": "ann", "price": 1.5, "double": 3.0},
        {"id": 2, "name": "bob", "price": 2.25, "double": 4.5},
        {"id": 3, "name": "none", "price": 0.5, "double": 1.0},
    ]
    assert records(messages, "names") == [{"id": 1}, {"id": 2}]
    versions = [message["stream"] for message in of_type(messages, "ACTIVATE_VERSION")]
    assert versions == ["orders", "names"] * 2
    assert messages[-1]["type"] == "STATE"


def test_a_removed_stream_is_not_read_and_its_state_stays(bench: Bench, spark: Any) -> None:
    both = settings(bench, {"gone": None})
    both["streams"].append({**both["streams"][0], "name": "gone"})
    catalog = catalog_for(spark, tap_config(both))
    both["streams"][1]["path"] = "/no/such/file"
    state = {"bookmarks": {"gone": {"x": 1}}}
    messages = bench.tap(both, state, catalog)
    assert {message["stream"] for message in of_type(messages, "RECORD")} == {"orders"}
    assert messages[-1]["value"]["bookmarks"]["gone"] == {"x": 1}


@pytest.mark.parametrize(
    ("form", "maps", "is_sorted"),
    [
        ("RECORD", {"at": None, "__filter__": IN_PYTHON}, True),
        ("RECORD", {"at": "'never'"}, False),
        ("RECORD", {"__filter__": "id != 2"}, False),
        ("jsonl", {"at": "id", "__filter__": "id != 2"}, True),
        ("jsonl", {"at": None}, False),
        ("parquet", {"at": None, "__filter__": "id > 100"}, True),
        ("parquet", {"at": "'never'", "__filter__": {"sql": "id < 2"}}, False),
        ("csv", {"at": None}, False),
    ],
)
def test_the_key_is_followed_as_it_was_read(
    bench: Bench, form: str, maps: dict[str, Any], is_sorted: bool
) -> None:
    stream = {
        "replication_key": "at",
        "replication_method": "INCREMENTAL",
        "sort_by_replication_key": is_sorted,
    }
    more = {} if form == "RECORD" else {"batch_config": batches(bench, form, 2)}
    messages = bench.tap(settings(bench, {"orders": maps}, stream=stream, **more))
    [actual] = of_type(messages, "SCHEMA")
    mapped = records(messages, "orders") if form == "RECORD" else sent_files(messages, "orders")
    # Rows that the filter leaves out move the bookmark too.
    kept = {IN_PYTHON: 2, "id != 2": 2, "id > 100": 0}.get(str(maps.get("__filter__")), 1)
    assert len(mapped) == (kept if "__filter__" in maps else 3)
    has_key = maps.get("at", "at") is not None
    assert all(("at" in row) == has_key for row in mapped)
    assert actual.get("bookmark_properties", []) == (["at"] if has_key else [])
    bookmark = messages[-1]["value"]["bookmarks"]["orders"]
    assert bookmark == {"replication_key": "at", "replication_key_value": "2026-01-03"}


@pytest.mark.parametrize("form", ["RECORD", "jsonl"])
def test_the_key_of_a_stream_that_is_split(bench: Bench, form: str) -> None:
    stream = {"replication_key": "at", "replication_method": "INCREMENTAL"}
    maps = {
        "orders": {"at": None, "__filter__": "id == 1"},
        "others": {"__source__": "orders", "at": None, "__filter__": "id == 3"},
    }
    more = {} if form == "RECORD" else {"batch_config": batches(bench, form)}
    messages = bench.tap(settings(bench, maps, stream=stream, **more))
    got = (lambda name: records(messages, name)) if form == "RECORD" else None
    rows = got or (lambda name: sent_files(messages, name))
    assert [row["id"] for row in rows("orders")] == [1]
    assert [row["id"] for row in rows("others")] == [3]
    value = messages[-1]["value"]["bookmarks"]["orders"]["replication_key_value"]
    assert value == "2026-01-03"
    last = max(n for n, message in enumerate(messages) if message["type"] in {"RECORD", "BATCH"})
    assert all(message["type"] != "STATE" for message in messages[:last])


def test_a_filter_that_removes_everything(bench: Bench) -> None:
    messages = bench.tap(settings(bench, {"orders": {"__filter__": "id > 100"}}))
    assert not of_type(messages, "RECORD")
    assert [message["type"] for message in messages] == [
        "SCHEMA", "ACTIVATE_VERSION", "ACTIVATE_VERSION", "STATE",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "failing"),
    [("RECORD", "int(name)"), ("jsonl", "int(name)"), ("parquet", {"sql": "cast(name as int)"})],
)
def test_a_row_that_cannot_be_mapped_ends_the_run(bench: Bench, form: str, failing: Any) -> None:
    more = {} if form == "RECORD" else {"batch_config": batches(bench, form)}
    with pytest.raises(RecordError) as caught:
        bench.tap(settings(bench, {"orders": {"n": failing}}, **more))
    text = str(caught.value)
    assert text.startswith("stream 'orders', setting 'stream_maps': property 'n': ")
    assert "Error" in text
    assert caught.value.exit_code == 5
    states = [message["value"] for message in of_type(bench.messages(), "STATE")]
    assert all(state == {"bookmarks": {}} for state in states)


def test_all_maps_are_planned_before_the_first_line(bench: Bench) -> None:
    maps = {"orders": {"total": "prise * 2"}}
    both = settings(bench, maps)
    both["streams"].insert(0, {**both["streams"][0], "name": "first"})
    with pytest.raises(SettingsError, match=r"prise.*price") as caught:
        bench.tap(both)
    assert caught.value.exit_code == 2
    assert bench.messages() == []
    with pytest.raises(SettingsError, match="prise"):
        bench.tested(both)
    assert bench.messages() == []


def test_the_test_writes_one_record_of_each_output(bench: Bench) -> None:
    maps = {"orders": {"at": None}, "copy": {"__source__": "orders", "__filter__": "id == 3"}}
    messages = bench.tested(settings(bench, maps))
    assert [(message["type"], message["stream"]) for message in messages] == [
        ("SCHEMA", "orders"), ("RECORD", "orders"), ("SCHEMA", "copy"), ("RECORD", "copy"),
    ]  # fmt: skip
    assert records(messages, "copy")[0]["id"] == 3
    only = bench.tested(settings(bench, maps), "schema")
    assert [message["type"] for message in only] == ["SCHEMA", "SCHEMA"]


def test_only_what_is_needed_is_read(bench: Bench, spark: Any) -> None:
    path = bench.folder / "wide.parquet"
    pq.write_table(pa.table({"id": [1], "a": ["x"], "b": ["y"], "c": [1.5]}), path)
    maps = {"wide": {"made": "a", "__else__": None, "id": "id"}}
    seen: list[str] = []

    class Watch:
        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

    bench.spark = Watch()  # type: ignore[assignment]
    from tap_spark.send import spark_slices

    real = spark_slices.write_records

    def write(session: Any, plan: Any, piece: Slice, *more: Any, **named: Any) -> Any:
        seen.append(piece.frame._jdf.queryExecution().executedPlan().toString())
        return real(session, plan, piece, *more, **named)

    bench.patch.setattr(spark_slices, "write_records", write)
    streams = [{"name": "wide", "format": "parquet", "path": str(path)}]
    messages = bench.tap({"streams": streams, "stream_maps": maps})
    assert records(messages, "wide") == [{"id": 1, "made": "x"}]
    [explained] = seen
    assert "ReadSchema: struct<id:bigint,a:string>" in explained


@pytest.mark.parametrize("own", [(), (DELETED_AT,)])
def test_deletions_of_a_log_pass_the_maps(bench: Bench, spark: Any, own: tuple[str, ...]) -> None:
    frame = spark.createDataFrame(
        [(1, "a", None), (2, None, "2026-01-01")], f"id long, name string, {DELETED_AT} string"
    )
    struct = frame.schema if own else frame.drop(DELETED_AT).schema
    schema = spark_to_json_schema(frame.schema)
    plan = StreamPlan(
        stream="s",
        tap_stream_id="s",
        config=StreamConfig(name="s", format="delta"),
        schema=schema,
        columns=("id", "name", *own),
        key_properties=("id",),
        method=Method.LOG_BASED,
        resume=Resume.LOG_POSITION,
        source_schema=struct.json(),
    )
    supplied = settings(bench, {"s": {"name": "name or '-'"}})
    outputs, _ = outputs_of(tap_config(supplied).transforms, [plan], lambda: spark)
    [output] = outputs.of(plan)
    laid = output.mapped_slice(Slice(frame, ordered=True))
    assert laid.key_column is None
    assert [tuple(row) for row in laid.frame.orderBy("id").collect()] == [
        (1, "a", None), (2, "-", "2026-01-01"),
    ]  # fmt: skip


def test_rows_of_other_types_than_planned_are_mapped_by_those(bench: Bench, spark: Any) -> None:
    plan = StreamPlan(
        stream="s",
        tap_stream_id="s",
        config=StreamConfig(name="s", format="delta"),
        schema={
            "type": "object",
            "properties": {"id": {"type": "integer"}, "n": {"type": "number"}},
        },
        columns=("id", "n"),
    )
    supplied = settings(bench, {"s": {"twice": "n * 2"}})
    outputs, _ = outputs_of(tap_config(supplied).transforms, [plan], lambda: spark)
    [output] = outputs.of(plan)
    frame = spark.createDataFrame([(1, 3)], "id int, n int")
    [row] = output.mapped_slice(Slice(frame)).frame.collect()
    assert (row.id, row.n, row.twice) == (1, 3, 6)
