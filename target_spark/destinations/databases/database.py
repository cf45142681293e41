"""Databases that can be loaded into, one module per kind.

A `Database` has the SQL of one server; the order of work and the transactions are in
`target_spark.destinations.databases.database_destination`, for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark.destinations.databases.database_failures import Failure
    from target_spark.destinations.databases.database_url import DatabaseAddress
    from target_spark.destinations.databases.staged_columns import StagedColumn
    from target_spark.destinations.databases.statements import LoadSql
    from target_spark.tables.evolution import Capabilities
    from target_spark.tables.legal_names import NameRules


class Cursor(Protocol):
    """The part of a DB-API cursor that is used."""

    @property
    def rowcount(self) -> int:
        """Return the number of rows that the last statement has changed."""

    def execute(self, query: str, args: Sequence[Any] | None = None, /) -> Any:
        """Run one statement; `%` is special only with arguments."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> Any:
        """Return all rows."""


class Connection(Protocol):
    """The part of a DB-API connection that is used; without autocommit."""

    def cursor(self) -> Any:
        """Return a new cursor."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo the transaction."""

    def close(self) -> None:
        """End the session."""


@dataclass(frozen=True)
class TablePlace:
    """A table with its legal names."""

    schema: str
    table: str


@dataclass(frozen=True)
class FoundColumn:
    """An existing column.

    Attributes:
        name: Name in the table.
        sql_type: Type as reported by the database.
        nullable: Whether it can be null.
        has_default: Whether rows may omit it although it cannot be null.
    """

    name: str
    sql_type: str
    nullable: bool
    has_default: bool = False


@dataclass(frozen=True)
class FoundTable:
    """An existing table.

    Attributes:
        columns: Columns in order, without generated ones.
        keys: The unique column sets, with null equal to null.
    """

    columns: tuple[FoundColumn, ...]
    keys: frozenset[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Rows:
    """Staged rows and how they are loaded.

    Attributes:
        parts: Staging tables, in order of arrival.
        schema: Schema of the staging tables.
        values: Column of the table → SQL expression over a staging table's columns.
        keys: Key columns of the table; if empty, all rows are appended.
        staged_keys: Their staging columns.
        nullable_keys: Those of `keys` that can be null.
        deleted: Staging column that marks rows to delete; None to keep such rows.
        order_by: Column of the table → staging column, of those that tell which row of a key is
            newer; empty if the later arrival is.
    """

    parts: tuple[str, ...]
    schema: str
    values: Mapping[str, str]
    keys: tuple[str, ...] = ()
    staged_keys: tuple[str, ...] = ()
    nullable_keys: frozenset[str] = frozenset()
    deleted: str | None = None
    order_by: Mapping[str, str] = field(default_factory=dict)


class Database(Protocol):
    """A kind of database. It raises errors of its driver; `failure` explains them."""

    rules: NameRules
    can: Capabilities
    sql: LoadSql
    keeps_notes: bool
    """Whether it can prove that the rows of a flush are still in the table, unchanged."""
    null_keys: bool
    """Whether keys can be unique with null values; known once connected."""

    def connect(self, place: DatabaseAddress) -> Connection:
        """Begin a session in UTC, without autocommit.

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
        """Create a staging table with all rows, without a commit; return rows and bytes.

        Args:
            connection: The session.
            table: The staging table.
            columns: Columns of the stream.
            tables: The rows.
            numbered: Number the rows in order of arrival, in a first column.
        """

    def describe(self, cursor: Cursor, table: TablePlace) -> FoundTable | None:
        """Return the existing table; None if there is none.

        Raises:
            DestinationError: Something else has its name.
        """

    def failure(self, error: BaseException) -> Failure | None:
        """Return the meaning of a driver's error; None for any other error."""
