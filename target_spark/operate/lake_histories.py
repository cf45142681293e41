"""What Delta and Iceberg keep of a table's earlier commits, for `TableHistory`, and its upkeep."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import AtomicType, DataType

from shared.settings.texts import quoted
from shared.storage.access import StorageOptions, failures, remote
from shared.storage.urls import join, local_path
from target_spark.core.load_plans import Layout
from target_spark.destinations.lakes.delta.delta_format import DeltaFormat
from target_spark.destinations.lakes.delta.delta_log import interval_seconds, vacuumed_files
from target_spark.destinations.lakes.delta.delta_package import KEEPS_ROWS
from target_spark.destinations.lakes.iceberg.iceberg_format import (
    SAME_ROWS,
    IcebergFormat,
    Snapshots,
    called,
)
from target_spark.destinations.lakes.iceberg.iceberg_layout import iceberg_widens, place_below
from target_spark.destinations.lakes.lake_format import LakeFormat
from target_spark.destinations.lakes.lake_table import (
    LeaveOut,
    LostCommit,
    Place,
    TableHandle,
    absolute,
    configured,
    folders_of_tables,
    one_writer,
    read_mark,
    tables_in,
)
from target_spark.operate.table_history import (
    UNKNOWN,
    Compaction,
    KeepPlan,
    Removal,
    TableCommit,
)
from target_spark.run_settings import TargetConfig

Form = TypeVar("Form", bound=LakeFormat)


class FormatHistory(ABC, Generic[Form]):
    """The commits of tables of one format. Every method may raise Spark's errors."""

    keeps_log: bool = False
    """Whether marks of commits stay when their data is removed."""

    def __init__(self, form: Form, config: TargetConfig) -> None:
        self._form = form
        self._config = config
        self._options = StorageOptions(config.storage_options)

    @abstractmethod
    def tables(self, spark: SparkSession, leave_out: LeaveOut) -> Mapping[str, Place]:
        """Return the existing tables by their short names: those below the path or in the catalog.

        Tables of other formats may be among them.
        """

    @abstractmethod
    def commits(self, table: TableHandle) -> Sequence[TableCommit]:
        """Return the known commits of a table, in the order in which they became the table."""

    @abstractmethod
    def obstacle(self, table: TableHandle, version: str) -> str | None:
        """Return why the table cannot be what it was in a version; None if it can.

        Raises:
            Exception: Spark's, if the version itself is gone.
        """

    @abstractmethod
    def restore(self, table: TableHandle, version: str, newest: str) -> None:
        """Make the table what it was after a commit, in one commit.

        Raises:
            LostCommit: The table is another version than `newest` by now.
        """

    @abstractmethod
    def compact(self, table: TableHandle, layout: Layout) -> Compaction:
        """Compact small files, sorted or clustered as the layout says."""

    @abstractmethod
    def position(self, table: TableHandle, bookmark: Mapping[str, Any]) -> str | None:
        """Return the version from which a reader of the log goes on; None if of another table."""

    @abstractmethod
    def expire(self, table: TableHandle, plan: KeepPlan) -> Removal:
        """Remove what only commits before those of the plan need."""

    def remove_orphans(self, table: TableHandle, before: float) -> int:  # noqa: ARG002
        """Remove files of no version that are older than a time, if `expire` leaves them."""
        return 0


class DeltaHistory(FormatHistory[DeltaFormat]):
    """See `FormatHistory`."""

    keeps_log = True

    def tables(self, spark: SparkSession, leave_out: LeaveOut) -> Mapping[str, Place]:
        if self._config.catalog is not None:
            return tables_in(spark, self._config.catalog)
        root = absolute(self._config.path)
        result = folders_of_tables(root, "_delta_log", self._options, leave_out)
        return {
            ".".join(folders): self._form.copy_place(join(root, *folders)) for folders in result
        }

    def commits(self, table: TableHandle) -> Sequence[TableCommit]:
        rows = table.sql(f"DESCRIBE HISTORY {table.name}").selectExpr(
            "version",
            "unix_micros(timestamp)",
            "operation",
            "operationParameters['version']",
            "userMetadata",
        )
        return tuple(_delta_commit(*row) for row in sorted(rows.collect(), key=lambda row: row[0]))

    def obstacle(self, table: TableHandle, version: str) -> str | None:
        """See `FormatHistory`. Files that the table has now are not looked for."""
        then = _at_version(table, version).inputFiles()
        now = table.rows.inputFiles()
        gone = sum(not _exists(url, self._options) for url in set(then) - set(now))
        return f"{gone} files of it are gone (vacuumed)" if gone else None

    def restore(self, table: TableHandle, version: str, newest: str) -> None:
        with one_writer(table.place.folder):
            if self._form.version(table) != newest:
                raise LostCommit
            table.sql(f"RESTORE TABLE {table.name} TO VERSION AS OF {int(version)}").collect()

    def compact(self, table: TableHandle, layout: Layout) -> Compaction:
        conf = {}
        if layout.target_file_bytes is not None:
            size = str(layout.target_file_bytes)
            conf = {
                f"spark.databricks.delta.optimize.{end}FileSize": size for end in ("min", "max")
            }
        now = self._form.current(table)
        order = ""
        if now is not None and layout.cluster_by and "clusteringColumns" not in now.properties:
            columns = (quoted(now.names.get(name, name)) for name in layout.cluster_by)
            order = f" ZORDER BY ({', '.join(columns)})"
        with one_writer(table.place.folder), configured(table.spark, conf):
            rows = table.sql(f"OPTIMIZE {table.name}{order}")
            [row] = rows.select("metrics.numFilesRemoved", "metrics.numFilesAdded").collect()
        return Compaction(row[0], row[1])

    def position(self, table: TableHandle, bookmark: Mapping[str, Any]) -> str | None:
        version = bookmark.get("version")
        if version is None:
            return None
        [row] = table.sql(f"DESCRIBE DETAIL {table.name}").select("id").collect()
        return str(version) if bookmark.get("table_id") == row[0] else None

    def expire(self, table: TableHandle, plan: KeepPlan) -> Removal:
        """See `FormatHistory`. By the table's own retention: VACUUM knows of no younger files.

        Nothing is removed if that is too short for what must stay.
        """
        keeps = interval_seconds(table.properties().get(_RETENTION, _ONE_WEEK))
        since = plan.needed_since
        if since is not None and (time.time() - since) * (1 + _SKEW) > keeps:
            return Removal(left=f"{plan.kept[0].why} needs files that are older than {_RETENTION}")
        tasks = {_LISTING_TASKS: self._config.spark.conf.get(_LISTING_TASKS, "200")}
        with one_writer(table.place.folder), configured(table.spark, tasks):
            table.sql(f"VACUUM {table.name}").collect()
            return Removal(0, vacuumed_files(table))


# VACUUM has as many tasks; by default 10,000, which take minutes for a table of a few files.
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_RETENTION = "delta.deletedFileRetentionDuration"
_ONE_WEEK = "interval 1 week"
_SKEW = 0.01
"""Share of an age by which clocks of storage and driver may differ."""


def _at_version(table: TableHandle, version: str) -> DataFrame:
    """Return the rows that a table had in a version; raise Spark's error if it is gone."""
    return table.sql(f"SELECT * FROM {table.name} VERSION AS OF {int(version)}")  # noqa: S608


def _delta_commit(
    version: int, micros: int, operation: str, restored: str | None, text: str | None
) -> TableCommit:
    base, returns = None if version == 0 else str(version - 1), operation == "RESTORE"
    if returns:
        # A RESTORE to a time does not tell the version; the log may say "null" then.
        base = UNKNOWN if restored in (None, "null") else restored
    return TableCommit(
        str(version),
        micros / 1e6,
        read_mark(text),
        base,
        keeps_rows=base != UNKNOWN and (returns or operation in KEEPS_ROWS),
    )


def _exists(url: str, options: StorageOptions) -> bool:
    path = local_path(url)
    if path is not None:
        return Path(unquote(path)).exists()
    filesystem, inside = remote(url, options)
    with failures(url, options):
        return bool(filesystem.exists(unquote(inside)))


class IcebergHistory(FormatHistory[IcebergFormat]):
    """See `FormatHistory`."""

    def tables(self, spark: SparkSession, leave_out: LeaveOut) -> Mapping[str, Place]:
        if self._config.catalog is not None:
            self._form.check_catalog(spark)
            return tables_in(spark, self._config.catalog)
        root, file = absolute(self._config.path), r"version-hint\.text$|.*\.metadata\.json"
        listed = folders_of_tables(root, "metadata", self._options, leave_out, file)
        return {".".join(folders): place_below(self._config.path, *folders) for folders in listed}

    def commits(self, table: TableHandle) -> Sequence[TableCommit]:
        """See `FormatHistory`. Snapshots that have expired are left out."""
        snapshots = self._form.snapshots(table)
        log = table.sql(
            "SELECT unix_micros(made_current_at), snapshot_id "  # noqa: S608
            f"FROM {table.name}.history ORDER BY made_current_at"
        ).collect()
        return tuple(
            _iceberg_commit(micros, snapshot, *snapshots[snapshot])
            for micros, snapshot in _with_ancestors([(row[0], row[1]) for row in log], snapshots)
        )

    def obstacle(self, table: TableHandle, version: str) -> str | None:
        """See `FormatHistory`. Columns belong to the table; files expire with their snapshot."""
        now = {field.name: field.dataType for field in table.rows.schema}
        then = _at_version(table, version).schema
        for name, dtype in ((field.name, field.dataType) for field in then):
            kept = now.get(name)
            if kept is None or (_is_other(dtype, kept) and not iceberg_widens(dtype, kept)):
                return f"its column '{name}' was dropped or replaced, and would be null"
        return None

    def restore(self, table: TableHandle, version: str, newest: str) -> None:
        with one_writer(table.place.folder):
            if self._form.head(table) != newest:
                raise LostCommit
            called(table, "set_current_snapshot", f"snapshot_id => {int(version)}")

    def compact(self, table: TableHandle, layout: Layout) -> Compaction:
        """See `FormatHistory`. Snapshots do not expire."""
        now = self._form.describe(table)
        if now is None:
            return Compaction()
        parameters = ["strategy => 'sort'"] if now.properties.get("sort-order") else []
        size = layout.target_file_bytes
        if size is not None:
            parameters.append(f"options => map('target-file-size-bytes', '{size}')")
        with one_writer(table.place.folder):
            [row] = called(table, "rewrite_data_files", *parameters)
        return Compaction(row["rewritten_data_files_count"], row["added_data_files_count"])

    def position(self, table: TableHandle, bookmark: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """See `FormatHistory`. Identifiers of snapshots differ between tables."""
        snapshot = bookmark.get("snapshot_id")
        return None if snapshot is None else str(snapshot)

    def expire(self, table: TableHandle, plan: KeepPlan) -> Removal:
        """See `FormatHistory`. Heads of branches and tags stay."""
        if not plan.has_earlier:
            return Removal()
        ids = [int(kept.commit.version) for kept in plan.kept]
        with one_writer(table.place.folder):
            snapshots = table.spark.table(f"{table.name}.snapshots")
            of_kept = F.when(F.col("snapshot_id").isin(ids), F.unix_micros("committed_at"))
            [(oldest, before)] = snapshots.agg(F.min(of_kept), F.count("*")).collect()
            parameters = f"older_than => {_time(oldest / 1e6)}", "retain_last => 1"
            [row] = called(table, "expire_snapshots", *parameters)
            after = table.spark.table(f"{table.name}.snapshots").count()
        return Removal(before - after, sum(row))

    def remove_orphans(self, table: TableHandle, before: float) -> int:
        with one_writer(table.place.folder):
            parameters = f"older_than => {_time(before)}"
            return len(called(table, "remove_orphan_files", parameters))


def _time(at: float) -> str:
    """Return a time in seconds since the epoch as an SQL literal."""
    return f"TIMESTAMP '{datetime.fromtimestamp(at, timezone.utc).isoformat()}'"


def _is_other(then: DataType, now: DataType) -> bool:
    """Return whether types differ in more than the fields of structs, which may have grown."""
    return type(then) is not type(now) or (isinstance(then, AtomicType) and then != now)


def _with_ancestors(log: list[tuple[int, int]], snapshots: Snapshots) -> Iterator[tuple[int, int]]:
    """Yield the log of snapshots with those that became the table together with a later one.

    Several commits of a branch become the table in one step.

    The log has times and snapshots, the oldest first; `snapshots` those that have not expired.
    """
    ancestors: set[int] = set()
    for micros, snapshot in log:
        chain: list[int] = []
        at: int | None = snapshot
        while at is not None and at in snapshots and at not in ancestors:
            chain.append(at)
            ancestors.add(at)
            at = snapshots[at][0]
        if not chain and snapshot in snapshots:
            chain = [snapshot]  # A return.
        yield from ((micros, one) for one in reversed(chain))


def _iceberg_commit(
    micros: int, snapshot: int, parent: int | None, operation: str | None, text: str | None
) -> TableCommit:
    return TableCommit(
        str(snapshot),
        micros / 1e6,
        read_mark(text),
        None if parent is None else str(parent),
        keeps_rows=operation == SAME_ROWS,
    )


def history_of(form: LakeFormat, config: TargetConfig) -> FormatHistory[Any]:
    """Return what a format keeps of the commits of its tables."""
    if isinstance(form, DeltaFormat):
        return DeltaHistory(form, config)
    assert isinstance(form, IcebergFormat)  # noqa: S101 - there are two
    return IcebergHistory(form, config)
