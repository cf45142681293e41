"""Maps in the target: rows made by Spark from RECORDs and files, and records that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mapped_bench import Bench, plain, record, schema, state

from shared.errors import RecordError, SettingsError

pytestmark = pytest.mark.spark

PROPERTIES = {
    "id": {"type": "integer"},
    "name": {"type": ["string", "null"]},
    "price": {"type": ["number", "null"]},
    "at": {"type": ["string", "null"], "format": "date-time"},
    "tags": {"type": ["array", "null"], "items": {"type": "string"}},
    "deep": {"type": ["object", "null"], "properties": {"a": {"type": "integer"}, "b": {}}},
    "any": {},
}
AT = "2026-07-01T12:00:00.123456+00:00"


def row(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "name": ["ann", None, "ünï"][number % 3],
        "price": number / 4,
        "at": AT,
        "tags": ["x", str(number)],
        "deep": {"a": number, "b": [1, {"c": "d"}]},
        "any": {"z": 1, "y": number},
        **more,
    }


MAPS = {"s": {"label": "name", "price": None, "double": "id * 2", "tags": "tags", "deep": "deep"}}


def sent(count: int, **more: Any) -> list[dict[str, Any]]:
    rows = [record("s", row(number, **more)) for number in range(count)]
    return [schema("s", PROPERTIES, "id"), *rows, state({"at": count})]


def expected(number: int) -> dict[str, Any]:
    actual = row(number)
    label = actual["name"]
    return {
        "id": number, "name": label, "at": actual["at"], "tags": actual["tags"],
        "deep": {"a": number, "b": '[1,{"c":"d"}]'}, "any": f'{{"z":1,"y":{number}}}',
        "label": label, "double": number * 2,
    }  # fmt: skip


def as_json(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**row, "at": row["at"].isoformat(timespec="microseconds")} if "at" in row else row
        for row in rows
    ]


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_rows_are_those_of_the_maps(bench: Bench, spark: Any, form: str) -> None:
    loaded = bench.target(sent(6), {"stream_maps": MAPS, "format": form})
    assert loaded.states == [{"at": 6}]
    if form == "parquet":
        assert as_json(plain(loaded.rows("s"))) == [expected(number) for number in range(6)]
        assert len(loaded.table("s").column_names) == 8 + 7
    else:
        frame = spark.read.orc(str(loaded.path / "s")).orderBy("id")
        assert [actual.double for actual in frame.collect()] == [0, 2, 4, 6, 8, 10]


def test_json_and_csv_hold_the_same(bench: Bench, spark: Any) -> None:
    settings = {"stream_maps": MAPS, "add_record_metadata": False}
    text = bench.target(sent(3), {**settings, "format": "json"})
    lines = [
        json.loads(line)
        for file in sorted((text.path / "s").glob("part-*"))
        for line in file.read_text().splitlines()
    ]
    assert sorted(lines, key=lambda actual: actual["id"]) == [expected(n) for n in range(3)]
    flat = bench.target(sent(3), {**settings, "format": "csv"})
    reader = spark.read.option("header", True).option("escape", '"')
    actual = reader.csv(str(flat.path / "s")).orderBy("id").collect()
    assert [(row.id, row.double, json.loads(row.tags)) for row in actual] == [
        (str(n), str(2 * n), ["x", str(n)]) for n in range(3)
    ]


def test_a_table_grows_with_its_maps(either_bench: Bench) -> None:
    path = {"path": str(either_bench.folder / "table"), "add_record_metadata": False}
    one = {"s": {"__else__": None, "id": "id", "n": "id"}}
    two = {"s": {"__else__": None, "id": "id", "n": "price", "more": "name"}}
    either_bench.target(sent(1), {**path, "stream_maps": one})
    loaded = either_bench.target(sent(2), {**path, "stream_maps": two})
    actual = [(r["id"], r["n"], r["more"]) for r in loaded.rows("s")]
    assert loaded.table("s").num_rows == 3
    assert set(actual) == {(0, 0.0, None), (0, 0.0, "ann"), (1, 0.25, None)}


def test_streams_are_split_renamed_and_removed(either_bench: Bench) -> None:
    maps = {
        "s": {"__alias__": "'even'", "__filter__": "id % 2 == 0", "__else__": None, "id": "id"},
        "odd": {"__source__": "s", "__filter__": "id % 2 == 1", "deep": None, "any": None},
        "gone": None,
    }
    gone = [schema("gone", PROPERTIES, "id"), record("gone", row(1))]
    gone += [{"type": "ACTIVATE_VERSION", "stream": "gone", "version": 4}]
    loaded = either_bench.target([*gone, *sent(5)], {"stream_maps": maps})
    assert loaded.tables == ["even", "odd"]
    assert [actual["id"] for actual in loaded.rows("even")] == [0, 2, 4]
    assert plain(loaded.rows("even"))[0] == {"id": 0}
    assert [actual["id"] for actual in loaded.rows("odd")] == [1, 3]
    assert loaded.states == [{"at": 5}]


def test_a_filter_that_removes_everything(either_bench: Bench) -> None:
    loaded = either_bench.target(sent(4), {"stream_maps": {"s": {"__filter__": "id > 100"}}})
    assert loaded.states == [{"at": 4}]
    assert loaded.tables in ([], ["s"])
    if loaded.tables:
        assert loaded.table("s").num_rows == 0


def test_flattening(either_bench: Bench) -> None:
    settings = {"flattening_enabled": True, "flattening_max_depth": 2}
    loaded = either_bench.target(sent(2), {**settings, "add_record_metadata": False})
    first = loaded.rows("s")[0]
    assert first["deep__a"] == 0
    assert json.loads(first["tags"]) == ["x", "0"]
    assert "deep" not in first


FAILS = {"s": {"number": "int(name)", "__else__": None, "id": "id"}}
NAMES = ["1", "x", "3", "y"]


def failing() -> list[dict[str, Any]]:
    rows = [record("s", row(n, name=name)) for n, name in enumerate(NAMES)]
    return [schema("s", PROPERTIES, "id"), *rows, state(1)]


def test_a_record_that_cannot_be_mapped_fails_the_batch_with_its_line(either_bench: Bench) -> None:
    with pytest.raises(RecordError) as caught:
        either_bench.target(failing(), {"stream_maps": FAILS})
    text = str(caught.value)
    assert "line 3" in text
    assert "property 'number'" in text
    assert "ValueError" in text
    assert "2 records of this batch" in text


def test_it_is_left_out_where_the_policy_says_so(
    either_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"stream_maps": FAILS, "failure": {"policy": "LogAndContinue"}}
    loaded = either_bench.target(failing(), settings)
    assert [(actual["id"], actual["number"]) for actual in loaded.rows("s")] == [(0, 1), (2, 3)]
    assert "line 3: rejected: property 'number'" in caplog.text
    assert "stream 's': records rejected: 2" in caplog.text


def test_dead_letters_hold_the_original_and_can_be_loaded_again(either_bench: Bench) -> None:
    letters = either_bench.folder / "letters"
    policy = {"policy": "SendToDLQ", "dead_letter_path": str(letters)}
    bad = record("s", {**row(9), "id": "no integer"})
    sent_now = [*failing(), bad]
    either_bench.target(sent_now, {"stream_maps": FAILS, "failure": policy})
    lines = [json.loads(x) for file in letters.iterdir() for x in file.read_text().splitlines()]
    actual = [line for line in lines if line["type"] == "RECORD"]
    assert sorted(line["_sdc_error"]["line"] for line in actual) == [3, 5, 7]
    kept = {line["_sdc_error"]["line"]: line["record"] for line in actual}
    assert kept[3] == row(1, name="x")
    again = either_bench.target(
        [line for line in lines if line.get("record", {}).get("id") != "no integer"],
        {"stream_maps": {"s": {"name": "name"}}},
    )
    assert sorted(actual["name"] for actual in again.rows("s")) == ["x", "y"]


def test_dead_letters_of_several_outputs_are_loaded_into_those_that_lack_them(
    either_bench: Bench,
) -> None:
    letters = either_bench.folder / "letters"
    fails = {"number": "int(name)"}
    maps = {"copy": {"__source__": "s"}, **{n: {"__source__": "s", **fails} for n in ("a", "b")}}
    settings = {
        "stream_maps": maps,
        "path": str(either_bench.folder / "table"),
        "failure": {"policy": "SendToDLQ", "dead_letter_path": str(letters)},
        "max_errors": 3,
    }
    rows = [record("s", row(n, name=name)) for n, name in enumerate(NAMES)]
    bad = record("s", {**row(9, name="9"), "id": "no integer"})
    either_bench.target([schema("s", PROPERTIES, "id"), *rows, bad, state(1)], settings)
    (file,) = letters.iterdir()
    text = file.read_text().replace('"no integer"', "9").replace('"x"', '"2"')
    again = [json.loads(line) for line in text.replace('"y"', '"4"').splitlines()]
    assert len(again) == 3 + 1 + 2 * 2
    assert again[-1]["_sdc_error"]["reason"].startswith("output 'b': property 'number': ")
    with pytest.raises(SettingsError, match="dead letters are for the output 'a'"):
        either_bench.target(again, {**settings, "stream_maps": {}})
    loaded = either_bench.target(again, settings)
    for name in ("s", "copy", "a", "b"):
        assert [actual["id"] for actual in loaded.rows(name)] == [0, 1, 2, 3, 9]


def batch(path: Path, form: str, codec: str = "none") -> dict[str, Any]:
    encoding = {"format": form, "compression": codec}
    return {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": [f"file://{path}"]}


def test_rows_of_batch_files_that_fail_are_named_by_file_and_row(
    either_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    path = either_bench.folder / "a.parquet"
    pq.write_table(pa.table({"id": range(4), "name": NAMES}), path, row_group_size=2)
    letters = either_bench.folder / "letters"
    policy = {"policy": "SendToDLQ", "dead_letter_path": str(letters)}
    messages = [schema("s", PROPERTIES, "id"), batch(path, "parquet"), state(1)]
    loaded = either_bench.target(messages, {"stream_maps": FAILS, "failure": policy})
    assert [actual["number"] for actual in loaded.rows("s")] == [1, 3]
    assert f"file '{path}', line 2: rejected" in caplog.text
    lines = [json.loads(x) for file in letters.iterdir() for x in file.read_text().splitlines()]
    assert [line["record"] for line in lines if line["type"] == "RECORD"] == [
        {"id": 1, "name": "x"}, {"id": 3, "name": "y"},
    ]  # fmt: skip


def test_a_record_in_two_outputs_is_told_once_where_it_cannot_be_read(
    either_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    maps = {"s": {"name": "name"}, "copy": {"__source__": "s", "deep": None}}
    rows = [record("s", row(0)), record("s", {**row(1), "id": "x"})]
    settings = {"stream_maps": maps, "failure": {"policy": "LogAndContinue"}}
    loaded = either_bench.target([schema("s", PROPERTIES, "id"), *rows], settings)
    assert [len(loaded.rows(name)) for name in ("s", "copy")] == [1, 1]
    assert "records rejected: 1" in caplog.text


def test_what_is_not_read_is_not_checked(either_bench: Bench) -> None:
    maps = {"s": {"__else__": None, "id": "id"}}
    rows = [record("s", {"id": 1, "price": "no number"})]
    loaded = either_bench.target([schema("s", PROPERTIES, "id"), *rows], {"stream_maps": maps})
    assert plain(loaded.rows("s")) == [{"id": 1}]


def test_maps_that_do_not_fit_end_the_run_before_the_stream(bench: Bench) -> None:
    maps = {"s": {"total": "prise * 2"}}
    path = bench.folder / "table"
    good = [schema("good", PROPERTIES, "id"), record("good", row(1)), state("good")]
    with pytest.raises(SettingsError, match=r"prise.*price") as caught:
        bench.target([*good, *sent(2)], {"stream_maps": maps, "path": str(path)})
    assert caught.value.exit_code == 2
    assert "stream_maps" in str(caught.value)
    assert bench.messages() == ["good"]
    assert sorted(p.name for p in path.iterdir() if p.name[0] != ".") == ["good"]


def test_a_new_schema_within_the_run_is_mapped_anew(either_bench: Bench) -> None:
    maps = {"s": {"twice": "id * 2", "price": None}}
    more = {**PROPERTIES, "new": {"type": ["string", "null"]}}
    messages = [
        *sent(2),
        schema("s", more, "id"),
        record("s", row(2, new="n")),
        state(2),
    ]
    loaded = either_bench.target(messages, {"stream_maps": maps})
    actual = loaded.rows("s")
    assert [(r["id"], r["twice"]) for r in actual] == [(0, 0), (1, 2), (2, 4)]
    table = pa.concat_tables(
        [pq.read_table(file) for file in (loaded.path / "s").glob("*.parquet")],
        promote_options="default",
    )
    assert sorted(table["new"].drop_null().to_pylist()) == ["n"]


@pytest.mark.server
def test_documents_are_those_of_the_mapped_record(bench: Bench, lake_spark: Any) -> None:
    maps = {"s": {**MAPS["s"], "key": "id", "__key_properties__": ["key"]}}
    settings = {"stream_maps": maps, "denormalized": False, "format": "delta"}
    loaded = bench.target(sent(2), settings)
    frame = lake_spark.read.format("delta").load(str(loaded.path / "s"))
    rows = frame.selectExpr("key", "to_json(data) as data").orderBy("key").collect()
    assert [row.key for row in rows] == [0, 1]
    assert frame.columns[:2] == ["key", "data"]
    document = json.loads(rows[1].data)
    assert document["double"] == 2
    assert "price" not in document
    assert document["tags"] == ["x", "1"]
    assert document["label"] is None


@pytest.mark.server
def test_upserts_go_by_the_keys_of_the_map(bench: Bench, lake_spark: Any) -> None:
    maps = {"s": {"key": "id % 2", "__key_properties__": ["key"], "__else__": None, "v": "id"}}
    settings = {"stream_maps": maps, "load_method": "upsert", "format": "delta"}
    loaded = bench.target(sent(5), settings)
    rows = lake_spark.read.format("delta").load(str(loaded.path / "s")).orderBy("key").collect()
    assert [(row.key, row.v) for row in rows] == [(0, 4), (1, 3)]


def test_overwriting_goes_by_the_name_of_the_output(either_bench: Bench) -> None:
    maps = {"s": {"name": "name"}, "copy": {"__source__": "s"}}
    settings = {
        "path": str(either_bench.folder / "table"),
        "stream_maps": maps,
        "streams": {"copy": {"load_method": "overwrite"}},
    }
    either_bench.target(sent(3), settings)
    loaded = either_bench.target(sent(2), settings)
    assert [loaded.table(name).num_rows for name in ("s", "copy")] == [5, 2]


def test_parquet_files_are_not_adopted_where_they_are_mapped(either_bench: Bench) -> None:
    path = either_bench.folder / "a.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2]), "name": ["a", "b"]}), path)
    nullable = {"id": {"type": ["integer", "null"]}, "name": {"type": ["string", "null"]}}
    messages = [schema("s", nullable), batch(path, "parquet"), state(1)]
    maps = {"s": {"twice": "id * 2"}}
    loaded = either_bench.target(messages, {"stream_maps": maps, "add_record_metadata": False})
    assert [actual["twice"] for actual in loaded.rows("s")] == [2, 4]
    same = {"stream_maps": {"s": {"__alias__": "'t'"}}, "add_record_metadata": False}
    assert either_bench.target(messages, same).tables == ["t"]


def test_sql_maps(bench: Bench) -> None:
    maps = {"s": {"big": {"sql": "upper(name)"}, "__else__": None, "id": "id"}}
    loaded = bench.target(sent(2), {"stream_maps": maps})
    assert [actual["big"] for actual in loaded.rows("s")] == ["ANN", None]
