"""Tables of PostgreSQL that the driver reads by COPY, without Spark: metadata, parts, rows."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from shared.engine.engine import Work
from shared.errors import Where
from shared.formats.arrow_types import struct_to_arrow
from tap_spark.sources.driver_rows import driver_rows, is_read_by_threads
from tap_spark.sources.jdbc.copy_reader import (
    BATCH_BYTES,
    FILE_BATCH_BYTES,
    CopyLogin,
    CopySession,
    copied_schema,
    read_batches,
)
from tap_spark.sources.jdbc.jdbc_query import EXPORT, struct_of
from tap_spark.sources.jdbc.metadata import (
    NO_IDLE_TIMEOUT,
    REPEATABLE,
    TEXT_FORMATS,
    begin_statements,
)
from tap_spark.sources.jdbc.part_plan import (
    key_type_of,
    page_conditions,
    part_count,
    plan_parts,
    table_statistics,
)
from tap_spark.state.stream_plans import MOST_THREADS, DriverRows, RowForm

if TYPE_CHECKING:
    from shared.engine.engine import Engine
    from tap_spark.sources.jdbc.dialects.dialect import TableInfo
    from tap_spark.sources.jdbc.jdbc_query import JdbcQuery
    from tap_spark.state.stream_plans import StreamPlan

_log = logging.getLogger("tap-spark")
T = TypeVar("T")
BEGIN = (REPEATABLE, NO_IDLE_TIMEOUT, *TEXT_FORMATS)


class SessionQueries:
    """Queries a database through one session of COPY; see `QueryRunner`."""

    def __init__(self, session: CopySession) -> None:
        self._session = session

    def __call__(self, query: str, texts: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Run one SELECT and return its rows."""
        del texts
        rows = self._session.rows(query.strip())
        return [{name.lower(): value for name, value in row.items()} for row in rows]

    def struct(self, query: str) -> StructType:
        """Raise NotImplementedError: only Spark's reader has types of queries."""
        raise NotImplementedError(query)


@dataclass(frozen=True)
class CopyRead:
    """One read of a table.

    Attributes:
        session: A session that has not failed; the rows are those of its moment.
        plan: The stream.
        query: The planned rows.
        table: The table.
        wanted: Number of parts, if the user sets it.
    """

    session: CopySession
    plan: StreamPlan
    query: JdbcQuery
    table: TableInfo
    wanted: int | None = None


def opened(login: CopyLogin, action: Callable[[CopySession], T]) -> T:
    """Do something with a new session, which is closed if that fails.

    Raises:
        CopyError: The server cannot be reached.
    """
    session = CopySession(login, BEGIN)
    try:
        return action(session)
    except BaseException:
        session.close()
        raise


def copied_rows(read: CopyRead, form: RowForm, engine: Engine) -> DriverRows | None:
    """Return the planned rows; None if Spark reads them.

    Args:
        read: The read; its session is closed after the last row.
        form: How to read the rows.
        engine: Asked whether threads may read so much.

    Raises:
        CopyError: The server rejects the query, or the connection is lost.
    """
    plan, query = read.plan, read.query
    struct = StructType([StructField(f.name, f.dataType) for f in struct_of(read.table.columns)])
    work = Work(plan.stream, estimated_bytes(read.session, query.select()))
    if any(item.spark_type.startswith("array<") for item in query.columns):
        work = replace(work, needs_spark="columns that are arrays")
    elif not is_read_by_threads(plan, struct):
        work = replace(work, needs_spark="a replication key or type that only Spark has")
    if not engine.takes(work):
        return None
    read_at, threads = datetime.now(timezone.utc), min(engine.threads.count, MOST_THREADS)
    conditions, size = list[str](), BATCH_BYTES
    if form is RowForm.BLOCKS:
        conditions, size = _blocks(read, threads), FILE_BATCH_BYTES
    schema = struct_to_arrow(StructType([struct[item.name] for item in query.columns]))
    parts = [in_column_types(part, schema) for part in _parts(read, conditions, size)]
    return driver_rows(plan, struct, parts, form, read_at)


def estimated_bytes(session: CopySession, query: str) -> int:
    """Return about how many bytes a SELECT returns, as the server plans it."""
    [row] = session.rows(f"EXPLAIN (FORMAT JSON) {query}", copy=False)
    plan = json.loads(row["QUERY PLAN"])[0]["Plan"]
    return int(plan["Plan Rows"]) * max(1, int(plan["Plan Width"]))


def _blocks(read: CopyRead, threads: int) -> list[str]:
    """Return the conditions of parts; none for one part."""
    plan, query, database = read.plan, read.query, read.plan.config.database
    if database is None or not database.snapshot:
        return []
    statistics = table_statistics(
        SessionQueries(read.session), query.dialect.name, read.table, query.key
    )
    count = part_count(statistics, threads, read.wanted)
    kind = None if query.key is None else key_type_of(query.key.spark_type)
    parts = plan_parts(statistics, count, plan.start_value, kind, end=plan.end_value)
    conditions = page_conditions(query.block_column, parts.pages)
    if conditions:
        where = Where(stream=plan.tap_stream_id)
        _log.info("%s: reading in %d parts, by blocks", where, len(conditions))
    return conditions


def _parts(read: CopyRead, conditions: Sequence[str], size: int) -> list[Iterator[pa.RecordBatch]]:
    """Return the rows of each part, all as of the session's moment."""
    session, query = read.session, read.query
    schema = copied_schema(query.columns)
    if not conditions:
        return [
            _Shared(session, 1).last_closes(partial(session.batches, query.select(), schema, size))
        ]
    begin = begin_statements(session.rows(f"{EXPORT} AS name")[0]["name"])
    shared, login = _Shared(session, len(conditions)), session.login
    return [
        shared.last_closes(partial(read_batches, login, begin, select, schema, size))
        for select in query.block_selects(conditions)
    ]


class _Shared:
    """A session that stays open until every part has been read."""

    def __init__(self, session: CopySession, parts: int) -> None:
        self._session = session
        self._left = parts
        self._lock = threading.Lock()

    def last_closes(self, read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        try:
            yield from read()
        finally:
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._session.close()


def in_column_types(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield copied rows in the columns' own names and types: numbers of days become dates.

    Args:
        batches: See `copied_schema`; no arrays.
        schema: Names and types of the columns.
    """
    for batch in batches:
        columns = [
            array.view(pa.date32()) if pa.types.is_date32(field.type) else array
            for array, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
