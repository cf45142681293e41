"""Tables of lakes compared with their source, and repaired."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from case_matrix import with_slow
from lake_loads import Load
from pyspark.sql.types import StructType

from shared.errors import DestinationError, DifferenceError
from target_spark.core.differences import TableDifference, Verification
from target_spark.core.load_plans import Backfill

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]
DDL = "id long, v string, m map<string,int>, _sdc_deleted_at timestamp, _sdc_batched_at timestamp"


FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


def row(number: int | None, v: str = "x") -> dict[str, Any]:
    return {"id": number, "v": v, "m": [("a", 1)], "_sdc_batched_at": FIRST}


SOURCE = [row(number) for number in range(1, 21)] + [row(None, "a null is a key, too")]


def compare(load: Load, *parts: Any, ddl: str = "", **how: Any) -> TableDifference:
    actual: list[TableDifference] = []
    supplied = {"report": actual.append, "ranges": 8, **how}
    struct = StructType.fromDDL(ddl) if ddl else load.struct
    own = {"backfill": supplied.pop("backfill", None), "struct": struct}
    run = load.other(method="overwrite", **own)
    run.operations.verify([run.flush(*parts)], Verification(**supplied))
    return actual[0]


def test_what_differs_is_found_and_repaired_in_one_commit(lake_load: Make) -> None:
    load = lake_load(DDL, keys=("id",), method="upsert")
    load.load(SOURCE)
    again = [{**one, "_sdc_batched_at": FIRST + dt.timedelta(days=1)} for one in SOURCE]
    equal = compare(load, [row(1, "old")], again)
    assert (equal.left, equal.source_rows, equal.table_rows) == ("", 21, 21)
    load.sql("DELETE FROM {t} WHERE id IN (1, 2)")
    load.sql("UPDATE {t} SET v = 'changed' WHERE id IS NULL")
    load.sql("UPDATE {t} SET _sdc_deleted_at = timestamp'2026-01-01' WHERE id = 3")
    load.load([row(99)])
    before = load.rows()
    actual = compare(load, SOURCE)
    assert actual.left == "3 missing, 1 changed, 1 vanished"
    examples = {kind: text for one in actual.ranges for kind, text in one.examples.items()}
    assert examples["vanished"] == '{"id":99}'
    assert load.rows() == before, "nothing changes without --repair"
    repaired = compare(load, SOURCE, repair=True)
    assert (repaired.left, repaired.count("vanished")) == ("", 1)
    now = {number: (v, deleted) for number, v, deleted in load.rows("id", "v", "_sdc_deleted_at")}
    assert now.pop(99)[1] is not None
    assert now == {one["id"]: (one["v"], None) for one in SOURCE}
    assert compare(load, SOURCE).left == ""


@with_slow("lake", ["delta"], ["iceberg"], indirect=True)
def test_deletions_are_found_by_the_keys_alone(lake_load: Make) -> None:
    """New and changed rows of the source are left to the loads."""
    load = lake_load(DDL, keys=("id",), method="upsert")
    load.load(SOURCE)
    before = load.rows("id", "v")
    keys = [{"id": one["id"], "_sdc_batched_at": FIRST} for one in [*SOURCE[2:], row(77)]]
    ddl = "id long, _sdc_deleted_at timestamp, _sdc_batched_at timestamp"
    actual = compare(load, keys, deletes=True, ddl=ddl)
    assert actual.left == "2 vanished"
    assert load.rows("id", "v") == before
    repaired = compare(load, keys, deletes=True, repair=True, force=True, ddl=ddl)
    assert (repaired.left, repaired.repaired) == ("", ("vanished",))
    assert load.rows("id", "v") == before
    gone = [number for number, deleted in load.rows("id", "_sdc_deleted_at") if deleted]
    assert sorted(gone) == [1, 2]
    assert compare(load, keys, deletes=True, ddl=ddl).left == ""


def test_only_a_range_is_compared(delta_load: Make) -> None:
    """A row of the source whose own row in the table is outside of the range has changed."""
    load = delta_load("id long, at long", keys=("id",), method="upsert", hard_delete=True)
    load.load([{"id": one, "at": at} for one, at in [(1, 1), (2, 5), (3, 6), (4, 99), (5, 7)]])
    source = [{"id": one, "at": at} for one, at in [(2, 5), (4, 6), (6, 9)]]
    part = Backfill(load.stream, "at", "5", "10")
    kept = compare(load, source, backfill=part, repair=True)
    assert (kept.count("missing"), kept.count("changed")) == (1, 1)
    assert (kept.source_rows, kept.table_rows) == (3, 3)
    assert kept.left == "2 vanished", "they may only have left the range"
    assert load.rows() == [(1, 1), (2, 5), (3, 6), (4, 6), (5, 7), (6, 9)]


def test_nulls_and_microseconds_differ_at_any_depth(delta_load: Make) -> None:
    inside = (
        "l array<string>, s struct<x: string>, m map<string, timestamp>, d array<decimal(20,9)>"
    )
    load = delta_load(f"id long, a string, b string, {inside}", keys=("id",), method="upsert")
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"a": "x"}, {"b": "x"}),
        ({}, {"l": []}),
        ({"l": []}, {"l": [None]}),
        ({"l": [None]}, {}),
        ({}, {"s": {"x": None}}),
        ({"m": [("k", FIRST)]}, {"m": [("k", FIRST.replace(microsecond=1))]}),
        ({"m": []}, {"m": [("k", None)]}),
    ]
    same = {"a": "", "l": ["x", None], "s": {"x": "y"}, "m": [("k", FIRST)], "d": [None, 1]}
    first, last = (
        [{"id": 0, **same}, *({"id": n, **pair[side]} for n, pair in enumerate(pairs, 1))]
        for side in (0, 1)
    )
    load.load(first)
    assert compare(load, first).left == ""
    actual = compare(load, last)
    assert actual.left == f"{len(pairs)} changed"


@with_slow("lake", ["delta"], ["iceberg"], indirect=True)
def test_rows_of_other_streams_are_not_deleted(lake_load: Make) -> None:
    load = lake_load("id long, v string", keys=("id",), method="upsert", hard_delete=True)
    mine = [{"id": number, "v": "x"} for number in range(20)]
    load.load(mine)
    load.sql("INSERT INTO {t} (id, v) VALUES (20, 'x')")
    assert compare(load, mine, repair=True).repaired, "a row without a stream of ours may go"
    load.other(stream="others").load([{"id": 21, "v": "y"}])
    assert compare(load, mine[1:], mine[:1]).left == "1 vanished"
    with pytest.raises(DifferenceError, match=r"1 of 21 rows of .* of the stream 'others'"):
        compare(load, mine, repair=True)
    assert len(load.rows()) == 21
    assert compare(load, mine, repair=True, force=True).left == ""


def test_a_partial_input_deletes_nothing_without_consent(delta_load: Make) -> None:
    load = delta_load("id long, v string", keys=("id",), method="upsert", hard_delete=True)
    load.load([{"id": number, "v": "x"} for number in range(10)])
    rows = [{"id": number, "v": "x"} for number in range(5)]
    reported: list[TableDifference] = []
    with pytest.raises(DifferenceError, match="5 of 10 rows"):
        compare(load, rows, repair=True, report=reported.append)
    assert [one.left for one in reported] == ["5 vanished"]
    assert len(load.rows()) == 10
    assert compare(load, rows, repair=True, force=True).left == ""
    assert load.rows() == [(number, "x") for number in range(5)]


def test_a_table_that_does_not_exist(delta_load: Make) -> None:
    load = delta_load("id long, v string", keys=("id",), method="upsert")
    with pytest.raises(DestinationError, match="does not exist"):
        compare(load, [{"id": 1, "v": "x"}])
