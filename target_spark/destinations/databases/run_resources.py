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
from functools import cached_property
from itertools import takewhile
from typing import ClassVar

from shared.errors import DestinationError
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.databases.database import Database, explain_errors, is_alive
from target_spark.destinations.databases.database_tables import (
    Connection,
    Cursor,
    DatabaseAddress,
    TablePlace,
)
from target_spark.destinations.databases.sink import PREFIX
from target_spark.destinations.databases.statements import LEASES, LEDGER, NAMES, LoadSql
from target_spark.destinations.leases import Holder, holder_of, this_run
from target_spark.replays import Note, read_note
from target_spark.tables.table_changes import OURS, legal_name

# ruff: noqa: S608 - names are quoted, values are arguments or quoted literals.


@dataclass(frozen=True)
class Ledger:
    """The ledger's entries of one table, in whose schema it is; never commits."""

    database: Database
    cursor: Cursor
    place: TablePlace
    run: str

    @property
    def _ledger(self) -> str:
        return self.database.sql.with_arguments(TablePlace(self.place.schema, LEDGER))

    @property
    def _names(self) -> str:
        return self.database.sql.with_arguments(TablePlace(self.place.schema, NAMES))

    def has(self, token: str) -> bool:
        """Return whether a flush is in the table."""
        query = f"SELECT 1 FROM {self._ledger} WHERE table_name = %s AND token = %s"
        self.cursor.execute(query, (self.place.table, token))
        return self.cursor.fetchone() is not None

    def add(self, stream: str, token: str, proof: str, note: str = "") -> None:
        """Add a flush, in the transaction of its rows, or a note.

        `proof`, if it is not empty, finds the rows again.
        """
        values = [self.place.table, stream, self.run, token, note, *([proof] if proof else [])]
        column, value = (", proof", ", %s") if proof else ("", "")
        query = (
            f"INSERT INTO {self._ledger} (table_name, stream, run, token, note{column}) "
            f"VALUES (%s, %s, %s, %s, %s{value})"
        )
        self.cursor.execute(query, values)

    def keep(self, stream: str, note: Note) -> bool:
        """Replace the note of this run for a stream; return whether there was one."""
        token = self._note_token(stream)
        was_there = self._remove("token = %s", token) > 0
        if note.entries:
            self.add(stream, token, "", note.to_text())
        return was_there

    def has_note(self, stream: str) -> bool:
        """Return whether the note of this run exists: another run has not taken it over."""
        return self.has(self._note_token(stream))

    def take(self, stream: str) -> Note:
        """Adopt the note of an ended run for a stream.

        Returns:
            The part that the table holds; empty if there is none, or there is a newer flush.
        """
        ended = f"FROM {self._ledger} WHERE table_name = %s AND stream = %s AND run <> %s"
        newest_note = f"SELECT run, note {ended} AND note <> '' ORDER BY id DESC LIMIT 1"
        self.cursor.execute(newest_note, (self.place.table, stream, self.run))
        # 1. Only the note of a run that has ended: a living one holds its lock.
        owner, text = self.cursor.fetchone() or ("", "")
        if not owner or not self.database.sql.is_free(self.cursor, run_lock(owner)):
            return Note()
        # 2. Only flushes that are the newest ones: a later flush without a note may have changed
        #    the same rows.
        note = read_note(text)
        query = f"SELECT token, proof {ended} AND note = '' ORDER BY id DESC LIMIT %s"
        self.cursor.execute(query, (self.place.table, stream, self.run, len(note.tokens)))
        flushes = self.cursor.fetchall()
        newest = list(takewhile(lambda flush: flush[0] in note.tokens, flushes))
        # 3. Only flushes whose rows are still there, by their proofs: others may have emptied the
        #    table.
        proofs = {token: proof for token, proof in newest if proof}
        result = note.held(self.database.sql.present(self.cursor, self.place, proofs))
        self._remove("stream = %s AND note <> ''", stream)
        self.keep(stream, result)
        return result

    @contextmanager
    def kept_proofs(self) -> Iterator[None]:
        """Renew the proofs of flushes in notes of this run if the block moves their rows.

        Notes of other runs become void thereby. The transaction of the block locks the table.
        """
        if not self.database.keeps_notes:
            yield
            return
        # A proof names the transaction that wrote the rows. A changed type writes them anew: they
        # are looked for before and after.
        query = f"SELECT run, token, note, proof FROM {self._ledger} WHERE table_name = %s"
        self.cursor.execute(query, (self.place.table,))
        rows = self.cursor.fetchall()
        notes = (read_note(note) for run, _, note, _ in rows if note and run == self.run)
        noted = frozenset().union(*(note.tokens for note in notes))
        proofs = {token: proof for _, token, _, proof in rows if proof and token in noted}
        sql = self.database.sql
        present = sql.present(self.cursor, self.place, proofs)
        yield
        kept = {token: proofs[token] for token in present}
        update = f"UPDATE {self._ledger} SET proof = %s WHERE table_name = %s AND token = %s"
        for token, proof in sql.renewed(self.cursor, self.place, kept).items():
            self.cursor.execute(update, (proof, self.place.table, token))

    def _note_token(self, stream: str) -> str:
        digest = hashlib.sha256(stream.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self.run} note {digest}"

    def end(self, stream: str) -> None:
        """End a stream for this run: delete all but its last flush, unless a note needs more."""
        if self.has_note(stream):
            return
        own = f"FROM {self._ledger} WHERE table_name = %s AND stream = %s"
        self.cursor.execute(
            f"SELECT DISTINCT run {own} AND run <> %s", (self.place.table, stream, self.run)
        )
        others = [run for (run,) in self.cursor.fetchall()]
        dead = [run for run in others if self.database.sql.is_free(self.cursor, run_lock(run))]
        newest = f"SELECT max(id) {own} AND run = %s AND note = ''"
        self.cursor.execute(newest, (self.place.table, stream, self.run))
        kept = self.cursor.fetchone()[0] or 0
        for run in (*dead, self.run) if self._may_delete() else ():
            delete = f"DELETE {own} AND run = %s AND id <> %s"
            self.cursor.execute(delete, (self.place.table, stream, run, kept))
        self.cursor.execute(f"UPDATE {self._ledger} SET ended = true WHERE id = %s", (kept,))

    def names(self) -> dict[str, str]:
        """Return the table's names of the stream's columns: see `target_spark.tables.evolution`.

        `OURS` is not among them if others have created the table anew.
        """
        names, now = self._marked_names()
        table, _, home = names.get(OURS, "").partition(" ")
        # A restored database has other identities, also of the table of names.
        if home and now.endswith(f" {home}") and now != f"{table} {home}":
            del names[OURS]
        return names

    def _marked_names(self) -> tuple[dict[str, str], str]:
        """Return all names of the table, and its identity now; empty for none."""
        identity = self.database.sql.identity(self.place) or "NULL"
        query = f"SELECT source, column_name, {identity} FROM {self._names} WHERE table_name = %s"
        self.cursor.execute(query, (self.place.table,))
        rows = self.cursor.fetchall()
        return {source: name for source, name, _ in rows}, (rows and rows[0][2]) or ""

    def keep_names(self, mapping: Mapping[str, str]) -> None:
        """Store new names of columns in the table."""
        existing, _ = self._marked_names()
        insert = f"INSERT INTO {self._names} (column_name, table_name, source) VALUES (%s, %s, %s)"
        update = f"UPDATE {self._names} SET column_name = %s WHERE table_name = %s AND source = %s"
        for source, name in mapping.items():
            if existing.get(source) != name:
                statement = update if source in existing else insert
                self.cursor.execute(statement, (name, self.place.table, source))
        identity = self.database.sql.identity(self.place)
        # The plan sets OURS to another text if the table is created, else it carries the old mark.
        if identity and existing.get(OURS) != mapping.get(OURS, existing.get(OURS)):
            mark = f"UPDATE {self._names} SET column_name = {identity} WHERE table_name = %s"
            self.cursor.execute(f"{mark} AND source = %s", (self.place.table, OURS))

    def _may_delete(self) -> bool:
        return self.database.sql.may_delete(self.cursor, TablePlace(self.place.schema, LEDGER))

    def _remove(self, condition: str, argument: str) -> int:
        """Remove entries of the table, or void them if the user may not delete; return how many."""
        remove = f"DELETE FROM {self._ledger}"
        if not self._may_delete():
            void = "concat(token, ' ', id)"
            remove = f"UPDATE {self._ledger} SET stream = '', note = '', token = {void}"
        query = f"{remove} WHERE table_name = %s AND {condition}"
        self.cursor.execute(query, (self.place.table, argument))
        return self.cursor.rowcount


def run_lock(run: str) -> str:
    """Return the name of the lock of a run."""
    return f"target-spark run {run}"


def table_lock(place: TablePlace) -> str:
    """Return the name of the lock for changes of a table."""
    return f"target-spark table {place.schema}.{place.table}"


_log = logging.getLogger(__name__)
_SETUP_LOCK = "target-spark setup"


@dataclass(eq=False)
class RunResources:
    """Holds the lock that shows other runs that this run is alive; usable from any thread."""

    database: Database
    place: DatabaseAddress
    run: str
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _connection: Connection | None = field(default=None, init=False)
    _schemas: dict[str | None, str] = field(default_factory=dict, init=False)

    def named(self, connection: Connection, schema: str | None) -> str:
        """Return the legal name of a schema, which need not exist; None is the session's own."""
        if schema is not None:
            return legal_name(schema, self.database.rules)
        cursor = connection.cursor()
        cursor.execute(self.database.sql.current_schema)
        return str(cursor.fetchone()[0])

    def schema(self, connection: Connection, name: str | None) -> str:
        """Return a schema like `named`, with a ledger; create it if it is missing.

        The first call also removes the staging tables of killed runs. It may end the transaction of
        the session.
        """
        with self._lock:
            self._hold()
            if name not in self._schemas:
                self._schemas[name] = self._ready(connection, name)
            return self._schemas[name]

    def close(self) -> None:
        """Remove the staging tables of this run, and release the lock."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is None:
                return
            with contextlib.suppress(Exception):
                for schema in set(self._schemas.values()):
                    self._drop_stages(connection, schema, self.run)
            with contextlib.suppress(Exception):
                connection.close()

    def _hold(self) -> None:
        """Acquire the lock, again if its connection has been lost."""
        if self._connection is None or not is_alive(self.database, self._connection):
            self._connection = None
            connection = self.database.connect(self.place)
            self.database.sql.lock(connection.cursor(), run_lock(self.run))
            connection.commit()
            self._connection = connection

    def _ready(self, connection: Connection, name: str | None) -> str:
        sql, cursor = self.database.sql, connection.cursor()
        schema = self.named(connection, name)
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
        """Create only what is missing: the user need not own the ledger."""
        sql = self.database.sql
        for name, statement in sql.create_ledger(schema).items():
            if self.database.describe(cursor, TablePlace(schema, name)) is None:
                cursor.execute(statement)

    def _drop_stale(self, connection: Connection, schema: str) -> None:
        cursor = connection.cursor()
        stages = self._stages(cursor, schema, "")
        for run in {table[len(PREFIX) :].rpartition("_")[0] for table in stages}:
            if run != self.run and self.database.sql.is_free(cursor, run_lock(run)):
                try:
                    # Its session waits only shortly for locks from then on.
                    with (
                        explain_errors(self.database, self.place),
                        contextlib.closing(self.database.connect(self.place)) as own,
                    ):
                        self._drop_stages(own, schema, run)
                except DestinationError as error:
                    _log.debug("staging tables of a killed run cannot be removed: %s", error)
        connection.commit()

    def _drop_stages(self, connection: Connection, schema: str, run: str) -> None:
        cursor = connection.cursor()
        if self.database.sql.impatient:
            cursor.execute(self.database.sql.impatient)
        for table in self._stages(cursor, schema, run):
            cursor.execute(self.database.sql.drop(TablePlace(schema, table)))
        connection.commit()

    def _stages(self, cursor: Cursor, schema: str, run: str) -> list[str]:
        cursor.execute(self.database.sql.stages, (schema, PREFIX + run))
        return [str(name) for (name,) in cursor.fetchall()]


@dataclass(eq=False)
class DatabaseLeases:
    """The connection of a run's leases, which the server releases when it ends; thread-safe.

    After `expiry` seconds, the server ends the session of a client that is gone.
    """

    resources: RunResources
    expiry: int
    holder: Holder = field(default_factory=this_run, init=False)
    held: set[DatabaseLease] = field(default_factory=set, init=False)
    lingering: set[DatabaseLease] = field(default_factory=set, init=False)
    _connection: Connection | None = field(default=None, init=False)
    _guard: threading.Lock = field(default_factory=threading.Lock, init=False)

    @contextmanager
    def using(self) -> Iterator[Connection]:
        """Yield the connection; if it was lost, with the locks that nobody took meanwhile."""
        with self._guard, explain_errors(self.resources.database, self.resources.place):
            connection = self._connected()
            try:
                yield connection
            except BaseException:
                with contextlib.suppress(Exception):
                    connection.rollback()
                raise

    def _connected(self) -> Connection:
        database = self.resources.database
        if self._connection is not None and is_alive(database, self._connection):
            return self._connection
        self._connection = None
        connection = database.connect(self.resources.place)
        cursor = connection.cursor()
        for statement in database.sql.lease_session(self.expiry):
            cursor.execute(statement)
        connection.commit()
        self.held = {lease for lease in self.held if lease.is_ours(cursor)}
        connection.commit()
        self._connection = connection
        return connection

    def close(self, connection: Connection) -> None:
        """End the connection."""
        self._connection = None
        connection.close()


@dataclass(eq=False)
class DatabaseLease:
    """See `Lease`: a lock, and a row that names its holder."""

    expires: ClassVar[bool] = True
    leases: DatabaseLeases
    request: TableRequest

    def take(self) -> Holder | None:
        with self.leases.using() as connection:
            cursor = connection.cursor()
            if self in self.leases.held:
                return None
            if not self._sql.take(cursor, self._lock):
                other = self._read(cursor)
                connection.commit()
                return other
            self._write(cursor)
            connection.commit()
            self.leases.held.add(self)
            return None

    def renew(self) -> bool:
        """See `Lease`. After a lost connection, locks are taken again."""
        leases = self.leases
        with leases.using() as connection:
            if self in leases.lingering:
                leases.lingering.discard(self)
                if not self.is_ours(connection.cursor()):
                    leases.held.discard(self)
                connection.commit()
            return self in leases.held

    def release(self) -> None:
        """See `Lease`; the last one ends the connection."""
        leases = self.leases
        with leases.using() as connection:
            if self in leases.held:
                cursor = connection.cursor()
                self._delete(cursor)
                connection.commit()
                self._sql.unlock(cursor, self._lock)
                connection.commit()
                leases.held.discard(self)
            if not leases.held:
                leases.close(connection)

    def is_ours(self, cursor: Cursor) -> bool:
        """Take the lock again; return whether no other run had it meanwhile."""
        is_taken = self._sql.take(cursor, self._lock)
        is_ours = self._read(cursor).run == self.leases.holder.run
        if is_ours and not is_taken:
            # The server has not noticed yet that the earlier connection is lost.
            self.leases.lingering.add(self)
        elif is_taken and not is_ours:
            self._sql.unlock(cursor, self._lock)
        return is_ours

    @property
    def _sql(self) -> LoadSql:
        return self.leases.resources.database.sql

    @cached_property
    def _schema(self) -> str:
        # Not the connection of the leases: a failure would leave the lock of the setup on it.
        run = self.leases.resources
        with contextlib.closing(run.database.connect(run.place)) as connection:
            return run.schema(connection, self.request.name.schema)

    @property
    def _lock(self) -> str:
        rules = self.leases.resources.database.rules
        table = rules.fold(legal_name(self.request.name.table, rules))
        return f"target-spark lease {self._schema}.{table} {self.request.stream}"

    @property
    def _name(self) -> str:
        return hashlib.sha256(self._lock.encode("utf-8", "surrogatepass")).hexdigest()[:60]

    @property
    def _table(self) -> str:
        return self._sql.with_arguments(TablePlace(self._schema, LEASES))

    def _write(self, cursor: Cursor) -> None:
        holder = json.dumps(self.leases.holder.to_json())
        # By three statements that any SQL knows; users may lack the right to delete.
        cursor.execute(f"SELECT 1 FROM {self._table} WHERE name = %s", (self._name,))
        if cursor.fetchone() is None:
            query = f"INSERT INTO {self._table} (holder, name) VALUES (%s, %s)"
        else:
            query = f"UPDATE {self._table} SET holder = %s WHERE name = %s"
        cursor.execute(query, (holder, self._name))

    def _delete(self, cursor: Cursor) -> None:
        if self._sql.may_delete(cursor, TablePlace(self._schema, LEASES)):
            cursor.execute(f"DELETE FROM {self._table} WHERE name = %s", (self._name,))

    def _read(self, cursor: Cursor) -> Holder:
        cursor.execute(f"SELECT holder FROM {self._table} WHERE name = %s", (self._name,))
        result = cursor.fetchone()
        return holder_of(json.loads(result[0])) if result else Holder()
