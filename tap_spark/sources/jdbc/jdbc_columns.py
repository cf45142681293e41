"""Spark's types of the columns of a table, and the casts from what JDBC returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812

from shared.types.type_hints import type_of_hint

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tap_spark.sources.jdbc.table_info import ColumnInfo

_WORDS = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
_ARRAY = "array<"


def spark_type(words: str) -> T.DataType:
    """Parse Spark's name of a type: a scalar, or an array.

    Raises:
        ValueError: It is not such a name.
    """
    if words.startswith(_ARRAY):
        return T.ArrayType(spark_type(words[len(_ARRAY) : -1]), True)
    found = type_of_hint(_WORDS.get(words, words))
    if found is None:
        raise ValueError(f"{words!r} is not a Spark type")
    return found


def struct_of(columns: Iterable[ColumnInfo]) -> T.StructType:
    """Return the columns of a table their Spark types."""
    return T.StructType(
        [T.StructField(item.name, spark_type(item.spark_type), item.nullable) for item in columns]
    )


def custom_schema(columns: Iterable[ColumnInfo]) -> str | None:
    """Return the option `customSchema` of Spark's JDBC reader; None if it needs none."""
    from tap_spark.sources.frame_helpers import quoted  # noqa: PLC0415

    items = [f"{quoted(item.name)} {item.read_as}" for item in columns if item.read_as]
    return ", ".join(items) or None


def typed(frame: DataFrame, columns: Iterable[ColumnInfo]) -> list[Column]:
    """Cast the result of the JDBC reader for each column's expression to the column's type.

    Args:
        frame: The rows read, with a column of each name: arrays as JSON text, and dates and
            timestamps as days and microseconds since 1970, if the expression returns them so.
        columns: What to select, in this order.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from tap_spark.sources.frame_helpers import col  # noqa: PLC0415

    def one(item: ColumnInfo) -> Column:
        column, wanted = col(item.name), spark_type(item.spark_type)
        given = frame.schema[item.name].dataType
        if isinstance(wanted, T.ArrayType) and isinstance(given, T.StringType):
            column = F.from_json(column, wanted, {"mode": "FAILFAST"})
        elif isinstance(wanted, T.DateType) and isinstance(given, T.IntegralType):
            column = F.date_from_unix_date(column.cast("int"))
        elif isinstance(wanted, T.TimestampType) and isinstance(given, T.IntegralType):
            column = F.timestamp_micros(column)
        elif isinstance(wanted, T.TimestampNTZType) and isinstance(given, T.IntegralType):
            epoch = F.lit("1970-01-01").cast("timestamp_ntz")
            column = F.timestamp_add("MICROSECOND", column, epoch)
        elif given != wanted:
            column = column.cast(wanted)
        return column.alias(item.name)

    return [one(item) for item in columns]
