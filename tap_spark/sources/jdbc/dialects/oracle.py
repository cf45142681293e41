"""Oracle."""

from __future__ import annotations

import re
from typing import Any

from tap_spark.sources.jdbc.dialects.dialect import (
    ColumnInfo,
    KeyOrder,
    MetadataDialect,
    Row,
    decimal,
    key_order,
    number,
)

_NUMBER = "TO_CHAR({}, 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')"
TYPES: dict[str, tuple[str, str]] = {
    "FLOAT": ("string", _NUMBER),
    "BINARY_FLOAT": ("float", "{}"),
    "BINARY_DOUBLE": ("double", "{}"),
    **dict.fromkeys(
        ("CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2", "CLOB", "NCLOB", "LONG"), ("string", "{}")
    ),
    **dict.fromkeys(("RAW", "BLOB", "LONG RAW"), ("binary", "{}")),
    "BOOLEAN": ("boolean", "{}"),
    "DATE": ("timestamp_ntz", "CAST({} AS TIMESTAMP(0))"),
    "TIMESTAMP": ("timestamp_ntz", "{}"),
    "TIMESTAMP WITH TIME ZONE": ("timestamp", "SYS_EXTRACT_UTC({})"),
    "TIMESTAMP WITH LOCAL TIME ZONE": ("timestamp", "SYS_EXTRACT_UTC({})"),
    "ROWID": ("string", "ROWIDTOCHAR({})"),
    "UROWID": ("string", "ROWIDTOCHAR({})"),
    "XMLTYPE": ("string", "XMLSERIALIZE(CONTENT {} AS CLOB)"),
    "JSON": ("string", "JSON_SERIALIZE({} RETURNING CLOB)"),
    "INTERVAL YEAR TO MONTH": ("string", "TO_CHAR({})"),
    "INTERVAL DAY TO SECOND": ("string", "TO_CHAR({})"),
}
"""Spark's type and the SQL that reads it; columns of other types (objects) are skipped."""
UNORDERED = (
    *("CLOB", "NCLOB", "LONG", "XMLTYPE", "JSON", "ROWID", "UROWID"),
    *("INTERVAL YEAR TO MONTH", "INTERVAL DAY TO SECOND"),
)
"""Types that are read as text, but that the database compares in other ways or not at all."""
_NUMBERS = ("NUMBER", "FLOAT")
_DIGITS = re.compile(r"\(\d+\)")
_INTEGER_DIGITS = 38


class OracleDialect(MetadataDialect):
    """Quotes, metadata and values of Oracle. Its users are schemas here."""

    name = "oracle"
    tables_query = """
SELECT o.OWNER AS "schema", o.OBJECT_NAME AS "name",
  CASE o.OBJECT_TYPE WHEN 'VIEW' THEN 'view' ELSE 'table' END AS "kind",
  t.NUM_ROWS AS "row_count", t.BLOCKS * 8192 AS "size_bytes"
FROM ALL_OBJECTS o
LEFT JOIN ALL_TABLES t ON t.OWNER = o.OWNER AND t.TABLE_NAME = o.OBJECT_NAME
WHERE o.OBJECT_TYPE IN ('TABLE', 'VIEW') AND {wanted}"""
    keys_query = """
SELECT o.OWNER AS "schema", o.OBJECT_NAME AS "name", k.COLUMN_NAME AS "column",
  k.POSITION AS "place"
FROM (SELECT OWNER, TABLE_NAME AS OBJECT_NAME, CONSTRAINT_NAME FROM ALL_CONSTRAINTS
  WHERE CONSTRAINT_TYPE = 'P') o
JOIN ALL_CONS_COLUMNS k ON k.OWNER = o.OWNER AND k.CONSTRAINT_NAME = o.CONSTRAINT_NAME
WHERE {wanted}"""
    columns_query = """
SELECT o.OWNER AS "schema", o.OBJECT_NAME AS "name", o.COLUMN_NAME AS "column",
  o.COLUMN_ID AS "place", o.DATA_TYPE AS "words", o.DATA_PRECISION AS "digits",
  o.DATA_SCALE AS "scale", o.NULLABLE AS "nullable"
FROM (SELECT c.*, c.TABLE_NAME AS OBJECT_NAME FROM ALL_TAB_COLUMNS c) o
WHERE {wanted}"""
    all_tables = "o.OWNER IN (SELECT USERNAME FROM ALL_USERS WHERE ORACLE_MAINTAINED = 'N')"
    one_table = "o.OWNER = {schema} AND o.OBJECT_NAME = {name}"
    this_schema = "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"

    def columns_of(self, rows: list[Row]) -> list[Row]:
        """Select the columns that can be read: values of other types have no text form."""
        return [row for row in rows if column_type(row) is not None]

    def column(self, row: Row) -> ColumnInfo:
        """Describe a column by its type, with its precision."""
        words = row["words"]
        if words == "NUMBER" and row["digits"] is not None:
            words = f"NUMBER({int(row['digits'])},{int(row['scale'] or 0)})"
        kind, expression = column_type(row) or ("string", "{}")
        read_as = "timestamp_ntz" if kind.startswith("timestamp") else kind
        expression = expression.replace("{}", self.quote(row["column"]))
        nullable = row["nullable"] == "Y"
        order = KeyOrder.NONE if _DIGITS.sub("", words) in UNORDERED else key_order(kind)
        return ColumnInfo(row["column"], words, kind, nullable, expression, read_as, order)

    def literal(self, value: Any, column: ColumnInfo) -> str:
        is_number = column.spark_type == "string" and column.sql_type.startswith(_NUMBERS)
        return number(value) if is_number else super().literal(value, column)

    def moment(self, kind: str, day: str, clock: str, zone: str, column: ColumnInfo) -> str:
        """Write a date or timestamp as SQL; a DATE as such, so that its index helps."""
        if column.sql_type == "DATE":
            return f"TO_DATE('{day} {clock[:8]}', 'YYYY-MM-DD HH24:MI:SS')"
        return super().moment(kind, day, clock, f" {zone}", column)


def column_type(row: Row) -> tuple[str, str] | None:
    """Return Spark's type and the SQL that reads it (`{}` is the column); None if none does."""
    name = _DIGITS.sub("", row["words"])
    if name != "NUMBER":
        return TYPES.get(name)
    digits = row["digits"]
    if digits is None and row["scale"] is not None:
        digits = _INTEGER_DIGITS
    kind = decimal(None if digits is None else int(digits), int(row["scale"] or 0))
    return (kind, "{}") if kind != "string" else (kind, _NUMBER)
