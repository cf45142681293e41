"""A transaction of Iceberg: changes of columns, layout and rows of a table in one commit.

SQL lacks a statement for it that fails if others have changed the table meanwhile: Iceberg
validates the rows of an overwrite, but CREATE OR REPLACE discards changes that it has not seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from shared.formats.arrow_types import as_nullable
from shared.settings.texts import quoted
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.lakes.iceberg.iceberg_layout import (
    identifiers,
    partitions_sql,
    replaced_properties,
    same_partitions,
)
from target_spark.destinations.lakes.lake_table import LakeTable
from target_spark.tables.evolution import struct_of_columns
from target_spark.tables.partitions import PartitionField, cluster_columns, partition_fields
from target_spark.tables.table_changes import Column, TableChange

_LOST = "CommitFailedException"


class IcebergTransaction:
    """Changes of a table that become visible by `commit`, or not at all if it fails.

    They rest on the table as it is when this is made: any commit of others after that, be it rows
    or columns, makes `commit` fail with Iceberg's CommitFailedException. (Iceberg tries again
    by itself, but not if columns or partitions change, which `columns` handles.)

    Args:
        spark: The session, not of Spark Connect, which cannot open one.
        table: Name in SQL, quoted.
        catalog: Name of its catalog.

    Raises:
        Py4JJavaError: The table does not exist.
    """

    def __init__(self, spark: SparkSession, table: str, catalog: str) -> None:
        session: Any = spark
        self._java = session._jvm
        self._session = session._jsparkSession
        self._iceberg = self._java.org.apache.iceberg
        with self._active():
            self._catalog = self._session.sessionState().catalogManager().catalog(catalog)
            self._table = self._iceberg.spark.Spark3Util.loadIcebergTable(self._session, table)
        # What others commit from here on is a conflict; see `rows`.
        snapshot = self._table.currentSnapshot()
        self._snapshot = None if snapshot is None else str(snapshot.snapshotId())
        self._transaction = self._table.newTransaction()

    def partition_columns(self) -> set[str]:
        """Return the columns that partition the table, or once did.

        They must be kept: Iceberg cannot read its lists of files that were removed otherwise.
        """
        schema = self._table.schema()
        specs = self._table.specs().values()
        names = (schema.findColumnName(field.sourceId()) for s in specs for field in s.fields())
        return {name for name in names if name is not None}

    def properties(self, values: Mapping[str, str]) -> None:
        """Set properties of the table."""
        update = self._transaction.updateProperties()
        for name, value in values.items():
            update.set(name, value)
        update.commit()

    def columns(
        self, columns: Sequence[Column], kept: Collection[str], keys: Sequence[str]
    ) -> None:
        """Set the columns of the table, in this order; drop all others.

        Kept columns keep their identity. Others get a new one, even if a column of that name
        existed: files of other writers never hold values of another type for it.

        Args:
            columns: At least one; the rows must be written by `rows` then.
            kept: Names of those that the table has with their types already.
            keys: Names of the identifier fields; empty for none.
        """
        # 1. Remove what refers to columns that go: the sort order and the identifier fields.
        gone = [name for name in self._names() if name not in kept]
        self._unsorted(gone)
        self._update(identifiers=())
        # 2. Change the columns. A column that comes back under an old name is dropped and added:
        #    Iceberg tells columns by their ids, so that old files have no value for it.
        update = self._transaction.updateSchema().allowIncompatibleChanges()
        for name in gone:
            update.deleteColumn(name)
        fields = {field.name(): field for field in self._table.schema().columns()}
        for column in columns:
            if column.name in kept:
                _keep(update, column, fields[column.name])
            else:
                add = update.addColumn if column.nullable else update.addRequiredColumn
                add(column.name, self._type(column.dtype), column.comment)
        # 3. Put them in the order of `columns`: new ones are at the end until then.
        for number, column in enumerate(columns):
            if number == 0:
                update.moveFirst(column.name)
            else:
                update.moveAfter(column.name, columns[number - 1].name)
        update.commit()
        if keys:
            self._update(identifiers=keys)

    def unpartitioned(self) -> None:
        """Remove the partitions of the table; call it before `columns`."""
        update = self._transaction.updateSpec()
        for field in self._transaction.table().spec().fields():
            if not field.transform().isVoid():
                update.removeField(field.name())
        update.commit()

    def partitioned(self, parts: Sequence[PartitionField]) -> None:
        """Partition a table without partitions; call it after `columns`."""
        update = self._transaction.updateSpec()
        terms = self._iceberg.expressions.Expressions
        singular = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
        for part in parts:
            if part.transform == "identity":
                update.addField(terms.ref(part.column))
            elif part.number is None:
                update.addField(getattr(terms, singular[part.transform])(part.column))
            else:
                update.addField(getattr(terms, part.transform)(part.column, part.number))
        update.commit()

    def sorted_by(self, names: Sequence[str]) -> None:
        """Sort rows by these columns, nulls first."""
        update = self._transaction.replaceSortOrder()
        terms = self._iceberg.expressions.Expressions
        for name in names:
            update.asc(terms.ref(name), self._iceberg.NullOrder.NULLS_FIRST)
        update.commit()

    def rows(self, frame: DataFrame) -> None:
        """Replace all rows by new ones, of exactly the columns."""
        # The plan of INSERT OVERWRITE, but on the table of the transaction: its commit becomes a
        # step of ours. A statement in SQL would commit by itself.
        source: Any = frame
        spark = self._java.org.apache.spark.sql
        logical = spark.catalyst.plans.logical
        option = self._java.scala.Option
        table = self._iceberg.spark.source.SparkTable(self._transaction.table())
        relation = spark.execution.datasources.v2.DataSourceV2Relation.create(
            table, option.apply(self._catalog), option.apply(None)
        )
        options = getattr(self._java.scala.collection.immutable, "Map$").__getattr__("MODULE$")
        values = options.empty()
        if self._snapshot is not None:
            # Files that others have added since then make the commit fail.
            values = values.updated("isolation-level", "serializable")
            values = values.updated("validate-from-snapshot-id", self._snapshot)
        everything = spark.catalyst.expressions.Literal.TrueLiteral()
        plan = logical.OverwriteByExpression.byName(
            relation, source._jdf.queryExecution().analyzed(), everything, values
        )
        with self._active():
            spark.classic.Dataset.ofRows(self._session, plan)

    def commit(self) -> None:
        """Commit all changes at once.

        Raises:
            Py4JJavaError: CommitFailedException, if others have changed the table since; files
                that were written are removed. CommitStateUnknownException, if the outcome is
                unknown.
        """
        # Read it now: after a conflict the transaction shows the table of the other writer.
        written = self._written()
        try:
            self._transaction.commitTransaction()
        except Exception as error:
            # By its class: a commit with unknown outcome may have this one as its cause.
            java: Any = getattr(error, "java_exception", None)
            if java is not None and java.getClass().getSimpleName() == _LOST:
                self._remove(written)
            raise

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        """Make the session active in this thread: Iceberg takes its defaults from there."""
        sessions = self._java.org.apache.spark.sql.classic.SparkSession
        before = sessions.getActiveSession()
        sessions.setActiveSession(self._session)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def _names(self) -> list[str]:
        return [field.name() for field in self._table.schema().columns()]

    def _type(self, dtype: DataType) -> Any:
        # As a column: a struct alone would become a schema.
        struct = StructType([StructField("c", dtype)])
        java = self._java.org.apache.spark.sql.types.DataType.fromJson(struct.json())
        return self._iceberg.spark.SparkSchemaUtil.convert(java).findType("c")

    def _update(self, identifiers: Sequence[str]) -> None:
        names = self._java.java.util.ArrayList()
        for name in identifiers:
            names.add(name)
        self._transaction.updateSchema().setIdentifierFields(names).commit()

    def _unsorted(self, gone: Sequence[str]) -> None:
        """Remove a sort order by dropped columns."""
        schema, order = self._table.schema(), self._table.sortOrder()
        if any(schema.findColumnName(field.sourceId()) in gone for field in order.fields()):
            self._transaction.replaceSortOrder().commit()

    def _written(self) -> Any:
        """Return the written files as a Java iterable."""
        table = self._transaction.table()
        snapshot = table.currentSnapshot()
        if snapshot is None or str(snapshot.snapshotId()) == self._snapshot:
            return ()
        return snapshot.addedDataFiles(table.io())

    def _remove(self, files: Any) -> None:
        with contextlib.suppress(Exception):
            for file in files:
                self._table.io().deleteFile(file.location())


def _keep(update: Any, column: Column, field: Any) -> None:
    if not column.nullable and field.isOptional():
        update.requireColumn(column.name)
    elif column.nullable and field.isRequired():
        update.makeColumnOptional(column.name)
    if column.comment and column.comment != field.doc():
        update.updateColumnDoc(column.name, column.comment)


def replace_whole(
    transaction: IcebergTransaction,
    frame: DataFrame,
    now: LakeTable,
    change: TableChange,
    request: TableRequest,
) -> None:
    """Replace the table by rows and the columns of `change.create`, uncommitted."""
    columns, names = change.create or (), change.mapping
    order = [names.get(name, name) for name in cluster_columns(request, "sort")]
    parted = not same_partitions(now.spec, partitions_sql(request, names))
    transaction.properties(replaced_properties(change, request, now.properties))
    if parted:
        transaction.unpartitioned()
    keys = identifiers(struct_of_columns(columns), names, request)
    transaction.columns(columns, kept_columns(now, change), keys)
    if parted:
        transaction.partitioned(
            [
                replace(part, column=names.get(part.column, part.column))
                for part in partition_fields(request)
            ]
        )
    if order:
        transaction.sorted_by(order)
    transaction.rows(frame.select(*(quoted(column.name) for column in columns)))


def can_replace(transaction: IcebergTransaction, now: LakeTable, change: TableChange) -> bool:
    """Return whether a transaction can replace the table: partition columns must be kept."""
    return transaction.partition_columns() <= kept_columns(now, change)


def kept_columns(now: LakeTable, change: TableChange) -> set[str]:
    """Return those of `change.create` that the table has with the same name and type."""
    have = {field.name: as_nullable(field.dataType) for field in now.struct}
    columns = change.create or ()
    return {c.name for c in columns if have.get(c.name) == as_nullable(c.dtype)}
