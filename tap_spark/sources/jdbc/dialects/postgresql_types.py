"""PostgreSQL's types: the Spark type of each, and the SQL that reads it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tap_spark.sources.jdbc.dialects.base import decimal, is_ordered
from tap_spark.sources.jdbc.table_info import KeyOrder

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
"""Types that are compared by their bytes, whatever their collation: as Spark orders them."""
ORDERED = (
    *("numeric", "inet", "cidr", "macaddr", "macaddr8", "time", "timetz", "interval"),
    *("bit", "varbit", "pg_lsn"),
)
"""Types that are read as text, but that PostgreSQL orders by their value."""
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


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


def order_of(row: Mapping[str, Any], spark_type: str) -> KeyOrder:
    """Return who orders a column, by its row of the metadata query and Spark's type."""
    if is_ordered(spark_type) or (row["builtin"] and row["base"] in ("uuid", *TEXT_KEYS)):
        return KeyOrder.SPARK
    if row["is_enum"] or row["base"] in ("citext", *(ORDERED if row["builtin"] else ())):
        return KeyOrder.DATABASE
    return KeyOrder.NONE


def query_precision(row: Mapping[str, Any], spark_type: str) -> dict[str, Any]:
    """Return the precision of a query's `numeric`, which Spark's reader knows, up to 38 digits.

    Args:
        row: The column's row of the metadata query.
        spark_type: Spark's type of the column.
    """
    match = _DECIMAL.fullmatch(spark_type)
    if match is None or row["base"] != "numeric" or _NUMERIC.search(row["base_words"]):
        return {}
    return {"base_words": f"numeric({match[1]},{match[2]})", "checked": match[1] == "38"}


def _numeric(row: Mapping[str, Any], quoted: str) -> tuple[str, str]:
    kind = _numeric_type(row["base_words"])
    if kind == "string":
        return kind, f"{quoted}::text"
    words, name = kind.replace("decimal", "numeric"), row["name"].replace("'", "''")
    if row.get("checked"):
        # Spark's reader also means a numeric of any precision: then each value must fit.
        digits, scale = map(int, kind[len("decimal(") : -1].split(","))
        fits = f"abs({quoted}) < 1E{digits - scale} AND {quoted} = round({quoted}, {scale})"
        problem = f" does not fit {kind}: cast column {name} of the query to text"
    elif row["nullable"]:
        # Decimals have no NaN: it becomes null, or fails the read if the column is not nullable.
        return kind, f"NULLIF({quoted}::{words}, 'NaN')"
    else:
        fits = f"{quoted} <> 'NaN'"
        problem = f" cannot be null in column {name}: cast it to text in a query"
    other = f"WHEN {quoted} IS NOT NULL THEN ({quoted} || '{problem}')::numeric"
    return kind, f"(CASE WHEN {fits} THEN {quoted} {other} END)::{words}"


def _numeric_type(words: str) -> str:
    match = _NUMERIC.search(words)
    return decimal(int(match[1]), int(match[2])) if match else "string"


def _array(row: Mapping[str, Any], quoted: str) -> tuple[str, str]:
    """Read an array as JSON text: neither the driver nor Spark then needs its dimensions."""
    name = row["element"] if row["element_builtin"] else ""
    # The array's own text holds the text of each element as PostgreSQL prints it: array_to_json
    # would write numbers, JSON and composites as JSON, and a cast of the elements cuts and adds.
    kind, value = "string", f"{quoted}::text::text[]"
    if row["delimiter"] != ",":
        value = f"{quoted}::text[]"
    if name in ELEMENTS:
        kind, value = SCALARS[name][0], quoted
    elif name == "numeric" and _numeric_type(row["base_words"]) != "string":
        kind, value = _numeric_type(row["base_words"]), f"array_replace({quoted}, 'NaN', NULL)"
    dimensions = max(1, int(row["dimensions"]))
    nested = "array<" * dimensions + kind + ">" * dimensions
    text = f"array_to_json({value})::text"
    if kind == "string":
        return nested, text
    other = f"array_ndims({quoted}) <> {dimensions}"
    return nested, f"CASE WHEN {other} THEN array_dims({quoted}) ELSE {text} END"
