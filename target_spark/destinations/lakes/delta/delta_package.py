"""Delta tables by the package `deltalake`: what it can do of small changes, without Spark."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.types import DataType

from shared.engine.engine import Runs
from shared.maps.record_metadata import DELETED_AT, TABLE_VERSION
from shared.storage.urls import local_path
from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Flush
from target_spark.destinations.lakes.delta import delta_files
from target_spark.destinations.lakes.delta.delta_files import (
    Transactions,
    commit_arguments,
    file_stats,
    has_nulls,
    is_append_only,
    is_plain_table,
    left_to_spark,
    package_path,
    register,
    same_columns,
)
from target_spark.destinations.lakes.delta.delta_log import (
    commit_infos,
    fits,
    needed_properties,
    table_properties,
)
from target_spark.destinations.lakes.lake_format import (
    Keys,
    NeedsSparkError,
    TableEngine,
    TableFlush,
)
from target_spark.destinations.lakes.lake_sql import KeyRange, names_property
from target_spark.destinations.lakes.lake_table import (
    LakeTable,
    Mark,
    TableHandle,
    one_writer,
    read_mark,
)
from target_spark.destinations.lakes.lake_work import first_of
from target_spark.destinations.lakes.small_flush import MOST_BYTES, keys_in_parts
from target_spark.tables.evolution import Planner, struct_of_columns, whole_change
from target_spark.tables.table_changes import OURS, Column, TableChange, comment_of

if TYPE_CHECKING:
    from deltalake import Schema, WriterProperties

    from target_spark.tables.version_edit import VersionEdit


ONE_TASK_BYTES = 8 << 20
"""Table and flush of this size are merged as fast by one task of Spark as by many."""

_EXACT_DIGITS = 15
"""Digits of a decimal that a double holds exactly."""
_LONGEST_BOUND = 64
"""Bytes of a bound of texts, as the package has it by default."""


def _writing(now: LakeTable) -> WriterProperties:
    """Return how files are written: without bounds that would make readers skip rows.

    The package writes bounds of decimals as doubles, and leaves out NaN, which is the greatest for
    Spark.
    """
    from deltalake import ColumnProperties, WriterProperties  # noqa: PLC0415

    exact = ColumnProperties(statistics_enabled="CHUNK")
    return WriterProperties(
        compression="SNAPPY",
        statistics_truncate_length=_LONGEST_BOUND,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={f.name: exact for f in now.struct if _is_exact(f.dataType)},
    )


def _is_exact(dtype: DataType) -> bool:
    """Return whether the package writes exact bounds of a type."""
    if isinstance(dtype, T.DecimalType):
        return dtype.precision <= _EXACT_DIGITS
    times = T.DateType, T.TimestampType, T.TimestampNTZType
    return isinstance(dtype, (T.IntegralType, T.StringType, T.BooleanType, *times))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_PLAIN_PROPERTIES = {"delta.setTransactionRetentionDuration", "delta.dataSkippingNumIndexedCols"}
_PLAIN_TYPES = re.compile(
    r"(bigint|int|smallint|tinyint|double|float|string|boolean|binary|date|timestamp(_ntz)?"
    r"|decimal\(\d+,\d+\)|array|map|struct|[<>,:]|`[^`]*`|\w+(?=:))*"
)

KEEPS_ROWS = frozenset({"OPTIMIZE", "REORG", "VACUUM START", "VACUUM END"})
"""Operations of commits that keep all rows."""


def marks_in(commits: Iterable[tuple[str | None, str | None]]) -> tuple[Mark | None, ...]:
    """Return the marks of commits, each with its operation and metadata."""
    return tuple(read_mark(text) for name, text in commits if name not in KEEPS_ROWS)


def transactions_of(mark: Mark, written: Transactions) -> Transactions:
    """Return the number by which Delta rejects a flush that is committed again.

    Delta ignores a commit whose version is not above the last one of its application. That must
    never happen to a new flush, so an earlier number is written without a transaction.

    `written` has the last number of each application.
    """
    digest = hashlib.sha256(mark.stream.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    app, number = f"target-spark-{mark.run}-{digest}", mark.number
    if mark.token is None or number is None or number < written.get(app, -1):
        return {}
    return {app: number}


@dataclass(frozen=True)
class DeltaPackage(TableEngine):
    """The package, for tables by local path that need no feature which it lacks.

    Attributes:
        written: The last number of each application that the run has written.
        adopts: Parts become files of tables.
        changes_rows: Rows and columns of existing tables are changed, too.
        shares_disk: What the driver calls a local path is one for executors.
        tasks: Runs tasks of Spark, which merge what is large; None if only threads may.
    """

    written: dict[str, int]
    adopts: bool
    changes_rows: bool
    shares_disk: bool
    tasks: Runs | None = None

    def describe(self, table: TableHandle) -> LakeTable | None:
        if table.place.folder is None or not (self.adopts and self.shares_disk):
            raise NeedsSparkError
        return delta_files.look_up(table.place.folder)

    def create(self, table: TableHandle, change: TableChange, request: TableRequest) -> None:
        layout = request.layout
        # Parts with other names could not become files of the table.
        is_renamed = not change.renamed.keys() <= {OURS}
        if table.place.folder is None or layout.partition_by or layout.cluster_by or is_renamed:
            raise NeedsSparkError
        path, columns = package_path(table.place.folder), change.create or ()
        properties = table_properties(change, request)
        types = [column.dtype.simpleString() for column in columns]
        wanted = {name for name in properties if name.startswith("delta.")}
        if not wanted <= _PLAIN_PROPERTIES or not all(map(_PLAIN_TYPES.fullmatch, types)):
            raise NeedsSparkError
        # With a feature in the protocol, NOT NULL needs another one, which the package does not
        # add.
        if any("timestamp_ntz" in text for text in types) and not all(c.nullable for c in columns):
            raise NeedsSparkError
        from deltalake import DeltaTable  # noqa: PLC0415
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        with one_writer(table.place.folder):
            if not (path / "_delta_log").exists() and path.exists() and any(path.iterdir()):
                raise NeedsSparkError  # which says why files without a log are no table
            try:
                path.mkdir(parents=True, exist_ok=True)
                DeltaTable.create(
                    str(path),
                    _schema(columns),
                    mode="ignore",
                    description=comment_of(request.schema),
                    configuration=properties,
                    raise_if_key_not_exists=False,
                )
            except (DeltaError, ValueError) as error:
                raise NeedsSparkError from error

    def alter(
        self,
        table: TableHandle,
        change: TableChange,
        request: TableRequest,  # noqa: ARG002
        mark: Mark,
    ) -> None:
        """See `TableEngine`. Properties and columns are a commit each; Spark can do both again."""
        if not self.changes_rows or change.widen or change.add_nested or change.nullable:
            raise NeedsSparkError
        now = self.describe(table)
        if now is None or table.place.folder is None or needed_properties(change):
            raise NeedsSparkError
        supplied = names_property(change).items()
        properties = {name: text for name, text in supplied if now.properties.get(name) != text}
        types = [column.dtype.simpleString() for column in change.add]
        if not all(_PLAIN_TYPES.fullmatch(text) and "timestamp_ntz" not in text for text in types):
            raise NeedsSparkError
        from deltalake import DeltaTable  # noqa: PLC0415

        commit = commit_arguments(mark.to_text())
        with one_writer(table.place.folder), left_to_spark(ValueError):
            steps = DeltaTable(str(package_path(table.place.folder))).alter
            if properties:
                steps.set_table_properties(properties, raise_if_not_exists=False, **commit)
            if change.add:
                added = [replace(column, nullable=True) for column in change.add]
                steps.add_columns(_schema(added).fields, **commit)

    def load(
        self,
        rows: TableFlush,
        keys: Keys | None,
        base: str | None,  # noqa: ARG002
    ) -> Committed:
        """See `TableEngine`. Rows with keys are adopted if the table has none of the keys."""
        request, count = rows.request, None
        if request.method == "history":
            raise NeedsSparkError
        if not request.is_upsert:
            count = self._adopt(rows)
        elif keys is not None and _adds_each_row(rows, keys):
            count = self._adopt(rows, keys[0])
        if count is not None:
            return Committed(count)
        if not request.is_upsert or keys is None:
            raise NeedsSparkError
        return self._merge(rows, keys)

    def _adopt(
        self, rows: TableFlush, keys: Sequence[KeyRange] = (), *, replaces: bool = False
    ) -> int | None:
        """Make the parts of a flush files of the table, in one commit with the mark.

        With `keys`, the table must not hold any of them; `replaces` lets all other files leave it.

        Returns:
            The rows in the footers of the files; None if nothing was done.
        """
        folder, parts = rows.table.place.folder, rows.flush.parts
        if folder is None or not self.adopts or rows.flush.write.row_origin is not None:
            return None
        if not (is_plain_table(rows.now) and same_columns(rows.change, rows.flush.write.struct)):
            return None
        transactions = transactions_of(rows.mark, self.written)
        supplied = rows.now, rows.mark.to_text(), transactions, keys
        with one_writer(folder):
            count = register(folder, parts, *supplied, replaces=replaces)
        if count is not None:
            self.written.update(transactions)
        return count

    def _merge(self, rows: TableFlush, keys: Keys) -> Committed:
        from target_spark.destinations.lakes.delta.delta_merge import merge_rows  # noqa: PLC0415

        runs = self._mergers(rows)
        folder, parts = self._changeable(rows.table, rows.now, wanted=bool(runs)), rows.flush.parts
        strict = {field.name for field in rows.now.struct if not field.nullable}
        if strict and any(has_nulls(file_stats(part.url), strict) for part in parts):
            raise NeedsSparkError  # which says so
        if not same_columns(rows.change, rows.flush.write.struct):
            raise NeedsSparkError
        plan, transactions = rows.merge_plan(keys[0]), transactions_of(rows.mark, self.written)
        supplied = folder, parts, rows.now, plan, keys[1], rows.mark.to_text(), transactions
        with one_writer(folder):
            changed = first_of(*(partial(merge_rows, *supplied, run) for run in runs))
        self.written.update(transactions)
        return plan.result(changed, keys[1])

    def _mergers(self, rows: TableFlush) -> list[Runs | None]:
        """Return what may merge a flush: None for threads, then tasks of Spark if it is large."""
        size = (rows.now.size or 0) + sum(part.size for part in rows.flush.parts)
        is_large = self.adopts and self.tasks is not None and size > ONE_TASK_BYTES
        return [*([None] if self.changes_rows else []), *([self.tasks] if is_large else [])]

    def exchange(
        self, table: TableHandle, flushes: Sequence[Flush], plan: Planner, mark: Mark
    ) -> Committed:
        """See `TableEngine`. The parts must have the columns of the table, and no key twice."""
        request = flushes[-1].request
        flush = replace(flushes[-1], parts=tuple(part for one in flushes for part in one.parts))
        if len({one.request.struct.json() for one in flushes}) > 1 or not self.changes_rows:
            raise NeedsSparkError
        now = self.describe(table)
        whole = whole_change([request], plan, {} if now is None else now.names)
        if now is None:
            self.create(table, whole, request)
            now = self.describe(table)
        if now is None or not fits(now, whole, request) or is_append_only(now):
            raise NeedsSparkError
        rows = TableFlush(table, flush, request, now, plan(now.struct, request, now.names), mark)
        if request.keys and flush.parts:
            keys = keys_in_parts(rows)
            if keys is None or not _adds_each_row(rows, keys):
                raise NeedsSparkError
        count = self._adopt(rows, replaces=True)
        if count is None:
            raise NeedsSparkError
        return Committed(count, by_key=bool(request.keys))

    def may_have_older(self, table: TableHandle, version: int) -> bool:
        now = self.describe(table)
        if now is None or table.place.folder is None:
            return False
        column = now.names.get(TABLE_VERSION, TABLE_VERSION)
        if column not in now.struct.names:
            return False
        lowest = delta_files.lowest(table.place.folder, column)
        return lowest is not None and lowest < version

    def edit(
        self,
        table: TableHandle,
        now: LakeTable,
        columns: tuple[str, str],
        edit: VersionEdit,
        mark: Mark,
    ) -> None:
        """See `TableEngine`. Also raises CommitFailedError: others have committed meanwhile."""
        folder = self._changeable(table, now, wanted=self.changes_rows)
        if now.size is None or now.size > MOST_BYTES or is_append_only(now):
            raise NeedsSparkError
        from deltalake import DeltaTable  # noqa: PLC0415

        version, deleted = map(_quoted, columns)
        old, at = f"{version} < {edit.version}", edit.marked_at
        written = {"writer_properties": _writing(now), **commit_arguments(mark.to_text())}
        with one_writer(folder):
            opened = DeltaTable(local_path(folder) or folder)
            with left_to_spark():
                if at is None:
                    opened.delete(old, **written)
                    return
                marked = dt.datetime.fromtimestamp(0, dt.timezone.utc) + dt.timedelta(seconds=at)
                is_unmarked = f"{old} AND {deleted} IS NULL"
                opened.update(new_values={deleted: marked}, predicate=is_unmarked, **written)

    def marks(self, table: TableHandle, limit: int) -> tuple[Mark | None, ...]:
        if table.place.folder is None or self.describe(table) is None:
            raise NeedsSparkError
        infos = commit_infos(package_path(table.place.folder) / "_delta_log", limit)
        return marks_in((info.get("operation"), info.get("userMetadata")) for info in infos)

    def _changeable(self, table: TableHandle, now: LakeTable, *, wanted: bool) -> str:
        """Return the folder of a table whose rows can be changed without Java."""
        folder = table.place.folder
        is_wanted = wanted and self.shares_disk
        if folder is None or not is_wanted or not is_plain_table(now):
            raise NeedsSparkError
        package_path(folder)  # Raises NeedsSparkError, too.
        return folder


def _schema(columns: Sequence[Column]) -> Schema:
    """Return columns as the package has them, by way of their JSON."""
    from deltalake import Schema  # noqa: PLC0415

    return Schema.from_json(struct_of_columns(columns).json())


def _adds_each_row(rows: TableFlush, keys: Keys) -> bool:
    """Return whether no two rows of a flush have one key, and none deletes."""
    deletes = rows.request.hard_delete and DELETED_AT in rows.change.targets
    return keys[1] == rows.flush.rows and not deletes
