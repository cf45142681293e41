"""The engines that change tables of lakes: Spark, and the order in which others are tried first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from target_spark.core.balance import Committed
from target_spark.destinations.destination import RefusedByStoreError
from target_spark.destinations.lakes.flush_frames import refused_rows
from target_spark.destinations.lakes.lake_format import (
    Keys,
    LakeFormat,
    NeedsSparkError,
    TableEngine,
    TableFlush,
)
from target_spark.destinations.lakes.lake_sql import activate_sql
from target_spark.destinations.lakes.row_changes import appended, upserted, versioned
from target_spark.destinations.lakes.shared_tables import configured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark.core.load_plans import TableRequest
    from target_spark.destinations.lakes.lake_table import LakeTable, Place
    from target_spark.destinations.lakes.table_history import Mark
    from target_spark.tables.table_changes import TableChange
    from target_spark.tables.version_edit import VersionEdit

T = TypeVar("T")


@dataclass(frozen=True)
class SparkEngine(TableEngine):
    """Spark, which can do all that a format allows.

    Attributes:
        form: The table format.
        spark: Returns the session of a table, and starts Spark if it has not been started.
    """

    form: LakeFormat
    spark: Callable[[], SparkSession]

    def describe(self, place: Place) -> LakeTable | None:
        """See `TableEngine`."""
        return self.form.describe(self.spark(), place)

    def create(self, place: Place, change: TableChange, request: TableRequest) -> None:
        """See `TableEngine`."""
        self.form.create(self.spark(), place, change, request)

    def alter(self, place: Place, change: TableChange, request: TableRequest, mark: Mark) -> None:
        """See `TableEngine`."""
        self.form.alter(self.spark(), place, change, request, mark)

    def load(self, rows: TableFlush, keys: Keys | None, base: str | None) -> Committed:
        """See `TableEngine`."""
        form, spark, flush, request = self.form, self.spark(), rows.flush, rows.request
        if flush.write.row_origin is not None:
            refused = refused_rows(spark, rows, form.row_rules(rows.now))
            if refused:
                raise RefusedByStoreError(refused[0].reason, refused)
        before = rows.now.size
        size = None if before is None else before + sum(part.size for part in flush.parts)
        with configured(spark, form.light(size)):
            if request.method == "history":
                return versioned(form, spark, rows, at=time.time())
            if request.is_upsert:
                return upserted(form, spark, rows, keys)
            frame = appended(spark, flush, rows.change)
            form.append(spark, frame, rows.place, rows.mark, base)
            return Committed(form.changed_rows(spark, rows.place, rows.mark))

    def exchange(self, *_: Any) -> None:
        """See `TableEngine`. Spark writes rows."""

    def may_have_older(self, *_: Any) -> bool:
        """See `TableEngine`. To tell takes as long as `edit`."""
        return True

    def edit(
        self,
        place: Place,
        now: LakeTable,  # noqa: ARG002
        columns: tuple[str, str],
        edit: VersionEdit,
        mark: Mark,
    ) -> None:
        """See `TableEngine`."""
        statement = activate_sql(place.table, *columns, edit.version, edit.marked_at)
        self.form.execute(self.spark(), statement, place, mark)

    def marks(self, place: Place, limit: int) -> Iterable[Mark | None]:
        """See `TableEngine`."""
        return self.form.marks(self.spark(), place, limit)


def first_able(
    form: LakeFormat, spark: Callable[[], SparkSession], work: Callable[[TableEngine], T]
) -> T:
    """Return what `work` returns for the first engine that can do it: a package, or else Spark.

    Args:
        form: The table format.
        spark: Returns the session of a table, and starts Spark if it has not been started.
        work: Calls one method of an engine.
    """
    engines = (*form.packages(), SparkEngine(form, spark))
    return first_of(*(partial(work, engine) for engine in engines))


def first_of(*attempts: Callable[[], T]) -> T:
    """Return what the first attempt returns that does not need Spark, or what the last one does."""
    for attempt in attempts[:-1]:
        with suppress(NeedsSparkError):
            return attempt()
    return attempts[-1]()
