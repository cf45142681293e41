"""Delta tables, by path or in a catalog."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from shared.engine.engine import SPARK, Spark
from shared.errors import SettingsError, Where
from shared.settings.texts import quoted
from shared.spark.conf import NO_CODE
from shared.spark.connect import executors_share_disk
from shared.storage.urls import S3_SCHEMES, shown
from target_spark.core.load_plans import TableName, TableRequest
from target_spark.destinations.destination import Tools
from target_spark.destinations.folders.table_folder import table_path
from target_spark.destinations.lakes.delta.delta_files import table_size
from target_spark.destinations.lakes.delta.delta_log import (
    FORBIDDEN,
    TYPE_WIDENING,
    additions,
    changed_rows,
    commit_metrics,
    computed_columns,
    delta_rules,
    delta_storable,
    delta_widens,
    fits,
    logged_struct,
    may_compute,
    needed_properties,
    padded_columns,
    table_clauses,
)
from target_spark.destinations.lakes.delta.delta_package import (
    ONE_TASK_BYTES,
    DeltaPackage,
    marks_in,
    transactions_of,
)
from target_spark.destinations.lakes.lake_destination import LakeDestination
from target_spark.destinations.lakes.lake_format import LakeFormat
from target_spark.destinations.lakes.lake_sql import (
    NAMES_PROPERTY,
    RowRule,
    altered_columns,
    column_sql,
    names_property,
    not_null_rules,
    set_properties,
)
from target_spark.destinations.lakes.lake_table import (
    LakeTable,
    LostCommit,
    Mark,
    Place,
    TableHandle,
    absolute,
    catalog_place,
    commented,
    configured,
    one_writer,
    partition_columns,
    read_mark,
    view_of,
    with_column_defaults,
)
from target_spark.destinations.lakes.lake_work import first_able, first_of
from target_spark.run_settings import TargetConfig
from target_spark.tables.table_changes import Capabilities, NameRules, TableChange

NO_CODE_BYTES = 1 << 20
"""For more bytes, code that Spark generates and compiles saves more time than it takes."""

_log = logging.getLogger(__name__)
_ONE_PROGRAM = "Delta tables on S3 are not locked: let only one program at a time write to a table"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_APP = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_NOT_THERE = re.compile(
    r"PATH_NOT_FOUND|PATH_DOES_NOT_EXIST|TABLE_OR_VIEW_NOT_FOUND|DELTA_TABLE_NOT_FOUND"
    r"|DELTA_MISSING_DELTA_TABLE|SCHEMA_NOT_FOUND|NoSuchTableException|NoSuchNamespaceException"
)


def delta_destination(config: TargetConfig, tools: Tools) -> LakeDestination:
    """Return the destination for Delta tables."""
    if config.catalog is None and config.path.startswith(S3_SCHEMES):
        stores = any(name.startswith("spark.delta.logStore.") for name in config.spark.conf)
        if not stores:
            _log.warning(_ONE_PROGRAM)
    return LakeDestination(DeltaFormat(config, tools.spark), config, tools.spark)


class DeltaFormat(LakeFormat):
    """See `LakeFormat`.

    Exactly once: a commit carries the run as Delta's application identifier and the number of
    the flush as its version, so that Delta itself rejects it a second time. On a local disk, a
    rename could replace another program's commit; so one program writes at a time.
    """

    storable = staticmethod(delta_storable)
    conflicts = re.compile(
        r"DELTA_CONCURRENT|Concurrent\w*Exception|DELTA_METADATA_CHANGED|MetadataChangedException"
        r"|DELTA_PROTOCOL_CHANGED|ProtocolChangedException|CommitConflict|CommitFailedException"
        r"|DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS|DELTA_TABLE_ALREADY_EXISTS"
        r"|FileAlreadyExistsException|CommitFailedError"
    )

    refusals = re.compile(
        r"CHECK constraint \S+(?=(?s:.*) violated by row)"
        r"|NOT NULL constraint violated for column: \S+|exceeds char/varchar type length limitation"
        r"|NULL value appeared in non-nullable field:\s+\S+"
        r"|column '[^\n]*: an empty value would become null[^)]*\)"
    )

    def __init__(
        self, config: TargetConfig, spark: Callable[[], SparkSession] | None = None
    ) -> None:
        self._computing: dict[tuple[str, str], StructType] = {}
        self.copies = config.write_audit_publish
        self._path = config.path
        self._catalog = config.catalog
        self._written: dict[str, int] = {}
        package = DeltaPackage(
            self._written,
            adopts=config.adopt_files,
            changes_rows=config.engine != SPARK,
            shares_disk=executors_share_disk(config.spark),
            # A client of Spark Connect sends the keys of a flush with a plan, which has a limit.
            tasks=None if spark is None or config.spark.remote else Spark(spark),
        )
        self.packages = (package,)
        self.conf: Mapping[str, str] = _ANY_VERSION
        self.rules = NameRules(config.column_names, forbidden=FORBIDDEN, ignore_case=True)
        self.can = Capabilities(widen=delta_widens)

    def place(self, name: TableName) -> Place:
        if self._catalog is not None:
            return catalog_place(self._catalog, name)
        return self.copy_place(table_path(absolute(self._path), name))

    def copy_place(self, folder: str) -> Place:
        return Place(quoted("delta", folder), f"'{shown(folder)}'", folder)

    def light(self, size: int | None) -> Mapping[str, str]:
        if size is None or size > ONE_TASK_BYTES:
            return {}
        return _ONE_TASK if size > NO_CODE_BYTES else {**_ONE_TASK, **NO_CODE}

    def describe(self, table: TableHandle) -> LakeTable | None:
        spark = table.spark
        try:
            struct = spark.table(table.name).schema
        except Exception as error:
            if _NOT_THERE.search(str(error)):
                return None
            raise
        properties = table.properties()
        if may_compute(properties):
            struct = self._logged(table, struct)
        names = json.loads(properties.get(NAMES_PROPERTY, "{}"))
        folder = table.place.folder
        size = None if folder is None else first_of(lambda: table_size(folder), lambda: None)
        rows = table.sql(f"DESCRIBE TABLE {table.name}").collect()
        partitions = tuple(partition_columns([row[0] for row in rows]))
        computed = computed_columns(struct)
        struct = with_column_defaults(struct)
        return LakeTable(struct, names, partitions, properties, size, computed=computed)

    def current(self, table: TableHandle) -> LakeTable | None:
        """Return the current table, by the first engine that can describe it."""
        return first_able(self, lambda engine: engine.describe(table))

    def _logged(self, table: TableHandle, struct: StructType) -> StructType:
        """Return the columns with the metadata that Spark hides, read once for each schema."""
        key = table.name, struct.json()
        if key not in self._computing:
            [row] = table.sql(f"DESCRIBE DETAIL {table.name}").select("location").collect()
            self._computing[key] = logged_struct(table.spark, row[0])
        return self._computing[key]

    def row_rules(self, now: LakeTable) -> Sequence[RowRule]:
        return [*not_null_rules(now.struct, inside_null=True), *delta_rules(now)]

    def create(self, table: TableHandle, change: TableChange, request: TableRequest) -> None:
        with one_writer(table.place.folder), configured(table.spark, self.light(0)):
            self._create(table, change, request)

    def _create(self, table: TableHandle, change: TableChange, request: TableRequest) -> None:
        if table.place.folder is None:
            table.sql(f"CREATE SCHEMA IF NOT EXISTS {table.name.rpartition('.')[0]}")
        columns = ", ".join(map(column_sql, change.create or ()))
        head = f"CREATE TABLE IF NOT EXISTS {table.name} ({columns})"
        table.sql(f"{head} {table_clauses(change, request)}")

    def capabilities(self, now: LakeTable, request: TableRequest) -> Capabilities:
        """See `LakeFormat`. The first widened column makes a feature necessary to read a table."""
        can = super().capabilities(now, request)
        padded = padded_columns(now.struct)
        keys = [name for name in request.keys if now.names.get(name, name) in padded]
        if keys and request.method in {"upsert", "history"}:
            raise SettingsError(
                f"the key '{keys[0]}' is a column of the type CHAR in the table "
                f"{self.place(request.name).shown}, whose values Delta cannot compare in a MERGE",
                where=Where(stream=request.stream),
                hint="make it VARCHAR or STRING, or load the stream into another table",
            )
        widens = now.properties.get(TYPE_WIDENING, "").lower() == "true"
        return can if widens or not can.is_theirs else replace(can, widen=Capabilities.widen)

    def upgrades(self, now: LakeTable, change: TableChange) -> Sequence[str]:
        needed = needed_properties(change).items()
        return [name for name, text in needed if now.properties.get(name, "").lower() != text]

    def alter(
        self,
        table: TableHandle,
        change: TableChange,
        request: TableRequest,  # noqa: ARG002
        mark: Mark,
    ) -> None:
        with self._committing(table, mark):
            self._alter(table, change)

    def _alter(self, table: TableHandle, change: TableChange) -> None:
        new = {**needed_properties(change), **names_property(change)}
        table.alter(*set_properties(new, table.properties()), *altered_columns(change))

    def append(
        self,
        table: TableHandle,
        frame: DataFrame,
        mark: Mark,
        base: str | None = None,  # noqa: ARG002
    ) -> None:
        """See `LakeFormat`. Delta rejects the transaction of a repeated commit."""
        with self._committing(table, mark):
            frame.writeTo(table.name).append()

    def execute(self, table: TableHandle, statement: str, mark: Mark) -> None:
        # The parts do not change: reading them twice costs less than keeping them aside.
        with configured(table.spark, _AS_THEY_ARE), self._committing(table, mark):
            table.sql(statement).collect()

    def version(self, table: TableHandle) -> str | None:
        if self.current(table) is None:
            return None
        return str(table.sql(f"DESCRIBE HISTORY {table.name} LIMIT 1").collect()[0][0])

    def replace(
        self,
        table: TableHandle,
        frame: DataFrame,
        change: TableChange,
        request: TableRequest,
        mark: Mark,
        version: str | None = None,
    ) -> None:
        with one_writer(table.place.folder):
            if self.current(table) is None:
                self._create(table, change, request)
            if version is not None and version != self.version(table):
                raise LostCommit
            now = self.current(table)
            added = additions(now, change, request)
            if added is not None:
                with self._marked(table, Mark(mark.run, mark.stream)):
                    self._alter(table, added)
            with self._marked(table, mark):
                if added is not None or change.create is None or fits(now, change, request):
                    table.overwrite(frame)
                    return
                head = f"CREATE OR REPLACE TABLE {table.name} {table_clauses(change, request)}"
                with view_of(table.spark, commented(frame, change)) as view:
                    table.sql(f"{head} AS SELECT * FROM {view}").collect()  # noqa: S608 - quoted

    def replace_range(
        self, table: TableHandle, frame: DataFrame, condition: str, mark: Mark
    ) -> None:
        with self._committing(table, mark):
            table.overwrite(frame, F.expr(condition))

    def copy(self, table: TableHandle, version: str, copy: TableHandle) -> None:
        """See `LakeFormat`. Its log names the files of the table; it writes only its own."""
        table.sql(
            f"CREATE OR REPLACE TABLE {copy.name} SHALLOW CLONE {table.name} "
            f"VERSION AS OF {int(version)}"
        ).collect()

    def since(self, table: TableHandle, base: str | None) -> tuple[str, Sequence[Mark | None]]:
        rows = table.sql(f"DESCRIBE HISTORY {table.name}").select("version", "userMetadata")
        marks = {int(version): text for version, text in rows.collect()}
        first = int(base) if base is not None and int(base) in marks else 0
        return str(max(marks)), [read_mark(text) for at, text in marks.items() if at > first]

    def take_rows(self, table: TableHandle, copy: TableHandle, version: str, mark: Mark) -> None:
        with self._committing(table, mark):
            if self.version(table) != version:
                raise LostCommit
            table.overwrite(copy.rows)

    def marks(self, table: TableHandle, limit: int) -> Iterable[Mark | None]:
        rows = table.sql(f"DESCRIBE HISTORY {table.name} LIMIT {limit}")
        result = rows.select("operation", "userMetadata").collect()
        return marks_in((name, text) for name, text in result)

    def changed_rows(self, table: TableHandle, mark: Mark, *, versions: bool = False) -> int | None:
        return changed_rows(commit_metrics(table, mark.to_text()), versions=versions)

    @contextmanager
    def _committing(self, table: TableHandle, mark: Mark) -> Iterator[None]:
        with one_writer(table.place.folder), self._marked(table, mark):
            yield

    @contextmanager
    def _marked(self, table: TableHandle, mark: Mark) -> Iterator[None]:
        """Give the commit of the block its mark and transaction."""
        transactions = transactions_of(mark, self._written)
        conf = {_METADATA: mark.to_text()}
        for application, number in transactions.items():
            conf |= {_APP: application, _VERSION: str(number)}
        with configured(table.spark, conf):
            yield
        self._written.update(transactions)


# Adaptive execution has a job for each stage, and a broadcast is a job.
_ONE_TASK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
_AS_THEY_ARE = {"spark.databricks.delta.merge.materializeSource": "none"}


# Delta refuses versions older than the retention of deleted files, whether they are there or not.
_ANY_VERSION = {
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false"
}
