"""Spark DDL of plain columns, parsed without Spark."""

from __future__ import annotations

import re

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tap_spark.sources.frame_helpers import MAX_DECIMAL

_SIMPLE_TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "long": LongType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_COLUMN = re.compile(r"\s*([a-z_][a-z0-9_]*)\s+([a-z_]+)\s*", re.IGNORECASE | re.ASCII)
_DECIMAL_COLUMN = re.compile(
    r"\s*([a-z_][a-z0-9_]*)\s+(?:decimal|numeric)\s*\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)\s*",
    re.IGNORECASE | re.ASCII,
)


def simple_ddl(text: str) -> StructType | None:
    """Parse plain columns of Spark DDL; None if there is anything else, or one that is wrong."""
    fields = []
    for part in re.split(r",(?![^(]*\))", text):
        plain, decimal = _COLUMN.fullmatch(part), _DECIMAL_COLUMN.fullmatch(part)
        if plain and plain[2].lower() in _SIMPLE_TYPES:
            fields.append(StructField(plain[1], _SIMPLE_TYPES[plain[2].lower()], True))
        elif decimal and int(decimal[3]) <= int(decimal[2]) <= MAX_DECIMAL and int(decimal[2]):
            kind = DecimalType(int(decimal[2]), int(decimal[3]))
            fields.append(StructField(decimal[1], kind, True))
        else:
            return None
    distinct = {field.name.lower() for field in fields}
    return StructType(fields) if len(distinct) == len(fields) else None
