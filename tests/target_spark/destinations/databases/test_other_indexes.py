"""Upserts into tables that have unique indexes besides the key: only the key identifies rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import pytest
from database_loads import PG, Loads, MariaDb, request

from shared.errors import RecordError

pytestmark = pytest.mark.server
NewLoads = Callable[..., Loads]
Db = PG | MariaDb

USERS = request("id int!, email string, x string", "id", "upsert")
CREATED = "create table t (id int primary key, email varchar(50) unique, x text)"


def rows(db: Db) -> list[tuple[str, ...]]:
    return db.table("select id, email, x from t order by id")


@pytest.fixture
def loads(db: Db, new_loads: NewLoads) -> Loads:
    """A run over a table with two rows and a unique index on a column that is not a key."""
    db.run(f"{CREATED}; insert into t values (1, 'a', 'old'), (2, 'b', 'old')")
    return new_loads(db)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param((3, "a", "new"), id="a new key"),
        pytest.param((2, "a", "new"), id="a key that is there"),
    ],
)
def test_a_row_of_another_key_is_never_changed(db: Db, loads: Loads, record: tuple[object, ...]):
    with pytest.raises(RecordError, match=r"unique|email"):
        loads.load(USERS, [record])
    assert rows(db) == [("1", "a", "old"), ("2", "b", "old")]


def test_two_new_records_that_are_equal_in_the_index_do_not_become_one(db: Db, loads: Loads):
    with pytest.raises(RecordError):
        loads.load(USERS, [(3, "c", "new"), (4, "c", "new")])
    assert rows(db) == [("1", "a", "old"), ("2", "b", "old")]


def test_the_error_names_table_and_key(maria: MariaDb, new_loads: NewLoads):
    maria.run(f"{CREATED}; insert into t values (1, 'a', 'old')")
    with pytest.raises(RecordError, match=r"unique index of the table 't' \(key: id\)"):
        new_loads(maria).load(USERS, [(3, "a", "new")])


def test_the_key_decides_where_the_index_allows_it(db: Db, loads: Loads):
    loads.load(USERS, [(1, "a", "new"), (3, None, "new"), (4, None, "new")])
    loads.load(USERS, [(1, "z", "newer"), (5, "a", "new")])
    assert rows(db) == [
        ("1", "z", "newer"),
        ("2", "b", "old"),
        ("3", db.null, "new"),
        ("4", db.null, "new"),
        ("5", "a", "new"),
    ]


def test_overwrite_does_not_join_rows_of_two_keys(db: Db, loads: Loads):
    whole = request("id int!, email string, x string", "id", "overwrite")
    loads.load(whole, [(3, "c", "new"), (4, "c", "new")])
    with pytest.raises(RecordError):
        loads.destination.finish(whole)
    assert rows(db) == [("1", "a", "old"), ("2", "b", "old")]


def test_keys_of_several_columns_named_like_staged_ones(db: Db, new_loads: NewLoads):
    mark = '"' if db.kind == "postgresql" else "`"
    n = f"{mark}n{mark}"
    db.run(f"create table t (c0 int, {n} varchar(9), o int unique, primary key (c0, {n}))")
    loads = new_loads(db)
    keyed = request("c0 int!, n string!, o int", "c0 n", "upsert")
    loads.load(keyed, [(1, "x", 1), (1, "y", 2)])
    loads.load(keyed, [(1, "x", 3), (2, "x", 4)])
    with pytest.raises(RecordError):
        loads.load(keyed, [(2, "y", 4)])
    query = f"select c0, {n}, o from t order by 1, 2"
    assert db.table(query) == [("1", "x", "3"), ("1", "y", "2"), ("2", "x", "4")]


@pytest.mark.parametrize(
    ("column", "keys", "columns"),
    [
        pytest.param("id int auto_increment", "id", "id long!, u int, v int", id="number"),
        pytest.param("id timestamp", "id u", "id timestamp!, u int!, v int", id="time"),
    ],
)
def test_a_key_column_that_turns_null_into_a_value(
    lenient: MariaDb, new_loads: NewLoads, column: str, keys: str, columns: str
) -> None:
    db = lenient
    db.run(
        f"create table t ({column} not null, u int not null, v int unique, primary key ("
        f"{keys.replace(' ', ', ')}))"
    )
    at = [datetime(2026, 1, n, tzinfo=timezone.utc) for n in (1, 2)] if "time" in column else [1, 0]
    asked = request(columns, keys, "upsert")
    new_loads(db).load(asked, [(at[0], 7, 1)])
    before = db.table("select * from t")
    with pytest.raises(RecordError, match=rf"unique index of the table 't' \(key: {keys[:2]}"):
        new_loads(db).load(asked, [(at[1], 8, 1)])
    assert db.table("select * from t") == before
    for _ in range(2):
        new_loads(db).load(asked, [(at[1], 8, 2)])
    assert db.table("select u, v from t order by u") == [("7", "1"), ("8", "2")]
