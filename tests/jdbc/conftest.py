"""A real PostgreSQL for the tests of databases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
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
    name = f"tests_{next(_numbers)}"
    postgres_server.psql(f"create database {name}")
    yield Database(postgres_server, name)
    postgres_server.psql(f"drop database {name} with (force)")
