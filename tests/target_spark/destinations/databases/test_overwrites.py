"""Tables replaced whole: readers always find the old rows or all of the new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from case_matrix import matrix
from database_loads import PG, Killed, Killer, Loads, MariaDb, Rows, request, tables_of

from shared.errors import SettingsError
from target_spark.core.load_plans import TableRequest

pytestmark = [pytest.mark.server, pytest.mark.costly]
NewLoads = Callable[..., Loads]
Db = PG | MariaDb
Flushes = list[tuple[TableRequest, Rows]]


def whole(columns: str, keys: str = "") -> TableRequest:
    return request(columns, keys, "overwrite")


PLAIN = request("id int, x string")
OLD: Flushes = [(PLAIN, [(1, "old"), (1, "old")])]
KEYED: Flushes = [(request("id int!, x string", "id", "upsert"), [(1, "old"), (2, "old")])]
ADDED: Flushes = [
    (whole("id int, x string, y int"), [(2, "new", 1)]),
    (whole("id int, x string"), [(3, "new")]),
]
RETYPED: Flushes = [
    (whole("id int!, x int", "id"), [(2, 5), (3, 5)]),
    (whole("id int!, x long, y int", "id"), [(3, 6, 1)]),
    (whole("id int!, x bool", "id"), [(4, True)]),
]
CAST: Flushes = [
    (whole("id int!, x int", "id"), [(2, 5), (3, 5)]),
    (whole("id int!, x string", "id"), [(3, "new")]),
]
NEW = [(2, "new"), (3, "new")]
CASES: dict[str, tuple[Flushes, Flushes, Rows, dict[str, Any]]] = {
    "no table": ([], ADDED, NEW, {}),
    "new column": (OLD, ADDED, NEW, {}),
    "other types": (KEYED, RETYPED, [(2, 5), (3, 6), (4, None)], {"conflicts": "suffix"}),
    "other types and keys": (OLD, CAST, [(2, "5"), (3, "new")], {"conflicts": "cast"}),
}


# A kill before each statement: MySQL would add a minute to what MariaDB shows.
@pytest.mark.parametrize(("case", "db"), matrix([*CASES], ["pg", "maria"]), indirect=["db"])
def test_a_killed_overwrite_leaves_the_old_rows_or_the_new(
    db: Db, new_loads: NewLoads, case: str
) -> None:
    old, new, wanted, settings = CASES[case]

    def rows() -> list[tuple[str, ...]] | None:
        return db.table("select id, x from t order by id") if "t" in tables_of(db) else None

    for asked, supplied in old:
        new_loads(db).load(asked, supplied)
    before = rows()
    after = sorted((str(row[0]), str(row[1] or db.null)) for row in wanted)
    seen = [before]
    for number in range(100):
        loads = new_loads(db, **settings)
        for asked, supplied in new:
            loads.load(asked, supplied)
        killer = Killer(number, [loads.destination._resources._connection])
        killer.watch(loads.destination)
        try:
            loads.destination.finish(new[-1][0])
        except Killed:
            seen.append(rows())
            assert seen[-1] in (before, after), number
        else:
            break
    assert before != after
    assert after in seen
    assert rows() == after
    assert tables_of(db) == ["t"]


@pytest.mark.parametrize("keys", ["", "id"])
def test_a_conflict_within_a_run_leaves_the_old_rows(
    db: Db, new_loads: NewLoads, keys: str
) -> None:
    new_loads(db).load(PLAIN, [(1, "old")])
    loads = new_loads(db)
    loads.load(whole("id int!, x int", keys), [(2, 5)])
    last = whole("id int!, x bool", keys)
    loads.load(last, [(3, True)])
    with pytest.raises(SettingsError, match="column 'x' is int in the table and boolean"):
        loads.destination.finish(last)
    assert db.table("select id, x from t") == [("1", "old")]
    loads.destination.close()
    assert tables_of(db) == ["t"]


def test_other_types_leave_what_was_made_by_hand(maria: MariaDb, new_loads: NewLoads) -> None:
    maria.run(
        "create table t (id int primary key, x longtext, made varchar(9) not null default 'hand',"
        " double_id int as (id * 2), key (made))"
    )
    loads = new_loads(maria)
    new = whole("id int!, x int", "id")
    loads.load(new, [(1, 5)])
    loads.destination.finish(new)
    assert maria.table("select id, x, made, double_id from t") == [("1", "5", "hand", "2")]
    kinds = [row[1] for row in maria.table("show columns from t where field in ('made', 'x')")]
    assert kinds == ["longtext", "varchar(9)"]
    keys = "select distinct index_name from information_schema.statistics where table_name = 't'"
    assert sorted(maria.table(keys)) == [("PRIMARY",), ("made",)]


@pytest.mark.parametrize("db", ["maria", "mysql"], indirect=True)
def test_triggers_and_foreign_keys_of_our_own_table_stay(db: MariaDb, new_loads: NewLoads) -> None:
    new_loads(db).load(request("id int, x int, up int"), [(1, 1, 1), (1, 1, 1)])
    db.run(
        "create table owner (id int primary key); insert into owner values (1);"
        "alter table t add foreign key (up) references owner (id);"
        "create trigger touch before insert on t for each row set new.x = coalesce(new.x, '7')"
    )
    loads = new_loads(db, conflicts="cast")
    new = whole("id int!, x string, up int", "id")
    loads.load(new, [(2, "old", 1), (3, None, 1)])
    loads.load(new, [(2, "new", 1)])
    loads.destination.finish(new)
    assert db.table("select id, x from t order by id") == [("2", "new"), ("3", "7")]
    assert len(db.table("show triggers like 't'")) == 1
    created = db.table("show create table t")[0][1]
    assert "REFERENCES `owner`" in created
    assert tables_of(db) == ["owner", "t"]


@pytest.mark.parametrize("db", ["maria", "mysql"], indirect=True)
def test_a_cast_leaves_the_rest_of_a_column(db: MariaDb, new_loads: NewLoads) -> None:
    """The server forgets what a statement that changes a column does not repeat."""
    db.run(
        "create table t (id int not null auto_increment primary key comment 'it''s',"
        " x int not null default 7 comment 'theirs', y varchar(9) default 'a''b',"
        " z datetime(6) default current_timestamp(6) on update current_timestamp(6))"
    )
    asked = request("id int!, x string", "id", "upsert")
    query = (
        "select is_nullable, column_default, column_comment from information_schema.columns "
        "where table_name = 't' and column_name <> 'x' order by ordinal_position"
    )
    before = db.table(query)
    new_loads(db, conflicts="cast").load(asked, [(1, "text")])
    db.run("insert into t (id) values (2)")
    assert db.table("select id, x from t order by id") == [("1", "text"), ("2", "7")]
    column = query.replace("<>", "=").replace("column_default, ", "")
    assert db.table(column) == [("NO", "theirs")]
    assert db.table(query) == before


def test_a_column_of_ours_keeps_its_default_if_it_becomes_nullable(
    db: Db, new_loads: NewLoads
) -> None:
    new_loads(db).load(request("id int!, x string!, y int!"), [(1, "a", 1)])
    db.run("alter table t alter column y set default 5")
    new_loads(db).load(request("id int!, x string, y long"), [(2, None, None)])
    db.run("insert into t (id, x) values (3, 'c')")
    assert db.table("select y from t order by id") == [("1",), (db.null,), ("5",)]


@pytest.mark.parametrize("db", ["maria", "mysql"], indirect=True)
def test_a_nullable_key_gets_one_index(db: MariaDb, new_loads: NewLoads) -> None:
    new_loads(db).load(request("id int, x string"), [(1, "a")])
    loads = new_loads(db)
    for number in range(3):
        loads.load(request("id int, x string", "id", "upsert"), [(number, "b")])
    names = "select count(distinct index_name) from information_schema.statistics"
    assert db.table(f"{names} where table_name = 't'") == [("1",)]


def loaded_whole(loads: Loads, columns: str, rows: Rows) -> None:
    asked = whole(columns, "id")
    loads.load(asked, rows)
    loads.destination.finish(asked)


def test_a_column_of_another_type_is_made_anew(db: Db, new_loads: NewLoads) -> None:
    """The types of the old rows do not matter, nor does the rule for conflicts."""
    new_loads(db).load(*KEYED[0])
    db.run("create index on_id on t (id)")
    loaded_whole(new_loads(db), "id int!, x int", [(1, 5)])
    assert db.table("select id, x from t") == [("1", "5")]
    names = db.table(
        "select indexname from pg_indexes where tablename = 't'"
        if isinstance(db, PG)
        else "select distinct index_name from information_schema.statistics where table_name = 't'"
    )
    assert len(names) == 2, "the key, and what others have made of another column"
    assert ("on_id",) in names


@pytest.mark.parametrize(
    ("created", "named"),
    [
        ("create index theirs on t (x)", "index theirs"),
        ("create index theirs on t (id, x)", "index theirs"),
        ("create unique index theirs on t (x)", "index theirs"),
        ("alter table t add constraint theirs check (x <> 'no')", "constraint theirs on table t"),
        ("alter table t alter x set default 'x'", "default value for column x of table t"),
        ("grant select (x) on t to pg_monitor", "rights on column x"),
        ("create statistics theirs on id, x from t", "theirs"),
        ("alter table t add theirs text generated always as (x || '!') stored", "theirs"),
    ],
)
def test_what_others_made_of_a_column_is_not_dropped(
    pg: PG, new_loads: NewLoads, created: str, named: str
) -> None:
    new_loads(pg).load(KEYED[0][0], [(1, "a")])
    pg.run(created)
    with pytest.raises(SettingsError) as caught:
        loaded_whole(new_loads(pg), "id int!, x int", [(1, 5)])
    assert named in str(caught.value)
    assert "(x)" in str(caught.value)
    assert pg.table("select id, x from t") == [("1", "a")]


@pytest.mark.parametrize("db", ["maria", "mysql"], indirect=True)
@pytest.mark.parametrize("columns", ["x", "x, id"])
def test_an_index_of_others_is_not_dropped(db: MariaDb, new_loads: NewLoads, columns: str) -> None:
    for old, new in ((KEYED[0][0], "id int!, x int"), (PLAIN, "id int!, x string")):
        db.run("drop table if exists t")
        new_loads(db).load(old, [(1, "a")])
        db.run(f"create index theirs on t ({columns.replace('x', 'x(9)')})")
        with pytest.raises(SettingsError, match="index theirs"):
            loaded_whole(new_loads(db), new, [(1, 5 if "x int" in new else "b")])
        assert db.table("select id, x from t") == [("1", "a")]
