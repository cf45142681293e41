"""The ledger in the schema of the tables: their flushes, and the rows that a STATE does not cover.

A run holds a lock of its own while it is alive, so that other runs can distinguish its rows and
staging tables from those of a killed run.
"""

# ruff: noqa: S608 - names are quoted, values are arguments or quoted literals.
from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from target_spark.destinations.databases.database import Database
from target_spark.destinations.databases.database_tables import Cursor, TablePlace
from target_spark.destinations.databases.statements import LEDGER, NAMES
from target_spark.replays import Note, read_note


@dataclass(frozen=True)
class Ledger:
    """The ledger's entries of one table, on the connection of a cursor; never commits.

    Attributes:
        database: The kind of database.
        place: The table; the ledger is in its schema.
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
        """Return whether a flush is in the table."""
        query = f"SELECT 1 FROM {self._ledger} WHERE table_name = %s AND token = %s"
        cursor.execute(query, (self._table, token))
        return cursor.fetchone() is not None

    def add(self, cursor: Cursor, stream: str, token: str, proof: str) -> None:
        """Add a flush, in the transaction of its rows.

        Args:
            cursor: Cursor of that transaction.
            stream: Name of the stream.
            token: Token of the flush.
            proof: Proof by which its rows are found again; empty if they cannot be found.
        """
        values = [self._table, stream, self.run, token, *([proof] if proof else [])]
        column, value = (", proof", ", %s") if proof else ("", "")
        query = (
            f"INSERT INTO {self._ledger} (table_name, stream, run, token, note{column}) "
            f"VALUES (%s, %s, %s, %s, ''{value})"
        )
        cursor.execute(query, values)

    def keep(self, cursor: Cursor, stream: str, note: Note) -> bool:
        """Replace the note of this run for a stream.

        Returns:
            Whether there was one.
        """
        token = self._note_token(stream)
        was_there = self._remove(cursor, "token = %s", token) > 0
        if note.entries:
            insert = (
                f"INSERT INTO {self._ledger} (table_name, stream, run, token, note) "
                "VALUES (%s, %s, %s, %s, %s)"
            )
            cursor.execute(insert, (self._table, stream, self.run, token, note.to_text()))
        return was_there

    def has_note(self, cursor: Cursor, stream: str) -> bool:
        """Return whether the note of this run exists: another run has not taken it over."""
        query = f"SELECT 1 FROM {self._ledger} WHERE table_name = %s AND token = %s"
        cursor.execute(query, (self._table, self._note_token(stream)))
        return cursor.fetchone() is not None

    def take(self, cursor: Cursor, stream: str) -> Note:
        """Adopt the note of an ended run for a stream.

        Returns:
            The part that the table holds; empty if there is none, or there is a newer flush.
        """
        ended = f"FROM {self._ledger} WHERE table_name = %s AND stream = %s AND run <> %s"
        newest_note = f"SELECT run, note {ended} AND note <> '' ORDER BY id DESC LIMIT 1"
        cursor.execute(newest_note, (self._table, stream, self.run))
        owner, text = cursor.fetchone() or ("", "")
        if not owner or not self.database.sql.is_free(cursor, run_lock(owner)):
            return Note()
        note = read_note(text)
        query = f"SELECT token, proof {ended} AND note = '' ORDER BY id DESC LIMIT %s"
        cursor.execute(query, (self._table, stream, self.run, len(note.tokens)))
        flushes = cursor.fetchall()
        newest = list(takewhile(lambda flush: flush[0] in note.tokens, flushes))
        proofs = {token: proof for token, proof in newest if proof}
        found = note.held(self.database.sql.present(cursor, self.place, proofs))
        self._remove(cursor, "stream = %s AND note <> ''", stream)
        self.keep(cursor, stream, found)
        return found

    @contextmanager
    def kept_proofs(self, cursor: Cursor) -> Iterator[None]:
        """Renew the proofs of flushes in notes of this run if the block moves their rows.

        Notes of other runs become void thereby.

        Args:
            cursor: Cursor of the transaction of these statements, which locks the table.
        """
        if not self.database.keeps_notes:
            yield
            return
        query = f"SELECT run, token, note, proof FROM {self._ledger} WHERE table_name = %s"
        cursor.execute(query, (self._table,))
        rows = cursor.fetchall()
        notes = (read_note(note) for run, _, note, _ in rows if note and run == self.run)
        noted = frozenset().union(*(note.tokens for note in notes))
        proofs = {token: proof for _, token, _, proof in rows if proof and token in noted}
        sql = self.database.sql
        there = sql.present(cursor, self.place, proofs)
        yield
        kept = {token: proofs[token] for token in there}
        update = f"UPDATE {self._ledger} SET proof = %s WHERE table_name = %s AND token = %s"
        for token, proof in sql.renewed(cursor, self.place, kept).items():
            cursor.execute(update, (proof, self._table, token))

    def _note_token(self, stream: str) -> str:
        digest = hashlib.sha256(stream.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self.run} note {digest}"

    def end(self, cursor: Cursor, stream: str) -> None:
        """End a stream for this run: delete all but its last flush, unless a note needs more."""
        if self.has_note(cursor, stream):
            return
        own = f"FROM {self._ledger} WHERE table_name = %s AND stream = %s"
        cursor.execute(f"SELECT DISTINCT run {own} AND run <> %s", (self._table, stream, self.run))
        others = [run for (run,) in cursor.fetchall()]
        dead = [run for run in others if self.database.sql.is_free(cursor, run_lock(run))]
        newest = f"SELECT max(id) {own} AND run = %s AND note = ''"
        cursor.execute(newest, (self._table, stream, self.run))
        kept = cursor.fetchone()[0] or 0
        for run in (*dead, self.run) if self._may_delete(cursor) else ():
            delete = f"DELETE {own} AND run = %s AND id <> %s"
            cursor.execute(delete, (self._table, stream, run, kept))
        cursor.execute(f"UPDATE {self._ledger} SET ended = true WHERE id = %s", (kept,))

    def names(self, cursor: Cursor) -> dict[str, str]:
        """Return the table's names of the stream's columns: see `target_spark.tables.evolution`."""
        query = f"SELECT source, column_name FROM {self._names} WHERE table_name = %s"
        cursor.execute(query, (self._table,))
        return dict(cursor.fetchall())

    def keep_names(self, cursor: Cursor, mapping: Mapping[str, str]) -> None:
        """Store new names of columns in the table."""
        known = self.names(cursor)
        insert = f"INSERT INTO {self._names} (column_name, table_name, source) VALUES (%s, %s, %s)"
        update = f"UPDATE {self._names} SET column_name = %s WHERE table_name = %s AND source = %s"
        for source, name in mapping.items():
            if known.get(source) != name:
                statement = update if source in known else insert
                cursor.execute(statement, (name, self._table, source))

    def _may_delete(self, cursor: Cursor) -> bool:
        ledger = self.database.sql.table(TablePlace(self.place.schema, LEDGER))
        cursor.execute(self.database.sql.may_delete, (ledger,))
        return bool(cursor.fetchone()[0])

    def _remove(self, cursor: Cursor, condition: str, argument: str) -> int:
        """Remove entries of the table, or void them if the user may not delete; return how many."""
        remove = f"DELETE FROM {self._ledger}"
        if not self._may_delete(cursor):
            void = "concat(token, ' ', id)"
            remove = f"UPDATE {self._ledger} SET stream = '', note = '', token = {void}"
        query = f"{remove} WHERE table_name = %s AND {condition}"
        cursor.execute(query, (self._table, argument))
        return cursor.rowcount


def run_lock(run: str) -> str:
    """Return the name of the lock of a run."""
    return f"target-spark run {run}"


def table_lock(place: TablePlace) -> str:
    """Return the name of the lock for changes of a table."""
    return f"target-spark table {place.schema}.{place.table}"
