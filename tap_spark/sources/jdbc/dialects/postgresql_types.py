"""PostgreSQL's types: the Spark type of each, and the SQL that reads it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tap_spark.sources.jdbc.dialects.base import decimal

# Dates and timestamps are read as days and microseconds since 1970: Java's own classes use another
# calendar before 1582 and have no infinity, which becomes the last moment of the year 9999.
_DATE = (
    "CASE WHEN isfinite({}) THEN {} - DATE 'epoch' "
    "WHEN {} > DATE 'epoch' THEN 2932896 WHEN {} IS NOT NULL THEN -719162 END"
)
_MICROS = (
    "CASE WHEN {} > '-infinity' AND {} < '294247-01-01' "
    "THEN (extract(epoch FROM {}) * 1000000)::bigint "
    "WHEN {} > 'epoch' THEN 253402300799999999 WHEN {} IS NOT NULL THEN -62135596800000000 END"
)
# Before version 14 that epoch is a float, which does not hold every microsecond.
_EXACT_EPOCH = 140000
_OLD_EPOCH = {
    "timestamp": "({} - TIMESTAMP 'epoch')",
    "timestamptz": "(({} AT TIME ZONE 'UTC') - TIMESTAMP 'epoch')",
}
_OLD_MICROS = (
    "(extract(day FROM {0})::bigint * 86400000000 + extract(hour FROM {0})::bigint * 3600000000"
    " + extract(minute FROM {0})::bigint * 60000000 + extract(microseconds FROM {0})::bigint)"
)

SCALARS: Mapping[str, tuple[str, str]] = {
    "bool": ("boolean", "{}"),
    "int2": ("smallint", "{}"),
    "int4": ("int", "{}"),
    "int8": ("bigint", "{}"),
    "oid": ("bigint", "{}::bigint"),
    "float4": ("float", "{}"),
    "float8": ("double", "{}"),
    "text": ("string", "{}"),
    "varchar": ("string", "{}"),
    # A cast to text would cut trailing blanks of the value.
    "bpchar": ("string", "CASE WHEN {} IS NOT NULL THEN format('%s', {}) END"),
    # As PostgreSQL prints it; a cast to text always adds /32.
    "inet": ("string", "abbrev({})"),
    "bytea": ("binary", "{}"),
    "date": ("date", _DATE),
    "timestamp": ("timestamp_ntz", _MICROS),
    "timestamptz": ("timestamp", _MICROS),
}
"""Spark's type, and the SQL that reads it; every other type is read as text."""
ELEMENTS = ("bool", "int2", "int4", "int8", "float4", "float8", "date", "timestamp", "timestamptz")
"""Types of array elements that JSON and Spark read exactly; the others are read as text."""
TEXT_KEYS = ("text", "varchar", "bpchar", "name")
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")


def column_type(row: Mapping[str, Any], quoted: str) -> tuple[str, str]:
    """Return Spark's type of a column and the SQL that reads it.

    Args:
        row: The column's row of the metadata query.
        quoted: Its quoted name.
    """
    if row["element"] is not None:
        return _array(row, quoted)
    if not row["builtin"]:
        return "string", f"{quoted}::text"
    name = row["base"]
    if name == "numeric":
        return _numeric(row, quoted)
    if name == "money":
        # A 64-bit integer; its decimal places depend on the server's locale.
        digits = f"(19,{row['money_scale']})"
        return f"decimal{digits}", f"{quoted}::numeric{digits}"
    kind, expression = SCALARS.get(name, ("string", "{}::text"))
    if expression is _MICROS and row["version"] < _EXACT_EPOCH:
        since = _OLD_EPOCH[name]
        expression = _MICROS.replace(
            "(extract(epoch FROM {}) * 1000000)::bigint", _OLD_MICROS.replace("{0}", since)
        )
    return kind, expression.replace("{}", quoted)


def _numeric(row: Mapping[str, Any], quoted: str) -> tuple[str, str]:
    kind = _numeric_type(row["base_words"])
    if kind == "string":
        return kind, f"{quoted}::text"
    value = f"{quoted}::{kind.replace('decimal', 'numeric')}"
    # Decimals have no NaN: it becomes null, or fails the read if the column is not nullable.
    return kind, f"NULLIF({value}, 'NaN')" if row["nullable"] else value


def _numeric_type(words: str) -> str:
    match = _NUMERIC.search(words)
    return decimal(int(match[1]), int(match[2])) if match else "string"


def _array(row: Mapping[str, Any], quoted: str) -> tuple[str, str]:
    """Read an array as JSON text: neither the driver nor Spark then needs its dimensions."""
    name = row["element"] if row["element_builtin"] else ""
    kind, value = "string", quoted
    if name in ELEMENTS:
        kind = SCALARS[name][0]
    elif name == "numeric":
        kind = _numeric_type(row["base_words"])
        value = f"{quoted}::text[]" if kind == "string" else quoted
    dimensions = max(1, int(row["dimensions"]))
    nested = "array<" * dimensions + kind + ">" * dimensions
    return nested, f"array_to_json({value})::text"
