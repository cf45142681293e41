"""How rows are laid out in a table: its columns, in frames of Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.record_text import json_column, scalar_text
from shared.formats.schema_nodes import TEXTS
from shared.formats.spark_conform import Fitting, Path, parse_json
from shared.formats.spark_types import T
from shared.settings.texts import quoted
from shared.spark.session import try_cast
from target_spark.tables.table_changes import Projected

NESTED = (T.StructType, T.ArrayType, T.MapType, T.VariantType)
_COMPARABLE: tuple[tuple[type[T.DataType], ...], ...] = (
    (T.NumericType, T.StringType),
    (T.DateType, T.StringType),
    (T.BooleanType, T.StringType),
    (T.DateType, T.TimestampType, T.TimestampNTZType),
)
"""Types among which a value may be the same."""
_QUOTED = (T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)
"""Scalars that are JSON strings without characters to escape."""


def project(frame: DataFrame, projection: Iterable[Projected]) -> DataFrame:
    """Select the columns of a table from rows: columns and fields by name, at any depth.

    Args:
        frame: Rows with the stream's columns; a missing one becomes null, and one that the
            projection does not name is dropped. Variants may be JSON text, as in parts.
        projection: See `TableChange.projection`.
    """
    have = {field.name: field.dataType for field in frame.schema.fields}
    return frame.select(
        *(_column(item, have.get(item.source or "")).alias(item.target) for item in projection)
    )


def value_text(value: Column, dtype: T.DataType) -> Column:
    """Return the text of a value as in its record; for a nested value the JSON text."""
    if isinstance(dtype, TEXTS):
        return value
    if isinstance(dtype, NESTED):
        return json_column(value, dtype)
    if isinstance(dtype, _QUOTED):
        text = json_column(value, dtype)
        return F.substring(text, F.lit(2), F.length(text) - 2)
    return scalar_text(value, dtype)


def _column(item: Projected, have: T.DataType | None) -> Column:
    if item.source is None or have is None:
        return F.lit(None).cast(item.dtype)
    value = F.col(quoted(item.source))
    leaf = _exact if item.how == "exact" else _cast
    return Fitting(dict(item.names), leaf).value(value, have, item.dtype, (item.target,))


def _exact(value: Column, have: T.DataType, want: T.DataType, _: Path) -> Column:
    """Return the value as the wanted type if that holds it exactly; else null."""
    if not any(isinstance(have, kinds) and isinstance(want, kinds) for kinds in _COMPARABLE):
        return F.lit(None).cast(want)
    cast = try_cast(value, want)
    return F.when(try_cast(cast, have) == value, cast)


def _cast(value: Column, have: T.DataType, want: T.DataType, _: Path) -> Column:
    if isinstance(want, TEXTS):
        return value_text(value, have)
    if isinstance(want, T.VariantType) and isinstance(have, TEXTS):
        return parse_json(value)
    return value.cast(want)
