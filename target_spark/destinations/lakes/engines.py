"""The engines that change tables of lakes: Spark, and the order in which others are tried first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from target_spark.core.balance import Committed
from target_spark.destinations.destination import Flush, RefusedByStoreError
from target_spark.destinations.lakes.flush_frames import refused_rows
from target_spark.destinations.lakes.lake_format import (
    Keys,
    LakeFormat,
    NeedsSparkError,
    Planner,
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

    def exchange(
        self,
        place: Place,  # noqa: ARG002
        flushes: Sequence[Flush],  # noqa: ARG002
        plan: Planner,  # noqa: ARG002
        mark: Mark,  # noqa: ARG002
    ) -> Committed | None:
        """See `TableEngine`. Spark writes rows."""
        return None

    def may_have_older(self, place: Place, version: int) -> bool:  # noqa: ARG002
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


@dataclass(frozen=True)
class InOrder(TableEngine):
    """The first engine that can, for each operation of its own.

    Attributes:
        engines: The last one can do everything.
    """

    engines: tuple[TableEngine, ...]

    def _first(self, work: Callable[[TableEngine], T]) -> T:
        for engine in self.engines[:-1]:
            with suppress(NeedsSparkError):
                return work(engine)
        return work(self.engines[-1])

    def describe(self, place: Place) -> LakeTable | None:
        """See `TableEngine`."""
        return self._first(lambda engine: engine.describe(place))

    def create(self, place: Place, change: TableChange, request: TableRequest) -> None:
        """See `TableEngine`."""
        self._first(lambda engine: engine.create(place, change, request))

    def alter(self, place: Place, change: TableChange, request: TableRequest, mark: Mark) -> None:
        """See `TableEngine`."""
        self._first(lambda engine: engine.alter(place, change, request, mark))

    def load(self, rows: TableFlush, keys: Keys | None, base: str | None) -> Committed:
        """See `TableEngine`."""
        return self._first(lambda engine: engine.load(rows, keys, base))

    def exchange(
        self, place: Place, flushes: Sequence[Flush], plan: Planner, mark: Mark
    ) -> Committed | None:
        """See `TableEngine`."""
        return self._first(lambda engine: engine.exchange(place, flushes, plan, mark))

    def may_have_older(self, place: Place, version: int) -> bool:
        """See `TableEngine`."""
        return self._first(lambda engine: engine.may_have_older(place, version))

    def edit(
        self, place: Place, now: LakeTable, columns: tuple[str, str], edit: VersionEdit, mark: Mark
    ) -> None:
        """See `TableEngine`."""
        self._first(lambda engine: engine.edit(place, now, columns, edit, mark))

    def marks(self, place: Place, limit: int) -> Iterable[Mark | None]:
        """See `TableEngine`."""
        return self._first(lambda engine: engine.marks(place, limit))


def engine_of(form: LakeFormat, spark: Callable[[], SparkSession]) -> TableEngine:
    """Return what changes tables of a format: its packages, then Spark.

    Args:
        form: The table format.
        spark: Returns the session of a table, and starts Spark if it has not been started.
    """
    return InOrder((*form.packages(), SparkEngine(form, spark)))
