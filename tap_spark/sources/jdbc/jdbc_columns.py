"""Spark's types of the columns of a table, and the casts from what JDBC returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812

from shared.releases.spark_functions import micros_after
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


def typed(
    frame: DataFrame, columns: Iterable[ColumnInfo], names: Sequence[str] | None = None
) -> list[Column]:
    """Cast the result of the JDBC reader for each column's expression to the column's type.

    Args:
        frame: The rows read, with a column for each expression: arrays as JSON text, and dates and
            timestamps as days and microseconds since 1970, if the expression returns them so.
        columns: What to select, in this order.
        names: The names of these columns in `frame`, if they are not their own.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from tap_spark.sources.frame_helpers import col  # noqa: PLC0415

    def one(item: ColumnInfo, name: str) -> Column:
        column, wanted = col(name), spark_type(item.spark_type)
        given = frame.schema[name].dataType
        if isinstance(wanted, T.ArrayType) and isinstance(given, T.StringType):
            column = _array(column, wanted, item)
        elif isinstance(wanted, T.DateType) and isinstance(given, T.IntegralType):
            column = F.date_from_unix_date(column.cast("int"))
        elif isinstance(wanted, T.TimestampType) and isinstance(given, T.IntegralType):
            column = F.timestamp_micros(column)
        elif isinstance(wanted, T.TimestampNTZType) and isinstance(given, T.IntegralType):
            epoch = F.lit("1970-01-01").cast("timestamp_ntz")
            column = micros_after(epoch, column)
        elif given != wanted:
            column = column.cast(wanted)
        return column.alias(item.name)

    columns = list(columns)
    own = [item.name for item in columns] if names is None else names
    return [one(item, name) for item, name in zip(columns, own, strict=True)]


def _array(text: Column, wanted: T.ArrayType, item: ColumnInfo) -> Column:
    """Parse the JSON text of an array; fail the job if the text is its dimensions instead."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from tap_spark.sources.frame_helpers import fail_job  # noqa: PLC0415

    depth = item.spark_type.count(_ARRAY)
    other = fail_job(
        f"column {item.name!r} has the type {depth * '[]'} of {item.sql_type}, but a value with "
        "other dimensions",
        value=text,
        hint="read it as text: cast it in a 'query' of the stream, or deselect the column",
    )
    element = _element(wanted)
    moments = isinstance(element, (T.DateType, T.TimestampType, T.TimestampNTZType))
    read_as = _ARRAY * depth + "string" + ">" * depth if moments else item.spark_type
    parsed = F.from_json(text, read_as, {"mode": "FAILFAST"})
    if moments:
        parsed = _moments(parsed, wanted)
    return F.when(text.rlike(r"^\[-?\d+:"), other.cast(wanted)).otherwise(parsed)


def _element(kind: T.DataType) -> T.DataType:
    return _element(kind.elementType) if isinstance(kind, T.ArrayType) else kind


def _moments(texts: Column, wanted: T.DataType) -> Column:
    """Cast PostgreSQL's texts of dates and timestamps in arrays, of all years, as those outside."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if isinstance(wanted, T.ArrayType):
        inside = wanted.elementType
        return F.transform(texts, lambda item: _moments(item, inside))
    first, last = ("0001-01-01", "9999-12-31")
    if not isinstance(wanted, T.DateType):
        first, last = f"{first}T00:00:00", f"{last}T23:59:59.999999"
    if isinstance(wanted, T.TimestampType):
        first, last = f"{first}Z", f"{last}Z"
    before_christ = texts.endswith(" BC")
    # ISO 8601 counts the year before 1 as 0.
    year = F.lpad((F.regexp_extract(texts, r"^\d+", 0).cast("int") - 1).cast("string"), 4, "0")
    rest = F.regexp_extract(texts, r"^\d+(.*) BC$", 1)
    written = (
        F.when(texts == "infinity", F.lit(last))
        .when(texts == "-infinity", F.lit(first))
        .when(before_christ, F.concat(F.lit("-"), year, rest))
        .otherwise(texts)
    )
    return written.cast(wanted)
