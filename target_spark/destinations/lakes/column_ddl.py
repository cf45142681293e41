"""Columns and types in SQL text, with any name at any depth. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from target_spark.destinations.lakes.merge import quoted, text_literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import DataType

    from target_spark.tables.evolution import Column


def sql_type(dtype: DataType) -> str:
    """Return a type in SQL, with every field name quoted."""
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    if isinstance(dtype, T.StructType):
        fields = (f"{quoted(field.name)}: {sql_type(field.dataType)}" for field in dtype)
        return f"STRUCT<{', '.join(fields)}>"
    if isinstance(dtype, T.ArrayType):
        return f"ARRAY<{sql_type(dtype.elementType)}>"
    if isinstance(dtype, T.MapType):
        return f"MAP<{sql_type(dtype.keyType)}, {sql_type(dtype.valueType)}>"
    return dtype.simpleString()


def column_sql(column: Column, *, not_null: bool = True) -> str:
    """Return a column in CREATE TABLE or ADD COLUMNS.

    Args:
        column: The column.
        not_null: Whether to declare NOT NULL columns.
    """
    parts = [quoted(column.name), sql_type(column.dtype)]
    if not_null and not column.nullable:
        parts.append("NOT NULL")
    if column.comment:
        parts.append(f"COMMENT {text_literal(column.comment)}")
    return " ".join(parts)


def properties_sql(values: Mapping[str, str]) -> str:
    """Return the properties of a table in SQL: `('a' = 'b', …)`."""
    pairs = (f"{text_literal(key)} = {text_literal(value)}" for key, value in values.items())
    return f"({', '.join(pairs)})"


def table_comment(schema: Mapping[str, object]) -> str:
    """Return the description of a stream's JSON Schema; empty if there is none."""
    found = schema.get("description") or schema.get("title")
    return found if isinstance(found, str) else ""
