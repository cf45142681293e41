"""Rows into tables of lakes: appended, merged by key, overwritten, deleted, and never twice."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from case_matrix import matrix, with_slow
from lake_loads import Load, run_together, struct

from target_spark.core.load_plans import Layout, SchemaContract
from target_spark.destinations.destination import RefusedByStoreError
from target_spark.replays import Note

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]
LAKES = ["delta", "iceberg"]
# What the code of both formats shares: one of them in `.ci/run`.
delta_is_enough = with_slow("lake", ["delta"], ["iceberg"], indirect=True)
METADATA = "_sdc_deleted_at timestamp, _sdc_table_version long"
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc)


def row(number: int | None, text: str | None, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": text, **more}


def test_append_only_adds_every_part_in_one_commit(lake_load: Make, tmp_path: Path) -> None:
    load = lake_load("id long, name string")
    load.load()
    assert load.rows() == [], "a flush without rows makes the table"
    load.load([row(1, "a")], [row(1, "a"), row(2, None)])
    before = len(load.history())
    load.load([row(3, "c")])
    assert load.rows() == [(1, "a"), (1, "a"), (2, None), (3, "c")]
    assert len(load.history()) == before + 1
    load.end()
    assert len(load.history()) == before + 1, "a run that kept no notes commits nothing at its end"
    shown = {path.name for path in (tmp_path / "lake").iterdir() if path.name[0] != "."}
    assert shown == {"orders"}
    inside = {path.name for path in (tmp_path / "lake" / "orders").iterdir()}
    assert {name for name in inside if name[0] != "." and not name.endswith(".parquet")} in (
        {"_delta_log"},
        {"data", "metadata"},
    )


@pytest.mark.slow  # Delta's rows are always read by another; Iceberg's in test_iceberg_loads.py
def test_another_reader_sees_the_same_rows(lake_load: Make) -> None:
    ddl = "id long, name string, at timestamp, amount decimal(12,2), tags array<string>"
    load = lake_load(ddl, keys=("id",), method="upsert")
    rows = [row(n, f"n{n}", at=NOON, amount=Decimal("1.50"), tags=["x", None]) for n in range(5)]
    load.load(rows)
    load.load([row(2, "two", at=None, amount=None, tags=None)])
    load.end()
    actual = {r["id"]: r for r in load.other_reader().rows}
    assert actual == {
        **{r["id"]: r for r in rows},
        2: row(2, "two", at=None, amount=None, tags=None),
    }


def test_upsert_keeps_the_newest_row_of_each_key_by_arrival(lake_load: Make) -> None:
    """Null is a key like any other; columns that the stream does not have keep their values."""
    load = lake_load("a long, b string, v long, old long", keys=("a", "b"), method="upsert")

    def item(a: int | None, b: str | None, v: int, **more: int) -> dict[str, Any]:
        return {"a": a, "b": b, "v": v, **more}

    first = [item(1, None, 9), item(None, None, 2), item(1, None, 1, old=10), item(1, "x", 4)]
    load.load(first, [item(1, "x", 8, old=20), item(None, None, 3), item(None, None, 2)])
    kept = [(1, None, 1, 10), (None, None, 2, None), (1, "x", 8, 20)]
    assert load.rows() == sorted(kept, key=repr)
    load.struct = struct("b string, v long, a long")
    load.load([item(1, None, 5), item(None, "x", 6), item(None, None, 7)])
    kept = [(1, None, 5, 10), (None, None, 7, None), (1, "x", 8, 20), (None, "x", 6, None)]
    assert load.rows("a", "b", "v", "old") == sorted(kept, key=repr)


@pytest.mark.parametrize(("lake", "hard"), matrix(LAKES, [True, False]), indirect=["lake"])
def test_no_record_replaces_a_newer_row(lake_load: Make, hard: bool) -> None:
    ddl = f"id long, a timestamp, b string, name string, {METADATA}"
    load = lake_load(ddl, keys=("id",), method="upsert", hard_delete=hard, order_by=("a", "b"))

    def item(number: int, hours: int | None, b: str | None, text: str, gone: bool = False) -> Any:
        at = None if hours is None else NOON + dt.timedelta(hours=hours)
        return row(number, text, a=at, b=b, _sdc_deleted_at=NOON if gone else None)

    first = [item(1, 3, "x", "late"), item(1, 2, "z", "early"), item(2, 1, None, "null")]
    load.load([*first, item(2, 1, "a", "text")], [item(2, 1, "a", "tie"), item(3, None, "z", "no")])
    assert load.rows("id", "name") == [(1, "late"), (2, "tie"), (3, "no")]
    load.load(
        [item(1, 3, "a", "older"), item(1, None, "z", "oldest"), item(2, 0, "z", "gone", True)]
    )
    assert load.rows("id", "name") == [(1, "late"), (2, "tie"), (3, "no")]
    load.load([item(1, 3, "x", "same"), item(2, 1, "a", "gone", True), item(3, -9, None, "some")])
    kept = [(1, "same"), (3, "some")]
    assert load.rows("id", "name") == (kept if hard else [kept[0], (2, "gone"), kept[1]])


KEY_VALUES: dict[str, list[Any]] = {
    "string": ["it's", "${spark.master}", "a\\b", "\U0001f600", "", "x" * 3000],
    "date": [dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "timestamp": [NOON, NOON - dt.timedelta(days=40000, microseconds=1)],
    "timestamp_ntz": [dt.datetime(2024, 1, 1), dt.datetime(1900, 1, 1, 0, 0, 0, 1)],
    "decimal(20,3)": [Decimal("-1.125"), Decimal("0.000"), Decimal("12345678901234567.890")],
    "double": [1.5, float("inf"), float("nan"), -0.0],
    "long": [-(1 << 63), 0, (1 << 63) - 1],
    "boolean": [True, False],
    "binary": [b"", b"\xff"],
}


EXACT = tuple(dtype for dtype in KEY_VALUES if dtype != "double")


@pytest.mark.parametrize(
    ("lake", "dtypes"),
    # Only Spark knows which floating point numbers are equal keys.
    [("delta", EXACT), ("delta", ("double",)), ("iceberg", (*EXACT, "double"))],
    ids=["delta-exact", "delta-double", "iceberg"],
    indirect=["lake"],
)
def test_keys_of_every_type_find_their_rows(lake_load: Make, dtypes: tuple[str, ...]) -> None:
    """Keys differ by one value of one type: one that is not found makes a second row.

    One that is taken for another makes one row of two.
    """
    types = {f"k{number}": dtype for number, dtype in enumerate(dtypes)}
    first = {name: KEY_VALUES[dtype][0] for name, dtype in types.items()}
    others = [
        {**first, name: value} for name, dtype in types.items() for value in KEY_VALUES[dtype][1:]
    ]
    keys = [first, *others]
    ddl = ", ".join(f"{name} {dtype}" for name, dtype in types.items())
    load = lake_load(f"{ddl}, v long", keys=tuple(types), method="upsert")
    for v in (1, 2):
        load.load([{**key, "v": v} for key in keys])
    assert [actual for (actual,) in load.rows("v")] == [2] * len(keys)


@delta_is_enough
def test_a_contract_leaves_out_what_does_not_fit(lake_load: Make) -> None:
    ddl = "id long, n int, s struct<a: long>"
    load = lake_load(ddl, keys=("id",), method="upsert")
    load.load([{"id": n, "n": n, "s": {"a": n}} for n in (1, 2)])
    columns = load.columns()
    load.contract = SchemaContract(columns="discard", types="discard")
    load.struct = struct("more long, s struct<b: long, a: long>, n string, id long")
    texts = {1: "none", 3: "12", 4: "1.5"}
    load.load([{"id": n, "more": 1, "s": {"b": 0, "a": n}, "n": t} for n, t in texts.items()])
    assert load.columns() == columns
    assert load.rows("id", "n", "s.a") == [(1, None, 1), (2, 2, 2), (3, 12, 3), (4, None, 4)]


@pytest.mark.parametrize(("lake", "hard"), matrix(LAKES, [False, True]), indirect=["lake"])
def test_a_marked_record_is_kept_or_removes_its_row(lake_load: Make, hard: bool) -> None:
    ddl = f"id long, name string, {METADATA}"
    load = lake_load(ddl, keys=("id",), method="upsert", hard_delete=hard)
    load.load([row(1, "a"), row(2, "b")])
    load.load([row(1, "a"), row(1, "a", _sdc_deleted_at=NOON), row(3, "c", _sdc_deleted_at=NOON)])
    actual = [(number, at is not None) for number, at in load.rows("id", "_sdc_deleted_at")]
    assert actual == ([(2, False)] if hard else [(1, True), (2, False), (3, True)])
    load.load([row(1, "again"), row(2, "b", _sdc_deleted_at=NOON), row(2, "again")])
    actual = [(number, text, at) for number, text, at in load.rows("id", "name", "_sdc_deleted_at")]
    assert actual[:2] == [(1, "again", None), (2, "again", None)]


@pytest.mark.parametrize(
    ("lake", "layout"),
    matrix(LAKES, [Layout(), Layout(cluster_by=("id",))]),
    indirect=["lake"],
)
def test_overwrite_replaces_everything_at_the_end_in_one_commit(
    lake_load: Make, layout: Layout
) -> None:
    load = lake_load(
        "id long, name string",
        method="overwrite",
        layout=layout,
        schema={"description": "it's"},
    )
    load.load([row(1, "a")], [row(2, "b")])
    load.end()
    assert load.rows() == [(1, "a"), (2, "b")]
    before = len(load.history())
    load.begin()
    load.load([row(9, "of a run that does not end")])
    load.begin()
    load.load([row(3, "c")])
    load.load([row(3, "c")])
    assert load.rows() == [(1, "a"), (2, "b")]
    load.end()
    assert load.rows() == [(3, "c"), (3, "c")]
    assert len(load.history()) == before + 1
    load.begin()
    load.load()
    load.end()
    assert load.rows() == []


@pytest.mark.parametrize(
    ("lake", "in_catalog", "conflicts"),
    matrix(["iceberg", "delta"], [False, True], ["cast", "suffix"]),
    indirect=["lake"],
)
def test_overwrite_with_other_columns_is_one_commit_too(
    lake_load: Make, in_catalog: bool, conflicts: str
) -> None:
    layout = Layout(partition_by=("name",), properties={"a'b": "c"})
    load = lake_load("id long, name string, gone date", method="overwrite", layout=layout,
                     in_catalog=in_catalog, type_conflicts=conflicts)  # fmt: skip
    load.load([row(1, "a")])
    load.end()
    before = len(load.history())
    load.begin()
    load.struct = struct("id string, name string")
    load.load([{"id": "x", "name": "y"}])
    load.struct = struct("id string, name string, more long")
    load.schema = {"properties": {"more": {"description": "new"}}}
    load.load([{"id": "z", "name": None, "more": 2**60 + 1}])
    load.struct = struct("name string, more double")
    load.load([{"name": "y", "more": 0.5}])
    load.end()
    columns = [("id", "string"), ("name", "string")]
    if conflicts == "cast":
        assert load.columns() == [*columns, ("more", "string")]
        rows = [("x", "y", None), ("z", None, str(2**60 + 1)), (None, "y", "0.5")]
    else:
        assert load.columns() == [*columns, ("more", "bigint"), ("more__double", "double")]
        rows = [("x", "y", None, None), ("z", None, 2**60 + 1, None), (None, "y", None, 0.5)]
    assert load.rows() == rows
    assert len(load.history()) == before + 1
    reported = {row[0]: row[2] for row in load.sql("DESCRIBE {t}")}
    assert reported["more"] == "new"
    assert load.properties()["a'b"] == "c"
    assert load.partitions() == ["name"]
    assert load.marks()[0].run == load.run


@with_slow("lake", ["iceberg"], ["delta"], indirect=True)
def test_overwrite_with_keys_keeps_the_newest_of_each(lake_load: Make) -> None:
    load = lake_load(
        f"id long, name string, {METADATA}", keys=("id",), method="overwrite", hard_delete=True
    )
    load.load([row(1, "a"), row(2, "b")], [row(1, "aa")])
    load.struct = struct(f"name string, id long, {METADATA}, more int")
    load.load([row(2, "x", _sdc_deleted_at=NOON), row(3, "c", more=1)])
    load.end()
    assert load.rows("id", "name", "more") == [(1, "aa", None), (3, "c", 1)]


@pytest.mark.parametrize(("lake", "hard"), matrix(LAKES, [True, False]), indirect=["lake"])
def test_an_activated_version_removes_or_marks_older_rows(lake_load: Make, hard: bool) -> None:
    load = lake_load(f"id long, {METADATA}", hard_delete=hard)
    assert load.activate(5) is None
    old = [{"id": 1, "_sdc_table_version": 1}, {"id": 2, "_sdc_table_version": None}]
    load.load([*old, {"id": 3, "_sdc_table_version": 2, "_sdc_deleted_at": NOON}])
    load.load([{"id": 4, "_sdc_table_version": 5}])
    what = "remove" if hard else "mark"
    assert load.activate(5) == f"{what} the rows of older versions"
    load.activate(5)
    actual = {
        number: at and at.replace(tzinfo=None) for number, at in load.rows("id", "_sdc_deleted_at")
    }
    day, noon = dt.datetime(1970, 1, 2), NOON.replace(tzinfo=None)
    assert actual == ({2: None, 4: None} if hard else {1: day, 2: None, 3: noon, 4: None})


@pytest.mark.parametrize(
    ("lake", "method"), matrix(LAKES, ["append-only", "upsert"]), indirect=["lake"]
)
def test_a_commit_repeated_changes_nothing(lake_load: Make, method: str) -> None:
    load = lake_load("id long, name string", keys=("id",), method=method)
    flush = load.load([row(1, "a")])
    later = load.load([row(1, "b")])
    before = len(load.history())
    load.destination.commit(flush)
    load.destination.commit(later)
    assert len(load.history()) == before
    assert (1, "b") in load.rows()


@pytest.mark.parametrize(("lake", "in_catalog"), matrix(LAKES, [False, True]), indirect=["lake"])
def test_a_run_takes_over_the_note_of_a_killed_one(lake_load: Make, in_catalog: bool) -> None:
    load = lake_load("id long, name string", in_catalog=in_catalog, table=f"notes_{in_catalog}")
    assert load.recall() == frozenset()
    load.load([row(1, "a")], noted=True)
    load.struct = struct("id long, name string, more long")
    load.load([row(2, "b")], noted=True)
    left = frozenset(load.noted)
    others = load.other(stream="others")
    assert others.recall() == frozenset()
    others.end()
    load.begin()
    assert load.recall() == left
    load.begin()
    assert load.recall() == left, "killed before it had done anything"
    load.destination.keep(load.request, Note())  # as a run does once a STATE covers its rows
    load.end()
    load.begin()
    assert load.recall() == frozenset(), "a run has ended well"
    assert len(load.rows()) == 2
    left_behind = [path.name for path in Path(load.config.path or ".").glob(".*uncovered*")]
    assert load.config.path == "" or left_behind == [], "the living run has written none"


@delta_is_enough
def test_a_table_of_a_catalog_loads_where_no_note_can_be_kept(
    lake_load: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "below"))
    load = lake_load("id long, name string", in_catalog=True, table="without_notes")
    load.load([row(1, "a")], noted=True)
    assert load.rows() == [(1, "a")]
    load.begin()
    assert load.recall() == frozenset()


@delta_is_enough
def test_the_note_of_a_living_run_is_its_own(lake_load: Make) -> None:
    load = lake_load("id long, name string")
    load.load([row(1, "a")], noted=True)
    other = load.other()
    assert other.recall() == frozenset()
    other.load([row(2, "b")], noted=True)
    left = frozenset(load.noted)
    load.load([row(3, "c")], noted=True)
    left = frozenset(load.noted)
    other.end()
    load.begin()
    assert load.recall() == frozenset(), f"the other's flush lies among {sorted(left)}"
    assert len(load.rows()) == 3


CHANGES = {
    "insert": "INSERT INTO {t} VALUES (9, 'of another')",
    "delete": "DELETE FROM {t} WHERE id = 1",
    "update": "UPDATE {t} SET name = 'x' WHERE id = 1",
    "truncate": "DELETE FROM {t}",
}


@pytest.mark.parametrize(("lake", "change"), matrix(LAKES, [*CHANGES]), indirect=["lake"])
def test_a_note_ends_where_others_have_changed_the_table(lake_load: Make, change: str) -> None:
    load = lake_load("id long, name string")
    load.load([row(1, "a")], noted=True)
    load.sql(CHANGES[change])
    load.begin()
    assert load.recall() == frozenset()


@pytest.mark.parametrize(("lake", "hard_delete"), matrix(LAKES, [True, False]), indirect=["lake"])
def test_a_note_outlives_an_activation_of_its_run(lake_load: Make, hard_delete: bool) -> None:
    columns = "id long, _sdc_table_version long, _sdc_deleted_at timestamp"
    load = lake_load(columns, hard_delete=hard_delete)
    for version in (1, 2):
        rows = {"id": version, "_sdc_table_version": version, "_sdc_deleted_at": None}
        load.load([rows], noted=True)
    left = frozenset(load.noted)
    load.activate(2)
    assert len(load.rows()) == 2 - hard_delete
    load.begin()
    assert load.recall() == left


@delta_is_enough
def test_a_note_ends_with_its_table_and_with_its_content(lake_load: Make) -> None:
    load = lake_load("id long, name string")
    load.load([row(1, "a")], noted=True)
    left = frozenset(load.noted)
    load.flush([row(2, "b")], noted=True)
    load.begin()
    assert load.recall() == left, "without the flush that was not committed"
    load.load([row(2, "b")], noted=True)
    load.destination.keep(load.request, Note())
    load.begin()
    assert load.recall() == frozenset(), "what it said went"
    load.load([row(3, "c")], noted=True)
    shutil.rmtree(Path(load.config.path) / load.table)
    load.begin()
    assert load.recall() == frozenset()
    load.load([row(5, "other")], noted=True)
    load.begin()
    assert len(load.recall()) == 1


@delta_is_enough
def test_a_commit_that_lands_late_is_not_made_twice(
    lake_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome was unknown, it was looked for and not found, and then it landed."""
    load = lake_load("id long, name string")
    load.load([row(0, "before")])
    flush = load.flush([row(1, "a")])
    form = load.destination._form
    append, marks = form.append, form.marks
    tried = []

    def unknown(*args: Any) -> None:
        tried.append(args)
        if len(tried) == 1:
            raise RuntimeError("CommitStateUnknownException ConcurrentAppendException")
        append(*args)

    def stale(*args: Any) -> Any:
        actual = tuple(marks(*args))
        if len(tried) == 1:
            append(*tried[0])
            tried.append(())
        return actual

    monkeypatch.setattr(form, "append", unknown)
    monkeypatch.setattr(form, "marks", stale)
    monkeypatch.setattr(form, "packages", ())
    load.destination.commit(flush)
    assert len(tried) >= 2
    assert sorted(load.rows()) == [(0, "before"), (1, "a")]
    assert [mark.token for mark in load.marks()].count(flush.token) == 1


@pytest.mark.parametrize("in_catalog", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_runs_that_upsert_the_same_rows_lose_nothing(lake_load: Make, in_catalog: bool) -> None:
    loads = [
        lake_load("id long, name string", keys=("id",), method="upsert", in_catalog=in_catalog)
        for _ in range(2)
    ]
    loads[0].load([row(n, "old") for n in range(20)])

    def work(load: Load, name: str) -> None:
        for turn in range(2):
            load.load([row(n, f"{name}{turn}") for n in range(turn, 20, 2)])

    run_together(lambda: work(loads[0], "f"), lambda: work(loads[1], "s"))
    actual = loads[0].rows()
    assert sorted(number for number, _ in actual) == list(range(20))
    assert {number: text[1:] for number, text in actual} == {
        n: "1" if n % 2 else "0" for n in range(20)
    }


def test_runs_that_make_and_widen_a_table_at_once_agree(lake_load: Make) -> None:
    loads = [lake_load(f"id long, c{n} string") for n in range(3)]
    works = [lambda load=load, n=n: load.load([{"id": n, f"c{n}": "x"}])
             for n, load in enumerate(loads)]  # fmt: skip
    run_together(*works)
    assert loads[0].rows("id", "c0", "c1", "c2") == [
        (0, "x", None, None),
        (1, None, "x", None),
        (2, None, None, "x"),
    ]


def test_null_in_a_required_column_is_an_error_that_leaves_nothing(lake_load: Make) -> None:
    load = lake_load("id long not null, name string")
    load.load([row(1, "a")])
    with pytest.raises(RefusedByStoreError, match=r"(?i)null"):
        load.load([row(None, "b")])
    assert load.rows() == [(1, "a")]


@pytest.mark.parametrize(
    ("lake", "method"),
    matrix(LAKES, ["history", "append-only", "upsert", "overwrite"]),
    indirect=["lake"],
)
def test_names_that_differ_by_case_only_stay_apart(lake_load: Make, method: str) -> None:
    ddl = "id long, ID string, n struct<x: long, X: string>"
    load = lake_load(ddl, keys=("id",), method=method)

    def item(number: int) -> dict[str, Any]:
        return {"id": number, "ID": f"n{number}", "n": {"x": number, "X": f"x{number}"}}

    load.load([item(1), item(2)])
    load.load([item(3)])
    load.end()
    first, second, third, *_ = (name for name, _ in load.columns())
    assert (first, second.partition("_")[0], third) == ("id", "ID", "n")
    assert [(a, b, tuple(n)) for a, b, n in load.rows(first, second, third)] == [
        (n, f"n{n}", (n, f"x{n}")) for n in (1, 2, 3)
    ]
