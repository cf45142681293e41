"""Reading a table as slices: how it is split, in which snapshot, and the bookmark after each."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.errors import Where
from shared.spark_session import parallelism
from tap_spark.bookmarks import can_be_bookmark
from tap_spark.jdbc.facts import key_type_of, table_facts
from tap_spark.jdbc.failures import run
from tap_spark.jdbc.metadata import ask_with
from tap_spark.jdbc.partitions import (
    Cut,
    Range,
    TableFacts,
    as_number,
    can_cut,
    even_bounds,
    from_number,
    key_ranges,
    page_conditions,
    part_count,
    plan_cut,
)
from tap_spark.jdbc.reading import Reading, database_name, session_options
from tap_spark.jdbc.snapshots import snapshot_of
from tap_spark.jdbc.urls import reader_options
from tap_spark.plans import Slice, StreamPlan
from tap_spark.sources.frames import col

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.connection_config import ConnectionConfig
    from tap_spark.jdbc.options import JdbcOptions
    from tap_spark.jdbc.snapshots import Snapshot
    from tap_spark.jdbc.tables import ColumnInfo, TableInfo

_log = logging.getLogger("tap-spark")


@dataclass(frozen=True)
class Task:
    """One read of a table or query.

    Attributes:
        spark: The session.
        connection: The database.
        plan: The stream's plan.
        options: The stream's JDBC options.
        reading: The query, in sessions without a snapshot.
        table: The table; None for a query.
        split: The user's partition column, if any.
    """

    spark: SparkSession
    connection: ConnectionConfig
    plan: StreamPlan
    options: JdbcOptions
    reading: Reading
    table: TableInfo | None = None
    split: ColumnInfo | None = None

    @property
    def where(self) -> Where:
        """The stream, for errors and logs."""
        return Where(stream=self.plan.tap_stream_id)

    def seen(self, snapshot: Snapshot | None) -> Reading:
        """Return the query as of a snapshot."""
        if snapshot is None:
            return self.reading
        url = str(self.connection.url)
        options = session_options(
            url, reader_options(self.connection), self.options.reader, snapshot
        )
        source = self.reading.source + snapshot.as_of
        return replace(self.reading, source=source, options=options)


def slices_of(task: Task) -> Iterator[Slice]:
    """Read a table or query.

    Raises:
        SourceError: The database cannot be reached, or rejects the query.
    """
    if task.split is not None:
        with snapshot_of(task.spark, task.connection, task.where) as snapshot:
            reading = task.seen(snapshot)
            split, options = task.split, task.options.split
            yield _slice(task, lambda: reading.split_by(task.spark, split, options))
        return
    if task.table is None:
        yield _slice(task, lambda: task.reading.whole(task.spark))
        return
    facts = _facts(task, task.table)
    wanted = task.options.partitions
    parts = part_count(facts, parallelism(task.spark) if wanted is None else 1, wanted)
    cut = _cut(task, facts, parts)
    if cut.pages or cut.slices:
        with snapshot_of(task.spark, task.connection, task.where) as snapshot:
            if snapshot is not None:
                yield from _of_cut(task, task.seen(snapshot), cut)
                return
    yield from _without_snapshot(task, parts)


def _facts(task: Task, table: TableInfo) -> TableFacts:
    ask = ask_with(task.spark, task.connection, task.where)
    return table_facts(ask, database_name(str(task.connection.url)), table, task.reading.key)


def _cut(task: Task, facts: TableFacts, parts: int) -> Cut:
    if not task.connection.snapshot:
        return Cut()
    plan = task.plan
    key_type = None if task.reading.key is None else key_type_of(task.reading.key.spark_type)
    ordered = plan.config.sort_by_replication_key
    cut = plan_cut(facts, parts, plan.start_value, key_type, ordered=ordered)
    # A single query needs no snapshot.
    return Cut() if cut.slices == ((Range(),),) else cut


def _of_cut(task: Task, reading: Reading, cut: Cut) -> Iterator[Slice]:
    if cut.pages:
        conditions = page_conditions(reading.block_column, cut.pages)
        _log.info("%s: reading in %d parts, by blocks", task.where, len(conditions))
        yield _slice(task, lambda: reading.in_blocks(task.spark, conditions))
        return
    key = reading.key
    assert key is not None  # noqa: S101
    for number, ranges in enumerate(cut.slices, 1):
        _log.info(
            "%s: slice %d of %d, in %d parts, by '%s'",
            *(task.where, number, len(cut.slices), len(ranges), key.name),
        )
        make = partial(reading.in_ranges, task.spark, ranges, key)
        yield _slice(task, make, _bookmark(task.plan, ranges[-1]))


def _bookmark(plan: StreamPlan, last: Range) -> Mapping[str, Any] | None:
    """Return the bookmark after a slice: every row below its end has been read by then."""
    if last.high is None or plan.config.sort_by_replication_key:
        return None
    return {"replication_key": plan.replication_key, "replication_key_value": last.high}


def _without_snapshot(task: Task, parts: int) -> Iterator[Slice]:
    """Read without a snapshot: parts then see different moments, so only if the user asks."""
    asked = task.options.partitions is not None or not task.connection.snapshot
    by = _divider(task) if asked and parts > 1 else None
    if by is None:
        if parts > 1:
            _log.info("%s: reading in one part (see docs/databases.md)", task.where)
        yield _slice(task, lambda: task.reading.whole(task.spark))
        return
    low, high = run(lambda: _span(task, by), task.connection, task.where)
    reading = task.reading
    if low is None:
        yield _slice(task, lambda: reading.whole(task.spark))
        return
    kind = key_type_of(by.spark_type)
    if by is reading.key and can_be_bookmark(high, kind):
        # A row that is updated meanwhile moves above `high`: the next run reads it.
        reading = reading.up_to(high)
    ranges = key_ranges(even_bounds(low, high, parts, kind))
    _log.info("%s: reading in %d parts, by '%s'", task.where, len(ranges), by.name)
    yield _slice(task, partial(reading.in_ranges, task.spark, ranges, by))


def _divider(task: Task) -> ColumnInfo | None:
    """Choose the column whose ranges are the parts: the replication key, else the primary key."""
    table, key = task.table, task.reading.key
    if key is not None:
        return key if can_cut(key_type_of(key.spark_type)) else None
    primary = table.primary_key if table is not None else ()
    by = table.column(primary[0]) if table is not None and len(primary) == 1 else None
    return by if by is not None and can_cut(key_type_of(by.spark_type)) else None


def _span(task: Task, by: ColumnInfo) -> tuple[Any, Any]:
    """Return the least and the greatest value, which the database's indexes know."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    name = task.reading.dialect.quote(by.name)
    both = " UNION ALL ".join(
        f"SELECT {word}({name}) AS {name} FROM {task.reading.filtered}"  # noqa: S608
        for word in ("MIN", "MAX")
    )
    ends = replace(task.reading, source=f"({both}) ends", columns=(by,), conditions=())
    form = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    value = F.to_json(F.struct(col(by.name).alias("value")), form)
    rows = ends.whole(task.spark).select(value.alias("end")).collect()
    kind = key_type_of(by.spark_type)
    found = [json.loads(row["end"]).get("value") for row in rows]
    known = sorted(as_number(value, kind) for value in found if value is not None)
    return (from_number(known[0], kind), from_number(known[-1], kind)) if known else (None, None)


def _slice(
    task: Task, make: Callable[[], DataFrame], bookmark: Mapping[str, Any] | None = None
) -> Slice:
    # Building a frame queries the database for its columns.
    frame = run(make, task.connection, task.where)
    plan = task.plan
    if task.reading.key is not None and plan.config.sort_by_replication_key:
        key = col(str(plan.replication_key))
        return Slice(frame.orderBy(key.asc_nulls_first()), ordered=True)
    return Slice(frame, bookmark=bookmark)
