"""A run of the target without Spark: rows made by hand go through a destination's own steps."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from mysql_servers import PASSWORD as MARIADB_PASSWORD
from mysql_servers import MySqlLikeServer
from postgres_server import PASSWORD, Database
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import struct_to_arrow
from target_spark.core.load_plans import Layout, Part, Segment, TableName, TableRequest
from target_spark.destinations.databases.database_destination import JdbcDestination
from target_spark.destinations.databases.database_tables import (
    DatabaseAddress,
    JdbcSettings,
    address_of,
)
from target_spark.destinations.destination import Flush
from target_spark.replays import Entry, Note
from target_spark.tables.version_edit import VersionEdit

Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class PG:
    """PostgreSQL as the tests look at it: by psql."""

    database: Database
    kind = "postgresql"
    null = ""
    has_tables = "select tablename from pg_tables where schemaname = 'public' order by 1"
    user: str = "postgres"
    password: str = PASSWORD

    @property
    def place(self) -> DatabaseAddress:
        return address_of(JdbcSettings(self.database.url, self.user, self.password))

    def table(self, query: str) -> list[tuple[str, ...]]:
        """Return rows as psql prints them."""
        lines = self.database.run(f"set timezone to 'UTC'; {query}").splitlines()
        return [tuple(line.split("|")) for line in lines]

    def run(self, sql: str) -> str:
        return self.database.run(sql)


@dataclass(frozen=True)
class MariaDb:
    """MariaDB, or MySQL, as the tests look at it: by MariaDB's client."""

    null = "NULL"
    has_tables = "show tables"
    server: MySqlLikeServer

    @property
    def kind(self) -> str:
        return self.server.kind

    @property
    def place(self) -> DatabaseAddress:
        return address_of(JdbcSettings(self.server.url(), "tester", MARIADB_PASSWORD))

    def table(self, query: str) -> list[tuple[str, ...]]:
        """Return rows as the client prints them."""
        return [tuple(line.split("\t")) for line in self.server.run(query).splitlines()]

    def run(self, sql: str) -> str:
        return self.server.run(sql)


def tables_of(database: PG | MariaDb) -> list[str]:
    """Return the tables beside those of the ledger."""
    actual = [name for (name,) in database.table(database.has_tables)]
    return [
        name
        for name in actual
        if name not in {"_singer_ledger", "_singer_columns", "_singer_leases"}
    ]


class Loads:
    """A run: a destination, and the flushes that go into it.

    Args:
        database: Where to.
        changes: Of `JdbcDestination`.
    """

    def __init__(self, database: PG | MariaDb, **changes: Any) -> None:
        self.destination = JdbcDestination(**{"place": database.place, **changes})
        self._numbers = itertools.count(1)
        self._run = f"{id(self):x}"
        self.noted: list[str] = []

    def stage(self, request: TableRequest, *parts: Rows, noted: bool = False) -> Flush:
        """Stage the rows of a flush, in a part for each sequence of them."""
        write = self.destination.prepare(request)
        assert write.sink is not None
        sink = pickle.loads(pickle.dumps(write.sink))
        columns = struct_to_arrow(request.struct)
        actual = []
        for rows in parts:
            for row in sink.write(columns, iter(tables(request.struct, rows))):
                assert row["kind"] == "part"
                actual.append(Part(row["url"], row["rows"], row["size"]))
        token = f"{self._run}-{next(self._numbers)}"
        if noted:
            self.noted.append(token)
            entries = (Entry(one, Segment(1, f"dígest%s'\"\\ of {one}")) for one in self.noted)
            self.destination.keep(request, Note(tuple(entries)))
        return Flush(request.stream, token, write, request, tuple(actual))

    def load(self, request: TableRequest, *parts: Rows, noted: bool = False) -> Flush:
        """Load a whole flush, with a note of all noted flushes of the run."""
        flush = self.stage(request, *parts, noted=noted)
        self.destination.commit(flush)
        return flush

    def recall(self, request: TableRequest) -> list[str]:
        """Return the tokens of what an earlier run has left, in order."""
        return [entry.token for entry in self.destination.recall(request).entries]

    def kill(self) -> None:
        """Release what the run holds on the server, as when it dies."""
        self.destination._resources._connection.close()

    def activate(self, request: TableRequest, version: int, at: float = 1e9) -> str | None:
        return self.destination.activate(request, VersionEdit(version, request.hard_delete, at))


NEVER_COMMITS = {"SELECT", "INSERT", "UPDATE", "DELETE", "SET"}


class Killed(BaseException):
    """The process is dead."""


@dataclass
class Killer:
    """Cuts every connection of a run before a statement that may commit something.

    To the server, being killed before any other is the same as being killed before the next such.
    """

    left: int
    connections: list[Any] = field(default_factory=list)

    def step(self, sql: str) -> None:
        self.left -= sql.partition(" ")[0] not in NEVER_COMMITS
        if self.left < 0:
            for connection in self.connections:
                with contextlib.suppress(Exception):
                    connection.close()
            raise Killed

    def watch(self, destination: JdbcDestination) -> None:
        """Cut the sessions that wait for further work, too, and those that begin from now on."""
        database, idle = destination._database, destination._idle
        if idle is not None:
            self.connections.append(idle)
            destination._idle = Connection(idle, self)
        database.connect = self.connect(database.connect)  # type: ignore[method-assign]

    def connect(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        def connected(*args: Any) -> Connection:
            self.connections.append(connect(*args))
            return Connection(self.connections[-1], self)

        return connected


class Through:
    """All that another object has."""

    def __init__(self, inner: Any, killer: Killer) -> None:
        self.inner, self.killer = inner, killer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Connection(Through):
    def cursor(self) -> Cursor:
        return Cursor(self.inner.cursor(), self.killer)

    def commit(self) -> None:
        self.killer.step("commit")
        self.inner.commit()


class Cursor(Through):
    def execute(self, query: str, *args: Any) -> Any:
        self.killer.step(query)
        return self.inner.execute(query, *args)


def tables(struct: T.StructType, rows: Rows) -> Iterator[pa.Table]:
    """Yield rows in two tables, as executors make several of them."""
    schema = struct_to_arrow(struct)
    half = (len(rows) + 1) // 2
    for some in (rows[:half], rows[half:]):
        columns = [[row[n] for row in some] for n in range(len(schema))]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        yield pa.table(arrays, schema=schema)


def request(
    columns: str | T.StructType, keys: str = "", method: str = "append-only", **more: Any
) -> TableRequest:
    """Return a request of the stream `t`; columns as `name type[!]`, keys separated by spaces."""
    struct = struct_of(columns) if isinstance(columns, str) else columns
    layout = Layout(**more.pop("layout", {}))
    stream = more.pop("stream", "t")
    name = TableName(more.pop("table", stream), more.pop("schema_name", None))
    return TableRequest(stream, struct, name, tuple(keys.split()), method, layout=layout, **more)


def struct_of(columns: str) -> T.StructType:
    """Return columns of `name type, name type[]`; a final `!` makes a column required."""
    fields = []
    for column in columns.split(","):
        name, _, word = column.strip().rpartition(" ")
        fields.append(T.StructField(name, _type(word.rstrip("!")), not word.endswith("!")))
    return T.StructType(fields)


def _type(word: str) -> T.DataType:
    if word.endswith("[]"):
        return T.ArrayType(_type(word[:-2]))
    if word.startswith("decimal"):
        precision, scale = word[8:-1].split(".")
        return T.DecimalType(int(precision), int(scale))
    return _TYPES[word]


_TYPES: dict[str, T.DataType] = {
    "byte": T.ByteType(),
    "short": T.ShortType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bool": T.BooleanType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "time": T.TimeType(),
    "variant": T.VariantType(),
    "void": T.NullType(),
    "days": T.DayTimeIntervalType(),
    "months": T.YearMonthIntervalType(),
    "data": T.StructType([T.StructField("a", T.IntegerType()), T.StructField("b", T.StringType())]),
    "map": T.MapType(T.StringType(), T.DoubleType()),
}
