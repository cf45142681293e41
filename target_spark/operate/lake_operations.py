"""Lake tables beside the rows of a run: compared, repaired, audited, and maintained at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
)
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.maps.record_metadata import DELETED_AT, METADATA
from shared.settings.texts import quoted
from target_spark.core.differences import (
    CHANGED,
    MISSING,
    VANISHED,
    TableDifference,
    Verification,
)
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Flush
from target_spark.destinations.lakes.lake_sql import GONE, repair_sql
from target_spark.destinations.lakes.lake_table import (
    LakeTable,
    Mark,
    OpenTable,
    run_of,
    sync_to_disk,
    view_of,
)
from target_spark.destinations.lakes.lake_work import LakeWork
from target_spark.destinations.operations import Operations, missing_table
from target_spark.operate.lake_histories import history_of
from target_spark.operate.row_comparison import KIND, RowComparison
from target_spark.operate.table_history import TableHistory
from target_spark.operate.table_maintenance import look_after

if TYPE_CHECKING:
    from target_spark.destinations.lakes.lake_destination import LakeDestination


@dataclass
class LakeOperations(Operations):
    """See `Operations`. Also looks after each table at the end of its stream (`maintenance`)."""

    destination: LakeDestination

    def __post_init__(self) -> None:
        self._work = self.destination.work
        self._held = self.destination.held_tables
        self.destination.ending = partial(look_after, self.config, self._work)

    def verify(self, flushes: Sequence[Flush], wanted: Verification) -> None:
        last, opened = flushes[-1], self.destination.open_table(flushes[-1].request)
        table = replace(opened, held=list(flushes))

        def attempt(number: int) -> None:
            if not (number and self._work.is_stored(table, last.token)):
                verify_table(self._work, table, wanted, streams)

        def streams() -> frozenset[str]:
            commits = history_of(self._work.form, self.config).commits(table)
            return TableHistory("", table.place, commits).streams - {last.stream}

        with opened.lock:
            self._work.repeat(table, last.stream, attempt, flushes)
            sync_to_disk(table.place.folder)
        self.destination.finish(last.request)

    def audit(self, checks: Callable[[str], Sequence[str]]) -> list[str]:

        def look(table: OpenTable, conditions: Sequence[str], _: int) -> list[str]:
            return list(rows_found((table.copy or table).rows, conditions))

        problems: list[str] = []
        for stream, table in self._held.waiting():
            look_at = partial(look, table, checks(stream))
            lines = self._work.repeat(table, stream, look_at, table.flushes)
            problems += [f"stream '{stream}': {line}" for line in lines]
        return problems

    def staged(self) -> list[str]:
        return self._held.staged()

    def publish(self) -> None:
        self._held.publish()


def rows_found(frame: DataFrame, conditions: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the rows of a table, one line each.

    Args:
        frame: The rows; read once, without files that cannot have such rows.
        conditions: Spark SQL over the columns.

    Raises:
        Exception: Spark's, if the rows cannot be read.
    """
    valid = []
    for text in conditions:
        try:
            frame.where(text).schema  # noqa: B018 - Spark Connect looks at it only now
            valid.append(text)
        except AnalysisException as error:
            yield f"the condition '{text}' cannot be checked: {_reason(error)}"
    if not valid:
        return
    columns = [F.expr(text) for text in valid]
    counting = frame.where(reduce(or_, columns)).agg(*map(F.count_if, columns))
    try:
        [counts] = counting.collect()
    except (ArithmeticException, DateTimeException, NumberFormatException) as error:
        yield f"one of the conditions cannot be checked: {_reason(error)}"
        return
    for text, count in zip(valid, counts, strict=True):
        if count:
            yield f"{count} rows meet '{text}'"


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def verify_table(
    work: LakeWork,
    table: OpenTable,
    wanted: Verification,
    others: Callable[[], Collection[str]],
) -> None:
    """Compare the rows of all flushes with the table; repair what differs, if that is wanted.

    `others` returns the other streams whose loads the table still knows.

    Raises:
        DifferenceError: A repair would delete too many rows.
        DestinationError: The table does not exist.
    """
    place, last = table.place, table.flushes[-1]
    flushes = work.all_flushes(table)
    if wanted.repair and not wanted.deletes:
        now: LakeTable | None = work.shaped(table, flushes)
    else:
        now = work.now(table)
    if now is None:
        raise missing_table(place.shown, last.stream, repairs=True)
    frame = work.rows(table, flushes, now)
    part = work.part_of(table, frame, now, last.request.backfill)
    sides = compared_sides(frame, table.rows, now, last.request, wanted, part)
    missing = () if wanted.deletes else _missing_columns(work, now, flushes)
    result = sides.difference(last.stream, place.shown, missing)
    repaired = wanted.repaired(can_delete=sides.can_delete, part=part is not None)
    if wanted.repair and result.ranges and repaired:
        if VANISHED in repaired:
            wanted.check_vanished(result, others() if result.count(VANISHED) else ())
        result = replace(result, repaired=repaired)
        mark = Mark(run_of(last.token), last.stream, last.token, last.source)
        at = time.time()
        # Read once: Spark cannot plan a MERGE into Iceberg whose source joins the table twice.
        changes = repairs(sides, result, at).localCheckpoint()
        deleted = None if sides.hard_delete else sides.deleted
        with view_of(table.spark, changes) as view:
            text = repair_sql(sides.keys, sides.source.columns, deleted, table.name, view)
            work.form.execute(table, text, mark)
    wanted.report(result)


def compared_sides(
    source: DataFrame,
    table: DataFrame,
    now: LakeTable,
    request: TableRequest,
    wanted: Verification,
    part: str | None = None,
) -> RowComparison:
    """Return the comparison of a run's rows with a table.

    The record metadata is not compared: it tells of the load. Rows that are marked as deleted
    count as absent on both sides.
    """
    names = {name: now.names.get(name, name) for name in request.struct.names}
    compared = [
        name
        for property_, name in names.items()
        if not property_.startswith(METADATA) and name in table.columns
    ]
    deleted = names.get(DELETED_AT)
    if deleted is not None and deleted in table.columns:
        source, table = (side.where(F.col(quoted(deleted)).isNull()) for side in (source, table))
    else:
        deleted = None
    source = source.select(*(quoted(name) for name in names.values() if name in table.columns))
    keys = [names[key] for key in request.keys]
    compared, kinds = keys if wanted.deletes else compared, wanted.kinds
    hard = request.hard_delete
    return RowComparison(source, table, keys, compared, wanted.ranges, kinds, deleted, hard, part)


def repairs(sides: RowComparison, difference: TableDifference, at: float) -> DataFrame:
    """Return the source of `repair_sql`: the rows that differ, and the keys that are gone.

    The mark of deleted rows gets the time `at`, in seconds since the epoch.
    """
    differences = sides.differences([one.range for one in difference.ranges])
    renewed = [kind for kind in (MISSING, CHANGED) if kind in difference.repaired]
    wanted = differences.where(F.col(KIND).isin(renewed)).alias("t")
    rows = sides.source.alias("s").join(wanted, sides.same_keys(), "left_semi")
    rows = rows.withColumn(GONE, F.lit(False))
    if VANISHED not in difference.repaired:
        return rows
    gone = differences.where(F.col(KIND) == VANISHED).select(*map(quoted, sides.keys))
    if sides.deleted is not None:
        kind = sides.source.schema[sides.deleted].dataType
        mark = F.timestamp_micros(F.lit(round(at * 1e6))).cast(kind)
        gone = gone.withColumn(sides.deleted, mark)
    return rows.unionByName(gone.withColumn(GONE, F.lit(True)), allowMissingColumns=True)


def _missing_columns(work: LakeWork, now: LakeTable, flushes: Sequence[Flush]) -> tuple[str, ...]:
    """Return the stream's columns that the table lacks."""
    request = flushes[-1].request
    added = work.plan(now, request).add
    return tuple(column.source for column in added if not column.source.startswith(METADATA))
