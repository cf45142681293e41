"""DuckDB."""

from __future__ import annotations

import re
from typing import Any

from tap_spark.sources.jdbc.dialects.dialect import (
    ColumnInfo,
    KeyOrder,
    MetadataDialect,
    QueryRunner,
    Row,
    decimal,
    key_order,
    with_era,
)

_DATE = (
    "CASE WHEN isfinite({}) THEN ({} - DATE '1970-01-01')::INTEGER "
    "WHEN {} > DATE '1970-01-01' THEN 2932896 WHEN {} IS NOT NULL THEN -719162 END"
)
_MICROS = (
    "CASE WHEN isfinite({}) THEN epoch_us({}) WHEN {} > '1970-01-01' THEN 253402300799999999 "
    "WHEN {} IS NOT NULL THEN -62135596800000000 END"
)
TYPES: dict[str, tuple[str, str, str]] = {
    "BOOLEAN": ("boolean", "{}", "boolean"),
    "TINYINT": ("tinyint", "{}", "int"),
    "SMALLINT": ("smallint", "{}", "int"),
    "INTEGER": ("int", "{}", "int"),
    "BIGINT": ("bigint", "{}", "bigint"),
    "UTINYINT": ("smallint", "{}::INTEGER", "int"),
    "USMALLINT": ("int", "{}::INTEGER", "int"),
    "UINTEGER": ("bigint", "{}::BIGINT", "bigint"),
    "UBIGINT": ("decimal(20,0)", "{}::DECIMAL(20,0)", "decimal(20,0)"),
    "FLOAT": ("float", "{}", "float"),
    "DOUBLE": ("double", "{}", "double"),
    "VARCHAR": ("string", "{}", "string"),
    "BLOB": ("binary", "{}", "binary"),
    "DATE": ("date", _DATE, "int"),
    "TIMESTAMP": ("timestamp_ntz", _MICROS, "bigint"),
    "TIMESTAMP_S": ("timestamp_ntz", _MICROS, "bigint"),
    "TIMESTAMP_MS": ("timestamp_ntz", _MICROS, "bigint"),
    "TIMESTAMP WITH TIME ZONE": ("timestamp", _MICROS, "bigint"),
}
"""Spark's type, the SQL that reads it, and what JDBC returns; every other type is read as text."""
ELEMENTS = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR")
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_LIST = re.compile(r"(.*)\[\d*\]", re.DOTALL)
_NESTED = re.compile(r"(STRUCT|MAP|UNION)\(.*|.*\[\d*\]", re.DOTALL)


class DuckDbDialect(MetadataDialect):
    """Quotes, metadata and values of DuckDB."""

    name = "duckdb"
    tables_query = """
SELECT schema_name AS schema, table_name AS name, 'table' AS kind,
  estimated_size::BIGINT AS row_count, NULL::BIGINT AS size_bytes
FROM duckdb_tables() WHERE NOT internal AND {wanted}
UNION ALL SELECT schema_name, name, 'view', NULL, NULL
FROM (SELECT *, view_name AS name, view_name AS table_name FROM duckdb_views())
WHERE NOT internal AND {wanted}"""
    keys_query = """
SELECT schema_name AS schema, table_name AS name, unnest(constraint_column_names) AS "column",
  generate_subscripts(constraint_column_names, 1)::BIGINT AS place
FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY' AND {wanted}"""
    columns_query = """
SELECT schema_name AS schema, table_name AS name, column_name AS "column",
  column_index::BIGINT AS place, data_type AS words, is_nullable AS nullable
FROM duckdb_columns() WHERE NOT internal AND {wanted}"""
    all_tables = "database_name = current_database()"
    one_table = (
        "database_name = current_database() AND schema_name = {schema} AND table_name = {name}"
    )
    this_schema = "current_schema()"

    def day(self, day: str) -> str:
        return with_era(day, "(BC)")

    def query_columns(self, run_query: QueryRunner, source: str) -> tuple[ColumnInfo, ...]:
        """Describe the columns of a query by DuckDB's own types, as those of tables."""
        described = f"DESCRIBE SELECT * FROM {source}"  # noqa: S608
        rows = run_query(f"SELECT column_name, column_type FROM ({described})")  # noqa: S608
        return tuple(
            self.column({"column": r["column_name"], "words": r["column_type"], "nullable": True})
            for r in rows
        )

    def column(self, row: Row) -> ColumnInfo:
        """Describe a column by its type in words."""
        words, quoted = row["words"], self.quote(row["column"])
        kind, expression, read_as = column_type(words)
        expression = expression.replace("{}", quoted)
        order = key_order(kind)
        if words == "JSON" or _NESTED.fullmatch(words):
            order = KeyOrder.NONE
        nullable = bool(row["nullable"])
        return ColumnInfo(row["column"], words, kind, nullable, expression, read_as, order)

    def compared(self, column: ColumnInfo, operator: str, value: Any) -> str:
        """Write a comparison of a column with a bookmark's JSON value: by the column's type."""
        written = super().compared(column, operator, value)
        own = column.spark_type == "string" and column.sql_type not in ("", "VARCHAR")
        return f"{written}::{column.sql_type}" if own else written


def column_type(words: str) -> tuple[str, str, str]:
    """Return Spark's type, the SQL that reads it (`{}` is the column), and what JDBC returns."""
    numeric = _DECIMAL.fullmatch(words)
    if numeric:
        kind = decimal(int(numeric[1]), int(numeric[2]))
        return kind, "{}", kind
    items = _LIST.fullmatch(words)
    if items and items[1] in ELEMENTS:
        return f"array<{TYPES[items[1]][0]}>", "to_json({})::VARCHAR", "string"
    if _NESTED.fullmatch(words):
        return "string", "to_json({})::VARCHAR", "string"
    return TYPES.get(words, ("string", "{}::VARCHAR", "string"))
