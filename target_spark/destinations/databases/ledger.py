"""The ledger in the schema of the tables: which flushes are in them, and what no STATE covers.

A run holds a lock of its own as long as it lives, so that others can tell its rows and staging
tables from those of a run that has been killed.
"""

# ruff: noqa: S608 - names are quoted, values are arguments or quoted literals.
from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from target_spark.destinations.databases import Cursor, Database, TablePlace
from target_spark.destinations.databases.sql import LEDGER, NAMES
from target_spark.replays import Note, read_note


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

    def add(self, cursor: Cursor, stream: str, token: str, proof: str) -> None:
        """Add a flush, in the transaction of its rows.

        Args:
            cursor: Of that transaction.
            stream: Its name.
            token: Of the flush.
            proof: By which its rows are found again; empty if they cannot be.
        """
        values = [self._table, stream, self.run, token, *([proof] if proof else [])]
        column, value = (", proof", ", %s") if proof else ("", "")
        query = (
            f"INSERT INTO {self._ledger} (table_name, stream, run, token, note{column}) "
            f"VALUES (%s, %s, %s, %s, ''{value})"
        )
        cursor.execute(query, values)

    def keep(self, cursor: Cursor, stream: str, note: Note) -> bool:
        """Put a note in the place of the one that this run keeps for a stream.

        Returns:
            Whether there was one.
        """
        delete = f"DELETE FROM {self._ledger} WHERE table_name = %s AND token = %s"
        cursor.execute(delete, (self._table, self._note_token(stream)))
        was_there = cursor.rowcount > 0
        if note.entries:
            insert = (
                f"INSERT INTO {self._ledger} (table_name, stream, run, token, note) "
                "VALUES (%s, %s, %s, %s, %s)"
            )
            token = self._note_token(stream)
            cursor.execute(insert, (self._table, stream, self.run, token, note.to_text()))
        return was_there

    def has_note(self, cursor: Cursor, stream: str) -> bool:
        """Whether a note of this run is there: no other run has taken it over."""
        query = f"SELECT 1 FROM {self._ledger} WHERE table_name = %s AND token = %s"
        cursor.execute(query, (self._table, self._note_token(stream)))
        return cursor.fetchone() is not None

    def take(self, cursor: Cursor, stream: str) -> Note:
        """Take over the note that a run which has ended left of a stream.

        Returns:
            As much of it as the table holds; empty if there is none, or a newer flush.
        """
        query = (
            f"SELECT run, token, note, proof FROM {self._ledger} WHERE table_name = %s "
            "AND stream = %s AND run <> %s ORDER BY id DESC LIMIT 2000"
        )
        cursor.execute(query, (self._table, stream, self.run))
        rows = cursor.fetchall()
        owner, text = next(((run, note) for run, _, note, _ in rows if note), ("", ""))
        if not owner or not self.database.sql.is_free(cursor, run_lock(owner)):
            return Note()
        note = read_note(text)
        flushes = [(token, proof) for _, token, left, proof in rows if not left]
        newest = list(takewhile(lambda flush: flush[0] in note.tokens, flushes))
        proofs = {token: proof for token, proof in newest if proof}
        found = note.held(self.database.sql.present(cursor, self.place, proofs))
        remove = f"DELETE FROM {self._ledger} WHERE table_name = %s AND stream = %s AND note <> ''"
        cursor.execute(remove, (self._table, stream))
        self.keep(cursor, stream, found)
        return found

    def _note_token(self, stream: str) -> str:
        digest = hashlib.sha256(stream.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self.run} note {digest}"

    def end(self, cursor: Cursor) -> None:
        """The run has loaded the table to its end: forget all but its last flush."""
        runs = f"SELECT DISTINCT run FROM {self._ledger} WHERE table_name = %s AND run <> %s"
        cursor.execute(runs, (self._table, self.run))
        others = [run for (run,) in cursor.fetchall()]
        dead = [run for run in others if self.database.sql.is_free(cursor, run_lock(run))]
        newest = (
            f"SELECT max(id) FROM {self._ledger} WHERE table_name = %s AND run = %s AND note = ''"
        )
        cursor.execute(newest, (self._table, self.run))
        kept = cursor.fetchone()[0] or 0
        delete = f"DELETE FROM {self._ledger} WHERE table_name = %s AND run = %s AND id <> %s"
        for run in (*dead, self.run):
            cursor.execute(delete, (self._table, run, kept))
        cursor.execute(f"UPDATE {self._ledger} SET ended = true WHERE id = %s", (kept,))

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
