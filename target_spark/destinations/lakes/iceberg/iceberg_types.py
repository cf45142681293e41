"""Types of Iceberg, and those that it can widen in place. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.formats.arrow_types import mapped
from shared.formats.spark_types import T

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SCALARS = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
"""Iceberg's name of a type → Spark's."""
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def iceberg_storable(struct: StructType) -> StructType:
    """Return the columns with the types that Iceberg stores.

    Small integers become integers; types that Iceberg or its Spark lacks become text.
    """
    # A variant inside of others is text already: see `parts`.
    whole = {f.name: f.dataType for f in struct if isinstance(f.dataType, T.VariantType)}
    return T.StructType(
        [
            T.StructField(
                f.name, whole.get(f.name) or mapped(f.dataType, _storable), f.nullable, f.metadata
            )
            for f in struct
        ]
    )


def iceberg_widens(old: DataType, new: DataType) -> bool:
    """Return whether Iceberg can change a column from one type to another without a rewrite."""
    if isinstance(old, T.DecimalType) and isinstance(new, T.DecimalType):
        return new.scale == old.scale and new.precision >= old.precision
    small = (T.ByteType, T.ShortType, T.IntegerType)
    if isinstance(old, small):
        return isinstance(new, (T.IntegerType, T.LongType))
    return isinstance(old, T.FloatType) and isinstance(new, T.DoubleType)


def needs_version_3(dtypes: list[DataType]) -> bool:
    """Return whether a type needs version 3 of the format."""
    return any(isinstance(dtype, T.VariantType) for dtype in dtypes)


def can_identify(dtype: DataType) -> bool:
    """Return whether a column of the type may be one of Iceberg's identifier fields."""
    others = (
        T.FloatType, T.DoubleType, T.StructType, T.ArrayType, T.MapType, T.VariantType,
    )  # fmt: skip
    return not isinstance(dtype, others)


def _storable(dtype: DataType) -> DataType:
    if isinstance(dtype, (T.ByteType, T.ShortType)):
        return T.IntegerType()
    absent = (
        T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType, T.TimeType,
        T.GeometryType, T.GeographyType, T.CharType, T.VarcharType, T.NullType, T.VariantType,
    )  # fmt: skip
    return T.StringType() if isinstance(dtype, absent) else dtype
