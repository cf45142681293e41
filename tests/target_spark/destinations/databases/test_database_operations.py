"""Tables of databases compared with their source, and repaired."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from database_loads import PG, Killed, Killer, Loads, MariaDb, Rows, request, tables_of

from shared.errors import DestinationError, DifferenceError, RecordError, SingerSparkError
from target_spark.core.differences import TableDifference, Verification
from target_spark.core.load_plans import Backfill, TableRequest
from target_spark.operate.database_operations import DatabaseOperations
from target_spark.run_settings import TargetConfig

pytestmark = [pytest.mark.server, pytest.mark.costly]
NewLoads = Callable[..., Loads]
Db = PG | MariaDb

AT = dt.datetime(2026, 1, 1, 12, 30, 0, 123456)
COLUMNS = (
    "id int!, name string!, v string, d decimal(12.2), f float, x double, b binary, "
    "t timestamp_ntz, a int[], m data, _sdc_deleted_at timestamp_ntz, _sdc_sequence long"
)
TABLE = request(COLUMNS, "id name", "upsert")


def row(number: int, v: str | None = "x", sequence: int = 1) -> tuple[Any, ...]:
    nested = ([1, None, number], {"a": number, "b": 'é"\\'})
    facts = (Decimal("1.10"), 0.1, 1 / 3, b"\x00\xff", AT)
    return (number, f"Näme' %s {number % 3}", v, *facts, *nested, None, sequence)


SOURCE = [row(number) for number in range(1, 21)]


def operations(loads: Loads) -> DatabaseOperations:
    return DatabaseOperations(TargetConfig(), loads.destination, None)  # type: ignore[arg-type]


def compare(
    new_loads: NewLoads, db: Db, asked: TableRequest, *parts: Rows, **how: Any
) -> TableDifference:
    actual: list[TableDifference] = []
    settings = {name: how.pop(name) for name in ("conflicts",) if name in how}
    wanted = Verification(**{"report": actual.append, "ranges": 8, **how})
    loads = new_loads(db, **settings)
    asked = replace(asked, method="overwrite")
    operations(loads).verify([loads.stage(asked, rows) for rows in parts], wanted)
    assert len(actual) == 1
    return actual[0]


def test_what_differs_is_found_and_repaired(db: Db, new_loads: NewLoads) -> None:
    new_loads(db).load(TABLE, SOURCE)
    again = [row(number, sequence=2) for number in range(1, 21)]
    equal = compare(new_loads, db, TABLE, [row(1, "old")], again)
    assert (equal.left, equal.ranges, equal.source_rows, equal.table_rows) == ("", (), 20, 20)
    db.run("delete from t where id in (1, 2)")
    if isinstance(db, MariaDb):
        db.run("alter database tests character set latin1")
    db.run("update t set v = 'X' where id = 4")
    db.run("update t set v = null where id = 5")
    db.run("update t set f = 0.10000001 where id = 6")
    db.run("update t set _sdc_deleted_at = '2026-01-01' where id = 3")
    new_loads(db).load(TABLE, [row(99)])
    query = "select id, v, f, _sdc_deleted_at is null from t order by id"
    before = db.table(query)
    actual = compare(new_loads, db, TABLE, SOURCE)
    assert actual.left == "3 missing, 3 changed, 1 vanished"
    examples = {kind: text for one in actual.ranges for kind, text in one.examples.items()}
    assert json.loads(examples["vanished"]) == {"id": 99, "name": "Näme' %s 0"}
    assert db.table(query) == before, "nothing changes without --repair"
    repaired = compare(new_loads, db, TABLE, SOURCE, repair=True)
    assert (repaired.left, repaired.count("vanished")) == ("", 1)
    now = {int(number): (v, live) for number, v, _, live in db.table(query)}
    assert now.pop(99)[1] in ("f", "0")
    assert {v for v, _ in now.values()} == {"x"}
    assert {live for _, live in now.values()} <= {"t", "1"}
    assert set(now) == set(range(1, 21))
    assert compare(new_loads, db, TABLE, SOURCE).left == ""
    assert tables_of(db) == ["t"]


def test_bounds_are_values_of_the_column(db: Db, new_loads: NewLoads) -> None:
    """MySQL reads what it can of a text: 5,000 as 5, and a time without its offset."""
    asked = request("id int!, n long, t timestamp", "id", "upsert")
    hours = [dt.datetime(2026, 1, 1, hour, tzinfo=dt.timezone.utc) for hour in range(8)]
    new_loads(db).load(asked, [(hour, 2**53 + hour, at) for hour, at in enumerate(hours)])
    bounds = ("2026-01-01T05:00:00+02:00", "2026-01-01T05:00Z")
    source = [(3, 2**53 + 3, hours[3]), (4, 2**53 + 4, hours[4])]
    part = replace(asked, backfill=Backfill("t", "t", *bounds))
    assert compare(new_loads, db, part, source).left == ""
    part = replace(asked, backfill=Backfill("t", "n", str(2**53 + 3), str(2**53 + 5)))
    assert compare(new_loads, db, part, source).left == ""
    for column, wrong in (("n", "5,000"), ("n", "NaN"), ("t", "today")):
        part = replace(asked, backfill=Backfill("t", column, wrong, "2027-01-01"))
        if (db.kind, wrong) != ("postgresql", "today"):
            with pytest.raises(SingerSparkError, match=wrong):
                compare(new_loads, db, part, source)


def test_only_a_range_is_compared(db: Db, new_loads: NewLoads) -> None:
    """A row of the source whose own row in the table is outside of the range has changed."""
    asked = request("id int!, at int", "id", "upsert", hard_delete=True)
    new_loads(db).load(asked, [(1, 1), (2, 5), (3, 6), (4, 99), (5, 7)])
    source = [(2, 5), (4, 6), (6, 9)]
    part = replace(asked, backfill=Backfill("t", "at", "5", "10"))
    actual = compare(new_loads, db, part, source)
    assert actual.left == "1 missing, 1 changed, 2 vanished"
    assert (actual.source_rows, actual.table_rows) == (3, 3)
    kept = compare(new_loads, db, part, source, repair=True)
    assert kept.left == "2 vanished", "they may only have left the range"
    rows = "select id, at from t order by id"
    assert db.table(rows) == [
        ("1", "1"), ("2", "5"), ("3", "6"), ("4", "6"), ("5", "7"), ("6", "9"),
    ]  # fmt: skip
    assert compare(new_loads, db, part, source, repair=True, force=True).left == ""
    assert db.table(rows) == [("1", "1"), ("2", "5"), ("4", "6"), ("6", "9")]
    with pytest.raises(RecordError, match="outside of its range"):
        compare(new_loads, db, part, [(2, 5), (7, 10)])
    lacking = replace(request("id int!, other int", "id", "upsert"), backfill=part.backfill)
    assert lacking.backfill is not None
    lacking = replace(lacking, backfill=replace(lacking.backfill, column="other"))
    with pytest.raises(DestinationError, match="'t' does not have the column 'other'"):
        compare(new_loads, db, lacking, [(2, 5)])


def test_deletions_are_found_by_the_keys_alone(db: Db, new_loads: NewLoads) -> None:
    new_loads(db).load(TABLE, SOURCE)
    keys = request("id int!, name string!, _sdc_deleted_at timestamp_ntz", "id name", "upsert")
    rows = [(number, name, None) for number, name, *_ in [*SOURCE[1:], row(77)]]
    assert compare(new_loads, db, keys, rows, deletes=True).left == "1 vanished"
    repaired = compare(new_loads, db, keys, rows, deletes=True, repair=True)
    assert (repaired.left, repaired.repaired) == ("", ("vanished",))
    actual = db.table("select id, v from t where _sdc_deleted_at is not null")
    assert actual == [("1", "x")]
    assert db.table("select count(*) from t") == [("20",)]
    assert compare(new_loads, db, keys, rows, deletes=True).left == ""


def test_a_partial_input_deletes_nothing_without_consent(db: Db, new_loads: NewLoads) -> None:
    asked = request("id int!, v string", "id", "upsert", hard_delete=True)
    new_loads(db).load(asked, [(number, "x") for number in range(10)])
    source = [(number, "x") for number in range(5)]
    reported: list[TableDifference] = []
    with pytest.raises(DifferenceError, match="5 of 10 rows"):
        compare(new_loads, db, asked, source, repair=True, report=reported.append)
    assert [one.left for one in reported] == ["5 vanished"]
    assert compare(new_loads, db, asked, []).left == "10 vanished"
    assert db.table("select count(*) from t") == [("10",)]
    assert compare(new_loads, db, asked, source, repair=True, force=True).left == ""
    assert db.table("select count(*) from t") == [("5",)]


def test_a_table_that_lacks_columns_or_is_narrower(db: Db, new_loads: NewLoads) -> None:
    new_loads(db).load(request("id int!, d decimal(6.1)", "id", "upsert"), [(1, Decimal("1.5"))])
    names = db.table("select * from _singer_columns")
    wider = request("id long!, d decimal(12.3), new string", "id", "upsert")
    source = [(1, Decimal("1.500"), None)]
    actual = compare(new_loads, db, wider, source)
    assert actual.left == "without the columns new"
    assert db.table("select * from _singer_columns") == names
    assert compare(new_loads, db, wider, source, repair=True).left == ""
    assert db.table("select d, new from t") == [("1.500", db.null)]


def test_what_was_made_by_hand_stays(db: Db, new_loads: NewLoads) -> None:
    own = "note text, made varchar(9) not null default 'hand'"
    own += ", twice int generated always as (id * 2) stored"
    number = "bigint generated always as identity" if db.kind == "postgresql" else "serial"
    db.run(f"create table t (id int primary key, v text, {own}, n {number})")
    db.run("insert into t (id, v, note, made) values (1, 'old', 'n', 'other'), (2, 'x', 'n', 'm')")
    asked = request("id int!, v string", "id", "upsert")
    source = [(1, "new"), (2, "x"), (3, "x")]
    assert compare(new_loads, db, asked, source).left == "1 missing, 1 changed"
    assert compare(new_loads, db, asked, source, repair=True).left == ""
    assert db.table("select id, v, note, made, twice from t order by id") == [
        ("1", "new", "n", "other", "2"),
        ("2", "x", "n", "m", "4"),
        ("3", "x", db.null, "hand", "6"),
    ]


def test_a_table_of_others_needs_no_unique_index(db: Db, new_loads: NewLoads) -> None:
    db.run("create table t (id int not null, v varchar(9), d decimal(9, 1), note text)")
    db.run("insert into t values (1, 'old', 1.5, 'n'), (2, 'x', 1.5, 'n'), (9, 'x', 1.5, 'n')")
    indexes = "select * from information_schema.table_constraints where table_name = 't'"
    before = db.table(indexes)
    asked = request("id long!, v string, d decimal(12.3)", "id", "upsert", hard_delete=True)
    d = Decimal("1.500")
    source = [(1, "new", d), (2, "x", d), (3, "x", d)]
    assert compare(new_loads, db, asked, source, repair=True, force=True).left == ""
    query = "select id, v, d, note from t order by id"
    rows = [("1", "new", "1.5", "n"), ("2", "x", "1.5", "n"), ("3", "x", "1.5", db.null)]
    assert db.table(query) == rows
    assert db.table(indexes) == before
    with pytest.raises((DestinationError, RecordError)):
        compare(new_loads, db, asked, [*source, (4, "x", Decimal("1.555"))], repair=True)
    assert db.table(query) == rows


def test_rows_that_a_table_has_twice(db: Db, new_loads: NewLoads) -> None:
    new_loads(db).load(request("id int!, v string"), [(1, "x"), (1, "x"), (2, "old"), (3, "x")])
    asked = request("id int!, v string", "id", "upsert", hard_delete=True)
    source = [(1, "x"), (2, "new")]
    actual = compare(new_loads, db, asked, source, repair=True, force=True)
    assert actual.left == "1 changed, 1 doubled"
    assert db.table("select id, v from t order by id") == [("1", "x"), ("1", "x"), ("2", "old")]


def test_a_table_that_does_not_exist(db: Db, new_loads: NewLoads) -> None:
    asked = request("id int!, v string", "id", "upsert")
    with pytest.raises(DestinationError, match="'t' does not exist"):
        compare(new_loads, db, asked, [(1, "x")])
    created = compare(new_loads, db, asked, [(1, "x")], repair=True)
    assert (created.left, created.count("missing")) == ("", 1)
    assert db.table("select id, v from t") == [("1", "x")]


def test_a_killed_repair_leaves_the_old_rows_or_the_new(
    maria: MariaDb, new_loads: NewLoads
) -> None:
    db, asked = maria, request("id int!, v string", "id", "upsert", hard_delete=True)
    new_loads(db).load(asked, [(1, "old"), (2, "gone"), (3, "x")])
    rows = "select id, v from t order by id"
    before, after = db.table(rows), [("1", "new"), ("3", "x"), ("4", "added")]
    wanted = Verification(lambda _: None, ranges=8, repair=True, force=True)
    repair = replace(asked, method="overwrite")
    for number in range(100):
        loads = new_loads(db)
        flush = loads.stage(repair, [(1, "new"), (3, "x"), (4, "added")])
        killer = Killer(number, [loads.destination._resources._connection])
        killer.watch(loads.destination)
        try:
            operations(loads).verify([flush], wanted)
        except Killed:
            assert db.table(rows) in (before, after), number
        else:
            break
    assert number > 1
    assert db.table(rows) == after
    loads.destination.close()
    assert tables_of(db) == ["t"]
