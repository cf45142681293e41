"""Databases that can be loaded into, one module per kind.

A `Database` has the SQL of one server; the order of work and the transactions are in
`target_spark.destinations.databases.database_destination`, for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark.destinations.databases.database_tables import (
        Connection,
        Cursor,
        FoundTable,
        TablePlace,
    )
    from target_spark.destinations.databases.database_url import DatabaseAddress
    from target_spark.destinations.databases.staged_columns import StagedColumn
    from target_spark.destinations.databases.statements import LoadSql
    from target_spark.tables.evolution import Capabilities
    from target_spark.tables.legal_names import NameRules


@dataclass(frozen=True)
class Failure:
    """The meaning of a driver's error.

    Attributes:
        message: Message of the server or the driver, in one line.
        code: The number or SQLSTATE, or nothing.
        number: An errno, which shows whether a retry may help; 0 for a permanent failure.
        hint: What the user can do.
        refusal: What the server refuses a row for, without its values; empty for other failures.
        is_of_value: Whether it refuses the row for the value of one column.
        column: That column, if the server names it.
    """

    message: str
    code: str = ""
    number: int = 0
    hint: str = ""
    refusal: str = ""
    is_of_value: bool = False
    column: str = ""


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
