"""Leases on tables of a database: locks of the server, on one connection for all of a run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from target_spark.destinations.databases.database import Database
from target_spark.destinations.databases.database_failures import explain_errors
from target_spark.destinations.databases.database_tables import Connection, Cursor, TablePlace
from target_spark.destinations.databases.run_resources import RunResources
from target_spark.destinations.databases.statements import LEASES
from target_spark.destinations.leases.lease import Holder, holder_of, this_run
from target_spark.tables.legal_names import NameRules, legal_table_name

if TYPE_CHECKING:
    from target_spark.core.load_plans import TableName, TableRequest
    from target_spark.destinations.databases.database_url import DatabaseAddress


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

    def lease(self, request: TableRequest) -> DatabaseLease:
        """Return the lease of a stream on its table."""
        return DatabaseLease(self, request)

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
        connection = self._connection
        if connection is not None:
            try:
                connection.cursor().execute("SELECT 1")
                connection.commit()
                return connection
            except Exception as error:
                if self.database.failure(error) is None:
                    raise
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
            table = self.rules.fold(legal_table_name(request.name.table, self.rules))
            lock = f"target-spark lease {schema}.{table} {request.stream}"
            self._names[key] = _LeaseLock(lock, schema)
        return self._names[key]

    def _table(self, held: _LeaseLock) -> str:
        return self.database.sql.with_arguments(TablePlace(held.schema, LEASES))

    def _write(self, cursor: Cursor, held: _LeaseLock) -> None:
        table, holder = self._table(held), json.dumps(self._holder.to_json())
        # By three statements that any SQL knows; users may lack the right to delete.
        cursor.execute(f"SELECT 1 FROM {table} WHERE name = %s", (held.name,))  # noqa: S608
        if cursor.fetchone() is None:
            insert = f"INSERT INTO {table} (holder, name) VALUES (%s, %s)"  # noqa: S608
            cursor.execute(insert, (holder, held.name))
        else:
            update = f"UPDATE {table} SET holder = %s WHERE name = %s"  # noqa: S608
            cursor.execute(update, (holder, held.name))

    def _delete(self, cursor: Cursor, held: _LeaseLock) -> None:
        sql = self.database.sql
        cursor.execute(sql.may_delete, (sql.table(TablePlace(held.schema, LEASES)),))
        if cursor.fetchone()[0]:
            delete = f"DELETE FROM {self._table(held)} WHERE name = %s"  # noqa: S608
            cursor.execute(delete, (held.name,))

    def _read(self, cursor: Cursor, held: _LeaseLock) -> Holder:
        query = f"SELECT holder FROM {self._table(held)} WHERE name = %s"  # noqa: S608
        cursor.execute(query, (held.name,))
        found = cursor.fetchone()
        return holder_of(json.loads(found[0])) if found else Holder()


@dataclass(frozen=True)
class DatabaseLease:
    """See `Lease`."""

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
