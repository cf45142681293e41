"""Reading a table as slices: how it is split, in which snapshot, and the bookmark after each."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from shared.errors import Where
from shared.spark.session import parallelism
from tap_spark.sources.frame_helpers import col
from tap_spark.sources.jdbc.copy_driver import asked, copy_snapshot
from tap_spark.sources.jdbc.dialects.dialect import ColumnInfo, KeyOrder
from tap_spark.sources.jdbc.jdbc_query import JdbcQuery, session_options, snapshot_of
from tap_spark.sources.jdbc.metadata import JdbcQueryRunner
from tap_spark.sources.jdbc.part_plan import (
    KeyInterval,
    PartPlan,
    TableStatistics,
    as_number,
    can_split,
    even_bounds,
    from_number,
    key_intervals,
    key_type_of,
    page_conditions,
    part_count,
    plan_parts,
    table_statistics,
)
from tap_spark.sources.source_failures import with_retries
from tap_spark.state.bookmarks import can_be_bookmark
from tap_spark.state.stream_plans import Slice, StreamPlan
from tap_spark.stream_config import ConnectionConfig

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from tap_spark.sources.jdbc.dialects.dialect import QueryRunner, TableInfo
    from tap_spark.sources.jdbc.jdbc_query import DatabaseSnapshot, JdbcOptions

_log = logging.getLogger("tap-spark")


@dataclass(frozen=True)
class JdbcRead:
    """One read of a table or query.

    Attributes:
        query: The query, in sessions without a snapshot.
        table: The table; None for a query.
        split: The user's partition column, if any.
    """

    spark: SparkSession
    connection: ConnectionConfig
    plan: StreamPlan
    options: JdbcOptions
    query: JdbcQuery
    table: TableInfo | None = None
    split: ColumnInfo | None = None

    @property
    def where(self) -> Where:
        """Return the stream, for errors and logs."""
        return Where(stream=self.plan.tap_stream_id)

    def at_snapshot(self, snapshot: DatabaseSnapshot | None) -> JdbcQuery:
        """Return the query as of a snapshot."""
        if snapshot is None:
            return self.query
        options = session_options(self.connection, self.options.reader, snapshot)
        source = self.query.source + snapshot.as_of
        copy = self.query.copy and self.query.copy.at(snapshot.name)
        return replace(self.query, source=source, options=options, copy=copy)


def read_slices(read: JdbcRead) -> Iterator[Slice]:
    """Read a table or query.

    Raises:
        SourceError: The database cannot be reached, or rejects the query.
    """
    key = read.query.key
    if key is None or key.order is KeyOrder.SPARK:
        yield from _slices(read)
        return
    # Asked before the rows are read: what others write meanwhile belongs to the next run, too.
    bookmark = _greatest(read)
    for piece in _slices(read):
        yield replace(piece, bookmark=bookmark)


def _greatest(read: JdbcRead) -> Mapping[str, Any]:
    """Return the bookmark after the rows, with the key's greatest value if there is one."""
    query = read.query.with_keys().greatest_key()
    rows = _collected(read, query)
    bookmark = {"replication_key": read.plan.replication_key}
    values = [row[0] for row in rows if row[0] is not None]
    return {**bookmark, "replication_key_value": values[0]} if values else bookmark


def _slices(read: JdbcRead) -> Iterator[Slice]:
    if read.split is not None:
        with _snapshot(read) as snapshot:
            query = read.at_snapshot(snapshot)
            split, options = read.split, read.options.split
            yield _slice(read, query, lambda: query.split_by(read.spark, split, options))
        return
    if read.table is None:
        yield _slice(read, read.query, lambda: read.query.in_one_part(read.spark))
        return
    statistics = _statistics(read, read.table)
    wanted = read.options.partitions
    parts = part_count(statistics, parallelism(read.spark) if wanted is None else 1, wanted)
    part_plan = _part_plan(read, statistics, parts)
    if part_plan.pages or part_plan.slices:
        with _snapshot(read) as snapshot:
            if snapshot is not None:
                yield from _planned_slices(read, read.at_snapshot(snapshot), part_plan)
                return
    # Parts that the user asks for; no transaction holds the snapshot: the query itself names it.
    is_named = parts > 1 and wanted is not None and read.query.dialect.name == "oracle"
    with _snapshot(read) if is_named else nullcontext() as snapshot:
        yield _by_ranges(replace(read, query=read.at_snapshot(snapshot)), parts)


def _snapshot(read: JdbcRead) -> AbstractContextManager[DatabaseSnapshot | None]:
    copy = read.query.copy
    if copy is None or not read.connection.snapshot:
        return snapshot_of(read.spark, read.connection, read.where)
    return copy_snapshot(copy.login, read.connection, read.where)


def _statistics(read: JdbcRead, table: TableInfo) -> TableStatistics:
    def by(run_query: QueryRunner) -> TableStatistics:
        return table_statistics(run_query, read.query.dialect.name, table, read.query.key)

    copy = read.query.copy
    if copy is None:
        return by(JdbcQueryRunner(read.spark, read.connection, read.where))
    return asked(copy.login, read.connection, read.where, by)


def _part_plan(read: JdbcRead, statistics: TableStatistics, parts: int) -> PartPlan:
    if not read.connection.snapshot:
        return PartPlan()
    plan = read.plan
    key_type = None if read.query.key is None else key_type_of(read.query.key.spark_type)
    ordered = plan.config.sort_by_replication_key
    start, end = plan.start_value, plan.end_value
    part_plan = plan_parts(statistics, parts, start, key_type, end=end, ordered=ordered)
    # A single query needs no snapshot.
    return PartPlan() if part_plan.slices == ((KeyInterval(),),) else part_plan


def _planned_slices(read: JdbcRead, query: JdbcQuery, part_plan: PartPlan) -> Iterator[Slice]:
    if part_plan.pages:
        conditions = page_conditions(query.block_column, part_plan.pages)
        _log.info("%s: reading in %d parts, by blocks", read.where, len(conditions))
        yield _slice(read, query, lambda: query.in_blocks(read.spark, conditions))
        return
    key = query.key
    assert key is not None  # noqa: S101
    for number, ranges in enumerate(part_plan.slices, 1):
        _log.info(
            "%s: slice %d of %d, in %d parts, by '%s'",
            *(read.where, number, len(part_plan.slices), len(ranges), key.name),
        )
        make = partial(query.in_ranges, read.spark, ranges, key)
        counted = query if number == 1 else None
        yield _slice(read, counted, make, _bookmark(read.plan, ranges[-1]))


def _bookmark(plan: StreamPlan, last: KeyInterval) -> Mapping[str, Any] | None:
    """Return the bookmark after a slice: every row below its end has been read by then."""
    if last.high is None or plan.config.sort_by_replication_key:
        return None
    return {"replication_key": plan.replication_key, "replication_key_value": last.high}


def _by_ranges(read: JdbcRead, parts: int) -> Slice:
    """Read ranges of a key, if the user asks: unless the query names a snapshot, parts see
    different moments.
    """
    asked = read.options.partitions is not None or not read.connection.snapshot
    by = _split_column(read) if asked and parts > 1 else None
    low = high = None
    if by is not None:
        low, high = with_retries(partial(_key_bounds, read, by), read.connection, read.where)
    elif parts > 1:
        _log.info("%s: reading in one part (see `tap-spark docs databases`)", read.where)
    query = read.query
    if by is None or low is None:
        return _slice(read, query, lambda: query.in_one_part(read.spark))
    kind = key_type_of(by.spark_type)
    if by is query.key and can_be_bookmark(high, kind):
        # A row that is updated meanwhile moves above the greatest key: the next run reads it.
        last = _end_of_microsecond(high, kind) if kind.startswith("timestamp") else high
        query = query if last is None else query.up_to(last)
    ranges = key_intervals(even_bounds(low, high, parts, kind))
    _log.info("%s: reading in %d parts, by '%s'", read.where, len(ranges), by.name)
    return _slice(read, query, partial(query.in_ranges, read.spark, ranges, by))


def _end_of_microsecond(moment: Any, kind: str) -> Any:
    """Return what is above all times of a microsecond: some databases know finer ones.

    None after the last one of the year 9999, which databases cannot compare with.
    """
    end = from_number(as_number(moment, kind) + 1, kind)
    return None if str(end).startswith("+") else end


def _split_column(read: JdbcRead) -> ColumnInfo | None:
    """Choose the column whose ranges are the parts: the replication key, else the primary key."""
    table, by = read.table, read.query.key
    if by is None and table is not None and len(table.primary_key) == 1:
        by = table.column(table.primary_key[0])
    return by if by is not None and can_split(key_type_of(by.spark_type)) else None


def _key_bounds(read: JdbcRead, by: ColumnInfo) -> tuple[Any, Any]:
    """Return the least and the greatest value, which the database's indexes know."""
    name = read.query.dialect.quote(by.name)
    both = " UNION ALL ".join(
        f"SELECT {word}({name}) AS {name} FROM {read.query.filtered}"  # noqa: S608
        for word in ("MIN", "MAX")
    )
    ends = replace(read.query, source=f"({both}) ends", columns=(by,), conditions=())
    form = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    value = F.to_json(F.struct(col(by.name).alias("value")), form)
    rows = ends.in_one_part(read.spark).frame.select(value.alias("end")).collect()
    kind = key_type_of(by.spark_type)
    values = [json.loads(row["end"]).get("value") for row in rows]
    numbers = sorted(as_number(value, kind) for value in values if value is not None)
    if not numbers:
        return None, None
    return from_number(numbers[0], kind), from_number(numbers[-1], kind)


def _slice(
    read: JdbcRead,
    counted: JdbcQuery | None,
    make: Callable[[], Slice],
    bookmark: Mapping[str, Any] | None = None,
) -> Slice:
    """Return a slice; `counted` is the query of the whole read, None after the first slice."""
    count = _count(read, counted) if read.connection.count_rows else None
    # Building a frame queries the database for its columns.
    part = with_retries(make, read.connection, read.where)
    plan = read.plan
    if read.query.key is not None and plan.config.sort_by_replication_key:
        key = col(str(plan.replication_key))
        return Slice(part.frame.orderBy(key.asc_nulls_first()), ordered=True, told_rows=count)
    return replace(part, bookmark=bookmark, told_rows=count)


def _count(read: JdbcRead, query: JdbcQuery | None) -> int:
    """Let the database count the rows of a query; return 0 without one."""
    if query is None:
        return 0
    number = ColumnInfo("n", "", "bigint", False, query.dialect.quote("n"))
    counting = f"(SELECT COUNT(*) AS {number.expression} FROM {query.filtered}) counted"  # noqa: S608
    single = replace(query, source=counting, columns=(number,), conditions=())
    [row] = _collected(read, single)
    return int(row[0])


def _collected(read: JdbcRead, query: JdbcQuery) -> list[Row]:
    """Return the rows of a query that has few."""
    part = with_retries(lambda: query.in_one_part(read.spark), read.connection, read.where)
    return with_retries(part.frame.collect, read.connection, read.where)
