"""The sink by which executors write rows of a flush into a staging table of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shared.errors import DestinationError
from target_spark.destinations.databases.database_failures import PASSING, errno_of, explain_errors
from target_spark.destinations.databases.database_kinds import DATABASES
from target_spark.destinations.databases.database_tables import TablePlace
from target_spark.destinations.databases.database_url import DatabaseAddress
from target_spark.destinations.databases.staged_columns import StagedColumn

PREFIX = "_singer_stage_"


@dataclass(frozen=True)
class StagingSink:
    """See `Sink`.

    Attributes:
        place: The database.
        schema: Schema of the staging tables.
        run: Part of their names, which identifies tables of ended runs.
        columns: Columns of the tables.
        numbered: Add a column for the row's number.
    """

    place: DatabaseAddress
    schema: str
    run: str
    columns: tuple[StagedColumn, ...]
    numbered: bool

    def write(
        self,
        columns: pa.Schema,  # noqa: ARG002
        tables: Iterator[pa.Table],
    ) -> list[dict[str, Any]]:
        """See `Sink`: one transaction for one new table.

        Raises:
            OSError: It failed, and a retry may help; its number shows why.
            DestinationError: It failed permanently.
        """
        first = next((table for table in tables if table.num_rows), None)
        if first is None:
            return []
        database = DATABASES[self.place.kind]()
        name = f"{PREFIX}{self.run}_{uuid.uuid4().hex[:16]}"
        source = _TableSource(first, tables)
        try:
            with explain_errors(database, self.place):
                connection = database.connect(self.place)
                try:
                    place = TablePlace(self.schema, name)
                    rows, size = database.stage(
                        connection, place, self.columns, source.tables(), numbered=self.numbered
                    )
                    connection.commit()
                finally:
                    connection.close()
        except DestinationError as error:
            if source.error is not None:
                raise source.error from None
            if errno_of(error) in PASSING:
                # A message with `://` would be classified as a failure of a file storage.
                raise OSError(errno_of(error), str(error).replace("://", ": ")) from None
            raise
        except Exception:
            if source.error is not None:
                raise source.error from None
            raise
        return [{"kind": "part", "url": name, "rows": rows, "size": size}]


class _TableSource:
    """The rows to send; keeps a failure to read them, even if a driver hides it."""

    def __init__(self, first: pa.Table, rest: Iterator[pa.Table]) -> None:
        self._first = first
        self._rest = rest
        self.error: BaseException | None = None

    def tables(self) -> Iterator[pa.Table]:
        try:
            yield self._first
            yield from self._rest
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise
