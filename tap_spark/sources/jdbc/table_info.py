"""Tables and columns, as the metadata of a database describes them. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
        spark_type: Spark's type of the column. `columns.typed` casts what the expression returns
            (arrays: JSON text; dates and timestamps: days and microseconds since 1970).
        nullable: Whether null is allowed.
        expression: SQL that selects the column, quoted, without an alias.
        read_as: Spark's type of the expression for `customSchema`; empty if Spark's reader finds
            it by itself.
        order: Who orders its values.
    """

    name: str
    sql_type: str
    spark_type: str
    nullable: bool
    expression: str
    read_as: str = ""
    order: KeyOrder = KeyOrder.SPARK


@dataclass(frozen=True)
class TableInfo:
    """A table or view.

    Attributes:
        schema: Its schema (in MySQL: its database); None if there is none.
        name: Its name.
        kind: `table`, `partitioned`, `view`, `materialized view` or `foreign`.
        columns: Its columns, in the table's order.
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
        """Find a column by its exact name."""
        return next((column for column in self.columns if column.name == name), None)
