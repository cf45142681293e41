"""Resources of a run in a database: a lock, prepared schemas and staging tables."""

from __future__ import annotations

import contextlib
import logging
import threading

from shared.errors import DestinationError
from target_spark.destinations.databases.database import Database
from target_spark.destinations.databases.database_failures import explain_errors
from target_spark.destinations.databases.database_tables import Connection, Cursor, TablePlace
from target_spark.destinations.databases.database_url import DatabaseAddress
from target_spark.destinations.databases.ledger import run_lock
from target_spark.destinations.databases.sink import PREFIX
from target_spark.destinations.databases.statements import LEDGER
from target_spark.tables.legal_names import NameRules, legal_table_name

_log = logging.getLogger(__name__)
_SETUP_LOCK = "target-spark setup"


class RunResources:
    """Holds the lock that shows other runs that this run is alive; usable from any thread.

    Args:
        database: The kind of database.
        place: Where it is.
        run: This run.
    """

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
        if self._connection is not None:
            try:
                self._connection.cursor().execute("SELECT 1")
                self._connection.commit()
            except Exception as error:
                if self._database.failure(error) is None:
                    raise
                self._connection = None
        if self._connection is None:
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
        there = {column.name for column in table.columns} if table else set()
        for name, kind in sql.ledger_columns.items():
            if name not in there:
                cursor.execute(f"ALTER TABLE {sql.table(place)} ADD COLUMN {name} {kind}")

    def _drop_stale(self, connection: Connection, schema: str) -> None:
        cursor = connection.cursor()
        for run in {_run_of(table) for table in self._stages(cursor, schema, "")}:
            if run != self._run and self._database.sql.is_free(cursor, run_lock(run)):
                try:
                    with explain_errors(self._database, self._place):
                        self._drop_stages(connection, schema, run)
                except DestinationError as error:
                    connection.rollback()
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
        return legal_table_name(name, rules)
    cursor = connection.cursor()
    cursor.execute(database.sql.current_schema)
    return str(cursor.fetchone()[0])


def _run_of(table: str) -> str:
    return table[len(PREFIX) :].rpartition("_")[0]
