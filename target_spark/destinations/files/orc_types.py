"""Spark types in ORC, with the attributes that Spark writes and reads too.

A timestamp is ORC's `timestamp with local time zone` (an instant). One without a zone is ORC's
`timestamp`, which Spark reads as a timestamp of its session's zone. ORC does not have a time of day
or void: both are text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from shared.types.arrow_types import spark_to_arrow

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

ATTRIBUTE = "spark.sql.catalyst.type"


def orc_field(field: StructField) -> pa.Field:
    """Return the Arrow field for a column; its metadata becomes attributes of the ORC type."""
    return _field(field.name, field.dataType)


def _field(name: str, kind: DataType) -> pa.Field:
    from shared.releases.spark_types import T  # noqa: PLC0415

    named = (T.TimestampType, T.DayTimeIntervalType, T.YearMonthIntervalType)
    attributes = {ATTRIBUTE: kind.simpleString()} if isinstance(kind, named) else None
    return pa.field(name, _type(kind), metadata=attributes)


def _type(kind: DataType) -> pa.DataType:
    from shared.releases.spark_types import T  # noqa: PLC0415

    if isinstance(kind, T.StructType):
        return pa.struct([orc_field(field) for field in kind])
    if isinstance(kind, T.ArrayType):
        return pa.list_(_field("element", kind.elementType))
    if isinstance(kind, T.MapType):
        return pa.map_(_type(kind.keyType), _field("value", kind.valueType))
    if isinstance(kind, T.TimeType | T.NullType):
        return pa.string()
    return spark_to_arrow(kind)
