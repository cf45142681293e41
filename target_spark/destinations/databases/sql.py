"""The statements that destinations give databases, where these agree; dialects change the rest.

Every name is quoted. Values never stand in statements, except where a dialect quotes them.
"""

# ruff: noqa: S608 - names are quoted, values are arguments or quoted literals.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from target_spark.destinations.databases import Cursor, Rows, TablePlace
from target_spark.destinations.databases.staging import ROW, StagedColumn, staged_name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from target_spark.plans import TableRequest
    from target_spark.tables.evolution import Column
    from target_spark.tables.names import NameRules

_PART_ROWS = 1 << 40
LEDGER = "_singer_ledger"
NAMES = "_singer_columns"
NULL = "NULL"


class Sql:
    """Statements in the words of the SQL standard."""

    mark = '"'
    unlogged = ""
    undoes_ddl = True
    """Whether tables can be made and altered in a transaction."""
    impatient = ""
    """Says that the session waits but shortly for locks on tables."""
    other_row = ""
    """Code of the failure of `upsert` by which the server refuses to change a row of another key,
    and names the first column of the key."""
    has_schema = ""
    current_schema = ""
    stages = ""
    """Asks for the tables of a schema whose names begin with something."""

    def name(self, name: str) -> str:
        """A quoted name."""
        return f"{self.mark}{name.replace(self.mark, self.mark * 2)}{self.mark}"

    def names(self, names: Sequence[str]) -> str:
        """Quoted names with commas between them."""
        return ", ".join(map(self.name, names))

    def table(self, place: TablePlace) -> str:
        """A table with its schema."""
        return f"{self.name(place.schema)}.{self.name(place.table)}"

    def with_arguments(self, place: TablePlace) -> str:
        """As `table`, for statements that have arguments."""
        return self.table(place).replace("%", "%%")

    def lock(self, cursor: Cursor, name: str) -> None:
        """Waits for a lock that the session holds to its end."""
        raise NotImplementedError

    def unlock(self, cursor: Cursor, name: str) -> None:
        """Lets go of a lock."""
        raise NotImplementedError

    def is_free(self, cursor: Cursor, name: str) -> bool:
        """Whether no other session holds a lock."""
        raise NotImplementedError

    def same_type(self, data_type: DataType, sql_type: str) -> bool:
        """Whether values of a Spark type are stored in a type, as the database calls it."""
        return self.type_of(data_type) == sql_type

    def form_of(self, data_type: DataType) -> str:
        """How values are sent: see `StagedColumn`."""
        raise NotImplementedError

    def spark_type(self, sql_type: str) -> DataType | None:
        """The Spark type of a column's type; None for a type that loading never makes."""
        raise NotImplementedError

    def converted(self, expression: str, staged: str, stored: str) -> str:
        """A staged value as a column of the table takes it."""
        raise NotImplementedError

    def as_text(self, expression: str) -> str:
        """A staged value as text."""
        raise NotImplementedError

    def create_schema(self, schema: str) -> str:
        """Makes a schema."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.name(schema)}"

    def type_of(self, data_type: DataType, key: bool = False, keys: int = 1) -> str:
        """What the database calls a type that values of a Spark type are stored in."""
        raise NotImplementedError

    def create_stage(
        self, place: TablePlace, columns: Sequence[StagedColumn], *, numbered: bool
    ) -> str:
        """A staging table; `numbered` where its rows have numbers."""
        kinds = [f"{staged_name(n)} {column.sql_type}" for n, column in enumerate(columns)]
        made = ", ".join([f"{ROW} bigint", *kinds] if numbered else kinds)
        return f"CREATE {self.unlogged}TABLE {self.table(place)} ({made})"

    def drop(self, place: TablePlace) -> str:
        """Removes a staging table."""
        return f"DROP TABLE IF EXISTS {self.table(place)}"

    def is_empty(self, place: TablePlace) -> str:
        """Asks for one row of a table."""
        return f"SELECT 1 FROM {self.table(place)} LIMIT 1"

    def create(
        self,
        place: TablePlace,
        columns: Sequence[Column],
        keys: Sequence[str],
        comment: str,
        properties: Mapping[str, str],
    ) -> list[str]:
        """A new table; `keys` are unique in it."""
        raise NotImplementedError

    def add(self, place: TablePlace, column: Column) -> list[str]:
        """A further column."""
        raise NotImplementedError

    def change_type(self, place: TablePlace, name: str, data_type: DataType) -> list[str]:
        """Another type for a column, its values being turned."""
        raise NotImplementedError

    def drop_not_null(self, place: TablePlace, name: str, sql_type: str) -> list[str]:
        """Lets a column be null."""
        raise NotImplementedError

    def drop_column(self, place: TablePlace, name: str) -> str:
        """Removes a column."""
        return f"ALTER TABLE {self.table(place)} DROP COLUMN {self.name(name)}"

    def unique(self, place: TablePlace, keys: Sequence[str], nullable: bool) -> str:
        """Makes rows unique by their keys."""
        raise NotImplementedError

    def index(self, place: TablePlace, columns: Sequence[str]) -> list[str]:
        """An index on columns, unless there is one."""
        raise NotImplementedError

    def append(self, place: TablePlace, rows: Rows, part: str) -> str:
        """Adds all rows of a part."""
        names, values = self.names(list(rows.values)), ", ".join(rows.values.values())
        stage = self.table(TablePlace(rows.schema, part))
        return f"INSERT INTO {self.table(place)} ({names}) SELECT {values} FROM {stage} s"

    def upsert(self, place: TablePlace, rows: Rows) -> str:
        """Adds the newest row of each key, in the place of the row that has the key."""
        values = ", ".join(rows.values.values())
        kept = f" WHERE s.{rows.deleted} IS NULL" if rows.deleted else ""
        return (
            f"INSERT INTO {self.table(place)} ({self.names(list(rows.values))}) "
            f"SELECT {values} FROM {self._newest(rows)}{kept} {self.on_conflict(place, rows)}"
        )

    def on_conflict(self, place: TablePlace, rows: Rows) -> str:
        """What becomes of a row whose key is there; one of another key is never changed."""
        raise NotImplementedError

    def delete_marked(self, place: TablePlace, rows: Rows) -> list[str]:
        """Removes the rows whose newest record is marked as deleted."""
        raise NotImplementedError

    def null_key(self, rows: Rows) -> str:
        """Asks for one row that has a null in its key."""
        null = " OR ".join(f"s.{name} IS NULL" for name in rows.staged_keys)
        return f"SELECT 1 FROM ({self._union(rows, '*')}) s WHERE {null} LIMIT 1"

    def delete_all(self, place: TablePlace) -> str:
        """Removes all rows; who reads meanwhile sees them still."""
        return f"DELETE FROM {self.table(place)}"

    def copy(self, place: TablePlace, like: TablePlace) -> str:
        """A new table with another one's columns and indexes; where DDL cannot be undone."""
        raise NotImplementedError

    def rename(self, pairs: Sequence[tuple[TablePlace, TablePlace]]) -> str:
        """Gives tables other names, all at once; where DDL cannot be undone."""
        raise NotImplementedError

    def delete_versions(self, place: TablePlace, version: str, below: int) -> str:
        """Removes rows of older versions."""
        return f"DELETE FROM {self.table(place)} WHERE {self.name(version)} < {below}"

    def mark_versions(
        self, place: TablePlace, version: str, below: int, deleted: str, at: str
    ) -> str:
        """Marks rows of older versions as deleted."""
        column = self.name(deleted)
        return (
            f"UPDATE {self.table(place)} SET {column} = {self.instant(at)} "
            f"WHERE {self.name(version)} < {below} AND {column} IS NULL"
        )

    def instant(self, text: str) -> str:
        """A time in UTC as a literal."""
        return f"TIMESTAMP '{text}'"

    def view(
        self,
        place: TablePlace,  # noqa: ARG002
        request: TableRequest,
        names: Mapping[str, str],  # noqa: ARG002
        rules: NameRules,  # noqa: ARG002
    ) -> list[str]:
        """A view with a column for each property, made anew.

        Raises:
            SettingsError: The database has none.
        """
        raise SettingsError(
            "this database does not support `generate_view`; PostgreSQL does",
            where=Where(stream=request.stream, setting="generate_view"),
        )

    def create_ledger(self, schema: str) -> list[str]:
        """The tables of the ledger and of column names, unless they are there."""
        raise NotImplementedError

    def proof(self, cursor: Cursor, rows: int) -> str:  # noqa: ARG002
        """By what rows that the open transaction adds are found again; empty if they cannot be."""
        return ""

    def present(self, cursor: Cursor, place: TablePlace, proofs: Mapping[str, str]) -> set[str]:  # noqa: ARG002
        """The tokens whose rows are all in a table still, as they were added.

        Args:
            cursor: Of a transaction that nobody else can change the table beside.
            place: The table.
            proofs: Token → proof.
        """
        return set()

    def marked(self, rows: Rows) -> str:
        """The newest rows of their keys that are marked as deleted: their keys."""
        keys = ", ".join(f"s.{name}" for name in rows.staged_keys)
        return f"SELECT {keys} FROM {self._newest(rows)} WHERE s.{rows.deleted} IS NOT NULL"

    def _newest(self, rows: Rows) -> str:
        keys = ", ".join(rows.staged_keys)
        newest = f"SELECT max(o) AS o FROM ({self._union(rows, keys)}) k GROUP BY {keys}"
        return f"({self._union(rows, '*')}) s JOIN ({newest}) w ON s.o = w.o"

    def _union(self, rows: Rows, columns: str) -> str:
        """Rows of all parts, with their order of arrival."""
        parts = (
            f"SELECT {'p.*' if columns == '*' else columns}, {n * _PART_ROWS} + {ROW} AS o "
            f"FROM {self.table(TablePlace(rows.schema, part))} p"
            for n, part in enumerate(rows.parts)
        )
        return " UNION ALL ".join(parts)
