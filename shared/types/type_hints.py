"""The keywords for the exact Spark type of a JSON Schema."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import types as T  # noqa: N812

HINT = "x-spark-type"
"""Keyword with the exact Spark type, if standard keywords cannot express it."""

INTEGER_WIDTHS: dict[type[T.DataType], tuple[int, int]] = {
    T.ByteType: (-(2**7), 2**7 - 1),
    T.ShortType: (-(2**15), 2**15 - 1),
    T.IntegerType: (-(2**31), 2**31 - 1),
    T.LongType: (-(2**63), 2**63 - 1),
}
"""Smallest and largest value of each integer type, narrowest first."""

MAX_DIGITS = 38
"""The most digits a decimal holds."""

_NUMERIC_SQL = re.compile(r"^(?:numeric|decimal|number)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")
_SQL_TYPES: dict[str, T.DataType] = {
    **dict.fromkeys(("bigint", "int8", "bigserial"), T.LongType()),
    **dict.fromkeys(("integer", "int", "int4", "serial", "mediumint"), T.IntegerType()),
    **dict.fromkeys(("smallint", "int2", "smallserial", "tinyint"), T.ShortType()),
    **dict.fromkeys(("real", "float4"), T.FloatType()),
    **dict.fromkeys(("double", "double precision", "float", "float8"), T.DoubleType()),
    **dict.fromkeys(("timestamp without time zone", "timestamp_ntz"), T.TimestampNTZType()),
    **dict.fromkeys(("timestamp", "timestamptz", "timestamp with time zone"), T.TimestampType()),
    **dict.fromkeys(("boolean", "bool"), T.BooleanType()),
    "date": T.DateType(),
}


def hint_of(data_type: T.DataType) -> str:
    """Return the hint of a scalar type, which `type_of_hint` reads."""
    if isinstance(data_type, T.StringType):
        return data_type.simpleString()
    return str(data_type.jsonValue())


def type_of_hint(hint: object) -> T.DataType | None:
    """Return the scalar type of a hint; None if it is not a hint."""
    if not isinstance(hint, str):
        return None
    if hint.startswith("string collate "):
        return T.StringType(hint[len("string collate ") :])
    field: dict[str, Any] = {"name": "value", "type": hint, "nullable": True, "metadata": {}}
    try:
        return T.StructType.fromJson({"type": "struct", "fields": [field]})[0].dataType
    except Exception:  # pyspark raises many kinds; such a hint is ignored
        return None


def decimal_bounds(digits: int) -> tuple[int, int]:
    """Return the smallest and largest integer of that many digits."""
    return -(10**digits) + 1, 10**digits - 1


def type_of_sql(name: object) -> T.DataType | None:
    """Return the Spark type of an `x-sql-datatype`; None if it is not a known exact type."""
    if not isinstance(name, str):
        return None
    word = " ".join(name.lower().split())
    numeric = _NUMERIC_SQL.match(word)
    if numeric:
        precision, scale = int(numeric[1]), int(numeric[2] or 0)
        fits = 0 < precision <= MAX_DIGITS and scale <= precision
        return T.DecimalType(precision, scale) if fits else None
    return _SQL_TYPES.get(word)
