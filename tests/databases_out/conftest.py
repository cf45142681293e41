"""Real databases to load into, and a destination with rows made by hand: no Spark needed."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "jdbc"))  # its servers are used here

from database_loads import PG, Loads, MariaDb
from mariadb_server import MariaDbServer, server_program
from postgres_server import Database, PostgresServer, free_port, server_programs

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One cluster per test process (tests that use it are marked `server`)."""
    programs = server_programs()
    if programs is None:
        pytest.skip("PostgreSQL's server programs are not installed")
    server = PostgresServer(programs, free_port())
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def postgres(postgres_server: PostgresServer) -> Iterator[Database]:
    """A fresh database, shared by the tests of a module."""
    name = f"loads_{next(_numbers)}"
    postgres_server.psql(f"create database {name}")
    yield Database(postgres_server, name)
    postgres_server.psql(f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDbServer]:
    """One server per test process (tests that use it are marked `server`)."""
    if server_program("mariadbd") is None:
        pytest.skip("MariaDB's server program is not installed")
    server = MariaDbServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def new_loads() -> Iterator[Callable[..., Loads]]:
    """Makes runs of the target, each with a destination of its own; they end with the test."""
    made: list[Loads] = []

    def make(database: PG | MariaDb, **changes: object) -> Loads:
        made.append(Loads(database, **changes))
        return made[-1]

    yield make
    for loads in made:
        loads.destination.close()


@pytest.fixture
def pg(postgres: Database) -> PG:
    """The module's PostgreSQL, with an empty schema `public`."""
    postgres.run("drop schema public cascade; create schema public")
    return PG(postgres)


@pytest.fixture
def maria(mariadb_server: MariaDbServer) -> MariaDb:
    """The MariaDB, with an empty database `tests`."""
    mariadb_server.run("drop database tests; create database tests character set utf8mb4", "mysql")
    mariadb_server.run("grant all on *.* to tester@'127.0.0.1'", "mysql")
    return MariaDb(mariadb_server)


@pytest.fixture(params=["postgresql", "mariadb"])
def db(request: pytest.FixtureRequest) -> PG | MariaDb:
    """Each database in turn."""
    found: PG | MariaDb = request.getfixturevalue(
        "pg" if request.param == "postgresql" else "maria"
    )
    return found
