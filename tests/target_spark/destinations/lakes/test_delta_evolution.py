"""Delta tables whose streams change their columns."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from lake_loads import Load, struct

from shared.errors import SettingsError

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]


def test_columns_are_added_in_any_order_and_may_stop_coming(delta_load: Make) -> None:
    load = delta_load("id long, name string")
    load.load([{"id": 1, "name": "a"}])
    load.struct = struct("more timestamp_ntz, id long, j variant")
    load.load([{"id": 2, "more": dt.datetime(2024, 1, 1), "j": '{"a": [1]}'}])
    assert load.columns() == [
        ("id", "bigint"), ("name", "string"), ("more", "timestamp_ntz"), ("j", "variant"),
    ]  # fmt: skip
    assert [r[:3] for r in load.rows()] == [(1, "a", None), (2, None, dt.datetime(2024, 1, 1))]
    texts = [(number, j and j.toJson()) for number, j in load.rows("id", "j")]
    assert texts == [(1, None), (2, '{"a":[1]}')]


WIDENED: list[tuple[str, Any, str, Any, str]] = [
    ("int", 1, "long", 1 << 40, "bigint"),
    ("int", 1, "double", 0.5, "double"),
    ("float", 0.5, "double", 0.1, "double"),
    ("decimal(5,2)", Decimal("1.50"), "decimal(7,3)", Decimal("0.125"), "decimal(7,3)"),
    ("decimal(4,0)", Decimal("7"), "decimal(4,2)", Decimal("0.25"), "decimal(6,2)"),
    ("date", dt.date(2024, 1, 1), "timestamp_ntz", dt.datetime(2024, 1, 1, 5), "timestamp_ntz"),
    ("array<int>", [1], "array<long>", [1 << 40], "array<bigint>"),
    ("struct<a: int>", {"a": 1}, "struct<a: long>", {"a": 1 << 40}, "struct<a:bigint>"),
]


def test_types_are_widened_in_place(delta_load: Make) -> None:
    names = [f"v{number}" for number in range(len(WIDENED))]
    olds, values, news, laters, merged = zip(*WIDENED, strict=True)

    def columns(types: tuple[str, ...]) -> str:
        return ", ".join(["id long", *(f"{n} {t}" for n, t in zip(names, types, strict=True))])

    def row(number: int, cells: tuple[Any, ...]) -> dict[str, Any]:
        return {"id": number, **dict(zip(names, cells, strict=True))}

    load = delta_load(columns(olds), keys=("id",), method="upsert")
    load.load([row(1, values)])
    load.struct = struct(columns(news))
    load.load([row(2, laters)])
    widened = [("id", "bigint"), *zip(names, merged, strict=True)]
    assert load.columns() == widened
    operations = {entry["operation"] for entry in load.history()}
    assert operations <= {"CREATE TABLE", "MERGE", "WRITE", "CHANGE COLUMN", "SET TBLPROPERTIES"}
    load.struct = struct(columns(olds))
    load.load([row(3, values)])
    assert load.rows("id") == [(1,), (2,), (3,)]
    assert load.columns() == widened


def test_nested_structs_and_arrays_of_structs_grow(delta_load: Make) -> None:
    load = delta_load("id long, s struct<a: int, t: struct<x: int>>, l array<struct<a: int>>")
    load.load([{"id": 1, "s": {"a": 1, "t": {"x": 1}}, "l": [{"a": 1}]}])
    load.struct = struct(
        "id long, s struct<b: string, t: struct<x: int, y: date>>, l array<struct<c: long, a: int>>"
    )
    day = dt.date(2024, 1, 1)
    load.load([{"id": 2, "s": {"b": "x", "t": {"x": 2, "y": day}}, "l": [{"c": 5, "a": 2}]}])
    rows = {row[0]: row for row in load.rows()}
    assert rows[1][1].asDict(True) == {"a": 1, "b": None, "t": {"x": 1, "y": None}}
    assert rows[2][1].asDict(True) == {"a": None, "b": "x", "t": {"x": 2, "y": day}}
    assert [item.asDict() for item in rows[1][2]] == [{"a": 1, "c": None}]
    assert [item.asDict() for item in rows[2][2]] == [{"a": 2, "c": 5}]


def test_a_type_conflict_follows_the_rule(delta_load: Make) -> None:
    for rule in ("fail", "suffix", "cast"):
        load = delta_load("id long, v long", type_conflicts=rule, table=rule, keys=("id",),
                          method="upsert")  # fmt: skip
        load.load([{"id": 1, "v": 5}, {"id": 2, "v": 6}])
        load.struct = struct("id long, v boolean")
        if rule == "fail":
            with pytest.raises(SettingsError, match="v"):
                load.load([{"id": 3, "v": True}])
            assert load.rows() == [(1, 5), (2, 6)]
            continue
        load.load([{"id": 2, "v": True}, {"id": 3, "v": False}])
        if rule == "cast":
            assert load.columns() == [("id", "bigint"), ("v", "string")]
            assert load.rows() == [(1, "5"), (2, "true"), (3, "false")]
        else:
            names = [name for name, _ in load.columns()]
            assert names[:2] == ["id", "v"]
            assert len(names) == 3
            assert load.rows() == [(1, 5, None), (2, None, True), (3, None, False)]


def test_a_key_never_changes_its_type(delta_load: Make) -> None:
    load = delta_load("id long, v long", keys=("id",), method="upsert", type_conflicts="cast")
    load.load([{"id": 1, "v": 5}])
    load.struct = struct("id boolean, v long")
    with pytest.raises(SettingsError, match="id"):
        load.load([{"id": True, "v": 5}])


def test_a_required_column_may_become_optional(delta_load: Make) -> None:
    schema = {"required": ["id"], "properties": {"id": {"type": "integer"}}}
    load = delta_load("id long not null, v long", schema=schema)
    load.load([{"id": 1, "v": 1}])
    load.struct, load.schema = struct("id long, v long"), {}
    load.load([{"id": None, "v": 2}])
    assert load.rows() == [(1, 1), (None, 2)]


def test_types_that_delta_lacks_are_text(delta_load: Make) -> None:
    load = delta_load("id long, d interval day to second, t time(6), y interval year to month")
    load.spark.conf.set("spark.sql.timeType.enabled", "true")
    load.load([{"id": 1, "d": 90_000_000, "t": dt.time(1, 2, 3), "y": 14}])
    assert [dtype for _, dtype in load.columns()] == ["bigint", "string", "string", "string"]
    assert load.rows() == [(1, "P0DT0H1M30.000000S", "01:02:03", "P1Y2M")]


def test_two_runs_that_add_columns_at_once_both_succeed(delta_load: Make) -> None:
    first = delta_load("id long")
    first.load([{"id": 0}])
    loads = [first.other(struct=struct(f"id long, c{n} string")) for n in range(2)]
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for turn in range(2):
                loads[n].load([{"id": 10 * turn + n, f"c{n}": "x"}])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {name for name, _ in first.columns()} == {"id", "c0", "c1"}
    assert [number for (number,) in first.rows("id")] == [0, 0, 1, 10, 11]
