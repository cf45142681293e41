"""The destinations under test, each with readers that are not the target's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from kill_runs import ADDED, KEPT, PLAIN, REPLACED
from mysql_servers import PASSWORD as MYSQL_PASSWORD
from mysql_servers import MySqlLikeServer
from postgres_server import PASSWORD, Database
from s3_servers import BUCKET, Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = (ADDED, KEPT, REPLACED, PLAIN)
Rows = list[dict[str, Any]]


class Store(Protocol):
    """One place that tables are loaded into.

    Attributes:
        name: Of its kind.
        once: Whether it detects replays.
        effects: What `fault_points` watches besides files; empty for nothing.
        empty_lists: Whether the reader distinguishes an empty list from null.
    """

    name: str
    once: bool
    effects: str
    empty_lists: bool

    def settings(self, number: int) -> dict[str, Any]:
        """Return the settings of a place of its own for each number."""

    def rows(self, number: int, table: str) -> Rows | None:
        """Return all rows, read by another program; None if the table does not exist."""

    def commits(self, number: int) -> int:
        """Return how often any table has changed."""

    def files(self, number: int) -> int:
        """Return the number of files, or tables, also of those that no reader sees."""

    def leftovers(self, number: int) -> list[str]:
        """Return what no run that ended well leaves."""

    def note(self, number: int) -> str:
        """The note that a killed run has kept of one stream; empty if there is none."""


class DeltaStore:
    """Delta tables by path, read by `deltalake`; by Spark where it lacks a table feature."""

    name = "delta"
    once = True
    effects = ""
    empty_lists = True

    def __init__(self, folder: Path, spark: SparkSession | None = None) -> None:
        self._folder = folder
        self._spark = spark
        self.by_others = 0

    def settings(self, number: int) -> dict[str, Any]:
        return {"format": "delta", "path": str(self._folder / f"delta-{number}")}

    def rows(self, number: int, table: str) -> Rows | None:
        deltalake = pytest.importorskip("deltalake")
        path = str(self._folder / f"delta-{number}" / table)
        if not deltalake.DeltaTable.is_deltatable(path):
            return None
        actual = deltalake.DeltaTable(path)
        features = actual.protocol().reader_features or []
        if not features or self._spark is None:
            self.by_others += 1
            rows: Rows = actual.to_pyarrow_table().to_pylist()
            return rows
        frame = self._spark.newSession().read.format("delta").load(path)
        return [row.asDict(recursive=True) for row in frame.collect()]

    def commits(self, number: int) -> int:
        return sum(1 for _ in self._folder.glob(f"delta-{number}/*/_delta_log/*.json"))

    def files(self, number: int) -> int:
        return _files(self._folder / f"delta-{number}")

    def leftovers(self, number: int) -> list[str]:
        return _hidden(self._folder / f"delta-{number}", {"_delta_log"})

    def note(self, number: int) -> str:
        return _note(self._folder / f"delta-{number}")


class IcebergStore:
    """Iceberg tables by path, read by `pyiceberg`, to which a null list of structs is empty."""

    name = "iceberg"
    once = True
    effects = ""
    empty_lists = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def settings(self, number: int) -> dict[str, Any]:
        return {"format": "iceberg", "path": str(self._folder / f"iceberg-{number}")}

    def rows(self, number: int, table: str) -> Rows | None:
        pyiceberg = pytest.importorskip("pyiceberg.table")
        folder = self._folder / f"iceberg-{number}" / table / "metadata"
        actual = list(folder.glob("v*.metadata.json"))
        if not actual:
            return None
        newest = max(actual, key=lambda path: int(path.name[1:].partition(".")[0]))
        rows: Rows = pyiceberg.StaticTable.from_metadata(str(newest)).scan().to_arrow().to_pylist()
        return rows

    def commits(self, number: int) -> int:
        return sum(1 for _ in self._folder.glob(f"iceberg-{number}/*/metadata/v*.json"))

    def files(self, number: int) -> int:
        return _files(self._folder / f"iceberg-{number}")

    def leftovers(self, number: int) -> list[str]:
        return _hidden(self._folder / f"iceberg-{number}", set())

    def note(self, number: int) -> str:
        return _note(self._folder / f"iceberg-{number}")


class PostgresStore:
    """Tables of PostgreSQL, read by psql."""

    name = "postgresql"
    once = True
    effects = "postgresql"
    empty_lists = True

    def __init__(self, database: Database) -> None:
        self._database = database

    def settings(self, number: int) -> dict[str, Any]:
        jdbc = {"url": self._database.url, "user": "postgres", "password": PASSWORD}
        return {"format": "jdbc", "jdbc": jdbc, "default_target_schema": f"s{number}"}

    def rows(self, number: int, table: str) -> Rows | None:
        present = f"select to_regclass('s{number}.{table}') is not null"
        if self._database.value(present) != "t":
            return None
        text = self._database.run(f'select row_to_json(whole) from s{number}."{table}" whole')
        return [json.loads(line, parse_float=Decimal) for line in text.splitlines()]

    def commits(self, number: int) -> int:
        actual = self._of_ledger("coalesce(max(id), 0)", number)
        return int(actual) if actual else 0

    def files(self, number: int) -> int:
        tables = f"select count(*) from pg_tables where schemaname = 's{number}'"
        return int(self._database.value(tables))

    def leftovers(self, number: int) -> list[str]:
        tables = f"select tablename from pg_tables where schemaname = 's{number}'"
        actual = self._database.run(tables).splitlines()
        return [name for name in actual if name not in TABLES and not name.startswith("_singer_")]

    def note(self, number: int) -> str:
        return self._of_ledger("coalesce(max(note), '')", number)

    def _of_ledger(self, what: str, number: int) -> str:
        """A value over the rows of the ledger; empty if there is none yet."""
        ledger = f"s{number}._singer_ledger"
        if self._database.value(f"select to_regclass('{ledger}') is not null") != "t":
            return ""
        return self._database.value(f"select {what} from {ledger}")


class ParquetStore:
    """A folder of Parquet files; rows that no STATE covers are loaded again."""

    name = "parquet"
    once = False
    effects = ""
    empty_lists = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def settings(self, number: int) -> dict[str, Any]:
        return {"format": "parquet", "path": str(self._folder / f"parquet-{number}")}

    def rows(self, number: int, table: str) -> Rows | None:
        folder = self._folder / f"parquet-{number}" / table
        if not folder.is_dir():
            return None
        files = [f for f in folder.glob(f"*.{self.name}") if not f.name.startswith(".")]
        return [row for file in files for row in self.read(file).to_pylist()]

    def read(self, file: Path) -> pa.Table:
        return pq.read_table(file)

    def commits(self, number: int) -> int:
        return sum(1 for _ in self._folder.glob(f"parquet-{number}/*/*.{self.name}"))

    def files(self, number: int) -> int:
        return _files(self._folder / f"parquet-{number}")

    def leftovers(self, number: int) -> list[str]:
        return _hidden(self._folder / f"parquet-{number}", set())

    def note(self, number: int) -> str:
        return ""


class CsvStore(ParquetStore):
    """The same with CSV files."""

    name = "csv"

    def settings(self, number: int) -> dict[str, Any]:
        return {**super().settings(number), "format": "csv"}

    def read(self, file: Path) -> pa.Table:
        return pacsv.read_csv(file)


class S3Store:
    """Tables in the bucket of a server that keeps objects as files, which another store reads.

    Args:
        server: The server.
        objects: Folder of the bucket.
        store: Reads the tables there.
    """

    effects = "s3"

    def __init__(
        self, server: Server, objects: Path, store: Callable[[Path], DeltaStore | ParquetStore]
    ) -> None:
        self._server, self._objects, self._store = server, objects, store(objects)
        self.name = f"{self._store.name} on S3"
        self.once = self._store.once
        self.empty_lists = self._store.empty_lists

    def settings(self, number: int) -> dict[str, Any]:
        actual = self._store.settings(number)
        path = actual["path"].replace(str(self._objects), f"s3://{BUCKET}")
        return {**actual, "path": path, "storage_options": self._server.options}

    def rows(self, number: int, table: str) -> Rows | None:
        return self._store.rows(number, table)

    def commits(self, number: int) -> int:
        return self._store.commits(number)

    def files(self, number: int) -> int:
        return self._store.files(number)

    def leftovers(self, number: int) -> list[str]:
        return self._store.leftovers(number)

    def note(self, number: int) -> str:
        return self._store.note(number)


class MySqlStore:
    """Tables of MariaDB or MySQL, read by MariaDB's client."""

    once = False
    empty_lists = True

    def __init__(self, server: MySqlLikeServer) -> None:
        self._server = server
        self.name = self.effects = server.kind

    def settings(self, number: int) -> dict[str, Any]:
        jdbc = {"url": self._server.url(), "user": "tester", "password": MYSQL_PASSWORD}
        return {"format": "jdbc", "jdbc": jdbc, "table_prefix": f"p{number}_"}

    def rows(self, number: int, table: str) -> Rows | None:
        if f"p{number}_{table}" not in self._tables(number):
            return None
        columns = self._server.run(
            "select column_name from information_schema.columns where table_schema = 'tests' "
            f"and table_name = 'p{number}_{table}' order by ordinal_position"
        ).split()
        pairs = ", ".join(f"'{name}', `{name}`" for name in columns)
        text = self._server.run(f"select json_object({pairs}) from p{number}_{table}")
        return [json.loads(line) for line in text.splitlines()]

    def commits(self, number: int) -> int:
        return self.files(number)

    def files(self, number: int) -> int:
        return len(self._tables(number))

    def leftovers(self, number: int) -> list[str]:
        tables = {f"p{number}_{name}" for name in TABLES}
        return [name for name in self._tables(number) if name not in tables]

    def note(self, number: int) -> str:
        return ""

    def _tables(self, number: int) -> list[str]:
        return self._server.run(f"show tables like 'p{number}\\_%'").split()


def _files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def _note(folder: Path) -> str:
    """The valid note of the file, which has an old and a new one."""
    for path in folder.glob(".*.uncovered-*[!w]"):
        head, _, notes = path.read_text().partition("\n")
        if notes:
            actual: str = json.loads(notes)[1 + int(head[0])]
            return actual
    return ""


def _hidden(folder: Path, existing: set[str]) -> list[str]:
    actual = (path for table in folder.iterdir() if table.is_dir() for path in table.iterdir())
    return [str(path) for path in actual if path.name[0] in "._" and path.name not in existing]
