"""SQL statements that databases share; dialects change the rest.

Every name is quoted. Statements do not contain values, unless a dialect quotes them.

Why a newest row in SQL: the rows of a flush are in the database, where the MERGE runs.
"""

# ruff: noqa: S608 - names are quoted, values are arguments or quoted literals.
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from shared.errors import SettingsError, Where
from shared.formats.spark_types import T
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.databases.database_tables import (
    Cursor,
    FoundColumn,
    StagedRows,
    TablePlace,
)
from target_spark.destinations.databases.staged_columns import ROW, StagingTable, staged_name
from target_spark.tables.table_changes import not_older

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from target_spark.tables.table_changes import Column, NameRules

_PART_ROWS = 1 << 40
_DECIMAL = re.compile(r"(?:decimal|numeric)\((\d+),(\d+)\)")
_MOST_DIGITS = 38
LEDGER = "_singer_ledger"
NAMES = "_singer_columns"
LEASES = "_singer_leases"
NULL = "NULL"
KEY_COMMENT = "target-spark: key properties"
"""Comment of the indexes that target-spark creates for keys."""


class LoadSql(Protocol):
    """Statements of standard SQL. Methods that return text return a statement or a part of one."""

    mark: str = '"'
    same: str = "IS NOT DISTINCT FROM"
    """Operator that is true for two nulls."""
    unlogged: str = ""
    row_type: str = "bigint"
    """Type of the column that numbers the rows of a staging table."""
    overriding: str = ""
    """Clause of INSERT by which rows set identity columns, as COPY does."""
    undoes_ddl: bool = True
    """Whether tables can be created and altered in a transaction."""
    impatient: str = ""
    """Statement that makes the session wait only shortly for locks on tables."""
    patient: str = ""
    """Statement that undoes `impatient`, if the end of the transaction does not."""
    other_row: str = ""
    """Error code of `upsert` if the server rejects the change of a row with another key; the
    message names the first column of the key."""
    immediate: str = ""
    """Statement that makes the transaction check deferred constraints at once."""
    counts_upserts: bool = True
    """Whether the server tells how many rows `upsert` has added or updated."""
    ledger: Mapping[str, str] = {}
    """The tables of the ledger → their columns in SQL."""
    taking: str = ""
    """Query that acquires a lock, if it is free; it yields whether it was."""
    releasing: str = ""
    """Query that releases a lock."""
    has_schema: str = ""
    current_schema: str = ""
    types: Mapping[str, DataType] = {}
    """The database's types that loading creates → Spark's, but for decimals."""
    stages: str = ""
    """Query for the tables of a schema whose names begin with a prefix."""

    @property
    def options(self) -> str:
        """Return the clause after the columns of a new table."""
        return ""

    def name(self, name: str) -> str:
        """Return a quoted name."""
        return f"{self.mark}{name.replace(self.mark, self.mark * 2)}{self.mark}"

    def names(self, names: Sequence[str]) -> str:
        """Return quoted names, separated by commas."""
        return ", ".join(map(self.name, names))

    def table(self, place: TablePlace) -> str:
        """Return a quoted table name with its schema."""
        return f"{self.name(place.schema)}.{self.name(place.table)}"

    def with_arguments(self, place: TablePlace) -> str:
        """Return a table name like `table`, for statements with arguments."""
        return self.table(place).replace("%", "%%")

    def identity(self, place: TablePlace) -> str:  # noqa: ARG002
        """Return an expression that tells a table from a later one of its name; empty for none.

        It is for a statement with arguments over the table of names, whose identity comes last.
        """
        return ""

    def lock_key(self, name: str) -> str | int:
        """Return what stands for the name of a lock at the server."""

    def lock(self, cursor: Cursor, name: str) -> None:
        """Acquire a lock that the session holds until `unlock`, or until it ends."""

    def take(self, cursor: Cursor, name: str) -> bool:
        """Acquire a lock like `lock`, if it is free; return whether it was."""
        cursor.execute(self.taking, (self.lock_key(name),))
        return bool(cursor.fetchone()[0])

    def lease_session(self, seconds: int) -> list[str]:
        """Return statements by which the server ends the session of a client that is gone."""

    def unlock(self, cursor: Cursor, name: str) -> None:
        """Release a lock."""
        cursor.execute(self.releasing, (self.lock_key(name),))
        cursor.fetchone()

    def is_free(self, cursor: Cursor, name: str) -> bool:
        """Return whether a lock is free, not held by another session."""

    def same_type(self, data_type: DataType, sql_type: str) -> bool:
        """Return whether values of a Spark type are stored in this type of the database."""
        return self.type_of(data_type) == sql_type

    def form_of(self, data_type: DataType) -> str:
        """Return the form in which values are sent: see `StagedColumn`."""
        return "json" if isinstance(data_type, T.StructType | T.ArrayType | T.MapType) else "plain"

    def spark_type(self, sql_type: str) -> DataType | None:
        """Return the Spark type of a column's type; None for a type that loading never creates."""
        match = _DECIMAL.fullmatch(sql_type)
        if match is None:
            return self.types.get(sql_type)
        precision, scale = map(int, match.groups())
        return T.DecimalType(precision, scale) if precision <= _MOST_DIGITS else None

    def converted(self, expression: str, staged: str, stored: str) -> str:
        """Return the expression that converts a staged value to a column's type."""

    def without_null(self, value: str, column: FoundColumn) -> str:
        """Return a converted value for a column; a null that it does not take is an error."""
        del column
        return value

    def compared(self, value: str, staged: str, column: FoundColumn) -> str:
        """Return a converted value as the column stores and compares it, for conditions."""

    def as_text(self, expression: str, staged: str) -> str:
        """Return the expression that converts a value of a staged type to text."""

    def create_schema(self, schema: str) -> str:
        """Create a schema."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.name(schema)}"

    def type_of(self, data_type: DataType) -> str:
        """Return the database's type for values of a Spark type."""

    def create_stage(self, stage: StagingTable) -> str:
        """Create a staging table."""
        kinds = [f"{staged_name(n)} {column.sql_type}" for n, column in enumerate(stage.columns)]
        created = ", ".join([f"{ROW} {self.row_type}", *kinds] if stage.numbered else kinds)
        return f"CREATE {self.unlogged}TABLE {self.table(stage.place)} ({created})"

    def drop(self, place: TablePlace) -> str:
        """Drop a staging table."""
        return f"DROP TABLE IF EXISTS {self.table(place)}"

    def numbered_row(self, place: TablePlace, column: str, number: int) -> str:
        """Select a column of a numbered row of a staging table."""
        return f"SELECT {column} FROM {self.table(place)} WHERE {ROW} = {number}"

    def count(self, place: TablePlace) -> str:
        """Count the rows of a table."""
        return f"SELECT count(*) FROM {self.table(place)}"

    def count_newest(self, rows: StagedRows) -> str:
        """Count the staged rows that `upsert` adds or updates."""
        kept = f" WHERE s.{rows.deleted} IS NULL" if rows.deleted else ""
        return f"SELECT count(*) FROM {self._newest(rows)}{kept}"

    def is_empty(self, place: TablePlace) -> str:
        """Select one row of a table."""
        return f"SELECT 1 FROM {self.table(place)} LIMIT 1"

    def create(
        self,
        place: TablePlace,
        columns: Sequence[Column],
        keys: Sequence[str],
        comment: str,
        properties: Mapping[str, str],
    ) -> list[str]:
        """Create a table with unique `keys`."""

    def add(self, place: TablePlace, column: Column) -> list[str]:
        """Add a column."""

    def change_type(self, place: TablePlace, column: FoundColumn, data_type: DataType) -> list[str]:
        """Change the type of a column and convert its values."""

    def drop_not_null(self, place: TablePlace, column: FoundColumn) -> list[str]:
        """Make a column nullable."""

    def drop_column(self, place: TablePlace, name: str) -> str:
        """Drop a column."""
        return f"ALTER TABLE {self.table(place)} DROP COLUMN {self.name(name)}"

    def takes(self, data_type: DataType, sql_type: str) -> bool:
        """Return whether a column that others made stores such values exactly, or refuses them."""
        del data_type, sql_type
        return False

    def unique(self, place: TablePlace, keys: Sequence[str], nullable: bool) -> list[str]:
        """Make rows unique by their keys."""

    def drop_key(self, place: TablePlace, index: str) -> list[str]:
        """Drop an index that `unique` or `create` has created."""

    def index(self, place: TablePlace, columns: Sequence[str]) -> list[str]:
        """Create an index on columns, unless it exists."""

    def index_rows(self, stage: TablePlace) -> list[str]:
        """Create the index of a staging table by which its numbered rows are looked up."""
        return self.index(stage, [ROW])

    def append(self, place: TablePlace, rows: StagedRows, part: str) -> str:
        """Append all rows of a part."""
        names, values = self.names(list(rows.values)), ", ".join(rows.values.values())
        stage = self.table(TablePlace(rows.schema, part))
        into = f"{self.table(place)} ({names}){self.overriding}"
        return f"INSERT INTO {into} SELECT {values} FROM {stage} s{_within(rows)}"

    def upsert(self, place: TablePlace, rows: StagedRows) -> str:
        """Upsert the newest row of each key."""
        values = ", ".join(rows.values.values())
        kept = f" WHERE s.{rows.deleted} IS NULL" if rows.deleted else ""
        return (
            f"INSERT INTO {self.table(place)} ({self.names(list(rows.values))}){self.overriding} "
            f"SELECT {values} FROM {self._newest(rows)}{kept} {self.on_conflict(place, rows)}"
        )

    def upserts(self, place: TablePlace, rows: StagedRows) -> list[str]:
        """Delete the rows that are marked so, then upsert the others."""
        deletions = self.delete_marked(place, rows) if rows.deleted else []
        return [
            *deletions,
            *([self.upsert(place, rows)] if rows.is_unique else self.merge(place, rows)),
        ]

    def merge(self, place: TablePlace, rows: StagedRows) -> list[str]:
        """Upsert the newest row of each key into a table without a unique index for keys."""
        number = {name: f"v{n}" for n, name in enumerate(rows.values)}
        values = ", ".join(f"{value} AS {number[name]}" for name, value in rows.values.items())
        kept = f" WHERE s.{rows.deleted} IS NULL" if rows.deleted else ""
        newest = f"(SELECT {values}, {_key_values(rows)} FROM {self._newest(rows)}{kept}) d"
        pairs = [(f"d.{number[name]}", f"t.{self.name(name)}") for name in rows.order_by]
        newer = f" AND {not_older(pairs, self.same)}" if pairs else ""
        columns = {name: f"d.{value}" for name, value in number.items()}
        keys = {key: f"d.k{n}" for n, key in enumerate(rows.keys)}
        return self.merge_from(place, keys, columns, newest, newer)

    def merge_from(
        self,
        place: TablePlace,
        keys: Mapping[str, str],
        columns: Mapping[str, str],
        rows: str,
        newer: str = "",
    ) -> list[str]:
        """Update the rows of a table from the rows `d`, one for each key, and insert the others.

        Args:
            place: The table, with or without a unique index for keys.
            keys: Key column → value that is compared with it.
            columns: Column of the table → value of a row.
            rows: The rows with their alias.
            newer: Further condition for an update.
        """
        equal = " AND ".join(f"t.{self.name(key)} = {value}" for key, value in keys.items())
        sets = [(name, value) for name, value in columns.items() if name not in keys]
        table = self.table(place)
        insert = (
            f"INSERT INTO {table} ({self.names(list(columns))}){self.overriding} "
            f"SELECT {', '.join(columns.values())} FROM {rows} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {table} t WHERE {equal})"
        )
        update = [self.update_from(table, rows, sets, equal + newer)] if sets else []
        return [*self.lock_rows(table), *update, insert]

    def update_from(
        self, table: str, rows: str, sets: Sequence[tuple[str, str]], condition: str
    ) -> str:
        """Update the rows `t` of a table from the rows `d`."""

    def lock_rows(self, table: str) -> list[str]:
        """Keep other sessions from changing a table until the transaction ends."""
        del table
        return []

    def on_conflict(self, place: TablePlace, rows: StagedRows) -> str:
        """Return the clause for a row whose key exists; never change a row with another key."""

    def delete_marked(self, place: TablePlace, rows: StagedRows) -> list[str]:
        """Delete the rows whose newest record is marked as deleted."""

    def null_key(self, rows: StagedRows) -> str:
        """Select one row with a null in its key."""
        null = " OR ".join(f"s.{name} IS NULL" for name in rows.staged_keys)
        return f"SELECT 1 FROM ({self._union(rows, '*')}) s WHERE {null} LIMIT 1"

    def delete_all(self, place: TablePlace) -> str:
        """Delete all rows; concurrent readers still see them."""
        return f"DELETE FROM {self.table(place)}"

    def delete_range(self, place: TablePlace, column: str) -> str:
        """Delete the rows of a range of a column, given as two arguments."""
        name = self.name(column).replace("%", "%%")
        return f"DELETE FROM {self.with_arguments(place)} WHERE {name} >= %s AND {name} < %s"

    def bound(self, text: str, data_type: T.DataType) -> object:  # noqa: ARG002
        """Return a bound of a range of a column of the stream, as an argument.

        Raises:
            SettingsError: The server would not refuse what is no such value.
        """
        return text

    def outside_range(self, rows: StagedRows, column: str) -> str:
        """Select a staged row that is not in a range of a column, given as two arguments."""
        value = rows.values[column].replace("%", "%%")
        # Without the order of arrival: rows without keys are not numbered.
        tables = (self.with_arguments(TablePlace(rows.schema, part)) for part in rows.parts)
        staged = " UNION ALL ".join(f"SELECT * FROM {table}" for table in tables)
        inside = f"coalesce({value} >= %s AND {value} < %s, false)"
        return f"SELECT 1 FROM ({staged}) s WHERE NOT {inside} LIMIT 1"

    def copy(self, place: TablePlace, like: TablePlace) -> str:
        """Create a table with the columns of another, and if `undoes_ddl` is false its indexes."""

    def digest(self, values: Sequence[tuple[str, str]]) -> str:
        """Return a text of 32 characters that differs for other values, null or not.

        Values are expressions with their types.
        """

    def number(self, digest: str) -> str:
        """Return a number of 60 bits from a digest."""

    def example(self, names: Sequence[str]) -> str:
        """Return columns as the text of a JSON object."""

    def retyped(self, expression: str, sql_type: str) -> str:
        """Return a value with the wider type that `change_type` gives to its column."""
        return f"CAST({expression} AS {sql_type})"

    def rename(self, pairs: Sequence[tuple[TablePlace, TablePlace]]) -> str:  # noqa: ARG002
        """Rename tables, all at once, if DDL is not transactional."""
        raise AssertionError("only such a database renames tables")

    def delete_versions(self, place: TablePlace, version: str, below: int) -> str:
        """Delete rows of older versions."""
        return f"DELETE FROM {self.table(place)} WHERE {self.name(version)} < {below}"

    def mark_versions(
        self, place: TablePlace, version: str, below: int, deleted: str, at: str
    ) -> str:
        """Mark rows of older versions as deleted."""
        column = self.name(deleted)
        return (
            f"UPDATE {self.table(place)} SET {column} = {self.instant(at)} "
            f"WHERE {self.name(version)} < {below} AND {column} IS NULL"
        )

    def instant(self, text: str) -> str:
        """Return a time in UTC as a literal."""
        return f"TIMESTAMP '{text}'"

    def view(
        self,
        place: TablePlace,  # noqa: ARG002
        request: TableRequest,
        names: Mapping[str, str],  # noqa: ARG002
        rules: NameRules,  # noqa: ARG002
    ) -> list[str]:
        """Replace the view with a column for each property.

        Raises:
            SettingsError: The database does not support it.
        """
        raise SettingsError(
            "this database does not support `generate_view`; PostgreSQL does",
            where=Where(stream=request.stream, setting="generate_view"),
        )

    def create_ledger(self, schema: str) -> Mapping[str, str]:
        """Return the statements that create the tables of the ledger, by their names."""
        return {
            name: f"CREATE TABLE IF NOT EXISTS {self.table(TablePlace(schema, name))} ({columns})"
            f"{self.options}"
            for name, columns in self.ledger.items()
        }

    def may_delete(self, cursor: Cursor, place: TablePlace) -> bool:  # noqa: ARG002
        """Return whether the user may delete rows of a table."""
        return True

    def cascades(self, cursor: Cursor, place: TablePlace) -> Sequence[str]:
        """Return the tables whose rows change if all rows of a table are deleted."""

    def has_ties(self, cursor: Cursor, place: TablePlace) -> bool:  # noqa: ARG002
        """Return whether a table has triggers or foreign keys that a copy of it would lack."""
        return False

    def keeps_rows(self, cursor: Cursor, place: TablePlace) -> bool:  # noqa: ARG002
        """Return whether triggers or rules of a table have kept rows that were to be deleted."""
        return False

    def attached(self, cursor: Cursor, place: TablePlace, columns: Sequence[str]) -> Sequence[str]:
        """Return what others have made of columns: indexes, constraints, defaults, grants."""

    def proof(self, cursor: Cursor, rows: int) -> str:  # noqa: ARG002
        """Return the proof by which rows of the open transaction are found again, or nothing."""
        return ""

    def written(self, cursor: Cursor, place: TablePlace) -> int:  # noqa: ARG002
        """Return how many rows of a table the open transaction has written."""
        return 0

    def present(self, cursor: Cursor, place: TablePlace, proofs: Mapping[str, str]) -> set[str]:  # noqa: ARG002
        """Return the tokens whose rows are all still in a table, unchanged, by their proofs.

        The transaction of the cursor locks the table against changes.
        """
        return set()

    def renewed(
        self,
        cursor: Cursor,  # noqa: ARG002
        place: TablePlace,  # noqa: ARG002
        proofs: Mapping[str, str],  # noqa: ARG002
    ) -> Mapping[str, str]:
        """Return new proofs for tokens whose rows this transaction has moved or removed.

        Before, all of their rows were there. An empty new proof says that no row is left.
        """
        return {}

    def marked(self, rows: StagedRows) -> str:
        """Select key and order columns of the keys whose newest row is marked as deleted."""
        order = "".join(f", s.{name}" for name in dict.fromkeys(rows.order_by.values()))
        chosen = f"{self._newest(rows)} WHERE s.{rows.deleted} IS NOT NULL"
        return f"SELECT {_key_values(rows)}{order} FROM {chosen}"

    def key_pairs(self, rows: StagedRows) -> list[tuple[str, str]]:
        """Return the key columns of the table `t` with those of the rows `d` of `marked`."""
        return [(f"t.{self.name(key)}", f"d.k{n}") for n, key in enumerate(rows.keys)]

    def newer(self, table: str, row: str, rows: StagedRows) -> str:
        """Return the condition that a row is not older than that of the table, or nothing.

        `row` is a format of `name`, a column of the table, and `staged`.
        """
        pairs = [
            (row.format(name=self.name(name), staged=staged), f"{table}.{self.name(name)}")
            for name, staged in rows.order_by.items()
        ]
        return not_older(pairs, self.same) if pairs else ""

    def _newest(self, rows: StagedRows) -> str:
        # Keys are equal as the table compares them: its type may ignore case or blanks.
        keys = ", ".join(rows.compared.values())
        staged = self._union(rows, ", ".join(rows.staged_keys))
        newest = f"SELECT max(o) AS o FROM ({staged}) s GROUP BY {keys}"
        if rows.order_by:
            columns = ", ".join(dict.fromkeys((*rows.staged_keys, *rows.order_by.values())))
            order = ", ".join(f"{name} IS NULL, {name} DESC" for name in rows.order_by.values())
            rank = f"row_number() OVER (PARTITION BY {keys} ORDER BY {order}, o DESC)"
            ranked = f"SELECT o, {rank} AS n FROM ({self._union(rows, columns)}) s"
            newest = f"SELECT o FROM ({ranked}) r WHERE n = 1"
        return f"({self._union(rows, '*')}) s JOIN ({newest}) w ON s.o = w.o"

    def _union(self, rows: StagedRows, columns: str) -> str:
        """Select the rows of all parts, with their order of arrival."""
        parts = (
            f"SELECT {'p.*' if columns == '*' else columns}, {n * _PART_ROWS} + {ROW} AS o "
            f"FROM {self.table(TablePlace(rows.schema, part))} p{_within(rows)}"
            for n, part in enumerate(rows.parts)
        )
        return " UNION ALL ".join(parts)


def literal(text: str) -> str:
    """Return a text as a literal, if the server takes a backslash for an escape."""
    quoted = text.replace("\\", "\\\\").replace("'", "''").replace("\0", "")
    return f"'{quoted}'"


def _key_values(rows: StagedRows) -> str:
    """Return the columns `k0`, `k1`, … that are compared with the keys of a table."""
    return ", ".join(f"{value} AS k{n}" for n, value in enumerate(rows.compared.values()))


def _within(rows: StagedRows) -> str:
    """Return the clause for the numbers of staged rows."""
    if rows.numbers is None:
        return ""
    return f" WHERE {ROW} > {rows.numbers[0]} AND {ROW} <= {rows.numbers[1]}"
