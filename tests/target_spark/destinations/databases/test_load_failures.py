"""Failures of databases, and two runs at a time."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from database_loads import PASSWORD, PG, Loads, MariaDb, request, tables_of
from postgres_server import free_port

from shared.errors import (
    DestinationError,
    RecordError,
    SettingsError,
    SingerSparkError,
    may_pass,
)
from shared.formats.arrow_types import struct_to_arrow
from target_spark.core.balance import Committed
from target_spark.destinations.databases.database import errno_of
from target_spark.destinations.databases.mysql.mysql_client import connect_mysql

pytestmark = [pytest.mark.server, pytest.mark.costly]
NewLoads = Callable[..., Loads]
Db = PG | MariaDb
ITEMS = request("id int!, x string", "id", "upsert")
PLAIN = request("id int, x string")


def message(loads: Loads, asked=PLAIN, kind: type[SingerSparkError] = DestinationError) -> str:
    with pytest.raises(kind) as caught:
        loads.load(asked, [(1, "a")])
    text = str(caught.value)
    assert "\n" not in text
    assert "Secret" not in text
    assert caught.value.hint, text
    return text


def test_a_wrong_password(db: Db, new_loads: NewLoads):
    loads = new_loads(db, place=replace(db.place, password="wrong Secret 9"))
    text = message(loads)
    assert "check 'jdbc.user' and 'jdbc.password'" in text


def test_an_unknown_database(db: Db, new_loads: NewLoads):
    text = message(new_loads(db, place=replace(db.place, name="nowhere")))
    assert "nowhere" in text


def test_no_server(db: Db, new_loads: NewLoads):
    loads = new_loads(db, place=replace(db.place, ports=(free_port(),)))
    with pytest.raises(DestinationError, match="check host and port") as caught:
        loads.destination.prepare(PLAIN)
    assert may_pass(caught.value)
    assert "Connection refused" not in str(caught.value)


def test_a_user_who_may_not_create(pg: PG, new_loads: NewLoads):
    pg.run("drop role if exists guest; create role guest login password 'guest'")
    loads = new_loads(pg, place=replace(pg.place, user="guest", password="guest"))
    text = message(loads)
    assert "grant the user of 'jdbc'" in text
    text = message(loads, request("id int, x string", schema_name="elsewhere"))
    assert "permission denied" in text


def test_settings_of_the_server_do_not_count(db: Db, new_loads: NewLoads) -> None:
    """Sessions stay, texts are alike, commits are durable, and tables have primary keys."""
    of_role = {
        "idle_session_timeout": ("60s", "0"),
        "synchronous_commit": ("off", "on"),
        "default_transaction_isolation": ("serializable", "read committed"),
        "datestyle": ("DMY", "ISO, MDY"),
        "intervalstyle": ("sql_standard", "postgres"),
        "bytea_output": ("escape", "hex"),
        "array_nulls": ("off", "on"),
    }
    of_servers = ["max_error_count", "wait_timeout", "sql_select_limit", "sql_safe_updates"]
    variables = {
        "postgresql": [*of_role],
        "mysql": [*of_servers, "sql_require_primary_key"],
        "mariadb": [*of_servers, "innodb_force_primary_key"],
    }[db.kind]
    if isinstance(db, PG):
        roles = (f"alter role postgres set {n} = '{bad}'" for n, (bad, _) in of_role.items())
        db.run(";".join(roles))
        shown = ", ".join(f"current_setting('{name}')" for name in variables)
        show = f"select concat_ws('; ', {shown})"
    else:
        settings = zip(variables, (0, 1, 1, 1, 1), strict=True)
        db.server.run(";".join(f"set global {n} = {v}" for n, v in settings), "mysql")
        show = "select @@wait_timeout"
    try:
        loads = new_loads(db)
        loads.load(request("id int!, x double", "id", "upsert"), [(1, 1.5)])
        assert db.table("select x from t") == [("1.5",)]
        with closing(loads.destination._database.connect(db.place)) as session:
            cursor = session.cursor()
            cursor.execute(show)
            expected = "; ".join(good for _, good in of_role.values())
            assert cursor.fetchone()[0] in (expected, 604800)
        if isinstance(db, MariaDb):
            with pytest.raises(RecordError, match="does not fit"):
                loads.stage(request("id int!, x double", "id", "upsert"), [(2, float("nan"))])
            assert "key_properties" in message(loads, request("id int, x string", stream="u"))
    finally:
        if isinstance(db, PG):
            db.run("alter role postgres reset all")
        else:
            resets = (f"set global {n} = default" for n in variables)
            db.server.run(";".join(resets), "mysql")


def test_deletions_that_a_publication_cannot_send(pg: PG, new_loads: NewLoads) -> None:
    pg.run("create table t (id int, x text); create publication every for all tables")
    loads, asked = new_loads(pg), request("id int, x string", method="overwrite")
    try:
        loads.load(asked, [(1, "a")])
        with pytest.raises(DestinationError, match="REPLICA IDENTITY FULL, or name"):
            loads.destination.finish(asked)
    finally:
        pg.run("drop publication every")


def test_a_view_in_the_place_of_the_table(db: Db, new_loads: NewLoads):
    db.run("create view t as select 1 as id")
    assert "is not a table that can be loaded into" in message(new_loads(db), kind=SettingsError)


def test_a_table_with_several_rows_of_a_key(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(replace(ITEMS, method="append-only"), [(1, "a")], [(1, "b")])
    assert "several rows with the same key" in message(loads, ITEMS)
    assert len(db.table("select * from t")) == 2


def test_a_failed_flush_changes_no_row_and_may_be_repeated(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(ITEMS, [(1, "a")])
    flush = loads.stage(ITEMS, [(1, "b"), (2, "c")])
    call = loads.destination._add_token

    def fail(*_):
        raise DestinationError("no")

    loads.destination._add_token = fail  # type: ignore[method-assign]
    with pytest.raises(DestinationError, match="no"):
        loads.destination.commit(flush)
    assert db.table("select id, x from t") == [("1", "a")]
    loads.destination._add_token = call  # type: ignore[method-assign]
    loads.destination.commit(flush)
    assert db.table("select id, x from t order by id") == [("1", "b"), ("2", "c")]


def test_staging_tables_that_are_gone_are_told_of(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    flush = loads.stage(PLAIN, [(1, "a")])
    mark = '"' if db.kind == "postgresql" else "`"
    db.run(f"drop table {mark}{flush.parts[0].url}{mark}")
    with pytest.raises(DestinationError, match="exist"):
        loads.destination.commit(flush)


@pytest.mark.parametrize("asked", [ITEMS, PLAIN], ids=["upsert", "append"])
def test_staging_tables_emptied_by_a_crash_of_the_server_are_told_of(
    db: Db, new_loads: NewLoads, asked
):
    loads = new_loads(db)
    flush = loads.stage(asked, [(1, "a")])
    db.run(f"truncate table {flush.parts[0].url}")
    with pytest.raises(DestinationError, match="the database was restarted"):
        loads.destination.commit(flush)


def test_rows_that_cannot_be_read_stay_the_cause(db: Db, new_loads: NewLoads):
    sink = new_loads(db).destination.prepare(PLAIN).sink

    def tables():
        yield pa.table({"id": [1], "x": ["a"]}, schema=struct_to_arrow(PLAIN.struct))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sink.write(struct_to_arrow(PLAIN.struct), tables())
    assert tables_of(db) == []


def test_a_cut_connection_is_begun_again(pg: PG, new_loads: NewLoads):
    loads = new_loads(pg)
    flush = loads.stage(PLAIN, [(1, "a")])
    insert = loads.destination._database.sql.append
    cut = iter(
        [
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and application_name = 'target-spark'"
        ]
    )

    def append(*args):
        for sql in cut:
            pg.run(sql)
        return insert(*args)

    loads.destination._database.sql.append = append  # type: ignore[method-assign]
    loads.destination.commit(flush)
    assert pg.table("select id, x from t") == [("1", "a")]


def test_work_shares_a_session_that_still_answers(pg: PG, new_loads: NewLoads):
    loads, locks = new_loads(pg), "select count(*) from pg_locks where locktype = 'advisory'"
    ours = "from pg_stat_activity where application_name = 'target-spark'"
    loads.load(PLAIN, [(1, "a")])
    sessions = pg.table(f"select pid {ours} order by pid")
    assert len(sessions) == 2  # One holds the lock of the run.
    loads.load(PLAIN, [(2, "b")])
    assert pg.table(f"select pid {ours} order by pid") == sessions
    assert pg.table(locks) == [("1",)]
    pg.run(f"select pg_terminate_backend(pid, 5000) {ours}")
    loads.load(PLAIN, [(3, "c")])
    assert pg.table("select id from t order by id") == [("1",), ("2",), ("3",)]
    loads.destination.close()
    by = time.monotonic() + 30
    while time.monotonic() < by and pg.table(f"select pid {ours}"):
        time.sleep(0.01)
    assert not pg.table(f"select pid {ours}")


@pytest.mark.parametrize("work", ["commit", "recall"])
def test_what_is_committed_is_not_repeated_if_the_session_is_lost_then(
    pg: PG, new_loads: NewLoads, work: str
):
    earlier = new_loads(pg)
    token = earlier.load(PLAIN, [(1, "a")], noted=True).token
    earlier.kill()
    loads, locked = new_loads(pg), list[str]()
    flush, sql = loads.stage(PLAIN, [(2, "b")]), loads.destination._database.sql
    unlock = sql.unlock

    def lost(cursor, name: str) -> None:
        if name.startswith("target-spark table"):
            locked.append(name)
            cursor.connection.close()
        unlock(cursor, name)

    sql.unlock = lost  # type: ignore[method-assign]
    if work == "recall":
        assert loads.recall(PLAIN) == [token]
    else:
        assert loads.destination.commit(flush) == Committed(1)
        assert pg.table("select id from t order by id") == [("1",), ("2",)]
    assert len(locked) == 1


def test_a_session_is_left_as_it_was(db: Db, new_loads: NewLoads):
    name = "lock_timeout" if isinstance(db, PG) else "variables like 'lock_wait_timeout'"
    loads, seen = new_loads(db), []
    for number in range(2):
        with loads.destination.work(PLAIN) as work:
            work.cursor.execute(f"show {name}")
            seen.append(work.cursor.fetchone())
        loads.load(PLAIN, [(number, "a")])  # Staging tables are dropped with little patience.
    assert seen[0] == seen[1]


def test_a_commit_whose_answer_is_lost_is_not_done_twice(pg: PG, new_loads: NewLoads):
    loads = new_loads(pg)
    flush = loads.stage(PLAIN, [(1, "a")])
    drop_staging = loads.destination.drop_staging
    lost = iter([1])

    def lose(*args):
        for _ in lost:
            error = DestinationError("gone")
            raise error from ConnectionResetError(104, "gone")
        drop_staging(*args)

    loads.destination.drop_staging = lose  # type: ignore[method-assign]
    loads.destination.commit(flush)
    assert pg.table("select id, x from t") == [("1", "a")]
    assert tables_of(pg) == ["t"]


def test_a_deadlock_is_tried_again(pg: PG, new_loads: NewLoads):
    """Another writer holds a row that the flush needs, and needs one that the flush holds."""
    loads = new_loads(pg)
    loads.load(ITEMS, [(n, "a") for n in range(3)])
    place = loads.destination._place
    other = loads.destination._database.connect(place)
    cursor = other.cursor()
    cursor.execute("set deadlock_timeout = '60s'")
    cursor.execute("update t set x = 'o' where id = 2")
    flush = loads.stage(ITEMS, [(1, "b"), (2, "b")])
    thread = threading.Thread(target=loads.destination.commit, args=(flush,))
    thread.start()
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    while pg.run(waiting).strip() != "1":
        pass
    cursor.execute("update t set x = 'o' where id = 1")
    other.commit()
    thread.join(30)
    assert not thread.is_alive()
    assert pg.table("select id, x from t order by id") == [("0", "a"), ("1", "b"), ("2", "b")]
    other.close()


def test_runs_at_the_same_time_lose_no_rows(db: Db, new_loads: NewLoads):
    runs = [new_loads(db) for _ in range(4)]
    upsert = request("id int!, n int", "id", "upsert")
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(5):
                runs[number].load(upsert, [(number * 10 + step, number), (1000, number)])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert db.table("select count(*), count(distinct id) from t") == [("21", "21")]


def test_nothing_shows_a_password(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    write = loads.destination.prepare(PLAIN)
    assert "Secret" not in f"{write!r} {loads.destination._place!r} {write.pending}"
    assert pickle.loads(pickle.dumps(write.sink)) == write.sink


def test_a_server_is_given_no_file_it_was_not_offered(maria: MariaDb, tmp_path):
    file = tmp_path / "secret"
    file.write_text("1\n")
    connection = connect_mysql(maria.place)
    cursor = connection.cursor()
    cursor.execute("create table s (a int)")
    with pytest.raises(Exception, match="not offered"):
        cursor.execute(f"load data local infile '{file}' into table s")
    assert maria.table("select * from s") == []


def test_a_server_that_takes_no_local_files(maria: MariaDb, new_loads: NewLoads):
    maria.run("set global local_infile = 0")
    try:
        assert "local_infile=1" in message(new_loads(maria))
    finally:
        maria.run("set global local_infile = 1")


def test_partitions_are_refused(db: Db, new_loads: NewLoads):
    asked = request("id int, x string", layout={"partition_by": ("x",)})
    with pytest.raises(SettingsError, match="partition_by"):
        new_loads(db).destination.prepare(asked)


def test_a_server_that_is_full(pg: PG, new_loads: NewLoads):
    pg.run("alter role postgres set temp_file_limit = 0")
    failure = new_loads(pg).destination._database.failure
    import psycopg

    error = psycopg.errors.DiskFull("could not extend file: No space left on device")
    actual = failure(error)
    assert actual is not None
    assert actual.number == 28
    pg.run("alter role postgres reset temp_file_limit")
    assert errno_of(OSError(28, "x")) == 28
    assert PASSWORD
