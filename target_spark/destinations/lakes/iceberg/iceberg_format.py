"""Iceberg tables, by path or in a catalog."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.errors import Pauses, SettingsError, Where, repeated
from shared.formats.arrow_types import as_nullable
from shared.storage.urls import local_path
from target_spark.core.load_plans import TableName, TableRequest
from target_spark.destinations.destination import Tools
from target_spark.destinations.lakes.iceberg.iceberg_layout import (
    VERSION,
    alterations,
    catalog_conf,
    check_empty,
    creation,
    described,
    finishing,
    hive_refusals,
    iceberg_storable,
    iceberg_widens,
    location_of,
    needs_version_3,
    new_properties,
    partition_changes,
    partition_steps,
    partitions_sql,
    replacement,
    same_partitions,
)
from target_spark.destinations.lakes.iceberg.iceberg_transaction import (
    IcebergTransaction,
    can_replace,
    replace_whole,
)
from target_spark.destinations.lakes.lake_destination import LakeDestination
from target_spark.destinations.lakes.lake_format import LakeFormat
from target_spark.destinations.lakes.lake_sql import KeyRange, set_properties, text_literal
from target_spark.destinations.lakes.lake_table import (
    LakeTable,
    LostCommit,
    Mark,
    Place,
    TableHandle,
    commented,
    configured,
    one_writer,
    read_mark,
    view_of,
)
from target_spark.run_settings import TargetConfig
from target_spark.tables.table_changes import (
    Capabilities,
    NameRules,
    PartitionStep,
    TableChange,
)

_log = logging.getLogger(__name__)
_creating_namespace = threading.Lock()

MARK_PROPERTY = "target_spark.mark"
"""Snapshot property with the mark of the commit."""

_MARK_CONF = f"spark.sql.iceberg.snapshot-property.{MARK_PROPERTY}"
_MAIN = "main"
_WAP = "write.wap.enabled"
_WAP_BRANCH = "spark.wap.branch"
_NOT_AHEAD = "Cannot fast-forward"
SAME_ROWS = "replace"
"""Operation of snapshots whose rows are those of their parents: compactions."""
_CHANGED = tuple(
    f"spark.merge-into.num-target-rows-{what}" for what in ("inserted", "updated", "deleted")
)
"""Properties of snapshots with the rows that a MERGE has changed, as Spark names them."""
Snapshots = Mapping[int, tuple[int | None, str | None, str | None]]
"""Snapshot → its parent, operation and mark."""
_PART = re.compile(r"`(?:[^`]|``)*`")
_NOT_THERE = re.compile(
    r"TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|NoSuchTableException|NoSuchNamespaceException"
)


def iceberg_destination(config: TargetConfig, tools: Tools) -> LakeDestination:
    """Return the destination for Iceberg tables."""
    if config.catalog is None and local_path(config.path) is None:
        _log.warning(
            "Iceberg tables by path are not locked on object stores: let only one program at a "
            "time write to a table, or use a catalog"
        )
    branch = f"audit_{uuid.uuid4().hex[:12]}" if config.write_audit_publish else None
    return LakeDestination(IcebergFormat(config, branch), config, tools.spark)


_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class IcebergFormat(LakeFormat):
    """See `LakeFormat`.

    Exactly once: the mark of a commit is a property of its snapshot. Iceberg checks MERGE, UPDATE
    and DELETE against concurrent commits (isolation level `serializable`).
    """

    storable = staticmethod(iceberg_storable)
    # Not certain what became of it: the flush is looked for before it is committed again.
    conflicts = re.compile(
        r"CommitFailedException|CommitStateUnknownException|AlreadyExistsException"
        r"|ValidationException: (?:Found|Missing required|Cannot commit|Cannot delete file where)"
        rf"|INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS|CANNOT_FIND_DATA|SQLITE_BUSY|{_NOT_AHEAD}"
    )

    refusals = re.compile(r"NULL value appeared in non-nullable field:\s+\S+")

    def __init__(self, config: TargetConfig, branch: str | None = None) -> None:
        self._path = config.path
        self._catalog = config.catalog
        self.branch = branch
        on_branch = {} if branch is None else {_WAP_BRANCH: branch}
        self.conf: Mapping[str, str] = {**catalog_conf(config), **on_branch}
        self.rules = NameRules(config.column_names, forbidden=".", ignore_case=True)
        self.can = Capabilities(widen=iceberg_widens)

    def place(self, name: TableName) -> Place:
        return location_of(self._path, self._catalog, name)

    def describe(self, table: TableHandle) -> LakeTable | None:
        spark = table.spark
        try:
            return described(table)
        except Exception as error:
            self.check_catalog(spark)
            if _NOT_THERE.search(str(error)):
                return None
            raise

    def searched(self, ranges: tuple[KeyRange, ...]) -> tuple[KeyRange, ...]:
        """See `LakeFormat`. Spark shows a UUID as text, but files have bounds in another order."""
        return tuple(
            replace(one, first=None, last=None)
            if all(_UUID.fullmatch(str(end)) for end in (one.first, one.last))
            else one
            for one in ranges
        )

    def upgrades(self, now: LakeTable, change: TableChange) -> Sequence[str]:
        needed = new_properties(change, now.properties)
        return [f"{VERSION} {needed[VERSION]}"] if VERSION in needed else []

    def partition_steps(
        self, now: LakeTable, request: TableRequest, names: Mapping[str, str]
    ) -> tuple[PartitionStep, ...]:
        """See `LakeFormat`. Without `partition_by`, a table keeps the partitions that it has."""
        wanted = partitions_sql(request, names)
        return partition_steps(now.spec, wanted) if wanted else ()

    def create(self, table: TableHandle, change: TableChange, request: TableRequest) -> None:
        check_empty(table.place.folder)
        around = _PART.findall(table.name)[:-1]
        with one_writer(table.place.folder):
            if len(around) > 1:
                _create_namespace(table.spark, ".".join(around))
            table.sql(creation(table.name, change, request))
            self._complete(table, change, request)

    def alter(
        self, table: TableHandle, change: TableChange, request: TableRequest, mark: Mark
    ) -> None:
        """See `LakeFormat`. Only snapshots can carry a mark."""
        with self._committing(table, mark):
            now = self.describe(table)
            if now is None:
                return
            table.alter(*set_properties(new_properties(change, now.properties), now.properties))
            table.alter(*alterations(change, now.properties))
            if change.partitions:
                # Again, from the table as it is under the lock: others may have changed it. Files
                # that are there keep the partitions that they were written with.
                steps = partition_steps(now.spec, partitions_sql(request, change.mapping))
                table.alter(*partition_changes(steps))
            if needs_version_3([column.dtype for column in change.add]):
                # Iceberg 1.12 cannot read a table with a variant that its newest snapshot lacks.
                empty = table.spark.createDataFrame([], table.rows.schema)
                empty.writeTo(table.name).append()

    def append(
        self, table: TableHandle, frame: DataFrame, mark: Mark, base: str | None = None
    ) -> None:
        """See `LakeFormat`. With `base`, a concurrent append is a conflict."""
        with self._committing(table, mark):
            writer = frame.writeTo(table.name)
            if base is None:
                writer.append()
                return
            if base:
                writer = writer.option("validate-from-snapshot-id", base)
            # It does not remove rows; unlike an append it is checked against newer commits.
            writer.option("isolation-level", "serializable").overwrite(F.lit(False))

    def head(self, table: TableHandle) -> str | None:
        """See `LakeFormat`; empty for a table without snapshots."""
        if self.describe(table) is None:
            return ""
        return self._tip(table) or ""

    def _tip(self, table: TableHandle) -> str | None:
        """Return the newest snapshot: that of the branch, if it exists."""
        refs = _refs(table)
        return refs.get(self.branch or _MAIN, refs.get(_MAIN))

    def stage(self, table: TableHandle) -> str | None:
        """See `LakeFormat`. Iceberg heeds the session's branch only with a property of the table.

        Columns belong to the table, not to a branch.
        """
        with one_writer(table.place.folder):
            now = self.describe(table)
            if now is not None:
                table.alter(*set_properties({_WAP: "true"}, now.properties))
            table.alter(f"CREATE BRANCH IF NOT EXISTS {self.branch}")
            return self.published(table)

    def published(self, table: TableHandle) -> str | None:
        return _refs(table).get(_MAIN)

    def publish(self, table: TableHandle) -> bool:
        """See `LakeFormat`. The session's commits are visible at once then."""
        with one_writer(table.place.folder):
            if self.branch in _refs(table):
                try:
                    _fast_forward(table, self.branch)
                except Exception as error:
                    if _NOT_AHEAD in str(error):
                        return False
                    raise
                table.alter(f"DROP BRANCH IF EXISTS {self.branch}")
        table.spark.conf.unset(_WAP_BRANCH)
        return True

    def execute(self, table: TableHandle, statement: str, mark: Mark) -> None:
        """See `LakeFormat`. A DELETE by metadata alone cannot carry the mark."""
        with self._committing(table, mark):
            table.sql(statement).collect()

    def version(self, table: TableHandle) -> str | None:
        if self.describe(table) is None:
            return None
        # All of them, as clocks differ: every commit adds a file of another name.
        files = "sha2(array_join(array_sort(collect_list(file)), ','), 256)"
        log = f"SELECT {files} FROM {table.name}.metadata_log_entries"  # noqa: S608
        return str(table.sql(log).collect()[0][0])

    def replace(
        self,
        table: TableHandle,
        frame: DataFrame,
        change: TableChange,
        request: TableRequest,
        mark: Mark,
        version: str | None = None,
    ) -> None:
        """See `LakeFormat`. On a branch, the table must have the columns already."""
        if self.describe(table) is None:
            self.create(table, change, request)
        with self._committing(table, mark):
            catalog = _PART.findall(table.name)[0][1:-1].replace("``", "`")
            # Spark Connect cannot open a transaction.
            connects = not hasattr(table.spark, "_jvm")
            transaction = None if connects else IcebergTransaction(table.spark, table.name, catalog)
            if version is not None and version != self.version(table):
                raise LostCommit
            now = self.describe(table)
            if now is None:
                raise LostCommit
            if self.branch is not None or change.create is None:
                table.overwrite(frame)
                return
            declares = transaction is not None and can_replace(transaction, now, change)
            if version is None and _fits(now, change, request, declares=declares):
                table.overwrite(frame)
                return
            if transaction is not None and declares:
                replace_whole(transaction, frame, now, change, request)
                transaction.commit()
                return
            # Without a transaction, concurrent commits of others are lost.
            with view_of(table.spark, commented(frame, change)) as view:
                table.sql(replacement(table.name, view, change, request)).collect()
        with one_writer(table.place.folder):
            self._complete(table, change, request)

    def replace_range(
        self, table: TableHandle, frame: DataFrame, condition: str, mark: Mark
    ) -> None:
        """See `LakeFormat`. On a branch, of which the table's main line then becomes the head.

        An overwrite by condition would need a condition that holds for whole files.
        """
        if self.branch is not None:
            # Only the second commit has the token: with it, both are there.
            with self._committing(table, replace(mark, token=None, state=None)):
                table.sql(f"DELETE FROM {table.name} WHERE {condition}").collect()  # noqa: S608
            with self._committing(table, mark):
                frame.writeTo(table.name).append()
            return
        branch = f"backfill_{uuid.uuid4().hex[:12]}"
        on_branch = f"{table.name}.branch_{branch}"
        with self._committing(table, mark):
            table.alter(f"CREATE BRANCH {branch}")
            try:
                table.sql(f"DELETE FROM {on_branch} WHERE {condition}").collect()  # noqa: S608
                frame.writeTo(on_branch).append()
                _fast_forward(table, branch)
            finally:
                table.alter(f"DROP BRANCH IF EXISTS {branch}")

    def marks(self, table: TableHandle, limit: int) -> Iterable[Mark | None]:
        """See `LakeFormat`. Snapshots that were rolled back are ignored."""
        snapshots = self.snapshots(table, f"ORDER BY committed_at DESC LIMIT {int(limit)}")
        commits = _chained(snapshots, self._tip(table))
        return tuple(read_mark(text) for operation, text in commits if operation != SAME_ROWS)

    def snapshots(self, table: TableHandle, rest: str = "") -> Snapshots:
        """Return all snapshots of a table, or those that the end of a query chooses."""
        columns = f"snapshot_id, parent_id, operation, summary[{text_literal(MARK_PROPERTY)}]"
        rows = table.sql(f"SELECT {columns} FROM {table.name}.snapshots {rest}").collect()  # noqa: S608
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    def changed_rows(self, table: TableHandle, mark: Mark, *, versions: bool = False) -> int | None:
        """See `LakeFormat`. Rows that a MERGE has copied into new files do not count."""
        marked = f"summary[{text_literal(MARK_PROPERTY)}] = {text_literal(mark.to_short_text())}"
        rows = table.sql(
            f"SELECT summary FROM {table.name}.snapshots WHERE {marked} "  # noqa: S608
            "ORDER BY committed_at DESC LIMIT 1"
        ).collect()
        summary = rows[0][0] if rows else {}
        if _CHANGED[0] in summary:
            return sum(int(summary.get(name, 0)) for name in _CHANGED[: 1 if versions else 3])
        return int(summary.get("added-records", 0)) if rows else None

    def _complete(self, table: TableHandle, change: TableChange, request: TableRequest) -> None:
        """Set what a new table gets after its columns; readers do not depend on it."""
        now = self.describe(table)
        if now is not None:
            table.alter(*finishing(now, change, request))

    def check_catalog(self, spark: SparkSession) -> None:
        name = self._catalog
        if name in (None, "spark_catalog"):
            return
        if spark.conf.get(f"spark.sql.catalog.{name}", None) is None:
            raise SettingsError(
                f"the Spark catalog '{name}' is not configured",
                where=Where(setting="catalog"),
                hint=f"configure spark.sql.catalog.{name} and its options in spark.conf",
            )

    @contextmanager
    def _committing(self, table: TableHandle, mark: Mark) -> Iterator[None]:
        conf = {_MARK_CONF: mark.to_short_text()}
        with one_writer(table.place.folder), configured(table.spark, conf), hive_refusals():
            yield


def called(table: TableHandle, procedure: str, *arguments: str) -> list[Row]:
    """Call a procedure of Iceberg for a table; return what it tells."""
    listed = ", ".join((f"table => {text_literal(table.name)}", *arguments))
    return table.sql(f"CALL {_PART.findall(table.name)[0]}.system.{procedure}({listed})").collect()


def _fast_forward(table: TableHandle, branch: str | None) -> None:
    called(table, "fast_forward", f"branch => '{_MAIN}'", f"to => '{branch}'")


def _create_namespace(spark: SparkSession, namespace: str) -> None:
    """Create a namespace that other streams and programs may create at the same time.

    Catalogs check before they create, and each fails in its own way if another is faster. Hive's
    metastore then even deletes the folder of the database, with the files of the faster one:
    the streams of one program take turns.
    """
    statement = f"CREATE NAMESPACE IF NOT EXISTS {namespace}"
    with _creating_namespace:
        repeated(
            lambda _: spark.sql(statement),
            lambda _: True,
            attempts=5,
            pauses=Pauses(longest=1.0),
        )


def _chained(snapshots: Snapshots, newest: str | None) -> Iterator[tuple[str | None, str | None]]:
    """Yield operations and marks from a snapshot back, by their parents, as clocks differ."""
    at = None if newest is None else int(newest)
    while at is not None and at in snapshots:
        at, operation, text = snapshots[at]
        yield operation, text


def _refs(table: TableHandle) -> Mapping[str, str]:
    """Return the newest snapshot of each branch and tag."""
    rows = table.sql(f"SELECT name, snapshot_id FROM {table.name}.refs").collect()  # noqa: S608
    return {row[0]: str(row[1]) for row in rows}


def _fits(now: LakeTable, change: TableChange, request: TableRequest, *, declares: bool) -> bool:
    """Return whether a table has exactly the columns of `change.create`, and the partitions.

    With `declares`, a replaced table can have NOT NULL columns.
    """
    if change.create is None:
        return False
    have = [(field.name, as_nullable(field.dataType)) for field in now.struct]
    want = [(column.name, as_nullable(column.dtype)) for column in change.create]
    strict = {field.name for field in now.struct if not field.nullable}
    wanted_strict = {column.name for column in change.create if not column.nullable}
    wanted = partitions_sql(request, change.mapping)
    declared = strict == wanted_strict if declares else strict <= wanted_strict
    return have == want and same_partitions(now.spec, wanted) and declared
