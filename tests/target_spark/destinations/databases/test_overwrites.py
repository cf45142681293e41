"""Tables replaced whole: readers always find the old rows or all of the new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from database_loads import PG, Killed, Killer, Loads, MariaDb, Rows, request, tables_of

from shared.errors import SettingsError
from target_spark.core.load_plans import TableRequest

pytestmark = pytest.mark.server
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
@pytest.mark.parametrize("db", ["pg", "maria"], indirect=True)
@pytest.mark.parametrize("case", CASES)
def test_a_killed_overwrite_leaves_the_old_rows_or_the_new(
    db: Db, new_loads: NewLoads, case: str
) -> None:
    old, new, wanted, settings = CASES[case]

    def rows() -> list[tuple[str, ...]] | None:
        return db.table("select id, x from t order by id") if "t" in tables_of(db) else None

    for asked, given in old:
        new_loads(db).load(asked, given)
    before = rows()
    after = sorted((str(row[0]), str(row[1] or db.null)) for row in wanted)
    seen = [before]
    for number in range(100):
        loads = new_loads(db, **settings)
        for asked, given in new:
            loads.load(asked, given)
        killer = Killer(number, [loads.destination._resources._connection])
        database = loads.destination._database
        database.connect = killer.connect(database.connect)  # type: ignore[method-assign]
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
