"""Append, upsert, overwrite, versions and the ledger, on real databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from case_matrix import matrix
from database_loads import PG, Loads, MariaDb, request, tables_of

from shared.errors import DestinationError, SettingsError
from target_spark.core.balance import merged_rows
from target_spark.destinations.databases.run_resources import Ledger
from target_spark.replays import Note

pytestmark = [pytest.mark.server, pytest.mark.costly]
NewLoads = Callable[..., Loads]
Db = PG | MariaDb

SDC = "_sdc_deleted_at timestamp, _sdc_table_version long"
ITEMS = request("id int!, x string", "id", "upsert")
PLAIN = request("id int, x string")
WHOLE = request("id int, x string", "", "overwrite")
MARKED = request(f"id int!, x string, {SDC}", "id", "upsert", hard_delete=True)
DAY = 86_400_000_000


def ids(db: Db, table: str = "t") -> list[tuple[str, ...]]:
    return db.table(f"select id, x from {table} order by id, x")


def test_append_adds_all_rows_of_all_parts_and_drops_what_was_staged(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(PLAIN, [(1, "a"), (2, "b")], [(1, "a")])
    loads.load(PLAIN, [(3, "c")])
    assert ids(db) == [("1", "a"), ("1", "a"), ("2", "b"), ("3", "c")]
    assert tables_of(db) == ["t"]


def test_a_flush_without_rows_makes_the_table(db: Db, new_loads: NewLoads):
    new_loads(db).load(ITEMS)
    assert ids(db) == []
    assert tables_of(db) == ["t"]


def test_no_rows_make_no_part(db: Db, new_loads: NewLoads):
    flush = new_loads(db).stage(PLAIN, [])
    assert flush.parts == ()


def test_staged_rows_are_seen_by_no_reader(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(PLAIN, [(1, "a")])
    loads.stage(PLAIN, [(2, "b")])
    assert ids(db) == [("1", "a")]


def test_an_aborted_flush_leaves_nothing(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.destination.abort(loads.stage(PLAIN, [(2, "b")]))
    assert tables_of(db) == []


def test_a_flush_committed_again_changes_nothing(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    flush = loads.load(PLAIN, [(1, "a")])
    loads.destination.commit(flush)
    assert ids(db) == [("1", "a")]


def test_upsert_keeps_the_newest_row_of_a_key_by_arrival(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(ITEMS, [(1, "a"), (2, "b"), (1, "c")], [(2, "d"), (3, "e")])
    loads.load(ITEMS, [(3, "f"), (4, "g"), (3, None)])
    assert ids(db) == [("1", "c"), ("2", "d"), ("3", db.null), ("4", "g")]


def test_upsert_by_several_keys(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    both = request("a int!, b string!, x int", "a b", "upsert")
    loads.load(both, [(1, "x", 1), (1, "y", 2), (2, "x", 3), (1, "x", 4)])
    loads.load(both, [(2, "x", 5)])
    rows = db.table("select a, b, x from t order by a, b")
    assert rows == [("1", "x", "4"), ("1", "y", "2"), ("2", "x", "5")]


def test_upsert_of_keys_alone(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    keys = request("id int!", "id", "upsert")
    loads.load(keys, [(1,), (2,), (1,)])
    loads.load(keys, [(2,), (3,)])
    assert db.table("select id from t order by id") == [("1",), ("2",), ("3",)]


def test_keys_that_are_there_already_balance(db: Db, new_loads: NewLoads):
    """Nothing of their rows is left to update."""
    loads, keys = new_loads(db), request("id int!", "id", "upsert")
    for rows in ([(1,), (2,)], [(1,), (2,)], [(2,), (3,)]):
        committed = loads.destination.commit(loads.stage(keys, rows))
        assert committed is not None
        assert merged_rows("s", len(rows), committed) <= len(rows)
    assert db.table("select id from t order by id") == [("1",), ("2",), ("3",)]


def test_upsert_without_keys_appends(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(replace(ITEMS, keys=()), [(1, "a")], [(1, "a")])
    assert ids(db) == [("1", "a"), ("1", "a")]


def test_keys_differ_by_case_accents_and_trailing_spaces(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    texts = request("id string!, x string", "id", "upsert")
    keys = ["a", "A", "a ", "á", "", "ß", "ss"]
    loads.load(texts, [(key, "old") for key in keys])
    loads.load(texts, [("A", "new")])
    assert db.table("select count(*) from t") == [(str(len(keys)),)]
    assert db.table("select count(*) from t where x = 'new'") == [("1",)]


def test_columns_the_stream_lacks_stay_as_they_are(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(request("id int!, x string, y int", "id", "upsert"), [(1, "a", 7), (2, "b", 8)])
    loads.load(ITEMS, [(1, "c"), (3, "d")])
    rows = db.table("select id, x, y from t order by id")
    assert rows == [("1", "c", "7"), ("2", "b", "8"), ("3", "d", db.null)]


def test_a_null_key_is_a_value_like_any_other(pg: PG, new_loads: NewLoads):
    loads = new_loads(pg)
    nulls = request("a int, b int, x string, _sdc_deleted_at timestamp", "a b", "upsert")
    nulls = replace(nulls, hard_delete=True)
    loads.load(nulls, [(None, 1, "a", None), (1, None, "b", None), (None, 1, "c", None)])
    loads.load(nulls, [(None, 1, "d", None), (None, None, "e", None)])
    query = "select a, b, x from t order by x"
    assert pg.table(query) == [("1", "", "b"), ("", "1", "d"), ("", "", "e")]
    loads.load(nulls, [(None, 1, None, 0), (None, None, None, 0)])
    assert pg.table(query) == [("1", "", "b")]


def test_a_null_key_is_refused_where_rows_cannot_be_told_apart(maria: MariaDb, new_loads: NewLoads):
    loads = new_loads(maria)
    with pytest.raises(SettingsError, match="a null in its key"):
        loads.load(request("id int, x string", "id", "upsert"), [(None, "a")])


def test_soft_deletes_are_stored(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    soft = replace(MARKED, hard_delete=False)
    loads.load(soft, [(1, "a", None, 1), (2, "b", None, 1)])
    loads.load(soft, [(1, None, DAY, 1)])
    rows = db.table("select id, _sdc_deleted_at is null from t order by id")
    assert [row[0] for row in rows] == ["1", "2"]
    assert rows[0][1] != rows[1][1]


def test_hard_deletes_remove_the_row_of_their_key(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(MARKED, [(1, "a", None, 1), (2, "b", None, 1), (3, "c", None, 1)])
    loads.load(
        MARKED, [(1, None, DAY, 1), (2, None, DAY, 1), (2, "back", None, 1), (9, "n", DAY, 1)]
    )
    assert ids(db) == [("2", "back"), ("3", "c")]


ORDERED = replace(
    request(f"id int!, a int, b int, x string, {SDC}", "id", "upsert"), order_by=("a", "b")
)


@pytest.mark.parametrize(
    ("db", "hard"), matrix(["pg", "maria", "mysql"], [True, False]), indirect=["db"]
)
def test_no_record_replaces_a_newer_row(db: Db, new_loads: NewLoads, hard: bool):
    """Random records, against a dictionary; a null is older than all other values."""
    chance = Random(7)
    loads, actual = new_loads(db), dict[int, tuple[tuple[int, int], str, bool]]()
    wanted = replace(ORDERED, hard_delete=hard)
    for flush in range(6):
        parts = []
        for part in range(2):
            rows = []
            for n in range(12):
                key = chance.randrange(8)
                a, b = (chance.choice([None, 1, 2, 3]) for _ in "ab")
                rows.append((key, a, b, f"{flush}.{part}.{n}", chance.choice([None, None, DAY]), 1))
            parts.append(rows)
        newest = dict[int, tuple[tuple[int, int], str, bool]]()
        for key, a, b, text, gone, _ in [row for rows in parts for row in rows]:
            order = (a or 0, b or 0)
            if key not in newest or order >= newest[key][0]:
                newest[key] = order, text, gone is not None
        for key, row in newest.items():
            if key not in actual or row[0] >= actual[key][0]:
                actual[key] = row
                if hard and row[2]:
                    del actual[key]
        loads.load(wanted, *parts)
        query = "select id, coalesce(a, 0), coalesce(b, 0), x, _sdc_deleted_at is not null from t"
        reported = {"t": True, "1": True, "f": False, "0": False}
        seen = {
            int(k): ((int(a), int(b)), x, reported[gone]) for k, a, b, x, gone in db.table(query)
        }
        assert seen == actual


def test_overwrite_keeps_the_old_rows_until_the_end(db: Db, new_loads: NewLoads):
    new_loads(db).load(PLAIN, [(1, "old")])
    loads = new_loads(db)
    loads.load(WHOLE, [(2, "new")], [(3, "new")])
    loads.load(WHOLE, [(2, "new")])
    assert ids(db) == [("1", "old")]
    loads.destination.finish(WHOLE)
    assert ids(db) == [("2", "new"), ("2", "new"), ("3", "new")]
    assert tables_of(db) == ["t"]


def test_overwrite_of_a_stream_without_rows_empties_the_table(db: Db, new_loads: NewLoads):
    new_loads(db).load(PLAIN, [(1, "old")])
    loads = new_loads(db)
    loads.load(WHOLE)
    loads.destination.finish(WHOLE)
    assert ids(db) == []


def test_overwrite_of_a_stream_that_never_came_changes_nothing(db: Db, new_loads: NewLoads):
    new_loads(db).load(PLAIN, [(1, "old")])
    new_loads(db).destination.finish(WHOLE)
    assert ids(db) == [("1", "old")]


def test_overwrite_with_keys_keeps_the_newest_of_all_flushes(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    whole = replace(MARKED, method="overwrite")
    loads.load(whole, [(1, "a", None, 1), (2, "b", None, 1)], [(1, "c", None, 1)])
    loads.load(whole, [(2, None, DAY, 1), (3, "d", None, 1)])
    loads.destination.finish(whole)
    assert ids(db) == [("1", "c"), ("3", "d")]


def test_overwrite_with_keys_mixes_no_rows(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(request("id int!, x string", "id", "overwrite"), [(1, "a"), (2, "b")])
    last = request("id int!, y string", "id", "overwrite")
    loads.load(last, [(1, "c")])
    loads.destination.finish(last)
    rows = db.table("select id, x, y from t order by id")
    assert rows == [("1", db.null, "c"), ("2", "b", db.null)]


def test_overwrite_takes_new_columns_and_other_types(db: Db, new_loads: NewLoads):
    new_loads(db).load(request("id int, x string, z int"), [(1, "old", 3)])
    loads = new_loads(db)
    whole = request("id int, x int, y string", "", "overwrite")
    loads.load(whole, [(2, 5, "new")])
    last = request("id int, x int", "", "overwrite")
    loads.load(last, [(3, 6)])
    loads.destination.finish(last)
    rows = db.table("select id, x, y from t order by id")
    assert rows == [("2", "5", "new"), ("3", "6", db.null)]


def test_overwritten_rows_are_seen_until_the_commit(pg: PG, new_loads: NewLoads):
    new_loads(pg).load(PLAIN, [(1, "old")])
    loads = new_loads(pg)
    destination = loads.destination
    seen = []
    insert = type(destination._database.sql).append

    class Watching(type(destination._database.sql)):  # type: ignore[misc]
        def append(self, *args):
            seen.append(ids(pg))
            return insert(self, *args)

    destination._database.sql = Watching()
    loads.load(WHOLE, [(2, "new")])
    loads.load(WHOLE, [(3, "new")])
    destination.finish(WHOLE)
    assert seen == [[("1", "old")], [("1", "old")]]
    assert ids(pg) == [("2", "new"), ("3", "new")]


@pytest.mark.parametrize("hard", [True, False])
def test_an_activated_version_concerns_older_rows_only(db: Db, new_loads: NewLoads, hard: bool):
    loads = new_loads(db)
    marked = replace(MARKED, hard_delete=hard)
    rows = [(1, "a", None, 1), (2, "b", DAY, 1), (3, "c", None, 2), (4, "d", None, None)]
    loads.load(replace(marked, method="append-only"), rows)
    what = "remove 2 rows" if hard else "mark 1 row"
    assert loads.activate(marked, 2) == f"{what} of older versions"
    assert loads.activate(marked, 2) is None
    left = db.table("select id, _sdc_deleted_at from t order by id")
    if hard:
        assert [row[0] for row in left] == ["3", "4"]
    else:
        assert [row[0] for row in left] == ["1", "2", "3", "4"]
        assert left[0][1].startswith("2001-09-09 01:46:40")
        assert left[1][1].startswith("1970-01-02")
        assert left[2][1] == left[3][1] == db.null


def test_a_version_of_a_table_without_versions_changes_nothing(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.activate(PLAIN, 2)
    assert tables_of(db) == []
    loads.load(PLAIN, [(1, "a")])
    loads.activate(PLAIN, 2)
    assert ids(db) == [("1", "a")]


def test_mariadb_cannot_show_that_rows_are_unchanged(maria: MariaDb, new_loads: NewLoads):
    assert not new_loads(maria).destination.keeps_notes


def test_a_run_takes_over_the_note_of_a_killed_one(pg: Db, new_loads: NewLoads):
    killed = new_loads(pg)
    assert killed.destination.keeps_notes
    assert killed.recall(PLAIN) == []
    killed.load(PLAIN, [(1, "a")], noted=True)
    killed.load(PLAIN, [(2, "b"), (3, "c")], noted=True)
    assert new_loads(pg).recall(PLAIN) == [], "the run lives"
    killed.kill()
    second = new_loads(pg)
    assert second.recall(PLAIN) == killed.noted
    second.kill()
    third = new_loads(pg)
    assert third.recall(PLAIN) == killed.noted, "killed before it had done anything"
    third.destination.keep(PLAIN, Note())
    third.destination.finish(PLAIN)
    assert new_loads(pg).recall(PLAIN) == []
    assert ids(pg) == [("1", "a"), ("2", "b"), ("3", "c")]


def test_a_note_outlives_a_changed_type(pg: Db, new_loads: NewLoads):
    """PostgreSQL writes all rows anew, by another transaction."""
    loads, wider = new_loads(pg), request("id long, x string")
    loads.recall(PLAIN)
    loads.load(PLAIN, [(1, "a")], noted=True)
    loads.load(wider, [(2**40, "b")], noted=True)
    loads.kill()
    second = new_loads(pg)
    assert second.recall(wider) == loads.noted
    second.kill()
    pg.run("delete from t where id = 1")
    assert new_loads(pg).recall(wider) == [], "others have changed the rows"


@pytest.mark.parametrize("hard", [True, False])
def test_a_note_outlives_an_activation_of_its_run(pg: Db, new_loads: NewLoads, hard: bool):
    marked = replace(MARKED, method="append-only", hard_delete=hard)
    loads = new_loads(pg)
    loads.recall(marked)
    loads.load(marked, [(1, "a", None, 1), (2, "b", None, 2)], noted=True)
    loads.load(marked, [(3, "c", None, 2)], noted=True)
    loads.activate(marked, 2)
    loads.kill()
    assert new_loads(pg).recall(marked) == loads.noted


def test_a_note_ends_where_another_run_has_activated_a_version(pg: Db, new_loads: NewLoads):
    marked = replace(MARKED, method="append-only")
    killed = new_loads(pg)
    killed.recall(marked)
    killed.load(marked, [(1, "a", None, 1), (2, "b", None, 2)], noted=True)
    killed.kill()
    other = new_loads(pg)
    other.activate(marked, 2)
    other.kill()
    assert new_loads(pg).recall(marked) == []


@pytest.mark.parametrize("rows", [(), ([],)], ids=["no part", "an empty part"])
def test_a_flush_of_replays_alone_does_not_end_the_note(
    pg: Db, new_loads: NewLoads, rows: tuple[Any, ...]
):
    killed = new_loads(pg)
    killed.load(PLAIN, [(1, "a")], noted=True)
    killed.kill()
    second = new_loads(pg)
    assert second.recall(PLAIN) == killed.noted
    second.load(PLAIN, *rows)
    second.noted = [*killed.noted]
    second.load(PLAIN, [(2, "b")], noted=True)
    second.kill()
    assert new_loads(pg).recall(PLAIN) == second.noted


def test_a_run_that_ends_well_with_a_state_leaves_no_note(pg: Db, new_loads: NewLoads):
    loads = new_loads(pg)
    loads.load(PLAIN, [(1, "a")], noted=True)
    loads.destination.keep(PLAIN, Note())  # A STATE that covers all rows goes out.
    loads.destination.finish(PLAIN)
    loads.kill()
    assert new_loads(pg).recall(PLAIN) == []
    assert len(pg.table("select 1 from _singer_ledger")) == 1


def test_a_run_that_ends_well_without_a_state_leaves_its_note(pg: Db, new_loads: NewLoads):
    loads = new_loads(pg)
    loads.load(PLAIN, [(1, "a")], noted=True)
    loads.destination.finish(PLAIN)
    loads.kill()
    assert new_loads(pg).recall(PLAIN) == loads.noted


def test_there_is_no_note_without_a_table(pg: Db, new_loads: NewLoads):
    assert new_loads(pg).recall(PLAIN) == []


@pytest.mark.parametrize(
    "change",
    [
        "delete from t",
        "delete from t where id = 1",
        "truncate t",
        "update t set x = x",
        "drop table t",
        "create table u as table t; drop table t; alter table u rename to t",
    ],
)
def test_a_note_ends_where_its_rows_have_changed(pg: Db, new_loads: NewLoads, change: str):
    killed = new_loads(pg)
    killed.load(PLAIN, [(1, "a"), (2, "b")], noted=True)
    pg.run(change)
    killed.kill()
    assert new_loads(pg).recall(PLAIN) == []


def test_a_note_ends_where_another_run_has_loaded(pg: Db, new_loads: NewLoads):
    killed, other = new_loads(pg), new_loads(pg)
    killed.load(PLAIN, [(1, "a")], noted=True)
    other.load(PLAIN, [(2, "b")])
    killed.kill()
    assert new_loads(pg).recall(PLAIN) == []


def test_a_run_that_lost_its_connection_does_not_go_on_beside_its_successor(
    pg: Db, new_loads: NewLoads
):
    zombie = new_loads(pg)
    zombie.load(PLAIN, [(1, "a")], noted=True)
    late = zombie.stage(PLAIN, [(2, "b")], noted=True)
    zombie.kill()
    successor = new_loads(pg)
    assert successor.recall(PLAIN) == zombie.noted[:1], "the second is not there"
    successor.load(PLAIN, [(2, "b")])
    before = pg.table("select token, note from _singer_ledger order by id")
    with pytest.raises(DestinationError, match="taken over"):
        zombie.destination.commit(late)
    with pytest.raises(DestinationError, match="taken over"):
        zombie.destination.keep(PLAIN, Note())
    assert ids(pg) == [("1", "a"), ("2", "b")]
    assert pg.table("select token, note from _singer_ledger order by id") == before


def test_what_a_killed_run_has_staged_goes_with_the_next_run(db: Db, new_loads: NewLoads):
    killed, living = new_loads(db), new_loads(db)
    killed.stage(PLAIN, [(1, "a")])
    kept = living.stage(PLAIN, [(2, "b")])
    killed.destination._resources._connection.close()
    new_loads(db).load(PLAIN, [(3, "c")])
    assert tables_of(db) == sorted([kept.parts[0].url, "t"])
    living.destination.commit(kept)
    assert ids(db) == [("2", "b"), ("3", "c")]


def test_what_a_run_has_staged_and_not_loaded_goes_with_its_end(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.stage(PLAIN, [(1, "a")])
    loads.destination.close()
    assert tables_of(db) == []


def test_a_run_keeps_its_lock_when_its_connection_is_cut(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    flush = loads.stage(PLAIN, [(1, "a")], noted=db.kind == "postgresql")
    loads.kill()
    loads.destination.commit(flush)
    assert new_loads(db).recall(PLAIN) == [], "it lives"
    assert ids(db) == [("1", "a")]


def test_a_commit_that_a_stale_ledger_does_not_show_is_not_made_twice(
    db: Db, new_loads: NewLoads, monkeypatch: pytest.MonkeyPatch
):
    loads = new_loads(db)
    flush = loads.stage(PLAIN, [(1, "a")])
    monkeypatch.setattr(loads.destination, "drop_staging", lambda *_: None)
    loads.destination.commit(flush)
    monkeypatch.setattr(Ledger, "has", lambda *_: False)
    with pytest.raises(DestinationError):
        loads.destination.commit(flush)
    assert ids(db) == [("1", "a")]


def test_two_streams_do_not_share_a_table(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(PLAIN, [(1, "a")])
    with pytest.raises(SettingsError, match="streams 't' and 'other' would share"):
        loads.load(request("id int", stream="other", table="t"), [(1,)])


def test_a_schema_of_the_request_is_made(db: Db, new_loads: NewLoads, request_schema: str):
    loads = new_loads(db)
    loads.load(request("id int, x string", schema_name=request_schema), [(1, "a")])
    mark = '"' if db.kind == "postgresql" else "`"
    assert ids(db, f"{mark}{request_schema}{mark}.t") == [("1", "a")]


@pytest.fixture
def request_schema(db: Db):
    name = "My %s schema"
    yield name
    mark = '"' if db.kind == "postgresql" else "`"
    cascade = " cascade" if db.kind == "postgresql" else ""
    db.run(f"drop schema {mark}{name}{mark}{cascade}")
