"""Spark as an engine of table formats: imported once no package can do what is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

from shared.formats.arrow_types import as_nullable
from shared.maps.record_metadata import DELETED_AT
from shared.settings.texts import quoted
from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Flush, RefusedByStoreError
from target_spark.destinations.lakes.flush_frames import (
    ORDER,
    appended,
    frame_of,
    newest_rows,
    ordered_frame,
    refused_rows,
    refusing,
    upserted,
)
from target_spark.destinations.lakes.lake_format import Keys, LakeFormat, TableEngine, TableFlush
from target_spark.destinations.lakes.lake_sql import activate_sql
from target_spark.destinations.lakes.lake_table import LakeTable, Mark, TableHandle, configured
from target_spark.destinations.lakes.row_versions import versioned
from target_spark.tables.evolution import Planner, struct_of_columns, whole_change
from target_spark.tables.row_layout import project
from target_spark.tables.table_changes import Column, Projected, TableChange

if TYPE_CHECKING:
    from target_spark.tables.version_edit import VersionEdit


@dataclass(frozen=True)
class SparkEngine(TableEngine):
    """Spark, which can do all that a format allows."""

    form: LakeFormat

    def describe(self, table: TableHandle) -> LakeTable | None:
        return self.form.describe(table)

    def create(self, table: TableHandle, change: TableChange, request: TableRequest) -> None:
        self.form.create(table, change, request)

    def alter(
        self, table: TableHandle, change: TableChange, request: TableRequest, mark: Mark
    ) -> None:
        self.form.alter(table, change, request, mark)

    def load(self, rows: TableFlush, keys: Keys | None, base: str | None) -> Committed:
        form, table, flush, request = self.form, rows.table, rows.flush, rows.request
        rules = form.row_rules(rows.now)
        if flush.write.row_origin is not None:
            refused = refused_rows(rows, rules)
            if refused:
                raise RefusedByStoreError(refused[0].reason, refused)
        before = rows.now.size
        size = None if before is None else before + sum(part.size for part in flush.parts)
        with configured(table.spark, form.light(size)):
            if request.method == "history":
                return versioned(form, rows, at=time.time())
            if request.is_upsert:
                return upserted(form, rows, keys)
            form.append(table, refusing(appended(rows), rules), rows.mark, base)
            return Committed(form.changed_rows(table, rows.mark))

    def exchange(self, *_: Any) -> None:
        """See `TableEngine`. Spark writes rows."""

    def may_have_older(self, *_: Any) -> bool:
        """See `TableEngine`. To tell takes as long as `edit`."""
        return True

    def edit(
        self,
        table: TableHandle,
        now: LakeTable,  # noqa: ARG002
        columns: tuple[str, str],
        edit: VersionEdit,
        mark: Mark,
    ) -> None:
        statement = activate_sql(table.name, *columns, edit.version, edit.marked_at)
        self.form.execute(table, statement, mark)

    def marks(self, table: TableHandle, limit: int) -> Iterable[Mark | None]:
        return self.form.marks(table, limit)

    def overwritten(
        self, table: TableHandle, flushes: Sequence[Flush], plan: Planner, names: Mapping[str, str]
    ) -> tuple[DataFrame, TableChange, TableRequest]:
        """Return the rows of a whole run for a table to replace.

        Returns:
            The rows: with keys, the newest of each. The columns, as `change.create`. The request.

        Raises:
            DestinationError: The stream's columns have changed their types during the run, and the
                settings do not resolve that.
        """
        change = whole_change([flush.request for flush in flushes], plan, names)
        request = replace(flushes[-1].request, struct=_stream_of(change))
        struct, names = struct_of_columns(change.create or ()), change.mapping
        partitions = tuple(names.get(name, name) for name in request.layout.partition_by)
        whole = LakeTable(struct, names, partitions)
        frame = self.rows_of_run(table.spark, flushes, plan, whole)
        return frame, change, request

    def rows_of_run(
        self,
        spark: SparkSession,
        flushes: Sequence[Flush],
        plan: Planner,
        table: LakeTable,
    ) -> DataFrame:
        """Return the rows of a whole run with a table's columns; with keys, the newest of each.

        The columns of the table can hold all rows.
        """
        names, rules = table.names, self.form.row_rules(table)
        loosened = StructType(
            [StructField(f.name, as_nullable(f.dataType), True, f.metadata) for f in table.struct]
        )
        last = flushes[-1].request
        order = (Projected(ORDER, ORDER, LongType()),) if last.keys else ()
        frames: list[DataFrame] = []
        before = 0
        for _, run in groupby(flushes, key=lambda flush: flush.request.struct.json()):
            group = list(run)
            parts = [part for flush in group for part in flush.parts]
            result = plan(loosened, group[0].request, names).projection
            struct = group[0].write.struct
            rows = (
                ordered_frame(spark, parts, struct, before)
                if order
                else frame_of(spark, parts, struct)
            )
            frames.append(project(rows, (*result, *order)))
            before += len(parts)
        frame = reduce(lambda one, other: one.unionByName(other), frames)
        if not last.keys:
            return refusing(frame, rules)
        keys = [names.get(key, key) for key in last.keys]
        frame = newest_rows(frame, keys, [ORDER]).drop(ORDER)
        deleted = names.get(DELETED_AT, DELETED_AT)
        if not last.hard_delete or deleted not in table.struct.names:
            return refusing(frame, rules)
        return refusing(frame, rules, deleted).where(F.col(quoted(deleted)).isNull())

    def recast(
        self, table: TableHandle, now: LakeTable, change: TableChange
    ) -> tuple[DataFrame, TableChange]:
        """Return a table's rows with new types for some columns, and the change to rewrite it."""
        types = dict(change.rewrite)
        items, columns = [], []
        for field in now.struct:
            dtype = types.get(field.name, field.dataType)
            how = "cast" if field.name in types else "as is"
            items.append(Projected(field.name, field.name, dtype, how))
            comment = (field.metadata or {}).get("comment")
            columns.append(Column(field.name, field.name, dtype, field.nullable, comment))
        whole = replace(change, create=tuple(columns), mapping={**now.names, **change.mapping})
        return project(table.rows, tuple(items)), whole


def _stream_of(change: TableChange) -> StructType:
    """Return the columns of a stream that exactly fits the table."""
    fields: dict[str, StructField] = {}
    for column in change.create or ():
        created = StructField(column.source, column.dtype, column.nullable)
        fields.setdefault(column.source, created)
    return StructType(list(fields.values()))
