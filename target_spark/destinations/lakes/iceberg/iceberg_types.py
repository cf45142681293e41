"""Types of Iceberg, and those that it can widen in place. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shared.types.arrow_types import mapped
from target_spark.destinations.lakes.lake_format import NeedsSparkError

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
    from shared.releases.spark_types import T  # noqa: PLC0415

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
    from shared.releases.spark_types import T  # noqa: PLC0415

    if isinstance(old, T.DecimalType) and isinstance(new, T.DecimalType):
        return new.scale == old.scale and new.precision >= old.precision
    small = (T.ByteType, T.ShortType, T.IntegerType)
    if isinstance(old, small):
        return isinstance(new, (T.IntegerType, T.LongType))
    return isinstance(old, T.FloatType) and isinstance(new, T.DoubleType)


def needs_version_3(dtypes: list[DataType]) -> bool:
    """Return whether a type needs version 3 of the format."""
    from shared.releases.spark_types import T  # noqa: PLC0415

    return any(isinstance(dtype, T.VariantType) for dtype in dtypes)


def can_identify(dtype: DataType) -> bool:
    """Return whether a column of the type may be one of Iceberg's identifier fields."""
    from shared.releases.spark_types import T  # noqa: PLC0415

    others = (
        T.FloatType, T.DoubleType, T.StructType, T.ArrayType, T.MapType, T.VariantType,
    )  # fmt: skip
    return not isinstance(dtype, others)


def _storable(dtype: DataType) -> DataType:
    from shared.releases.spark_types import T  # noqa: PLC0415

    if isinstance(dtype, (T.ByteType, T.ShortType)):
        return T.IntegerType()
    absent = (
        T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType, T.TimeType,
        T.GeometryType, T.GeographyType, T.CharType, T.VarcharType, T.NullType, T.VariantType,
    )  # fmt: skip
    return T.StringType() if isinstance(dtype, absent) else dtype


def spark_struct(fields: Sequence[Mapping[str, Any]]) -> StructType:
    """Return the columns of a schema in Iceberg's JSON, as Iceberg's Spark shows them.

    Raises:
        NeedsSparkError: It has a type that is not among them.
    """
    from shared.releases.spark_types import T  # noqa: PLC0415

    return T.StructType(
        [
            T.StructField(
                field["name"],
                _spark_type(field["type"]),
                not field["required"],
                {"comment": field["doc"]} if field.get("doc") else None,
            )
            for field in fields
        ]
    )


def iceberg_scalar(dtype: DataType) -> str:
    """Return a type without others inside as Iceberg's JSON has it.

    Raises:
        NeedsSparkError: It is not among them.
    """
    from pyspark.sql.types import DecimalType  # noqa: PLC0415

    if isinstance(dtype, DecimalType):
        return f"decimal({dtype.precision}, {dtype.scale})"
    found = [name for name, known in _SCALARS.items() if known == dtype.typeName()]
    if not found or dtype != _spark_type(found[0]):
        raise NeedsSparkError
    return found[0]


def _spark_type(kind: Any) -> DataType:
    from shared.releases.spark_types import T  # noqa: PLC0415

    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        if decimal is not None:
            return T.DecimalType(int(decimal[1]), int(decimal[2]))
        if kind not in _SCALARS:
            raise NeedsSparkError
        field = {"name": kind, "type": _SCALARS[kind], "nullable": True, "metadata": {}}
        return T.StructField.fromJson(field).dataType
    if kind["type"] == "list":
        return T.ArrayType(_spark_type(kind["element"]), not kind["element-required"])
    if kind["type"] == "map":
        key, value = _spark_type(kind["key"]), _spark_type(kind["value"])
        return T.MapType(key, value, not kind["value-required"])
    return spark_struct(kind["fields"])
