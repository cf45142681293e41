"""Tables of SQLite as Singer streams: a source in plain Python, read by tap-spark without Spark.

Options: `database`, a file; `table`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from tap_spark.sources.row_source import Request, RowSource

TYPES = {"INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary(), "DATE": pa.date32()}
ROWS = 10_000


class SqliteSource(RowSource):
    """The rows of one table."""

    def columns(self) -> pa.Schema:
        with closing(self._connect()) as database:
            columns = database.execute("SELECT name, type FROM pragma_table_info(?)", [self._table])
            return pa.schema(
                [(name, TYPES.get(kind.upper(), pa.string())) for name, kind in columns]
            )

    def rows(self, request: Request) -> Iterator[dict[str, object]]:
        names = ", ".join(map(_quoted, request.columns))
        query, values = f"SELECT {names} FROM {_quoted(self._table)}", []  # noqa: S608
        if request.start_value is not None:
            query += f" WHERE {_quoted(str(request.replication_key))} >= ?"
            values.append(request.start_value)
        with closing(self._connect()) as database:
            cursor = database.execute(query, values)
            while rows := cursor.fetchmany(ROWS):
                yield from (dict(zip(request.columns, row, strict=True)) for row in rows)

    @property
    def _table(self) -> str:
        return self.stream.options["table"]

    def _connect(self) -> sqlite3.Connection:
        # Read-only, so that a wrong name is an error and no new file.
        return sqlite3.connect(f"file:{self.stream.options['database']}?mode=ro", uri=True)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
