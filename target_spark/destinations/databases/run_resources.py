"""What a run keeps in a database: locks, leases, prepared schemas, staging tables and the ledger.

The ledger, in the schema of the tables, holds their flushes and the rows that no STATE covers. A
run holds a lock of its own while it is alive, so that other runs can distinguish its rows and
staging tables from those of a killed run. Leases are locks on one connection for all of a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import ClassVar

from shared.errors import DestinationError
from target_spark.core.load_plans import TableName, TableRequest
from target_spark.destinations.databases.database import Database, explain_errors, is_alive
from target_spark.destinations.databases.database_tables import (
    Connection,
    Cursor,
    DatabaseAddress,
    TablePlace,
)
from target_spark.destinations.databases.sink import PREFIX
from target_spark.destinations.databases.statements import LEASES, LEDGER, NAMES
from target_spark.destinations.leases import Holder, holder_of, this_run
from target_spark.replays import Note, read_note
from target_spark.tables.table_changes import NameRules, legal_name

# ruff: noqa: S608 - names are quoted, values are arguments or quoted literals.


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

    def has(self, cursor: Cursor, token: str) -> bool:
        """Return whether a flush is in the table."""
        query = f"SELECT 1 FROM {self._ledger} WHERE table_name = %s AND token = %s"
        cursor.execute(query, (self.place.table, token))
        return cursor.fetchone() is not None

    def add(self, cursor: Cursor, stream: str, token: str, proof: str, note: str = "") -> None:
        """Add a flush, in the transaction of its rows; or a note.

        Args:
            cursor: Cursor of that transaction.
            stream: Name of the stream.
            token: Token of the flush.
            proof: Proof by which its rows are found again; empty if they cannot be found.
            note: Text of a note.
        """
        values = [self.place.table, stream, self.run, token, note, *([proof] if proof else [])]
        column, value = (", proof", ", %s") if proof else ("", "")
        query = (
            f"INSERT INTO {self._ledger} (table_name, stream, run, token, note{column}) "
            f"VALUES (%s, %s, %s, %s, %s{value})"
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
            self.add(cursor, stream, token, "", note.to_text())
        return was_there

    def has_note(self, cursor: Cursor, stream: str) -> bool:
        """Return whether the note of this run exists: another run has not taken it over."""
        return self.has(cursor, self._note_token(stream))

    def take(self, cursor: Cursor, stream: str) -> Note:
        """Adopt the note of an ended run for a stream.

        Returns:
            The part that the table holds; empty if there is none, or there is a newer flush.
        """
        ended = f"FROM {self._ledger} WHERE table_name = %s AND stream = %s AND run <> %s"
        newest_note = f"SELECT run, note {ended} AND note <> '' ORDER BY id DESC LIMIT 1"
        cursor.execute(newest_note, (self.place.table, stream, self.run))
        # 1. Only the note of a run that has ended: a living one holds its lock.
        owner, text = cursor.fetchone() or ("", "")
        if not owner or not self.database.sql.is_free(cursor, run_lock(owner)):
            return Note()
        # 2. Only flushes that are the newest ones: a later flush without a note may have changed
        #    the same rows.
        note = read_note(text)
        query = f"SELECT token, proof {ended} AND note = '' ORDER BY id DESC LIMIT %s"
        cursor.execute(query, (self.place.table, stream, self.run, len(note.tokens)))
        flushes = cursor.fetchall()
        newest = list(takewhile(lambda flush: flush[0] in note.tokens, flushes))
        # 3. Only flushes whose rows are still there, by their proofs: others may have emptied the
        #    table.
        proofs = {token: proof for token, proof in newest if proof}
        result = note.held(self.database.sql.present(cursor, self.place, proofs))
        self._remove(cursor, "stream = %s AND note <> ''", stream)
        self.keep(cursor, stream, result)
        return result

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
        # A proof names the transaction that wrote the rows. A changed type writes them anew: they
        # are looked for before and after.
        query = f"SELECT run, token, note, proof FROM {self._ledger} WHERE table_name = %s"
        cursor.execute(query, (self.place.table,))
        rows = cursor.fetchall()
        notes = (read_note(note) for run, _, note, _ in rows if note and run == self.run)
        noted = frozenset().union(*(note.tokens for note in notes))
        proofs = {token: proof for _, token, _, proof in rows if proof and token in noted}
        sql = self.database.sql
        present = sql.present(cursor, self.place, proofs)
        yield
        kept = {token: proofs[token] for token in present}
        update = f"UPDATE {self._ledger} SET proof = %s WHERE table_name = %s AND token = %s"
        for token, proof in sql.renewed(cursor, self.place, kept).items():
            cursor.execute(update, (proof, self.place.table, token))

    def _note_token(self, stream: str) -> str:
        digest = hashlib.sha256(stream.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self.run} note {digest}"

    def end(self, cursor: Cursor, stream: str) -> None:
        """End a stream for this run: delete all but its last flush, unless a note needs more."""
        if self.has_note(cursor, stream):
            return
        own = f"FROM {self._ledger} WHERE table_name = %s AND stream = %s"
        cursor.execute(
            f"SELECT DISTINCT run {own} AND run <> %s", (self.place.table, stream, self.run)
        )
        others = [run for (run,) in cursor.fetchall()]
        dead = [run for run in others if self.database.sql.is_free(cursor, run_lock(run))]
        newest = f"SELECT max(id) {own} AND run = %s AND note = ''"
        cursor.execute(newest, (self.place.table, stream, self.run))
        kept = cursor.fetchone()[0] or 0
        for run in (*dead, self.run) if self._may_delete(cursor) else ():
            delete = f"DELETE {own} AND run = %s AND id <> %s"
            cursor.execute(delete, (self.place.table, stream, run, kept))
        cursor.execute(f"UPDATE {self._ledger} SET ended = true WHERE id = %s", (kept,))

    def names(self, cursor: Cursor) -> dict[str, str]:
        """Return the table's names of the stream's columns: see `target_spark.tables.evolution`."""
        query = f"SELECT source, column_name FROM {self._names} WHERE table_name = %s"
        cursor.execute(query, (self.place.table,))
        return dict(cursor.fetchall())

    def keep_names(self, cursor: Cursor, mapping: Mapping[str, str]) -> None:
        """Store new names of columns in the table."""
        existing = self.names(cursor)
        insert = f"INSERT INTO {self._names} (column_name, table_name, source) VALUES (%s, %s, %s)"
        update = f"UPDATE {self._names} SET column_name = %s WHERE table_name = %s AND source = %s"
        for source, name in mapping.items():
            if existing.get(source) != name:
                statement = update if source in existing else insert
                cursor.execute(statement, (name, self.place.table, source))

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
        cursor.execute(query, (self.place.table, argument))
        return cursor.rowcount


def run_lock(run: str) -> str:
    """Return the name of the lock of a run."""
    return f"target-spark run {run}"


def table_lock(place: TablePlace) -> str:
    """Return the name of the lock for changes of a table."""
    return f"target-spark table {place.schema}.{place.table}"


_log = logging.getLogger(__name__)
_SETUP_LOCK = "target-spark setup"


class RunResources:
    """Holds the lock that shows other runs that this run is alive; usable from any thread."""

    def __init__(self, database: Database, place: DatabaseAddress, run: str) -> None:
        self._database = database
        self._place = place
        self._run = run
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._schemas: dict[str | None, str] = {}

    def schema(self, connection: Connection, name: str | None, rules: NameRules) -> str:
        """Return the legal name of an existing schema with a ledger; create it if it is missing.

        The first call also removes the staging tables of killed runs.

        Args:
            connection: A session whose transaction may be ended.
            name: Requested name; None for the session's default schema.
            rules: Rules for names.
        """
        with self._lock:
            self._hold()
            if name not in self._schemas:
                self._schemas[name] = self._ready(connection, name, rules)
            return self._schemas[name]

    def close(self) -> None:
        """Remove the staging tables of this run, and release the lock."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is None:
                return
            with contextlib.suppress(Exception):
                for schema in set(self._schemas.values()):
                    self._drop_stages(connection, schema, self._run)
            with contextlib.suppress(Exception):
                connection.close()

    def _hold(self) -> None:
        """Acquire the lock, again if its connection has been lost."""
        if self._connection is None or not is_alive(self._database, self._connection):
            self._connection = None
            connection = self._database.connect(self._place)
            self._database.sql.lock(connection.cursor(), run_lock(self._run))
            connection.commit()
            self._connection = connection

    def _ready(self, connection: Connection, name: str | None, rules: NameRules) -> str:
        sql, cursor = self._database.sql, connection.cursor()
        schema = named_schema(self._database, connection, name, rules)
        sql.lock(cursor, _SETUP_LOCK)
        cursor.execute(sql.has_schema, (schema,))
        if cursor.fetchone() is None:
            cursor.execute(sql.create_schema(schema))
        self._prepare_ledger(cursor, schema)
        connection.commit()
        sql.unlock(cursor, _SETUP_LOCK)
        self._drop_stale(connection, schema)
        return schema

    def _prepare_ledger(self, cursor: Cursor, schema: str) -> None:
        """Create and change only what is missing: the user need not own the ledger."""
        sql = self._database.sql
        for name, statement in sql.create_ledger(schema).items():
            if self._database.describe(cursor, TablePlace(schema, name)) is None:
                cursor.execute(statement)
        place = TablePlace(schema, LEDGER)
        table = self._database.describe(cursor, place)
        present = {column.name for column in table.columns} if table else set()
        for name, kind in sql.ledger_columns.items():
            if name not in present:
                cursor.execute(f"ALTER TABLE {sql.table(place)} ADD COLUMN {name} {kind}")

    def _drop_stale(self, connection: Connection, schema: str) -> None:
        cursor = connection.cursor()
        stages = self._stages(cursor, schema, "")
        for run in {table[len(PREFIX) :].rpartition("_")[0] for table in stages}:
            if run != self._run and self._database.sql.is_free(cursor, run_lock(run)):
                try:
                    # Its session waits only shortly for locks from then on.
                    with (
                        explain_errors(self._database, self._place),
                        contextlib.closing(self._database.connect(self._place)) as own,
                    ):
                        self._drop_stages(own, schema, run)
                except DestinationError as error:
                    _log.debug("staging tables of a killed run cannot be removed: %s", error)
        connection.commit()

    def _drop_stages(self, connection: Connection, schema: str, run: str) -> None:
        cursor = connection.cursor()
        if self._database.sql.impatient:
            cursor.execute(self._database.sql.impatient)
        for table in self._stages(cursor, schema, run):
            cursor.execute(self._database.sql.drop(TablePlace(schema, table)))
        connection.commit()

    def _stages(self, cursor: Cursor, schema: str, run: str) -> list[str]:
        cursor.execute(self._database.sql.stages, (schema, PREFIX + run))
        return [str(name) for (name,) in cursor.fetchall()]


def named_schema(
    database: Database, connection: Connection, name: str | None, rules: NameRules
) -> str:
    """Return the legal name of a schema, which need not exist.

    Args:
        database: The kind of database.
        connection: A session.
        name: Requested name; None for the session's default schema.
        rules: Rules for names.
    """
    if name is not None:
        return legal_name(name, rules)
    cursor = connection.cursor()
    cursor.execute(database.sql.current_schema)
    return str(cursor.fetchone()[0])


@dataclass(frozen=True)
class _LeaseLock:
    """A lock, and the table that names its holder."""

    lock: str
    schema: str

    @property
    def name(self) -> str:
        return hashlib.sha256(self.lock.encode("utf-8", "surrogatepass")).hexdigest()[:60]


@dataclass
class DatabaseLeases:
    """The leases of a run, which the server releases when the connection ends; thread-safe.

    Attributes:
        database: The kind of database.
        place: Where it is.
        resources: Schemas of the run.
        rules: Rules for names.
        expiry: Seconds after which the server ends the session of a client that is gone.
    """

    database: Database
    place: DatabaseAddress
    resources: RunResources
    rules: NameRules
    expiry: int
    _holder: Holder = field(default_factory=this_run)
    _connection: Connection | None = None
    _held: set[_LeaseLock] = field(default_factory=set)
    _lingering: set[_LeaseLock] = field(default_factory=set)
    _names: dict[tuple[TableName, str], _LeaseLock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self, request: TableRequest) -> Holder | None:
        """See `Lease`."""
        with self._using() as connection:
            held, cursor = self._named(request), connection.cursor()
            if held in self._held:
                return None
            if self.database.sql.take(cursor, held.lock):
                self._write(cursor, held)
                connection.commit()
                self._held.add(held)
                return None
            other = self._read(cursor, held)
            connection.commit()
            return other

    def renew(self, request: TableRequest) -> bool:
        """See `Lease`. After a lost connection, locks are taken again."""
        with self._using() as connection:
            held, cursor = self._named(request), connection.cursor()
            if held in self._lingering:
                self._lingering.discard(held)
                if not self._is_ours(cursor, held):
                    self._held.discard(held)
                connection.commit()
            return held in self._held

    def release(self, request: TableRequest) -> None:
        """See `Lease`; the last one ends the connection."""
        with self._using() as connection:
            held, cursor = self._named(request), connection.cursor()
            if held in self._held:
                self._delete(cursor, held)
                connection.commit()
                self.database.sql.unlock(cursor, held.lock)
                connection.commit()
                self._held.discard(held)
            if not self._held:
                self._connection = None
                connection.close()

    @contextlib.contextmanager
    def _using(self) -> Iterator[Connection]:
        with self._guard, explain_errors(self.database, self.place):
            connection = self._connected()
            try:
                yield connection
            except BaseException:
                with contextlib.suppress(Exception):
                    connection.rollback()
                raise

    def _connected(self) -> Connection:
        """Return the connection; if it was lost, with the locks that nobody took meanwhile."""
        if self._connection is not None and is_alive(self.database, self._connection):
            return self._connection
        self._connection = None
        connection = self.database.connect(self.place)
        cursor = connection.cursor()
        for statement in self.database.sql.lease_session(self.expiry):
            cursor.execute(statement)
        connection.commit()
        self._held = {held for held in self._held if self._is_ours(cursor, held)}
        connection.commit()
        self._connection = connection
        return connection

    def _is_ours(self, cursor: Cursor, held: _LeaseLock) -> bool:
        """Take a lock again; return whether no other run had it meanwhile."""
        is_taken = self.database.sql.take(cursor, held.lock)
        is_ours = self._read(cursor, held).run == self._holder.run
        if is_ours and not is_taken:
            # The server has not noticed yet that the earlier connection is lost.
            self._lingering.add(held)
        elif is_taken and not is_ours:
            self.database.sql.unlock(cursor, held.lock)
        return is_ours

    def _named(self, request: TableRequest) -> _LeaseLock:
        key = request.name, request.stream
        if key not in self._names:
            # Not the connection of the leases: a failure would leave the lock of the setup on it.
            with contextlib.closing(self.database.connect(self.place)) as connection:
                schema = self.resources.schema(connection, request.name.schema, self.rules)
            table = self.rules.fold(legal_name(request.name.table, self.rules))
            lock = f"target-spark lease {schema}.{table} {request.stream}"
            self._names[key] = _LeaseLock(lock, schema)
        return self._names[key]

    def _table(self, held: _LeaseLock) -> str:
        return self.database.sql.with_arguments(TablePlace(held.schema, LEASES))

    def _write(self, cursor: Cursor, held: _LeaseLock) -> None:
        table, holder = self._table(held), json.dumps(self._holder.to_json())
        # By three statements that any SQL knows; users may lack the right to delete.
        cursor.execute(f"SELECT 1 FROM {table} WHERE name = %s", (held.name,))
        if cursor.fetchone() is None:
            insert = f"INSERT INTO {table} (holder, name) VALUES (%s, %s)"
            cursor.execute(insert, (holder, held.name))
        else:
            update = f"UPDATE {table} SET holder = %s WHERE name = %s"
            cursor.execute(update, (holder, held.name))

    def _delete(self, cursor: Cursor, held: _LeaseLock) -> None:
        sql = self.database.sql
        cursor.execute(sql.may_delete, (sql.table(TablePlace(held.schema, LEASES)),))
        if cursor.fetchone()[0]:
            delete = f"DELETE FROM {self._table(held)} WHERE name = %s"
            cursor.execute(delete, (held.name,))

    def _read(self, cursor: Cursor, held: _LeaseLock) -> Holder:
        query = f"SELECT holder FROM {self._table(held)} WHERE name = %s"
        cursor.execute(query, (held.name,))
        result = cursor.fetchone()
        return holder_of(json.loads(result[0])) if result else Holder()


@dataclass(frozen=True)
class DatabaseLease:
    """See `Lease`."""

    expires: ClassVar[bool] = True
    leases: DatabaseLeases
    request: TableRequest

    def take(self) -> Holder | None:
        """See `Lease`."""
        return self.leases.take(self.request)

    def renew(self) -> bool:
        """See `Lease`."""
        return self.leases.renew(self.request)

    def release(self) -> None:
        """See `Lease`."""
        self.leases.release(self.request)
