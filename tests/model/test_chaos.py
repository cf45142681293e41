"""Both programs under random faults: no row is lost, and none comes twice where the docs say so.

`make chaos` runs it for an hour over all destinations, and prints its seed and figures as it goes.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos import Chain, Fault, Figures, Place, Source
from chaos_operations import operate
from kill_runs import ADDED, KEPT
from model_stores import DeltaStore, IcebergStore, MySqlStore, ParquetStore, PostgresStore
from mysql_servers import MySqlLikeServer
from pipe_programs import Programs
from postgres_server import Database

pytestmark = [pytest.mark.pipe, pytest.mark.soak, pytest.mark.costly]
FOREIGN = "a row of another program"
SPARK_SHARE, AUDIT_SHARE = 0.1, 0.1
"""Of the chains of a long run, those in which Spark loads, and those that audit their rows."""
SPARK_SECONDS = 20.0
"""About how long a run takes in which Spark loads."""
COMMAND_SHARE = 0.15
"""Of the parts of a long run that end well, those that a command over the tables follows."""


def parquet(folder: Path) -> Place:
    def insert(number: int, n: int) -> None:
        table = pa.table({"n": [n], "t": [FOREIGN]})
        pq.write_table(table, folder / f"parquet-{number}" / ADDED / f"others{n}.parquet")

    return Place(ParquetStore(folder), upserts=False, insert=insert)


def delta(folder: Path) -> Place:
    deltalake = pytest.importorskip("deltalake")

    def insert(number: int, n: int) -> None:
        path = str(folder / f"delta-{number}" / ADDED)
        table = pa.table({"n": [n], "t": [FOREIGN]})
        deltalake.write_deltalake(path, table, mode="append", schema_mode="merge")

    def damage(number: int) -> None:
        deltalake.DeltaTable(str(folder / f"delta-{number}" / KEPT)).delete("id % 7 = 3")

    return Place(DeltaStore(folder), upserts=True, insert=insert, damage=damage)


def iceberg(folder: Path) -> Place:
    return Place(IcebergStore(folder), upserts=True)


def postgresql(database: Database) -> Place:
    others = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"

    def insert(number: int, n: int) -> None:
        database.run(f"insert into s{number}.{ADDED} (n, t) values ({n}, '{FOREIGN}')")

    def damage(number: int) -> None:
        database.run(f"update s{number}.{KEPT} set n = -1 where id % 7 = 3")

    def settle() -> None:
        _wait_until_none(lambda: database.value(f"select count(*) {others}"))

    return Place(
        PostgresStore(database),
        upserts=True,
        insert=insert,
        damage=damage,
        disconnect=lambda: database.run(f"select pg_terminate_backend(pid) {others}"),
        settle=settle,
    )


def mysql_like(server: MySqlLikeServer) -> Place:
    others = "from information_schema.processlist where user = 'tester'"

    def insert(number: int, n: int) -> None:
        server.run(f"insert into p{number}_{ADDED} (n, t) values ({n}, '{FOREIGN}')")

    def damage(number: int) -> None:
        server.run(f"update p{number}_{KEPT} set n = -1 where id % 7 = 3")

    def disconnect() -> None:
        for line in server.run(f"select id {others}").split():
            with contextlib.suppress(AssertionError):  # It may have ended meanwhile.
                server.run(f"kill {line}")

    def settle() -> None:
        _wait_until_none(lambda: server.run(f"select count(*) {others}"))

    return Place(
        MySqlStore(server),
        upserts=True,
        insert=insert,
        damage=damage,
        disconnect=disconnect,
        settle=settle,
    )


def _wait_until_none(count: Any) -> None:
    end = time.monotonic() + 60
    while int(count()) and time.monotonic() < end:
        time.sleep(0.05)


def places(request: pytest.FixtureRequest, folder: Path, minutes: int) -> Iterator[Place]:
    """Yield the destinations in turn; only one in a short run."""
    if not minutes:
        return iter([delta(folder)])
    kinds: list[Place] = []
    servers = {
        "postgres": postgresql,
        "mariadb_server": mysql_like,
        "mysql_server": mysql_like,
        "s3_parquet": lambda store: Place(store, upserts=False),
    }
    for fixture, place in servers.items():
        try:
            kinds.append(place(request.getfixturevalue(fixture)))
        except pytest.skip.Exception as reason:
            say(f"without {fixture}: {reason}")
    return itertools.cycle([*kinds, iceberg(folder), parquet(folder), delta(folder)])


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def chain_of(
    request: pytest.FixtureRequest, programs: Programs, place: Place, number: int, figures: Figures
) -> Chain:
    """Return a chain of runs over a place; in some of the long ones Spark loads."""
    minutes, seed = (request.config.getoption(f"--chaos-{name}") for name in ("minutes", "seed"))
    folder, chance = programs.folder, random.Random(f"{seed} {number}")
    by_spark = minutes and chance.random() < SPARK_SHARE
    is_lake = place.store.name in {"delta", "iceberg"}
    audits = minutes and is_lake and chance.random() < AUDIT_SHARE
    settings = {
        **place.store.settings(number),
        "staging": {"root": str(folder / f"staging-{number}")},
        "batch_size_rows": chance.choice([100, 500, 2_000]),
        # On a busy machine a replay may take longer than its flush may wait.
        "batch_wait_limit_seconds": 600,
        "streams": {KEPT: {"load_method": "upsert"}} if place.upserts else {},
        **({"engine": "spark"} if by_spark else {}),
        **({"write_audit_publish": True} if audits else {}),
    }
    source = Source(folder / f"source-{number}", (ADDED, KEPT) if place.upserts else (ADDED,))
    forks = request.getfixturevalue("forks")
    chain = Chain(programs, forks, place, number, source, figures, chance, settings)
    chain.seconds = SPARK_SECONDS if by_spark else chain.seconds
    return chain


def phases(request: pytest.FixtureRequest, programs: Programs, figures: Figures) -> Iterator[Chain]:
    """Yield a chain of runs for each part of it that ends well, without end."""
    minutes, seed = (request.config.getoption(f"--chaos-{name}") for name in ("minutes", "seed"))
    say(f"chaos: seed {seed}, {minutes} minutes")
    for number, place in enumerate(places(request, programs.folder, minutes)):
        chain = chain_of(request, programs, place, number, figures)
        for _ in range(chain.chance.randint(1, 3)):
            yield chain


def test_chaos(request: pytest.FixtureRequest, programs: Programs) -> None:
    minutes = request.config.getoption("--chaos-minutes")
    figures, end = Figures(), time.monotonic() + 60 * minutes
    for chain in phases(request, programs, figures):
        chain.source.grow(chain.chance.randint(1, 4_000))
        for _ in range(chain.chance.randint(2, 6) if minutes else 4):
            chain.run(chain.fault())
            if chain.chance.random() < 0.3:
                chain.source.grow(chain.chance.randint(1, 1_000))
        chain.run(Fault())
        chain.check()
        assert chain.place.store.leftovers(chain.number) == []
        done = ""
        if minutes and chain.chance.random() < COMMAND_SHARE:
            done = operate(chain)
        if done == "rewind":
            chain.run(Fault())
            chain.check()
        say(f"{chain.number}. {chain.place.store.name} {done}: {figures}")
        if time.monotonic() >= end:
            break
    assert (figures.lost, figures.doubled) == (0, 0)
