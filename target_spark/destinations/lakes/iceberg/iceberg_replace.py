"""Replacement of a whole Iceberg table, columns and rows, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from shared.formats.record_text import quoted
from shared.formats.spark_conform import loose
from target_spark.destinations.lakes.iceberg.iceberg_ddl import (
    Described,
    identifiers,
    replaced_properties,
)
from target_spark.destinations.lakes.iceberg.iceberg_layout import (
    order_sql,
    partitions_sql,
    same_partitions,
)
from target_spark.destinations.lakes.iceberg.iceberg_transaction import (
    IcebergTransaction,
    NewColumn,
    PartitionTransform,
)
from target_spark.tables.evolution import partition_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from target_spark.core.load_plans import TableRequest
    from target_spark.tables.evolution import TableChange


def replace_whole(
    transaction: IcebergTransaction,
    frame: DataFrame,
    now: Described,
    change: TableChange,
    request: TableRequest,
) -> None:
    """Replace the table by rows and the columns of `change.create`, uncommitted.

    Args:
        transaction: A transaction on the table.
        frame: The rows.
        now: The table.
        change: A change with `create`.
        request: The request of the stream, with the layout.
    """
    columns = new_columns(now, change)
    names = change.mapping
    struct = StructType(
        [StructField(column.name, column.dtype, not column.required) for column in columns]
    )
    order = [names.get(name, name) for name in request.layout.cluster_by]
    order_sql(request, names)
    parted = not same_partitions(now.partitions, partitions_sql(request, names))
    transaction.properties(replaced_properties(change, request, now.properties))
    if parted:
        transaction.unpartitioned()
    transaction.columns(columns, identifiers(struct, names, request))
    if parted:
        transaction.partitioned(
            [
                PartitionTransform(part.transform, names.get(part.column, part.column), part.number)
                for part in partition_fields(request)
            ]
        )
    if order:
        transaction.sorted_by(order)
    transaction.rows(frame.select(*(quoted(column.name) for column in columns)))


def can_replace(transaction: IcebergTransaction, now: Described, change: TableChange) -> bool:
    """Return whether a transaction can replace the table: partition columns must be kept."""
    kept = {column.name for column in new_columns(now, change) if column.is_kept}
    return transaction.partition_columns() <= kept


def new_columns(now: Described, change: TableChange) -> list[NewColumn]:
    """Return the columns of `change.create`; keep existing ones with the same name and type."""
    have = {field.name: loose(field.dataType) for field in now.struct}
    return [
        NewColumn(
            column.name,
            column.dtype,
            not column.nullable,
            column.comment,
            have.get(column.name) == loose(column.dtype),
        )
        for column in change.create or ()
    ]
