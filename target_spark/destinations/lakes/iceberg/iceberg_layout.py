"""Partitions and sort order of Iceberg tables in SQL. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.errors import DestinationError, Where
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.lakes.merge import quoted
from target_spark.tables.partition_fields import PartitionField, partition_fields


def partitions_sql(request: TableRequest, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the partitions of a table: quoted columns, and transforms of them.

    Args:
        request: The request of the stream.
        names: Stream's name → table's name of columns.

    Raises:
        DestinationError: The stream lacks a column, or a transform is unknown.
    """
    return tuple(_partition(field, names) for field in partition_fields(request))


def order_sql(request: TableRequest, names: Mapping[str, str]) -> str:
    """Return the columns that a table is sorted by; empty for none.

    Raises:
        DestinationError: The stream lacks a column.
    """
    for name in request.layout.cluster_by:
        if name not in request.struct.names:
            raise DestinationError(
                f"the stream has no column '{name}' to sort its table by",
                where=Where(stream=request.stream, setting="cluster_by"),
                hint="select it in the tap, or name another column for this stream under `streams`",
            )
    return ", ".join(quoted(names.get(name, name)) for name in request.layout.cluster_by)


def plain_columns(partitions: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns by which a table is partitioned without a transform.

    Args:
        partitions: As Spark shows them.
        columns: All columns of the table.
    """
    shown = set(partitions)
    return tuple(name for name in columns if name in shown or quoted(name) in shown)


def same_partitions(shown: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether Spark shows the requested partitions."""
    return [_bare(text) for text in shown] == [_bare(text) for text in wanted]


def _partition(field: PartitionField, names: Mapping[str, str]) -> str:
    column = quoted(names.get(field.column, field.column))
    if field.transform == "identity":
        return column
    number = "" if field.number is None else f"{field.number}, "
    return f"{field.transform}({number}{column})"


def _bare(text: str) -> str:
    return text.replace("`", "").replace(" ", "").casefold()
