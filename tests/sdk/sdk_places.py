"""Every destination of target-spark, each with a reader that is not the target's."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import pyarrow.orc
import pyarrow.parquet
import pymysql
import pytest
from mysql_servers import PASSWORD as MARIADB_PASSWORD
from postgres_server import PASSWORD

Rows = list[dict[str, Any]]

FILES = ("parquet", "json", "csv", "orc")
SERVED = ("delta", "iceberg", "postgresql", "mariadb")
PLACES = (*FILES, *(pytest.param(name, marks=pytest.mark.server) for name in SERVED))


@dataclass(frozen=True)
class Place:
    """One destination.

    Attributes:
        name: Of its kind.
        settings: Of a run.
        tables: Gives the names of the tables that are there.
        read: Gives all rows of a table.
    """

    name: str
    settings: dict[str, Any]
    tables: Callable[[], Iterable[str]]
    read: Callable[[str], Rows]

    def rows(self, stream: str) -> Rows | None:
        """Return the rows of a stream's table; None if there is no table."""
        wanted = _letters(stream)
        for table in self.tables():
            if _letters(table) == wanted:
                return self.read(table)
        return None


def place_of(name: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    """Give a destination that nothing has been loaded into, below a folder or in a server."""
    if name == "postgresql":
        return _postgresql(request.getfixturevalue("postgres"))
    if name == "mariadb":
        return _mariadb(request.getfixturevalue("mariadb_server"))
    settings = {"format": name, "path": str(folder)}
    read = {**dict.fromkeys(FILES, _files), "delta": _delta, "iceberg": _iceberg}[name]
    return Place(
        name,
        settings,
        lambda: [path.name for path in folder.glob("[!._]*")],
        lambda table: read(folder / table),
    )


def _letters(name: str) -> str:
    return re.sub(r"\W", "_", unquote(name)).lower()


def _files(folder: Path) -> Rows:
    rows: Rows = []
    for path in sorted(folder.glob("part-*")):
        if path.suffix == ".json":
            rows += map(json.loads, path.read_text().splitlines())
        elif path.suffix == ".csv":
            with path.open(newline="") as file:
                rows += [{k: v or None for k, v in row.items()} for row in csv.DictReader(file)]
        else:
            kind = pyarrow.orc if path.suffix == ".orc" else pyarrow.parquet
            rows += kind.read_table(path).to_pylist()
    return rows


def _delta(folder: Path) -> Rows:
    deltalake = pytest.importorskip("deltalake")
    # The package cannot open a folder whose name holds an escape like %3A.
    with tempfile.TemporaryDirectory() as plain:
        shutil.copytree(folder, plain, dirs_exist_ok=True)
        rows: Rows = deltalake.DeltaTable(plain).to_pyarrow_table().to_pylist()
    return rows


def _iceberg(folder: Path) -> Rows:
    pyiceberg = pytest.importorskip("pyiceberg.table")
    newest = max(folder.glob("metadata/v*.json"), key=lambda path: int(path.name[1:].split(".")[0]))
    rows: Rows = pyiceberg.StaticTable.from_metadata(str(newest)).scan().to_arrow().to_pylist()
    return rows


def _postgresql(database: Any) -> Place:
    jdbc = {"url": database.url, "user": "postgres", "password": PASSWORD}
    reported = {"user": "postgres", "password": PASSWORD, "dbname": database.name,
            "host": "127.0.0.1", "port": database.server.port}  # fmt: skip

    def query(text: str) -> Rows:
        with psycopg.connect(**reported, row_factory=psycopg.rows.dict_row) as connection:
            return connection.execute(text).fetchall()  # type: ignore[call-overload, no-any-return]

    return Place(
        "postgresql",
        {"format": "jdbc", "jdbc": jdbc},
        lambda: [row["name"] for row in query("select tablename as name from pg_tables")],
        lambda table: query(f'select * from "{table}"'),
    )


def _mariadb(server: Any) -> Place:
    created = "create database sdk character set utf8mb4; grant all on sdk.* to tester@'127.0.0.1'"
    server.run(f"drop database if exists sdk; {created}", "mysql")
    url = f"jdbc:mariadb://127.0.0.1:{server.port}/sdk"
    jdbc = {"url": url, "user": "tester", "password": MARIADB_PASSWORD}

    def query(text: str) -> Rows:
        reported = {"user": "tester", "password": MARIADB_PASSWORD, "database": "sdk"}
        connection = pymysql.connect(
            host="127.0.0.1", port=server.port, cursorclass=pymysql.cursors.DictCursor, **reported
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    return Place(
        "mariadb",
        {"format": "jdbc", "jdbc": jdbc},
        lambda: [next(iter(row.values())) for row in query("show tables")],
        lambda table: query(f"select * from `{table}`"),
    )
