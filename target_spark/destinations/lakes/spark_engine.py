"""Spark as an engine of table formats: imported once no package can do what is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import RefusedByStoreError
from target_spark.destinations.lakes.flush_frames import refused_rows
from target_spark.destinations.lakes.lake_format import Keys, LakeFormat, TableEngine, TableFlush
from target_spark.destinations.lakes.lake_sql import activate_sql
from target_spark.destinations.lakes.lake_table import LakeTable, Mark, Place, configured
from target_spark.destinations.lakes.row_changes import appended, upserted
from target_spark.destinations.lakes.row_versions import versioned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark.tables.table_changes import TableChange
    from target_spark.tables.version_edit import VersionEdit


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
