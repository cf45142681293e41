"""Tables that change while they are read: one snapshot, nothing lost."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from jdbc_runs import bookmark, slices_of, table_stream

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
ACCOUNTS, TOTAL = 5_000, 5_000 * 100
# Moves money between accounts: every row's place on disk changes, the sum never does.
MOVES = """
\\set a random(1, 5000)
\\set b random(1, 5000)
begin;
update TABLE set money = money - 7, seen = clock_timestamp() where id = least(:a, :b);
update TABLE set money = money + 7, seen = clock_timestamp() where id = greatest(:a, :b);
commit;
"""
ADDS = """
begin;
select pg_advisory_xact_lock(1);
insert into events (at) values (clock_timestamp());
update events set at = clock_timestamp(), changes = changes + 1
  where id = (select 1 + (random() * 500)::int);
commit;
"""


@pytest.fixture(scope="module", autouse=True)
def tables(postgres):
    postgres.run(
        f"""
        create table accounts (id int primary key, money int, seen timestamptz, pad text);
        insert into accounts select i, 100, now(), repeat('x', 100)
          from generate_series(1, {ACCOUNTS}) i;
        -- Slices go by the estimate of rows, which autovacuum would change in between.
        create table ledger with (autovacuum_enabled = false) as select * from accounts;
        create index on ledger (id);
        create table events (id bigserial primary key, at timestamptz, changes int default 0);
        insert into events (at) select clock_timestamp() from generate_series(1, 1000);
        create index on events (at);
        analyze;
        """
    )


@contextmanager
def writers(postgres, tmp_path: Path, script: str, clients: int):
    path = tmp_path / "script.sql"
    path.write_text(script)
    process = postgres.server.program(
        "pgbench",
        "-n",
        "-c",
        str(clients),
        "-T",
        "300",
        "-f",
        str(path),
        postgres.name,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        assert process.poll() is None, "the writers ended early"
    finally:
        process.kill()
        process.wait()


def test_parts_see_one_moment(lake_spark, postgres, tmp_path):
    stream = table_stream(postgres, "accounts", partitions=5)
    with writers(postgres, tmp_path, MOVES.replace("TABLE", "accounts"), 2):
        for _ in range(2):
            for piece in slices_of(lake_spark, stream):
                assert piece.frame.rdd.getNumPartitions() == 5
                rows = piece.frame.select("id", "money").collect()
                assert len(rows) == ACCOUNTS
                assert len({row.id for row in rows}) == ACCOUNTS
                assert sum(row.money for row in rows) == TOTAL


def test_slices_see_one_moment_too(lake_spark, postgres, tmp_path, monkeypatch):
    monkeypatch.setattr("tap_spark.sources.jdbc.part_plan.SLICE_ROWS", 2000)
    stream = table_stream(postgres, "ledger", partitions=2, replication_key="id")
    with writers(postgres, tmp_path, MOVES.replace("TABLE", "ledger"), 2):
        rows = []
        count = 0
        for piece in slices_of(lake_spark, stream):
            rows += piece.frame.select("money").collect()
            count += 1
        assert count == 3
        assert len(rows) == ACCOUNTS
        assert sum(row.money for row in rows) == TOTAL


def test_the_snapshot_is_released(lake_spark, postgres):
    stream = table_stream(postgres, "accounts", partitions=3)
    open_ones = "select count(*) from pg_stat_activity where application_name = 'tap-spark'"
    pieces = slices_of(lake_spark, stream)
    next(pieces)
    assert postgres.value(open_ones) == "1"
    pieces.close()
    for _ in range(100):
        if postgres.value(open_ones) == "0":
            break
    assert postgres.value(open_ones) == "0"


def test_incremental_runs_lose_nothing_while_others_write(lake_spark, postgres, tmp_path):
    """Writers that commit in the key's order; a copy by many runs equals the table."""
    stream = table_stream(postgres, "events", replication_key="at", partitions=3)
    copy: dict[int, tuple] = {}
    state = None

    def run() -> None:
        nonlocal state
        for piece in slices_of(lake_spark, stream, state=state):
            rows = piece.frame.selectExpr("id", "cast(at as string) at", "changes").collect()
            copy.update({row.id: (row.at, row.changes) for row in rows})
        newest = max(at for at, _ in copy.values())
        state = bookmark(newest.replace(" ", "T") + "+00:00", "at")

    with writers(postgres, tmp_path, ADDS, 2):
        for _ in range(3):
            run()
    run()
    table = postgres.value("select count(*), sum(changes) from events").split("|")
    assert [str(len(copy)), str(sum(changes for _, changes in copy.values()))] == table
