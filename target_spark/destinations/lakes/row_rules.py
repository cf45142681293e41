"""The rules of a table that single rows can break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.maps.record_metadata import VERSION_COLUMNS
from target_spark.destinations.lakes.merge import quoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True)
class RowRule:
    """A rule of a table.

    Attributes:
        condition: SQL over the table's columns, true for each row that the table takes.
        reason: What is wrong with another row.
        column: The column at fault, or nothing.
    """

    condition: str
    reason: str
    column: str = ""


def not_null_rules(struct: StructType, *, inside_null: bool) -> list[RowRule]:
    """Return the rules of columns and fields that are NOT NULL.

    Args:
        struct: The table's columns.
        inside_null: Whether a field in a struct that is null breaks its rule, too.
    """
    return [
        RowRule(
            condition,
            f"the column does not take null (type {field.dataType.simpleString()})",
            field.name,
        )
        for field in struct
        if field.name not in VERSION_COLUMNS
        for condition in _filled(quoted(field.name), field.dataType, field.nullable, inside_null)
    ]


def _filled(
    sql: str, dtype: DataType, nullable: bool, inside_null: bool, depth: int = 0
) -> Iterator[str]:
    """Yield the conditions under which a value has no null that its type forbids."""
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    if not nullable:
        yield f"{sql} IS NOT NULL"
    if isinstance(dtype, T.StructType):
        for field in dtype:
            inner = f"{sql}.{quoted(field.name)}", field.dataType, field.nullable
            for condition in _filled(*inner, inside_null, depth):
                yield condition if inside_null else f"({sql} IS NULL OR {condition})"
        return
    if isinstance(dtype, T.ArrayType):
        items, element, may_be_null = sql, dtype.elementType, dtype.containsNull
    elif isinstance(dtype, T.MapType):
        items, element, may_be_null = f"map_values({sql})", dtype.valueType, dtype.valueContainsNull
    else:
        return
    item = f"item{depth}"
    for condition in _filled(item, element, may_be_null, inside_null, depth + 1):
        yield f"({sql} IS NULL OR forall({items}, {item} -> {condition}))"
