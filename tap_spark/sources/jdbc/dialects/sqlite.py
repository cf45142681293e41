"""SQLite. Its columns take values of any type: all but binary are read as text, which Spark casts.

A value that does not fit the declared type therefore fails the run instead of becoming zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tap_spark.sources.jdbc.dialects.dialect import (
    ColumnInfo,
    KeyOrder,
    MetadataDialect,
    QueryRunner,
    Row,
    TableInfo,
    TableName,
    count_or_none,
    decimal,
    is_ordered,
    key_order,
    sorted_tables,
)

_NUMERIC = re.compile(r"(?:NUMERIC|DECIMAL|NUMBER)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_TEMPORAL = re.compile(r"DATE|TIME")
_TABLES = """
FROM sqlite_master m WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
  AND {wanted}"""
_COLUMNS = _TABLES.replace("m WHERE", "m, pragma_table_xinfo(m.name) p WHERE")
_STATISTICS = "SELECT tbl AS name, max(stat + 0) AS row_count FROM sqlite_stat1 GROUP BY 1"
_AS = re.compile(r" AS (\w+)")


class SqliteDialect(MetadataDialect):
    """Quotes, metadata and values of SQLite."""

    name = "sqlite"
    tables_query = (
        "SELECT NULL AS schema, m.name AS name, m.type AS kind, NULL AS row_count,"
        " NULL AS size_bytes" + _TABLES
    )
    columns_query = (
        "SELECT NULL AS schema, m.name AS name, p.name AS column, p.cid AS place,"  # noqa: S608
        ' p.type AS words, p."notnull" AS not_null, p.pk AS pk,'
        " (SELECT COUNT(*) FROM pragma_table_info(m.name) k WHERE k.pk > 0) AS pk_width"
        + _COLUMNS
        + " AND p.hidden <> 1"
    )
    keys_query = (
        "SELECT NULL AS schema, m.name AS name, p.name AS column, p.pk AS place"
        + _COLUMNS
        + " AND p.pk > 0"
    )
    all_tables = "1"
    one_table = "m.name = {name}"

    def tables(self, run_query: QueryRunner, only: TableName | None = None) -> list[TableInfo]:
        """Describe every table and view, by three or four queries."""
        tables = super().tables(run_query, (None, only[1]) if only else None)
        sequences = self._run_query(
            run_query, "SELECT 1 AS name FROM sqlite_master WHERE name = 'sqlite_stat1'", ""
        )
        rows = self._run_query(run_query, _STATISTICS, "") if sequences else []
        counts = {row["name"]: count_or_none(row["row_count"]) for row in rows}
        return sorted_tables(replace(table, row_count=counts.get(table.name)) for table in tables)

    def _run_query(self, run_query: QueryRunner, query: str, wanted: str) -> list[dict[str, Any]]:
        return run_query(query.replace("{wanted}", wanted), _AS.findall(query))

    def column(self, row: Row) -> ColumnInfo:
        """Describe a column by its declared type and the affinity that follows from it."""
        words = row["words"] or ""
        quoted = self.quote(row["column"])
        kind = declared_type(words)
        # Such a key of one column is the number of the row; all others may be null.
        is_rowid = row["pk"] == row["pk_width"] == "1" and words.upper() == "INTEGER"
        nullable = row["not_null"] == "0" and not is_rowid
        if kind == "binary":
            order = KeyOrder.NONE
            return ColumnInfo(row["column"], words, kind, nullable, quoted, kind, order)
        text = f"CAST({quoted} AS TEXT)"
        if kind in ("double", "string"):
            # SQLite's own cast keeps only fifteen digits of a number.
            text = (
                f"CASE typeof({quoted}) WHEN 'real' THEN printf('%!.17g', {quoted}) ELSE {text} END"
            )
        # Without a declared type a text is greater than every number.
        order = key_order(kind) if words else KeyOrder.NONE
        return ColumnInfo(row["column"], words, kind, nullable, text, "string", order)

    def keys(self, columns: Sequence[ColumnInfo], rows: Sequence[Row]) -> tuple[str, ...]:
        """Return the columns that can be replication keys, also text of dates and primary keys."""
        return tuple(
            column.name
            for column, row in zip(columns, rows, strict=True)
            if is_ordered(column.spark_type)
            or _TEMPORAL.search(column.sql_type.upper())
            or (row["pk"] != "0" and column.spark_type == "string")
        )


def declared_type(words: str) -> str:
    """Return Spark's type of a declared one, by SQLite's rules of affinity."""
    upper = words.upper()
    numeric = _NUMERIC.search(upper)
    if numeric:
        return decimal(int(numeric[1]), int(numeric[2] or 0))
    rules = (
        (("BOOL",), "boolean"),
        (("INT",), "bigint"),
        (("CHAR", "CLOB", "TEXT"), "string"),
        (("BLOB",), "binary"),
        (("REAL", "FLOA", "DOUB"), "double"),
    )
    return next((kind for signs, kind in rules if any(s in upper for s in signs)), "string")
