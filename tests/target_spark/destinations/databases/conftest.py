"""Real databases to load into, and a destination with rows made by hand: no Spark needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from database_loads import PG, Loads, MariaDb
from mysql_servers import MySqlLikeServer
from postgres_server import Database


@pytest.fixture
def new_loads() -> Iterator[Callable[..., Loads]]:
    """Yield a function for runs of the target, each with a destination of its own."""
    created: list[Loads] = []

    def make(database: PG | MariaDb, **changes: object) -> Loads:
        created.append(Loads(database, **changes))
        return created[-1]

    yield make
    for loads in created:
        loads.destination.close()


@pytest.fixture
def pg(postgres: Database) -> PG:
    """The module's PostgreSQL, with an empty schema `public`."""
    postgres.run("drop schema public cascade; create schema public")
    return PG(postgres)


@pytest.fixture
def maria(mariadb_server: MySqlLikeServer) -> MariaDb:
    """The MariaDB, with an empty database `tests`."""
    return _emptied(mariadb_server)


@pytest.fixture
def mysql(mysql_server: MySqlLikeServer) -> MariaDb:
    """MySQL itself, with an empty database `tests`."""
    return _emptied(mysql_server)


def _emptied(server: MySqlLikeServer) -> MariaDb:
    server.run("drop database tests; create database tests character set utf8mb4", "mysql")
    server.run("grant all on *.* to tester@'127.0.0.1'", "mysql")
    return MariaDb(server)


@pytest.fixture(params=["pg", "maria", "mysql"])
def db(request: pytest.FixtureRequest) -> PG | MariaDb:
    """Each database in turn."""
    actual: PG | MariaDb = request.getfixturevalue(request.param)
    return actual


@pytest.fixture(params=["maria", "mysql"])
def lenient(request: pytest.FixtureRequest) -> Iterator[MariaDb]:
    """A server that, as old ones do, takes a null for the current time in columns of timestamps."""
    actual: MariaDb = request.getfixturevalue(request.param)
    actual.run("set global explicit_defaults_for_timestamp = off")
    yield actual
    actual.run("set global explicit_defaults_for_timestamp = default")
