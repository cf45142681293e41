"""One module per database: quoting, metadata of its tables, and values as SQL."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from shared.spark.jdbc_drivers import driver_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tap_spark.sources.jdbc.table_info import ColumnInfo, TableInfo

TableName = tuple["str | None", str]
"""Schema and name of one table; without a schema the database uses its default."""

MODULES = {
    "postgresql": "postgresql:PostgreSqlDialect",
    "mysql": "mysql:MySqlDialect",
    "sqlserver": "sqlserver:SqlServerDialect",
    "oracle": "oracle:OracleDialect",
    "sqlite": "sqlite:SqliteDialect",
    "duckdb": "duckdb:DuckDbDialect",
    "other": "generic:GenericDialect",
}
"""Module and class of each database, by the names of `shared.spark.jdbc_drivers`."""


class QueryRunner(Protocol):
    """Queries the database."""

    def __call__(self, query: str, texts: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Run one SELECT and return its rows.

        Args:
            query: The statement.
            texts: Columns to fetch as text, if the driver does not know its own types.

        Returns:
            Rows with the names of the columns in lower case.
        """
        ...

    def struct(self, query: str) -> StructType:
        """Return the columns of a SELECT as Spark's reader sees them."""
        ...


class Dialect(Protocol):
    """The SQL and metadata of one database."""

    name: str

    def quote(self, name: str) -> str:
        """Quote an identifier; it may have any characters."""
        ...

    def table(self, parts: Sequence[str]) -> str:
        """Quote a table's name with its schema."""
        ...

    def tables(self, run_query: QueryRunner, only: TableName | None = None) -> list[TableInfo]:
        """Describe every table and view the user may read, by a handful of metadata queries.

        Args:
            run_query: Queries the database.
            only: Describe this table alone, even if the user may not read it.
        """
        ...

    def query_columns(self, run_query: QueryRunner, source: str) -> tuple[ColumnInfo, ...]:
        """Describe the columns of a query.

        Args:
            run_query: Queries the database.
            source: The query, as a named subquery.
        """
        ...

    def row_widths(
        self, columns: Sequence[ColumnInfo], source: str, table: TableInfo | None, rows: int
    ) -> str | None:
        """Select the mean and the greatest width of some rows: one row with `mean` and `most`.

        Args:
            columns: The columns whose bytes count.
            source: The table's name, or a named subquery.
            table: The table; None for a query.
            rows: How many rows to look at.

        Returns:
            None if the driver does not keep many rows, or the widths cannot be had.
        """
        ...

    def literal(self, value: Any, column: ColumnInfo) -> str:
        """Write a bookmark's JSON value as SQL for comparisons with a column.

        Raises:
            ValueError: It is not a value of the column's type.
        """
        ...

    def key(self, column: ColumnInfo) -> str:
        """Write the column as SQL for comparisons with bookmarks: in the column's `order`."""
        ...

    def compared(self, column: ColumnInfo, operator: str, value: Any) -> str:
        """Write a comparison of a column of a table with a bookmark's JSON value as SQL.

        Raises:
            ValueError: It is not a value of the column's type.
        """
        ...

    def missing(self, column: ColumnInfo) -> str:
        """Write a condition that is true where the column is read as null."""
        ...

    def present(self, column: ColumnInfo) -> str:
        """Write a condition that is true where the column is not read as null."""
        ...

    def greatest(self, column: ColumnInfo, source: str) -> str:
        """Select the greatest value of a column, under the column's name, as the database orders.

        Args:
            column: The column.
            source: A table or subquery, with its conditions in parentheses.
        """
        ...


def dialect_for(url: str) -> Dialect:
    """Find the dialect of a JDBC URL; a generic one if the database is unknown."""
    driver = driver_of(url)
    module, name = MODULES[driver.database if driver else "other"].split(":")
    made: Dialect = getattr(import_module(f"tap_spark.sources.jdbc.dialects.{module}"), name)()
    return made
