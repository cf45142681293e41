"""Rows into Delta tables: appended, merged by key, overwritten, deleted, and never twice."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lake_loads import Load, struct

from shared.errors import DestinationError, SettingsError
from target_spark.plans import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server]
Make = Callable[..., Load]
METADATA = "_sdc_deleted_at timestamp, _sdc_table_version long"
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc)


def row(number: int | None, text: str | None, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": text, **more}


def test_append_only_adds_every_part_and_leaves_nothing_behind(
    delta_load: Make, tmp_path: Path
) -> None:
    load = delta_load("id long, name string")
    load.load([row(1, "a")], [row(1, "a"), row(2, None)])
    load.load([row(3, "c")])
    assert load.rows() == [(1, "a"), (1, "a"), (2, None), (3, "c")]
    load.end()
    shown = [p.name for p in (tmp_path / "lake").iterdir() if not p.name.endswith("lock")]
    assert shown == ["orders"]


def test_another_reader_sees_the_same_rows(delta_load: Make, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    ddl = "id long, name string, at timestamp, amount decimal(12,2), tags array<string>"
    load = delta_load(ddl, keys=("id",), method="upsert")
    rows = [row(n, f"n{n}", at=NOON, amount=Decimal("1.50"), tags=["x", None]) for n in range(5)]
    load.load(rows)
    load.load([row(2, "two", at=None, amount=None, tags=None)])
    load.end()
    found = deltalake.DeltaTable(str(tmp_path / "lake" / "orders")).to_pyarrow_table()
    wanted = {**{r["id"]: r for r in rows}, 2: row(2, "two", at=None, amount=None, tags=None)}
    assert {r["id"]: r for r in found.to_pylist()} == wanted


def test_upsert_keeps_the_newest_row_of_each_key_by_arrival(delta_load: Make) -> None:
    load = delta_load("id long, name string", keys=("id",), method="upsert")
    load.load([row(1, "z"), row(2, "b"), row(1, "a")], [row(2, "bb"), row(3, "c"), row(3, "a")])
    assert load.rows() == [(1, "a"), (2, "bb"), (3, "a")]
    load.load([row(3, "x"), row(4, "d")])
    assert load.rows() == [(1, "a"), (2, "bb"), (3, "x"), (4, "d")]


def test_null_is_a_key_like_any_other(delta_load: Make) -> None:
    load = delta_load("a long, b string, v long", keys=("a", "b"), method="upsert")

    def item(a: int | None, b: str | None, v: int) -> dict[str, Any]:
        return {"a": a, "b": b, "v": v}

    load.load([item(1, None, 1), item(None, None, 2), item(None, None, 3), item(1, "x", 4)])
    load.load([item(1, None, 5), item(None, "x", 6), item(None, None, 7)])
    assert load.rows() == sorted(
        [(1, None, 5), (None, None, 7), (1, "x", 4), (None, "x", 6)], key=repr
    )


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("string", ["it's", "${spark.master}", "a\\b", "\U0001f600", "", "x" * 3000]),
        ("date", [dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]),
        ("timestamp", [NOON, NOON - dt.timedelta(days=40000, microseconds=1)]),
        ("timestamp_ntz", [dt.datetime(2024, 1, 1), dt.datetime(1900, 1, 1, 0, 0, 0, 1)]),
        ("decimal(20,3)", [Decimal("-1.125"), Decimal("0.000"), Decimal("12345678901234567.890")]),
        ("double", [1.5, float("inf"), float("nan"), -0.0]),
        ("long", [-(1 << 63), 0, (1 << 63) - 1]),
        ("boolean", [True, False]),
        ("binary", [b"", b"\xff"]),
    ],
)
def test_keys_of_every_type_find_their_rows(
    delta_load: Make, dtype: str, values: list[Any]
) -> None:
    load = delta_load(f"k {dtype}, v long", keys=("k",), method="upsert")
    load.load([{"k": value, "v": 1} for value in values])
    load.load([{"k": value, "v": 2} for value in values])
    assert [found for (found,) in load.rows("v")] == [2] * len(values)


def test_columns_the_stream_does_not_have_keep_their_values(delta_load: Make) -> None:
    load = delta_load("id long, name string, old long", keys=("id",), method="upsert")
    load.load([row(1, "a", old=10), row(2, "b", old=20)])
    load.struct = struct("name string, id long")
    load.load([row(2, "bb"), row(3, "c")])
    assert load.rows("id", "name", "old") == [(1, "a", 10), (2, "bb", 20), (3, "c", None)]


def test_a_marked_record_is_kept_or_removes_its_row(delta_load: Make) -> None:
    ddl = f"id long, name string, {METADATA}"
    for hard, wanted in ((False, [(1, True), (2, False), (3, True)]), (True, [(2, False)])):
        load = delta_load(ddl, keys=("id",), method="upsert", hard_delete=hard, table=f"t{hard}")
        load.load([row(1, "a"), row(2, "b")])
        load.load(
            [row(1, "a"), row(1, "a", _sdc_deleted_at=NOON), row(3, "c", _sdc_deleted_at=NOON)]
        )
        found = load.rows("id", "_sdc_deleted_at IS NOT NULL") if False else [
            (number, at is not None) for number, at in load.rows("id", "_sdc_deleted_at")
        ]  # fmt: skip
        assert found == wanted


def test_a_deleted_key_may_come_again(delta_load: Make) -> None:
    load = delta_load(
        f"id long, name string, {METADATA}", keys=("id",), method="upsert", hard_delete=True
    )
    load.load([row(1, "a", _sdc_deleted_at=NOON), row(1, "b")])
    assert load.rows("id", "name") == [(1, "b")]


def test_overwrite_replaces_everything_at_the_end_in_one_commit(delta_load: Make) -> None:
    load = delta_load("id long, name string", method="overwrite", schema={"description": "it's"})
    load.load([row(1, "a")], [row(2, "b")])
    load.end()
    assert load.rows() == [(1, "a"), (2, "b")]
    before = len(load.history())
    load.begin()
    load.load([row(3, "c")])
    load.load([row(3, "c")])
    assert load.rows() == [(1, "a"), (2, "b")]
    load.end()
    assert load.rows() == [(3, "c"), (3, "c")]
    assert len(load.history()) == before + 1


def test_overwrite_with_other_columns_is_one_commit_too(delta_load: Make) -> None:
    load = delta_load("id long, name string, gone date", method="overwrite")
    load.load([row(1, "a")])
    load.end()
    before = len(load.history())
    load.begin()
    load.struct = struct("id string, name string")
    load.load([{"id": "x", "name": "y"}])
    load.struct = struct("id string, name string, more long")
    load.load([{"id": "z", "name": None, "more": 1}])
    load.end()
    assert load.columns() == [("id", "string"), ("name", "string"), ("more", "bigint")]
    assert load.rows() == [("x", "y", None), ("z", None, 1)]
    assert len(load.history()) == before + 1


def test_overwrite_with_keys_keeps_the_newest_of_each(delta_load: Make) -> None:
    load = delta_load(
        f"id long, name string, {METADATA}", keys=("id",), method="overwrite", hard_delete=True
    )
    load.load([row(1, "a"), row(2, "b")], [row(1, "aa")])
    load.struct = struct(f"name string, id long, {METADATA}, more int")
    load.load([row(2, "x", _sdc_deleted_at=NOON), row(3, "c", more=1)])
    load.end()
    assert load.rows("id", "name", "more") == [(1, "aa", None), (3, "c", 1)]


def test_overwrite_without_rows_empties_the_table(delta_load: Make) -> None:
    load = delta_load("id long, name string", method="overwrite")
    load.load([row(1, "a")])
    load.end()
    load.begin()
    load.load()
    load.end()
    assert load.rows() == []


def test_a_run_that_does_not_end_overwrites_nothing(delta_load: Make) -> None:
    load = delta_load("id long, name string", method="overwrite")
    load.load([row(1, "a")])
    load.end()
    load.begin()
    load.load([row(2, "b")])
    load.begin()
    assert load.rows() == [(1, "a")]


def test_a_flush_without_rows_makes_the_table(delta_load: Make) -> None:
    load = delta_load("id long, name string")
    load.load()
    assert load.rows() == []


def test_an_activated_version_removes_or_marks_older_rows(delta_load: Make) -> None:
    ddl = f"id long, {METADATA}"
    for hard in (True, False):
        load = delta_load(ddl, hard_delete=hard, table=f"v{hard}")
        load.activate(5)
        old = [{"id": 1, "_sdc_table_version": 1}, {"id": 2, "_sdc_table_version": None}]
        load.load([*old, {"id": 3, "_sdc_table_version": 2, "_sdc_deleted_at": NOON}])
        load.load([{"id": 4, "_sdc_table_version": 5}])
        load.activate(5)
        load.activate(5)
        found = dict(load.rows("id", "_sdc_deleted_at"))
        if hard:
            assert found == {2: None, 4: None}
        else:
            day = dt.datetime(1970, 1, 2)
            assert {n: at and at.replace(tzinfo=None) for n, at in found.items()} == {
                1: day, 2: None, 3: NOON.replace(tzinfo=None), 4: None,
            }  # fmt: skip


@pytest.mark.parametrize("method", ["append-only", "upsert"])
def test_a_commit_repeated_changes_nothing(delta_load: Make, method: str) -> None:
    load = delta_load("id long, name string", keys=("id",), method=method)
    flush = load.load([row(1, "a")])
    later = load.load([row(1, "b")])
    before = len(load.history())
    load.destination.commit(flush)
    load.destination.commit(later)
    assert len(load.history()) == before
    assert (1, "b") in load.rows()


def test_delta_itself_refuses_a_flush_it_has(delta_load: Make) -> None:
    """As when the answer to a commit got lost: the destination knows nothing of it."""
    load = delta_load("id long, name string")
    flush = load.flush([row(1, "a")], token="r-000001")
    load.destination.commit(flush)
    again = load.other()
    again.destination.commit(again.flush([row(1, "a")], token="r-000001"))
    assert load.rows() == [(1, "a")]


def test_flushes_whose_numbers_do_not_rise_are_all_there(delta_load: Make) -> None:
    load = delta_load("id long, name string")
    for number in (5, 3, 4):
        load.destination.commit(load.flush([row(number, "x")], token=f"r-{number:06d}"))
    assert [number for number, _ in load.rows()] == [3, 4, 5]


def test_the_note_of_a_crashed_run_is_given_back_until_a_run_ends(delta_load: Make) -> None:
    load = delta_load("id long, name string")
    assert load.note() is None
    load.load([row(1, "a")], note="first")
    load.load([row(2, "b")], note='{"second": "☃"}')
    load.begin()
    assert load.note() == '{"second": "☃"}'
    load.spark.sql(f"INSERT INTO {load.name} VALUES (9, 'of another')")
    load.begin()
    assert load.note() == '{"second": "☃"}'
    load.load([row(3, "c")], note="third")
    load.begin()
    assert load.note() == "third"
    load.end()
    load.begin()
    assert load.note() is None
    assert len(load.rows()) == 4


def test_notes_of_other_streams_are_not_given(delta_load: Make) -> None:
    load = delta_load("id long, name string")
    load.load([row(1, "a")], note="of orders")
    assert load.other(stream="others").note() is None


def test_a_run_that_kept_no_notes_commits_nothing_at_its_end(delta_load: Make) -> None:
    load = delta_load("id long, name string")
    load.load([row(1, "a")])
    before = len(load.history())
    load.end()
    assert len(load.history()) == before


def test_two_runs_that_upsert_the_same_rows_lose_nothing(delta_load: Make) -> None:
    first = delta_load("id long, name string", keys=("id",), method="upsert")
    first.load([row(n, "old") for n in range(20)])
    second = first.other()
    failures: list[BaseException] = []

    def work(load: Load, name: str) -> None:
        try:
            for turn in range(3):
                load.load([row(n, f"{name}{turn}") for n in range(turn, 20, 2)])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in ((first, "f"), (second, "s"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = first.rows()
    assert [number for number, _ in found] == sorted(range(20), key=lambda n: repr((n, "")))
    assert {number: text[1:] for number, text in found} == {
        n: "0" if n == 0 else "1" if n % 2 else "2" for n in range(20)
    }


def test_a_table_that_another_made_meanwhile_is_used(delta_load: Make) -> None:
    loads = [delta_load(f"id long, c{n} string") for n in range(3)]
    threads = [
        threading.Thread(target=load.load, args=([{"id": n, f"c{n}": "x"}],))
        for n, load in enumerate(loads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads[0].rows("id", "c0", "c1", "c2") == [
        (0, "x", None, None),
        (1, None, "x", None),
        (2, None, None, "x"),
    ]


def test_a_folder_that_holds_other_files_is_an_error(delta_load: Make, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    (folder / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(DestinationError, match="orders"):
        delta_load("id long").load([{"id": 1}])


def test_odd_table_and_column_names_are_kept_or_made_legal(delta_load: Make) -> None:
    load = delta_load("`a b` long, `a.b` long, `a``c` long, `$x` long", keys=("a b", "a.b"),
                      method="upsert", table="we[i]rd {n}% #a'm`e ${x}")  # fmt: skip
    values = {"a b": 1, "a.b": 2, "a`c": 3, "$x": 4}
    load.load([values])
    load.load([values, {**values, "a b": 5}])
    names = [name for name, _ in load.columns()]
    assert names[1:] == ["a.b", "a`c", "$x"]
    assert sorted(load.rows()) == [(1, 2, 3, 4), (5, 2, 3, 4)]
    load.begin()
    load.struct = struct("a_b string, `a b` long, `a.b` long")
    load.load([{"a_b": "other", "a b": 1, "a.b": 3}])
    assert len({name for name, _ in load.columns()}) == 5


def test_tables_of_a_catalog(delta_load: Make, lake_spark: SparkSession) -> None:
    load = delta_load("id long, name string", keys=("id",), method="upsert",
                      catalog="spark_catalog", table="From A Catalog!")  # fmt: skip
    load.load([row(1, "a")])
    load.load([row(1, "b")], note="n")
    assert load.rows() == [(1, "b")]
    load.end()
    assert load.name.startswith("`spark_catalog`.`default`.`")
    lake_spark.sql(f"DROP TABLE {load.name}")


def test_a_record_in_one_column_has_a_typed_view(
    delta_load: Make, lake_spark: SparkSession
) -> None:
    load = delta_load("id long, data variant, _sdc_sequence long", keys=("id",), method="upsert",
                      catalog="spark_catalog", table="documents")  # fmt: skip
    load.view = struct("id long, `it's` string, day date, n struct<a: int>, `a.b` decimal(5,2)")
    text = '{"id": 1, "it\'s": "x", "day": "2024-02-29", "n": {"a": 1}, "a.b": 1.5}'
    load.load([{"id": 1, "data": text}, {"id": 2, "data": '{"day": "no day"}'}])
    view = lake_spark.table("spark_catalog.default.documents_view").orderBy("id")
    assert view.columns == ["id", "_sdc_sequence", "it's", "day", "n", "a.b"]
    first, second = view.collect()
    assert (first[2], first[3], first[4].toJson(), first[5]) == (
        "x", dt.date(2024, 2, 29), '{"a":1}', Decimal("1.50"),
    )  # fmt: skip
    assert tuple(second) == (2, None, None, None, None, None)
    lake_spark.sql("DROP VIEW spark_catalog.default.documents_view")
    lake_spark.sql(f"DROP TABLE {load.name}")


def test_a_view_needs_a_catalog(delta_load: Make) -> None:
    load = delta_load("id long, data variant", view=struct("id long"))
    with pytest.raises(SettingsError, match="catalog"):
        load.load([{"id": 1, "data": "{}"}])


def test_comments_properties_and_constraints_come_from_the_schema(delta_load: Make) -> None:
    schema = {
        "description": "All the orders",
        "required": ["id"],
        "properties": {"id": {"type": "integer", "description": "it's the 'key'"}},
    }
    layout = Layout(properties={"delta.appendOnly": "true", "a'b": "c"})
    load = delta_load("id long not null, name string", keys=("id",), schema=schema, layout=layout)
    load.load([row(1, "a")])
    found = load.spark.table(load.name).schema
    assert found["id"].metadata["comment"] == "it's the 'key'"
    assert not found["id"].nullable
    detail = load.spark.sql(f"DESCRIBE DETAIL {load.name}").first()
    assert detail["description"] == "All the orders"
    assert detail["properties"]["delta.appendOnly"] == "true"
    assert detail["properties"]["a'b"] == "c"


def test_partitions_clusters_and_compaction(delta_load: Make) -> None:
    layout = Layout(partition_by=("day",), cluster_by=("id",), compact=True)
    load = delta_load(
        "id long, name string, day date", keys=("id", "day"), method="upsert", layout=layout
    )
    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
    for n in range(3):
        load.load([row(n, "a", day=day) for day in days])
    load.end()
    detail = load.spark.sql(f"DESCRIBE DETAIL {load.name}").first()
    assert detail["partitionColumns"] == ["day"]
    assert detail["numFiles"] == 2
    assert len(load.rows()) == 6
    other = delta_load("id long, name string", layout=Layout(cluster_by=("name",)), table="c")
    other.load([row(1, "a")])
    assert other.spark.sql(f"DESCRIBE DETAIL {other.name}").first()["clusteringColumns"] == ["name"]


def test_a_merge_reads_only_partitions_of_its_rows(delta_load: Make) -> None:
    load = delta_load("id long, name string, day date", keys=("id", "day"), method="upsert",
                      layout=Layout(partition_by=("day",)))  # fmt: skip
    load.load([row(n, "a", day=dt.date(2024, 1, 1 + n)) for n in range(5)])
    load.load([row(3, "b", day=dt.date(2024, 1, 4))])
    metrics = load.history()[0]["operationMetrics"]
    assert metrics["numTargetFilesRemoved"] == "1"
    predicate = json.dumps(load.history()[0]["operationParameters"])
    assert "2024-01-04" in predicate


def test_a_layout_that_cannot_be_is_an_error(delta_load: Make) -> None:
    for layout, text in (
        (Layout(partition_by=("truncate(4, id)",)), "by columns"),
        (Layout(cluster_by=("nothing",)), "no column 'nothing'"),
        (Layout(partition_by=("nothing",)), "no column 'nothing'"),
    ):
        with pytest.raises(Exception, match=text):
            delta_load("id long", layout=layout, table="bad").load([{"id": 1}])
