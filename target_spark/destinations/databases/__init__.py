"""Databases that can be loaded into, one module per kind.

Everything a `Database` says in SQL concerns one server; what is done when, and in which
transaction, is said once, in `target_spark.destinations.jdbc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark.destinations.databases.failures import Failure
    from target_spark.destinations.databases.place import DatabaseAddress
    from target_spark.destinations.databases.sql import SqlDialect
    from target_spark.destinations.databases.staging import StagedColumn
    from target_spark.tables.evolution import Capabilities
    from target_spark.tables.names import NameRules


class Cursor(Protocol):
    """What of a DB-API cursor is used."""

    @property
    def rowcount(self) -> int:
        """Rows that the last statement has changed."""

    def execute(self, query: str, args: Sequence[Any] | None = None, /) -> Any:
        """Runs one statement; `%` is special only with arguments."""

    def fetchone(self) -> Any:
        """The next row or None."""

    def fetchall(self) -> Any:
        """All rows."""


class Connection(Protocol):
    """What of a DB-API connection is used; outside of autocommit mode."""

    def cursor(self) -> Any:
        """A new cursor."""

    def commit(self) -> None:
        """Ends the transaction."""

    def rollback(self) -> None:
        """Undoes the transaction."""

    def close(self) -> None:
        """Ends the session."""


@dataclass(frozen=True)
class TablePlace:
    """A table by its legal names."""

    schema: str
    table: str


@dataclass(frozen=True)
class FoundColumn:
    """A column of a table.

    Attributes:
        name: In the table.
        sql_type: As the database writes it.
        nullable: Whether it can be null.
        has_default: Whether rows may leave it out although it cannot be null.
    """

    name: str
    sql_type: str
    nullable: bool
    has_default: bool = False


@dataclass(frozen=True)
class FoundTable:
    """A table as it is now.

    Attributes:
        columns: In the table's order, without those that the database computes.
        keys: The column sets that are unique, null being equal to null.
    """

    columns: tuple[FoundColumn, ...]
    keys: frozenset[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Rows:
    """Staged rows and what becomes of them.

    Attributes:
        parts: Staging tables, in order of arrival.
        schema: That they lie in.
        values: Column of the table → SQL expression over a staging table's columns.
        keys: Columns of the table that tell rows apart; for none, all rows are added.
        staged_keys: Their staging columns.
        nullable_keys: Those of `keys` that can be null.
        deleted: Staging column whose value says that a row is to go; None to keep such rows.
    """

    parts: tuple[str, ...]
    schema: str
    values: Mapping[str, str]
    keys: tuple[str, ...] = ()
    staged_keys: tuple[str, ...] = ()
    nullable_keys: frozenset[str] = frozenset()
    deleted: str | None = None


class Database(Protocol):
    """A kind of database. Errors of its driver pass through; `failure` explains them."""

    rules: NameRules
    can: Capabilities
    sql: SqlDialect
    keeps_notes: bool
    """Whether it can show that rows which a flush added are in the table still, unchanged."""
    null_keys: bool
    """Whether rows can be unique by keys that are null; known once connected."""

    def connect(self, place: DatabaseAddress) -> Connection:
        """Begins a session in UTC, outside of autocommit mode.

        Raises:
            SettingsError: The driver's package is not installed.
        """

    def stage(
        self,
        connection: Connection,
        table: TablePlace,
        columns: Sequence[StagedColumn],
        tables: Iterator[pa.Table],
        *,
        numbered: bool,
    ) -> tuple[int, int]:
        """Makes a staging table of all rows, without committing; gives rows and bytes.

        Args:
            connection: Its session.
            table: The staging table.
            columns: Of the stream.
            tables: The rows.
            numbered: Number the rows in order of arrival, in a column before all others.
        """

    def describe(self, cursor: Cursor, table: TablePlace) -> FoundTable | None:
        """The table as it is now; None where there is none.

        Raises:
            DestinationError: Something else has its name.
        """

    def failure(self, error: BaseException) -> Failure | None:
        """What the driver's error means; None for one that is none of the driver's."""


def _postgresql() -> Database:
    from target_spark.destinations.databases.postgresql import PostgreSql  # noqa: PLC0415

    return PostgreSql()


def _mysql() -> Database:
    from target_spark.destinations.databases.mysql import MySql  # noqa: PLC0415

    return MySql()


DATABASES: Mapping[str, Callable[[], Database]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}
"""Every kind of database by the second word of its JDBC URLs."""
