"""The ledger in the schema of the tables: which flushes are in them, and with which notes.

A run holds a lock of its own as long as it lives, so that others can tell its rows and staging
tables from those of a run that has been killed.
"""

# ruff: noqa: S608 - names are quoted, values are arguments or quoted literals.
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from target_spark.destinations.databases import Cursor, Database, TablePlace
from target_spark.destinations.databases.sql import LEDGER, NAMES


@dataclass(frozen=True)
class Ledger:
    """What the ledger says of one table, on the connection of a cursor; never commits.

    Attributes:
        database: Its kind.
        place: The table; the ledger lies in its schema.
        run: This run.
    """

    database: Database
    place: TablePlace
    run: str

    @property
    def _ledger(self) -> str:
        return self.database.sql.with_arguments(TablePlace(self.place.schema, LEDGER))

    @property
    def _names(self) -> str:
        return self.database.sql.with_arguments(TablePlace(self.place.schema, NAMES))

    @property
    def _table(self) -> str:
        return self.place.table

    def has(self, cursor: Cursor, token: str) -> bool:
        """Whether a flush is in the table."""
        query = f"SELECT 1 FROM {self._ledger} WHERE table_name = %s AND token = %s"
        cursor.execute(query, (self._table, token))
        return cursor.fetchone() is not None

    def add(self, cursor: Cursor, stream: str, token: str, note: str) -> None:
        """Tells of a flush, in the transaction of its rows."""
        query = (
            f"INSERT INTO {self._ledger} (table_name, stream, run, token, note) "
            "VALUES (%s, %s, %s, %s, %s)"
        )
        cursor.execute(query, (self._table, stream, self.run, token, note))

    def note(self, cursor: Cursor, stream: str) -> str | None:
        """The note of the newest flush by a run that has been killed."""
        query = (
            f"SELECT run, note, ended FROM {self._ledger} WHERE table_name = %s AND stream = %s "
            "AND run <> %s ORDER BY id DESC LIMIT 200"
        )
        cursor.execute(query, (self._table, stream, self.run))
        for run, note, ended in cursor.fetchall():
            if ended:
                return None
            if self.database.sql.is_free(cursor, run_lock(run)):
                return str(note)
        return None

    def end(self, cursor: Cursor) -> None:
        """The run has loaded the table to its end: what earlier runs left no longer matters."""
        runs = f"SELECT DISTINCT run FROM {self._ledger} WHERE table_name = %s AND run <> %s"
        cursor.execute(runs, (self._table, self.run))
        others = [run for (run,) in cursor.fetchall()]
        dead = [run for run in others if self.database.sql.is_free(cursor, run_lock(run))]
        newest = f"SELECT max(id) FROM {self._ledger} WHERE table_name = %s AND run = %s"
        cursor.execute(newest, (self._table, self.run))
        kept = cursor.fetchone()[0] or 0
        delete = f"DELETE FROM {self._ledger} WHERE table_name = %s AND run = %s AND id <> %s"
        for run in (*dead, self.run):
            cursor.execute(delete, (self._table, run, kept))
        end = f"UPDATE {self._ledger} SET ended = true, note = '' WHERE id = %s"
        cursor.execute(end, (kept,))

    def names(self, cursor: Cursor) -> dict[str, str]:
        """What the table calls the stream's columns: see `target_spark.tables.evolution`."""
        query = f"SELECT source, column_name FROM {self._names} WHERE table_name = %s"
        cursor.execute(query, (self._table,))
        return dict(cursor.fetchall())

    def keep_names(self, cursor: Cursor, mapping: Mapping[str, str]) -> None:
        """Tells how columns are called in the table, where this is news."""
        known = self.names(cursor)
        insert = f"INSERT INTO {self._names} (table_name, source, column_name) VALUES (%s, %s, %s)"
        delete = f"DELETE FROM {self._names} WHERE table_name = %s AND source = %s"
        for source, name in mapping.items():
            if known.get(source) != name:
                cursor.execute(delete, (self._table, source))
                cursor.execute(insert, (self._table, source, name))


def run_lock(run: str) -> str:
    """Name of the lock of a run."""
    return f"target-spark run {run}"


def table_lock(place: TablePlace) -> str:
    """Name of the lock of whoever changes a table."""
    return f"target-spark table {place.schema}.{place.table}"
