"""Tables of a database, rows staged for them, and the session that reaches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


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
        generated: Whether the database computes it: rows cannot set it.
        default: Expression of its default, if statements that change the column must repeat it.
        clauses: Other clauses that they must repeat.
    """

    name: str
    sql_type: str
    nullable: bool
    has_default: bool = False
    generated: bool = False
    default: str = ""
    clauses: str = ""


@dataclass(frozen=True)
class FoundTable:
    """An existing table.

    Attributes:
        columns: Columns in order.
        keys: The unique column sets, with null equal to null.
        own_keys: Names of the indexes among them that target-spark has created for keys.
        has_triggers: Whether triggers or rules of it may fill columns, leave out rows, or route
            them elsewhere.
        has_rules: Whether it has rules for INSERT or UPDATE, which miss rows of an upsert.
    """

    columns: tuple[FoundColumn, ...]
    keys: frozenset[frozenset[str]] = frozenset()
    own_keys: tuple[str, ...] = ()
    has_triggers: bool = False
    has_rules: bool = False


@dataclass(frozen=True)
class StagedRows:
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
        numbers: The rows of the parts, which are numbered from 1: after the first number, up to
            the second one; None for all.
        is_unique: Whether an index keeps the table's rows unique by `keys`.
    """

    parts: tuple[str, ...]
    schema: str
    values: Mapping[str, str]
    keys: tuple[str, ...] = ()
    staged_keys: tuple[str, ...] = ()
    nullable_keys: frozenset[str] = frozenset()
    deleted: str | None = None
    order_by: Mapping[str, str] = field(default_factory=dict)
    numbers: tuple[int, int] | None = None
    is_unique: bool = True
