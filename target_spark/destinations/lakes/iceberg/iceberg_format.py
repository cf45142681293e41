"""Iceberg tables, by path or in a catalog."""

from __future__ import annotations

import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from shared.retries import Pauses, repeated
from shared.storage.files import local_path
from target_spark.destinations.lakes.column_ddl import properties_sql
from target_spark.destinations.lakes.commit_marks import Mark, read_mark
from target_spark.destinations.lakes.conflicts import LostCommit
from target_spark.destinations.lakes.iceberg.iceberg_ddl import (
    NAMES_PROPERTY,
    Described,
    alterations,
    creation,
    described,
    finishing,
    new_properties,
    replacement,
)
from target_spark.destinations.lakes.iceberg.iceberg_layout import (
    partitions_sql,
    plain_columns,
    same_partitions,
)
from target_spark.destinations.lakes.iceberg.iceberg_places import (
    catalog_conf,
    check_empty,
    hive_refusals,
    location_of,
)
from target_spark.destinations.lakes.iceberg.iceberg_replace import can_replace, replace_whole
from target_spark.destinations.lakes.iceberg.iceberg_transaction import open_transaction
from target_spark.destinations.lakes.iceberg.iceberg_types import (
    iceberg_storable,
    iceberg_widens,
    needs_version_3,
)
from target_spark.destinations.lakes.lake_destination import LakeDestination
from target_spark.destinations.lakes.lake_format import LakeFormat, LakeTable, Place
from target_spark.destinations.lakes.merge import text_literal
from target_spark.destinations.lakes.table_lock import one_writer
from target_spark.destinations.lakes.table_sessions import configured
from target_spark.tables.evolution import Capabilities
from target_spark.tables.legal_names import NameRules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from target_spark.config import TargetConfig
    from target_spark.core.load_plans import TableName, TableRequest
    from target_spark.tables.evolution import TableChange

_log = logging.getLogger(__name__)
_creating_namespace = threading.Lock()

MARK_PROPERTY = "target_spark.mark"
"""Snapshot property with the mark of the commit."""

_MARK_CONF = f"spark.sql.iceberg.snapshot-property.{MARK_PROPERTY}"
_PART = re.compile(r"`(?:[^`]|``)*`")
_NOT_THERE = re.compile(
    r"TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|NoSuchTableException|NoSuchNamespaceException"
)


def iceberg_destination(config: TargetConfig, spark: Callable[[], SparkSession]) -> LakeDestination:
    """Return the destination for Iceberg tables."""
    if config.catalog is None and local_path(config.path) is None:
        _log.warning(
            "Iceberg tables by path are not locked on object stores: let only one program at a "
            "time write to a table, or use a catalog"
        )
    return LakeDestination(IcebergFormat(config), config, spark)


class IcebergFormat(LakeFormat):
    """See `LakeFormat`.

    Exactly once: the mark of a commit is a property of its snapshot. Iceberg checks MERGE, UPDATE
    and DELETE against concurrent commits (isolation level `serializable`).
    """

    # Not certain what became of it: the flush is looked for before it is committed again.
    conflicts = re.compile(
        r"CommitFailedException|CommitStateUnknownException|AlreadyExistsException"
        r"|ValidationException: (?:Found|Missing required|Cannot commit|Cannot delete file where)"
        r"|INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS|CANNOT_FIND_DATA|SQLITE_BUSY"
    )

    def __init__(self, config: TargetConfig) -> None:
        self._path = config.path
        self._catalog = config.catalog
        self.conf: Mapping[str, str] = catalog_conf(config)
        self.rules = NameRules(
            style=config.column_names,
            max_bytes=None,
            forbidden=".",
            reserved=frozenset(),
            ignore_case=True,
        )
        self.can = Capabilities(widen=iceberg_widens, drop_not_null=True, nested=True)

    def place(self, name: TableName) -> Place:
        """See `LakeFormat`."""
        return location_of(self._path, self._catalog, name)

    def storable(self, struct: StructType) -> StructType:
        """See `LakeFormat`."""
        return iceberg_storable(struct)

    def describe(self, spark: SparkSession, place: Place) -> LakeTable | None:
        """See `LakeFormat`."""
        found = self._described(spark, place)
        if found is None:
            return None
        names = json.loads(found.properties.get(NAMES_PROPERTY, "{}"))
        plain = plain_columns(found.partitions, found.struct.names)
        return LakeTable(found.struct, names, plain, found.properties)

    def create(
        self, spark: SparkSession, place: Place, change: TableChange, request: TableRequest
    ) -> None:
        """See `LakeFormat`."""
        check_empty(place.folder)
        around = _PART.findall(place.table)[:-1]
        with one_writer(place.folder):
            if len(around) > 1:
                _create_namespace(spark, ".".join(around))
            spark.sql(creation(place.table, change, request))
            self._complete(spark, place, change, request)

    def alter(
        self,
        spark: SparkSession,
        place: Place,
        change: TableChange,
        request: TableRequest,
        mark: Mark,
    ) -> None:
        """See `LakeFormat`. Only snapshots can carry a mark."""
        del request  # The layout is that of new tables.
        with self._committing(spark, place, mark):
            found = self._described(spark, place)
            if found is None:
                return
            wanted = {
                name: text
                for name, text in new_properties(change, found.properties).items()
                if found.properties.get(name) != text
            }
            if wanted:
                spark.sql(f"ALTER TABLE {place.table} SET TBLPROPERTIES {properties_sql(wanted)}")
            for statement in alterations(change, found.properties):
                spark.sql(f"ALTER TABLE {place.table} {statement}")
            if needs_version_3([column.dtype for column in change.add]):
                # Iceberg 1.12 cannot read a table with a variant that its newest snapshot lacks.
                spark.createDataFrame([], spark.table(place.table).schema).writeTo(
                    place.table
                ).append()

    def append(
        self,
        spark: SparkSession,
        frame: DataFrame,
        place: Place,
        mark: Mark,
        base: str | None = None,
    ) -> None:
        """See `LakeFormat`. With `base`, a concurrent append is a conflict."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        with self._committing(spark, place, mark):
            writer = frame.writeTo(place.table)
            if base is None:
                writer.append()
                return
            if base:
                writer = writer.option("validate-from-snapshot-id", base)
            # It does not remove rows; unlike an append it is checked against newer commits.
            writer.option("isolation-level", "serializable").overwrite(F.lit(False))

    def head(self, spark: SparkSession, place: Place) -> str | None:
        """See `LakeFormat`; empty for a table without snapshots."""
        if self._described(spark, place) is None:
            return ""
        refs = f"SELECT snapshot_id FROM {place.table}.refs WHERE name = 'main'"  # noqa: S608
        rows = spark.sql(refs).collect()
        return str(rows[0][0]) if rows else ""

    def execute(self, spark: SparkSession, statement: str, place: Place, mark: Mark) -> None:
        """See `LakeFormat`. A DELETE of whole files cannot carry the mark."""
        with self._committing(spark, place, mark):
            spark.sql(statement).collect()

    def version(self, spark: SparkSession, place: Place) -> str | None:
        """See `LakeFormat`."""
        if self._described(spark, place) is None:
            return None
        # All of them, as clocks differ: every commit adds a file of another name.
        files = "sha2(array_join(array_sort(collect_list(file)), ','), 256)"
        log = f"SELECT {files} FROM {place.table}.metadata_log_entries"  # noqa: S608
        return str(spark.sql(log).collect()[0][0])

    def replace(
        self,
        spark: SparkSession,
        frame: DataFrame,
        place: Place,
        change: TableChange,
        request: TableRequest,
        mark: Mark,
        version: str | None = None,
    ) -> None:
        """See `LakeFormat`."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        if self._described(spark, place) is None:
            self.create(spark, place, change, request)
        with self._committing(spark, place, mark):
            catalog = _PART.findall(place.table)[0][1:-1].replace("``", "`")
            transaction = open_transaction(spark, place.table, catalog)
            if version is not None and version != self.version(spark, place):
                raise LostCommit
            now = self._described(spark, place)
            if now is None:
                raise LostCommit
            declares = transaction is not None and can_replace(transaction, now, change)
            if version is None and _fits(now, change, request, declares=declares):
                frame.writeTo(place.table).overwrite(F.lit(True))
                return
            if transaction is not None and declares:
                replace_whole(transaction, frame, now, change, request)
                transaction.commit()
                return
            _replace_unseen(spark, frame, place, change, request)
        with one_writer(place.folder):
            self._complete(spark, place, change, request)

    def marks(self, spark: SparkSession, place: Place, limit: int) -> Iterable[Mark | None]:
        """See `LakeFormat`. Snapshots that were rolled back are ignored."""
        text = f"summary[{text_literal(MARK_PROPERTY)}]"
        current = f"SELECT snapshot_id FROM {place.table}.history WHERE is_current_ancestor"  # noqa: S608
        rows = spark.sql(
            f"SELECT snapshot_id, parent_id, {text} FROM {place.table}.snapshots "  # noqa: S608
            f"WHERE snapshot_id IN ({current}) ORDER BY committed_at DESC LIMIT {int(limit)}"
        ).collect()
        texts = _chained([(row[0], row[1], row[2]) for row in rows])
        return tuple(map(read_mark, texts))

    def compact(self, spark: SparkSession, place: Place, request: TableRequest) -> None:
        """See `LakeFormat`. Snapshots do not expire."""
        found = self._described(spark, place)
        if found is None:
            return
        catalog = _PART.findall(place.table)[0]
        arguments = [f"table => {text_literal(place.table)}"]
        if found.properties.get("sort-order"):
            arguments.append("strategy => 'sort'")
        size = request.layout.target_file_bytes
        if size is not None:
            arguments.append(f"options => map('target-file-size-bytes', '{size}')")
        with one_writer(place.folder):
            spark.sql(f"CALL {catalog}.system.rewrite_data_files({', '.join(arguments)})").collect()

    def _described(self, spark: SparkSession, place: Place) -> Described | None:
        try:
            return described(spark, place.table)
        except Exception as error:
            self._check_catalog(spark)
            if _NOT_THERE.search(str(error)):
                return None
            raise

    def _complete(
        self, spark: SparkSession, place: Place, change: TableChange, request: TableRequest
    ) -> None:
        """Set what a new table gets after its columns; readers do not depend on it."""
        found = self._described(spark, place)
        if found is not None:
            for statement in finishing(found, change, request):
                spark.sql(f"ALTER TABLE {place.table} {statement}")

    def _check_catalog(self, spark: SparkSession) -> None:
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
    def _committing(self, spark: SparkSession, place: Place, mark: Mark) -> Iterator[None]:
        conf = {_MARK_CONF: mark.to_text()}
        with one_writer(place.folder), configured(spark, conf), hive_refusals():
            yield


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


def _replace_unseen(
    spark: SparkSession, frame: DataFrame, place: Place, change: TableChange, request: TableRequest
) -> None:
    """Replace the table without a transaction: concurrent commits of others are lost."""
    view = f"whole_{uuid.uuid4().hex}"
    statement, rows = replacement(place.table, view, frame, change, request)
    rows.createOrReplaceTempView(view)
    try:
        spark.sql(statement).collect()
    finally:
        spark.catalog.dropTempView(view)


def _chained(rows: list[tuple[int, int | None, str | None]]) -> Iterator[str | None]:
    """Yield the texts of snapshots from the newest back, by their parents, as clocks differ."""
    known = {number: (parent, text) for number, parent, text in rows}
    parents = {parent for parent, _ in known.values()}
    at: int | None = next((number for number in known if number not in parents), None)
    while at is not None and at in known:
        at, text = known[at]
        yield text


def _fits(now: Described, change: TableChange, request: TableRequest, *, declares: bool) -> bool:
    """Return whether the table has exactly the requested columns and partitions.

    Args:
        now: The table.
        change: With `create`.
        request: With the layout.
        declares: Whether a replaced table can have NOT NULL columns.
    """
    from shared.types.spark_conform import loose  # noqa: PLC0415

    if change.create is None:
        return False
    have = [(field.name, loose(field.dataType)) for field in now.struct]
    want = [(column.name, loose(column.dtype)) for column in change.create]
    strict = {field.name for field in now.struct if not field.nullable}
    wanted_strict = {column.name for column in change.create if not column.nullable}
    wanted = partitions_sql(request, change.mapping)
    declared = strict == wanted_strict if declares else strict <= wanted_strict
    return have == want and same_partitions(now.partitions, wanted) and declared


__all__ = ["IcebergFormat", "iceberg_destination"]
