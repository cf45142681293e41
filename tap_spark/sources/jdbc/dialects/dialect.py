"""What a database's dialect says: quoting, metadata of its tables, and values as SQL.

`Dialect` and `MetadataDialect` have the parts that most share, `GenericDialect` what holds for
unknown databases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from enum import Enum
from importlib import import_module
from struct import pack, unpack
from typing import TYPE_CHECKING, Any, Protocol

from shared.spark.packages import driver_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType


TableName = tuple["str | None", str]
"""Schema and name of one table; without a schema the database uses its default."""

MODULES = {
    "postgresql": "postgresql:PostgreSqlDialect",
    "mysql": "mysql:MySqlDialect",
    "sqlserver": "sqlserver:SqlServerDialect",
    "oracle": "oracle:OracleDialect",
    "sqlite": "sqlite:SqliteDialect",
    "duckdb": "duckdb:DuckDbDialect",
    "other": "dialect:GenericDialect",
}
"""Module and class of each database, by the names of `shared.spark.packages`."""


class QueryRunner(Protocol):
    """Queries the database."""

    def __call__(self, query: str, texts: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Run one SELECT and return its rows.

        Args:
            texts: Columns to fetch as text, if the driver does not know its own types.

        Returns:
            Rows with the names of the columns in lower case.
        """
        ...

    def struct(self, query: str) -> StructType:
        """Return the columns of a SELECT as Spark's reader sees them."""
        ...


def dialect_for(url: str) -> Dialect:
    """Find the dialect of a JDBC URL; a generic one if the database is unknown."""
    module, name = MODULES[database_name(url)].split(":")
    dialect: Dialect = getattr(import_module(f"tap_spark.sources.jdbc.dialects.{module}"), name)()
    return dialect


def database_name(url: str) -> str:
    """Return the short name of a URL's database; `other` if it is unknown."""
    driver = driver_of(url)
    return driver.database if driver else "other"


class KeyOrder(Enum):
    """Who orders the values of a column, if it is a replication key."""

    SPARK = "Spark, as the database does"
    DATABASE = "the database: its greatest value is the bookmark"
    NONE = "nobody: it cannot be a replication key"


@dataclass(frozen=True)
class ColumnInfo:
    """A column of a table.

    Attributes:
        name: Name, exactly as the database has it.
        sql_type: The database's name of the type, with precision: `numeric(38,10)`.
        spark_type: Spark's type of the column. `typed_columns` casts what the expression returns
            (arrays: JSON text; dates and timestamps: days and microseconds since 1970).
        expression: SQL that selects the column, quoted, without an alias.
        read_as: Spark's type of the expression for `customSchema`; empty if Spark's reader finds
            it by itself.
        order: Who orders its values.
        copied: SQL that selects it in its own type for COPY, if `expression` is slower; else empty.
    """

    name: str
    sql_type: str
    spark_type: str
    nullable: bool
    expression: str
    read_as: str = ""
    order: KeyOrder = KeyOrder.SPARK
    copied: str = ""


@dataclass(frozen=True)
class TableInfo:
    """A table or view.

    Attributes:
        schema: Its schema (in MySQL: its database); None if there is none.
        kind: `table`, `partitioned`, `view`, `materialized view` or `foreign`.
        columns: In the table's order.
        primary_key: Columns of the primary key, in the key's order; empty without one.
        replication_keys: Columns that can be replication keys, in the table's order.
        row_count: The database's estimate; None if it has none.
        size_bytes: Size of the data on disk, as the statistics know it; None if unknown.
    """

    schema: str | None
    name: str
    kind: str
    columns: tuple[ColumnInfo, ...]
    primary_key: tuple[str, ...] = ()
    replication_keys: tuple[str, ...] = ()
    row_count: int | None = None
    size_bytes: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Return schema and name, or the name alone."""
        return (self.name,) if self.schema is None else (self.schema, self.name)

    @property
    def is_view(self) -> bool:
        """Return whether it is a view, materialized or not."""
        return self.kind.endswith("view")

    def column(self, name: str) -> ColumnInfo | None:
        return next((column for column in self.columns if column.name == name), None)


Row = Mapping[str, Any]
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
TEMPORAL = ("date", "timestamp", "timestamp_ntz")
_MOMENT = re.compile(
    r"([+-]?\d{4,7}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?(?:\.\d{1,9})?))?"
    r"\s*(Z|[+-]\d\d(?::?\d\d)?)?"
)
_MAX_DIGITS = 38


class Dialect:
    """The SQL and metadata of one database: standard SQL; databases override what differs."""

    name = "other"
    open_quote = close_quote = '"'

    def tables(self, run_query: QueryRunner, only: TableName | None = None) -> list[TableInfo]:
        """Describe every table and view the user may read, by a handful of metadata queries.

        Args:
            only: Describe this table alone, even if the user may not read it.
        """
        raise NotImplementedError

    def quote(self, name: str) -> str:
        """Quote an identifier, which may have any characters; a closing quote is doubled."""
        inside = name.replace(self.close_quote, self.close_quote * 2)
        return f"{self.open_quote}{inside}{self.close_quote}"

    def table(self, parts: Sequence[str]) -> str:
        return ".".join(map(self.quote, parts))

    def text(self, value: str) -> str:
        """Write a string as SQL.

        Raises:
            ValueError: It has a NUL character, which databases reject.
        """
        if "\0" in value:
            raise ValueError("text with a NUL character cannot be sent to a database")
        return "'" + value.replace("'", "''") + "'"

    def key(self, column: ColumnInfo) -> str:
        """Write the column as SQL for comparisons with bookmarks: in the column's `order`."""
        return self.quote(column.name)

    def row_widths(
        self, columns: Sequence[ColumnInfo], source: str, table: TableInfo | None, rows: int
    ) -> str | None:
        """Select the mean and the greatest width of some rows: one row with `mean` and `most`.

        Args:
            columns: The columns whose bytes count.
            source: The table's name, or a named subquery.

        Returns:
            None if the driver does not keep many rows, or the widths cannot be had.
        """
        del columns, source, table, rows
        return None

    as_text = "CAST({} AS VARCHAR(100))"
    """SQL that writes a value as text; `{}` is the column."""

    def query_columns(self, run_query: QueryRunner, source: str) -> tuple[ColumnInfo, ...]:
        """Describe the columns of a query, a named subquery, as Spark's reader does."""
        struct = run_query.struct(f"SELECT * FROM {source}")  # noqa: S608
        return tuple(map(self.described, struct.fields))

    def described(self, field: StructField) -> ColumnInfo:
        """Describe a column as Spark's reader does, but a time, which it reads as a moment of 1970,
        as text.
        """
        kind, expression, read_as = field.dataType.simpleString(), self.quote(field.name), ""
        if field.metadata.get("logical_time_type"):
            kind = read_as = "string"
            expression = self.as_text.replace("{}", expression)
        return ColumnInfo(
            field.name, kind, kind, field.nullable, expression, read_as, key_order(kind)
        )

    def compared(self, column: ColumnInfo, operator: str, value: Any) -> str:
        """Write a comparison of a column of a table with a bookmark's JSON value as SQL.

        Raises:
            ValueError: It is not a value of the column's type.
        """
        return f"{self.key(column)} {operator} {self.literal(value, column)}"

    def missing(self, column: ColumnInfo) -> str:
        """Write a condition that is true where the column is read as null."""
        return f"{self.key(column)} IS NULL"

    def present(self, column: ColumnInfo) -> str:
        """Write a condition that is true where the column is not read as null."""
        return f"{self.key(column)} IS NOT NULL"

    def greatest(self, column: ColumnInfo, source: str) -> str:
        """Select the greatest value of a column, under the column's name, as the database orders.

        Args:
            source: A table or subquery, with its conditions in parentheses.
        """
        key = self.quote(column.name)
        return f"SELECT MAX({key}) AS {key} FROM {source} tap_spark_keys"  # noqa: S608

    def literal(self, value: Any, column: ColumnInfo) -> str:
        """Write a bookmark's JSON value as SQL for comparisons with a column.

        Raises:
            ValueError: It is not a value of the column's type.
        """
        kind = column.spark_type.split("(")[0]
        if kind == "float":
            # The value itself: in the shortest text of a float, databases see another double.
            return number(str(Decimal(unpack("f", pack("f", float(number(value))))[0])))
        if kind in NUMBERS:
            return number(value)
        if kind in TEMPORAL:
            day, clock, zone = moment(value)
            return self.moment(kind, self.day(day), clock, zone, column)
        if not isinstance(value, str):
            raise ValueError(f"{json.dumps(value)} is not text")
        return self.text(value)

    def day(self, day: str) -> str:
        """Write a day of any year.

        Raises:
            ValueError: The database may not support such years.
        """
        if day[0] in "+-":
            raise ValueError(f"the year of {day} is not supported for this database")
        return day

    def moment(self, kind: str, day: str, clock: str, zone: str, column: ColumnInfo) -> str:
        """Write a date or timestamp (in UTC if it has a zone) as SQL."""
        del column
        if kind == "date":
            return f"DATE '{day}'"
        return f"TIMESTAMP '{day} {clock}{zone if kind == 'timestamp' else ''}'"


class MetadataDialect(Dialect):
    """A database whose metadata is read by three queries: tables, primary keys, columns.

    Each query has `{wanted}` among its conditions. Rows carry `schema` and `name` of the table;
    those of keys and columns also `column` and `place`.
    """

    tables_query = keys_query = columns_query = ""
    all_tables = one_table = ""
    """Conditions: for every table of the user; for one table, with `{schema}` and `{name}`."""
    this_schema = ""
    """SQL for the schema of a table that is named without one."""

    def tables(self, run_query: QueryRunner, only: TableName | None = None) -> list[TableInfo]:
        """Describe every table and view the user may read, by three queries."""
        wanted = self.all_tables
        if only:
            schema = self.this_schema if only[0] is None else self.text(only[0])
            wanted = self.one_table.format(schema=schema, name=self.text(only[1]))
        tables, *parts = (
            self._run_query(run_query, query, wanted)
            for query in (self.tables_query, self.keys_query, self.columns_query)
        )
        keys, columns = (group_rows(rows, "schema", "name") for rows in parts)
        described = []
        for row in tables:
            at = (row["schema"], row["name"])
            described.append(self._put_together(row, keys.get(at, []), columns.get(at, [])))
        return sorted_tables(table for table in described if table.columns)

    def _run_query(self, run_query: QueryRunner, query: str, wanted: str) -> list[dict[str, Any]]:
        return run_query(query.replace("{wanted}", wanted))

    def _put_together(self, row: Row, keys: list[Row], rows: list[Row]) -> TableInfo:
        rows = sorted(self.columns_of(rows), key=lambda item: int(item["place"]))
        columns = tuple(self.column(item) for item in rows)
        key = [item["column"] for item in sorted(keys, key=lambda item: int(item["place"]))]
        return TableInfo(
            schema=row["schema"],
            name=row["name"],
            kind=row["kind"],
            columns=columns,
            primary_key=tuple(key),
            replication_keys=self.keys(columns, rows),
            row_count=count_or_none(row["row_count"]),
            size_bytes=count_or_none(row["size_bytes"]),
        )

    def columns_of(self, rows: list[Row]) -> list[Row]:
        """Select the columns that can be read: all of them."""
        return rows

    def keys(self, columns: Sequence[ColumnInfo], rows: Sequence[Row]) -> tuple[str, ...]:
        """Return the names of the columns that can be replication keys."""
        del rows
        return tuple(column.name for column in columns if is_ordered(column.spark_type))

    def column(self, row: Row) -> ColumnInfo:
        """Describe a column by its row of the metadata."""
        raise NotImplementedError


def with_era(day: str, mark: str) -> str:
    """Write an ISO day with its year before Christ marked, and without a sign."""
    year = int(day[:-6])
    return f"{1 - year:04}{day[-6:]} {mark}" if year <= 0 else day.lstrip("+")


def number(value: Any) -> str:
    """Write a JSON number, or one as text, as SQL.

    Raises:
        ValueError: It is not a number, or not finite.
    """
    try:
        decimal = Decimal(str(value))
    except InvalidOperation:
        decimal = Decimal("NaN")
    if isinstance(value, bool) or not decimal.is_finite():
        raise ValueError(f"{json.dumps(value)} is not a finite number")
    return f"{decimal:f}" if abs(decimal.adjusted()) <= 2 * _MAX_DIGITS else f"{decimal:E}"


def moment(value: Any) -> tuple[str, str, str]:
    """Split an ISO date or timestamp into day, clock and offset from UTC (`+00:00` for none).

    Raises:
        ValueError: It is not a date or timestamp.
    """
    match = _MOMENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{json.dumps(value)} is not a date or timestamp")
    day, clock, zone = match.groups()
    clock = clock or "00:00:00"
    if zone in (None, "Z"):
        zone = "+00:00"
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return day, clock, f"{zone[0]}{digits[:2]}:{digits[2:]}"


def decimal(precision: int | None, scale: int | None) -> str:
    """Return Spark's type that holds every value of `numeric(p,s)`; text if none does."""
    if not precision:
        return "string"
    scale = scale or 0
    digits = max(precision, scale) if scale >= 0 else precision - scale
    return f"decimal({digits},{max(scale, 0)})" if digits <= _MAX_DIGITS else "string"


def key_order(spark_type: str) -> KeyOrder:
    """Return who orders a type: Spark knows neither a collation nor what is read as text."""
    if is_ordered(spark_type):
        return KeyOrder.SPARK
    return KeyOrder.DATABASE if spark_type == "string" else KeyOrder.NONE


def is_ordered(spark_type: str) -> bool:
    """Return whether the database orders the type as Spark does: numbers, dates and timestamps."""
    kind = spark_type.split("(", maxsplit=1)[0]
    return kind in NUMBERS or kind in TEMPORAL


def group_rows(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows with the same keys, in their order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def count_or_none(value: Any) -> int | None:
    """Return a number of the metadata as an integer; None for null and for less than zero."""
    return None if value is None or int(value) < 0 else int(value)


def sorted_tables(tables: Iterable[TableInfo]) -> list[TableInfo]:
    """Sort by schema and name."""
    return sorted(tables, key=lambda table: (table.schema or "", table.name))


TABLES = """
SELECT TABLE_SCHEMA AS T_SCHEMA, TABLE_NAME AS T_NAME, TABLE_TYPE AS T_TYPE
FROM INFORMATION_SCHEMA.TABLES WHERE {wanted}"""
USERS = "UPPER(TABLE_SCHEMA) NOT IN ('INFORMATION_SCHEMA', 'PG_CATALOG', 'SYS', 'SYSTEM')"


class GenericDialect(Dialect):
    """Standard quotes, INFORMATION_SCHEMA, and types as Spark's reader sees them."""

    def tables(self, run_query: QueryRunner, only: TableName | None = None) -> list[TableInfo]:
        """Describe every table and view, by one query, and one for each table.

        Keys and row counts are unknown.
        """
        if only:
            return [self._table(run_query, TableInfo(*only, "table", ()))]
        tables = []
        for row in run_query(TABLES.format(wanted=USERS)):
            kind = "view" if "VIEW" in str(row["t_type"]).upper() else "table"
            tables.append(TableInfo(row["t_schema"], row["t_name"], kind, ()))
        return sorted_tables(self._table(run_query, table) for table in tables)

    def _table(self, run_query: QueryRunner, table: TableInfo) -> TableInfo:
        columns = self.query_columns(run_query, self.table(table.parts))
        keys = tuple(column.name for column in columns if is_ordered(column.spark_type))
        return replace(table, columns=columns, replication_keys=keys)
