"""Iceberg tables that change with their streams, and their files on disk."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from lake_loads import IcebergLoad, run_together, struct

from shared.errors import SettingsError
from target_spark.core.load_plans import Layout, SchemaContract
from target_spark.replays import Note

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., IcebergLoad]


def test_columns_come_and_go_in_any_order(iceberg_load: Make) -> None:
    load = iceberg_load("id long, name string", keys=("id",), method="upsert")
    load.load([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    load.struct = struct("at date, id long")
    load.schema = {"properties": {"at": {"description": "when"}}}
    load.load([{"id": 2, "at": dt.date(2024, 1, 1)}, {"id": 3}])
    assert load.columns() == [("id", "bigint"), ("name", "string"), ("at", "date")]
    assert load.rows() == [(1, "a", None), (2, "b", dt.date(2024, 1, 1)), (3, None, None)]
    assert load.sql("DESCRIBE {t}")[2][2] == "when"


def test_types_widen_in_place(iceberg_load: Make) -> None:
    load = iceberg_load(
        "id int, f float, d decimal(5,2), s smallint, x struct<n: int>, a array<float>"
    )
    first = {"id": 1, "f": 0.5, "d": Decimal("1.25"), "s": 1, "x": {"n": 1}, "a": [0.5]}
    load.load([first])
    files = {row[0] for row in load.sql("SELECT file_path FROM {t}.files")}
    load.struct = struct(
        "id long, f double, d decimal(10,2), s long, x struct<n: long>, a array<double>"
    )
    big = {"id": 1 << 40, "f": 1e300, "d": Decimal("12345678.25"), "s": 1 << 40,
           "x": {"n": 1 << 40}, "a": [1e300]}  # fmt: skip
    load.load([big])
    assert [dtype for _, dtype in load.columns()] == [
        "bigint", "double", "decimal(10,2)", "bigint", "struct<n:bigint>", "array<double>",
    ]  # fmt: skip
    assert [tuple(row) for row in load.rows("id", "f", "d")] == [
        (1, 0.5, Decimal("1.25")),
        (1 << 40, 1e300, Decimal("12345678.25")),
    ]
    assert files < {row[0] for row in load.sql("SELECT file_path FROM {t}.files")}
    load.struct = struct("id int, f float, d decimal(5,2), s int, x struct<n: int>, a array<float>")
    load.load([first])
    assert len(load.rows()) == 3


def test_fields_inside_grow(iceberg_load: Make) -> None:
    inner = "struct<a: long>"
    load = iceberg_load(f"id long, s {inner}, l array<{inner}>, m map<string, {inner}>")
    load.load([{"id": 1, "s": {"a": 1}, "l": [{"a": 1}], "m": [("k", {"a": 1})]}])
    load.struct = struct(
        "id long, s struct<b: string, a: long>, l array<struct<`b c`: date, a: long>>, "
        "m map<string, struct<a: long, d: double>>"
    )
    load.load([{"id": 2, "s": {"a": 2, "b": "x"}, "l": [{"a": 2, "b c": dt.date(2024, 1, 1)}],
                "m": [("k", {"a": 2, "d": 0.5})]}])  # fmt: skip
    assert load.columns()[1:] == [
        ("s", "struct<a:bigint,b:string>"),
        ("l", "array<struct<a:bigint,b c:date>>"),
        ("m", "map<string,struct<a:bigint,d:double>>"),
    ]
    actual = {row[0]: row for row in load.rows()}
    assert actual[1][1].asDict() == {"a": 1, "b": None}
    assert actual[2][2][0].asDict() == {"a": 2, "b c": dt.date(2024, 1, 1)}
    assert actual[2][3]["k"].asDict() == {"a": 2, "d": 0.5}


@pytest.mark.parametrize(
    # The first one is the same code as in test_delta_evolution.py.
    "rule",
    [pytest.param("fail", marks=pytest.mark.slow), "suffix", "cast"],
)
def test_types_in_conflict_follow_the_rule(iceberg_load: Make, rule: str) -> None:
    load = iceberg_load("id long, v long", type_conflicts=rule)
    load.load([{"id": 1, "v": 5}])
    load.struct = struct("id long, v array<string>")
    if rule == "fail":
        with pytest.raises(SettingsError, match="'v'"):
            load.load([{"id": 2, "v": ["x"]}])
        assert load.rows() == [(1, 5)]
        return
    load.load([{"id": 2, "v": ["x"]}])
    load.load([{"id": 3, "v": None}])
    if rule == "cast":
        assert load.rows() == [(1, "5"), (2, '["x"]'), (3, None)]
    else:
        assert [row[:2] for row in load.rows()] == [(1, 5), (2, None), (3, None)]
        assert [row[2] for row in load.rows()] == [None, ["x"], None]


def test_a_required_key_may_become_optional(iceberg_load: Make) -> None:
    load = iceberg_load("id long not null, k string not null, v long not null",
                   keys=("id", "k"), method="upsert")  # fmt: skip
    load.load([{"id": 1, "k": "a", "v": 1}])
    assert load.properties()["identifier-fields"] in {"[id,k]", "[k,id]"}
    load.struct = struct("id long not null, k string, v long")
    load.load([{"id": 1, "k": None, "v": None}, {"id": 1, "k": "a", "v": 2}])
    assert load.rows() == [(1, "a", 2), (1, None, None)]
    assert load.properties().get("identifier-fields", "[]") == "[]"


def test_a_variant_takes_version_3_of_the_format(iceberg_load: Make) -> None:
    load = iceberg_load("id long", keys=("id",), method="upsert")
    load.load([{"id": 1}])
    assert load.properties()["format-version"] == "2"
    load.struct = struct("id long, data variant")
    load.load([{"id": 2, "data": '{"a": [1, null]}'}])
    other = iceberg_load("id long, data variant", table="other")
    other.load([{"id": 1, "data": '{"a": 1}'}])
    for each in (load, other):
        assert each.properties()["format-version"] == "3"
    assert load.sql("SELECT to_json(data) FROM {t} WHERE id = 2")[0][0] == '{"a":[1,null]}'


def test_types_that_iceberg_lacks_are_kept_as_text(iceberg_load: Make) -> None:
    load = iceberg_load("id tinyint, t time(6), i interval day to second")
    load.load([{"id": 1, "t": dt.time(1, 2, 3), "i": 86_400_000_000}])
    assert [dtype for _, dtype in load.columns()] == ["int", "string", "string"]
    assert load.rows("id", "t")[0] == (1, "01:02:03")


def test_a_table_is_laid_out_as_asked(iceberg_load: Make) -> None:
    layout = Layout(
        partition_by=("months(at)", "bucket(4, id)", "truncate(2, name)", "kind"),
        cluster_by=("name", "id"),
        target_file_bytes=1 << 20,
        properties={"write.merge.mode": "merge-on-read", "it's": 'a "b" \\ ${c}'},
    )
    load = iceberg_load("id long, name string, at timestamp, kind string", layout=layout)
    load.load([{"id": n, "name": f"n{n}", "kind": "k"} for n in range(3)])
    actual = {row[0]: row[1] for row in load.sql("DESCRIBE EXTENDED {t}")}
    parts = [actual[f"Part {n}"] for n in range(4)]
    assert parts == ["months(at)", "bucket(4, id)", "truncate(2, name)", "kind"]
    properties = load.properties()
    assert properties["sort-order"] == "name ASC NULLS FIRST, id ASC NULLS FIRST"
    assert properties["write.target-file-size-bytes"] == "1048576"
    assert properties["write.merge.mode"] == "merge-on-read"
    assert properties["it's"] == 'a "b" \\ ${c}'


def test_new_rows_follow_new_partitions(iceberg_load: Make) -> None:
    frozen = SchemaContract("freeze", "freeze", "freeze")
    load = iceberg_load("id long, at timestamp", keys=("id",))
    load.load([row_at(1), row_at(2)])
    reported: list[str] = []
    load.begin()
    load.contract, load.layout = frozen, Layout(partition_by=("day(at)", "bucket(4, id)"))
    load.destination.changed = lambda _, lines: reported.extend(lines)
    added = ["partition new rows by days(at)", "partition new rows by bucket(4, id)"]
    assert list(load.destination.preview(load.request)) == added
    load.load([row_at(3)])
    load.load([row_at(4)])
    first, second, _ = load.sql("SELECT spec_id, file_path FROM {t}.files ORDER BY 1, 2")
    assert (first[0] < second[0], "at_day=2024-01-03" in second[1]) == (True, True)
    load.layout = Layout()
    assert list(load.destination.preview(load.request)) == []
    # A MERGE over files of all specs.
    load.method, load.layout = "upsert", Layout(partition_by=("hours(at)",))
    load.load([row_at(5), {**row_at(1), "at": row_at(6)["at"]}])
    assert load.partitions() == ["hours(at)"]
    assert reported == [*added, "partition new rows by hours(at) instead of days(at)",
                    "no longer partition new rows by bucket(4, id)"]  # fmt: skip
    load.method, load.contract = "append-only", SchemaContract()
    load.struct = struct("id long, at timestamp, kind string")
    load.layout = Layout(partition_by=("kind", "day(at)", "bucket(4, id)"))
    load.load([{**row_at(7), "kind": "x"}])
    actual = load.pyiceberg()
    fields = {(field.name, str(field.transform)) for field in actual.spec().fields}
    assert fields == {("at_day", "day"), ("id_bucket_4", "bucket[4]"), ("kind", "identity")}
    wanted = [(1, 6), (2, 2), (3, 3), (4, 4), (5, 5), (7, 7)]
    rows = [(row["id"], row["at"].day) for row in actual.scan().to_arrow().to_pylist()]
    assert sorted(rows) == wanted
    assert [(row[0], row[1].day) for row in load.rows("id", "at")] == wanted


def test_programs_that_change_partitions_together(iceberg_load: Make) -> None:
    load = iceberg_load("id long, at timestamp")
    load.load([row_at(1)])
    load.layout = Layout(partition_by=("truncate(10, id)", "at"))
    other = load.other()
    run_together(lambda: load.load([row_at(2)]), lambda: other.load([row_at(3)]))
    other.destination._close()
    assert sorted(load.partitions()) == ["at", "truncate(10, id)"]
    assert [row[0] for row in load.rows("id")] == [1, 2, 3]


def row_at(number: int) -> dict[str, object]:
    return {"id": number, "at": dt.datetime(2024, 1, number, 12, tzinfo=dt.timezone.utc)}


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout(partition_by=("decades(at)",)), r"decades"),
        (Layout(partition_by=("bucket(4, nothing)",)), r"nothing"),
        (Layout(cluster_by=("nothing",)), r"nothing"),
    ],
)
def test_a_layout_that_cannot_be_is_an_error(iceberg_load: Make, layout: Layout, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        iceberg_load("id long, at timestamp", layout=layout).load([{"id": 1}])


def test_compaction_joins_small_files_and_expires_nothing(iceberg_load: Make) -> None:
    layout = Layout(cluster_by=("id",), compact=True, target_file_bytes=1 << 20)
    load = iceberg_load("id long, name string", layout=layout)
    for n in range(5):
        load.load([{"id": 5 - n, "name": "x"}], noted=True)
    # Files of other partitions move to those of now.
    load.layout = replace(layout, partition_by=("name",))
    load.load([{"id": 0, "name": "x"}], noted=True)
    snapshots = len(load.history())
    load.destination.keep(load.request, Note())  # as a run does once a STATE covers its rows
    load.end()
    files = load.sql("SELECT record_count, spec_id, file_path FROM {t}.files ORDER BY 1")
    assert [row[:2] for row in files] == [(1, 1), (5, 1)]
    assert len(load.history()) > snapshots
    path = files[1][2]
    ids = [row[0] for row in load.reader().read.parquet(path).select("id").collect()]
    assert ids == sorted(ids)
    load.begin()
    assert load.recall() == frozenset()


def test_a_merge_reads_only_partitions_of_its_rows(iceberg_load: Make) -> None:
    load = iceberg_load("id long, day date, name string", keys=("id", "day"), method="upsert",
                   layout=Layout(partition_by=("day",)))  # fmt: skip
    load.load([{"id": n, "day": dt.date(2024, 1, 1 + n)} for n in range(5)])
    load.load([{"id": 3, "day": dt.date(2024, 1, 4), "name": "b"}])
    summary = load.history()[-1]["summary"]
    assert (summary["deleted-data-files"], summary["added-data-files"]) == ("1", "1")


def test_merge_on_read_reads_back_what_was_merged(iceberg_load: Make) -> None:
    properties = {f"write.{verb}.mode": "merge-on-read" for verb in ("merge", "update", "delete")}
    load = iceberg_load("id long, name string", keys=("id",), method="upsert",
                   layout=Layout(properties=properties, compact=True))  # fmt: skip
    load.load([{"id": n, "name": "a"} for n in range(4)])
    load.load([{"id": 1, "name": "b"}])
    load.end()
    assert load.rows() == [(0, "a"), (1, "b"), (2, "a"), (3, "a")]
    assert int(load.history()[1]["summary"].get("added-delete-files", "0")) == 1
