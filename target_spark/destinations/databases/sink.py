"""The sink by which executors write rows of a flush into a staging table of their own.

The kind of database is imported when it is used.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType

from shared.errors import DestinationError
from target_spark.destinations.databases.database import PASSING, Database, errno_of, explain_errors
from target_spark.destinations.databases.database_tables import (
    Connection,
    DatabaseAddress,
    TablePlace,
)
from target_spark.destinations.databases.mysql.mysql_database import MySql
from target_spark.destinations.databases.postgresql.postgresql_database import PostgreSql
from target_spark.destinations.databases.staged_columns import (
    StagedColumn,
    StagingTable,
    chunks,
    staged_source,
)
from target_spark.destinations.destination import ROW_ORIGIN, RefusedByStoreError

DATABASES: Mapping[str, Callable[[], Database]] = {
    "postgresql": PostgreSql,
    "mysql": MySql,
    "mariadb": MySql,
}
"""Every kind of database by the second word of its JDBC URLs."""
PREFIX = "_singer_stage_"


@dataclass(frozen=True)
class StagingSink:
    """See `Sink`.

    Attributes:
        schema: Schema of the staging tables.
        run: Part of their names, which identifies tables of ended runs.
        numbered: Add a column for the row's number.
        is_trial: See `trial`.
    """

    place: DatabaseAddress
    schema: str
    run: str
    columns: tuple[StagedColumn, ...]
    numbered: bool
    is_trial: bool = False

    def write(self, columns: pa.Schema, tables: Iterator[pa.Table]) -> list[dict[str, Any]]:
        """See `Sink`: one transaction for one new table.

        Raises:
            OSError: It failed, and a retry may help; its number shows why.
            RefusedByStoreError: The server refuses a row.
            DestinationError: It failed permanently.
        """
        first = next((table for table in tables if table.num_rows), None)
        if first is None:
            return []
        database = DATABASES[self.place.kind]()
        failures = list[BaseException]()
        rows = _read(chain([first], tables), failures)
        sink = self._with_origins(database) if ROW_ORIGIN in columns.names else self
        try:
            with explain_errors(database, self.place):
                connection = database.connect(self.place)
                try:
                    if self.is_trial:
                        return sink._refused(database, connection, rows)
                    return [sink._staged(database, connection, rows)]
                finally:
                    connection.close()
        except Exception as error:
            if failures:
                raise failures[0] from None
            if isinstance(error, DestinationError) and errno_of(error) in PASSING:
                # A message with `://` would be classified as a failure of a file storage.
                raise OSError(errno_of(error), str(error).replace("://", ": ")) from None
            raise

    def trial(self) -> StagingSink:
        return replace(self, is_trial=True)

    def _with_origins(self, database: Database) -> StagingSink:
        kind, sql = LongType(), database.sql
        column = StagedColumn(ROW_ORIGIN, sql.type_of(kind), sql.form_of(kind), kind)
        return replace(self, columns=(*self.columns, column), numbered=True)

    def _staged(
        self, database: Database, connection: Connection, tables: Iterator[pa.Table]
    ) -> dict[str, Any]:
        place = TablePlace(self.schema, f"{PREFIX}{self.run}_{uuid.uuid4().hex[:16]}")
        try:
            stage = StagingTable(place, self.columns, self.numbered)
            rows, size = database.stage(connection, stage, tables)
        except Exception as error:
            failure = database.failure(error)
            is_refusal = failure is None and isinstance(error, RefusedByStoreError)
            if not is_refusal and (failure is None or not failure.refusal):
                raise
            connection.rollback()
            # A rollback does not remove the table from every server.
            connection.cursor().execute(database.sql.drop(place))
            connection.commit()
            if failure is None:
                raise
            named = staged_source(self.columns, failure.column)
            raise RefusedByStoreError(f"{named}{failure.refusal}") from error
        connection.commit()
        return {"kind": "part", "url": place.table, "rows": rows, "size": size}

    def _refused(
        self, database: Database, connection: Connection, tables: Iterator[pa.Table]
    ) -> list[dict[str, Any]]:
        """Return the rows that cannot be staged: stage ever fewer, and drop them."""
        cursor, result = connection.cursor(), list[dict[str, Any]]()

        def stage(rows: pa.Table) -> None:
            try:
                part = self._staged(database, connection, iter([rows]))
            except RefusedByStoreError as error:
                if rows.num_rows > 1:
                    middle = rows.num_rows // 2
                    stage(rows.slice(0, middle))
                    stage(rows.slice(middle))
                    return
                origin = rows.column(ROW_ORIGIN)[0].as_py()
                result.append({"kind": "refused row", "rows": origin, "text": error.message})
            else:
                cursor.execute(database.sql.drop(TablePlace(self.schema, part["url"])))
                connection.commit()

        for batch in chunks(tables):
            stage(pa.Table.from_batches([batch]))
        return result


def _read(tables: Iterable[pa.Table], failures: list[BaseException]) -> Iterator[pa.Table]:
    """Yield the rows to send; keep a failure to read them, even if a driver hides it."""
    try:
        yield from tables
    except GeneratorExit:
        raise
    except BaseException as error:
        failures.append(error)
        raise
