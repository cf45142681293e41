"""Microsoft SQL Server."""

from __future__ import annotations

from typing import Any

from tap_spark.sources.jdbc.dialects.dialect import (
    ColumnInfo,
    KeyOrder,
    MetadataDialect,
    Row,
    decimal,
    key_order,
)

_TEXT = "CONVERT(nvarchar(max), {})"
_MICROS = "DATEDIFF_BIG(microsecond, CONVERT(datetime2, '1970-01-01', 120), {})"
TYPES: dict[str, tuple[str, str, str]] = {
    "bit": ("boolean", "{}", "boolean"),
    "tinyint": ("smallint", "{}", "int"),
    "smallint": ("smallint", "{}", "int"),
    "int": ("int", "{}", "int"),
    "bigint": ("bigint", "{}", "bigint"),
    "money": ("decimal(19,4)", "{}", "decimal(19,4)"),
    "smallmoney": ("decimal(10,4)", "{}", "decimal(10,4)"),
    "real": ("float", "{}", "float"),
    "float": ("double", "{}", "double"),
    **dict.fromkeys(
        ("char", "varchar", "nchar", "nvarchar", "text", "ntext", "sysname"),
        ("string", _TEXT, "string"),
    ),
    **dict.fromkeys(
        ("binary", "varbinary", "image", "timestamp", "rowversion"), ("binary", "{}", "binary")
    ),
    "date": ("date", "DATEDIFF(day, CONVERT(date, '1970-01-01', 120), {})", "int"),
    **dict.fromkeys(
        ("datetime", "datetime2", "smalldatetime"), ("timestamp_ntz", _MICROS, "bigint")
    ),
    "datetimeoffset": ("timestamp", _MICROS, "bigint"),
    "uniqueidentifier": ("string", "CONVERT(char(36), {})", "string"),
    **dict.fromkeys(
        ("geometry", "geography", "hierarchyid"), ("string", "{}.ToString()", "string")
    ),
}
"""Spark's type, the SQL that reads it, and what JDBC returns; every other type is read as text."""

UNORDERED = ("text", "ntext", "xml", "geometry", "geography", "sql_variant", "uniqueidentifier")
"""Types that are read as text, but that the server compares in other ways or not at all."""


class SqlServerDialect(MetadataDialect):
    """Quotes, metadata and values of SQL Server."""

    name = "sqlserver"
    open_quote, close_quote = "[", "]"
    as_text = _TEXT
    tables_query = """
SELECT s.name AS [schema], o.name AS [name],
  CASE o.type WHEN 'V' THEN 'view' ELSE 'table' END AS [kind],
  (SELECT SUM(p.rows) FROM sys.partitions p
    WHERE p.object_id = o.object_id AND p.index_id IN (0, 1)) AS [row_count],
  (SELECT SUM(a.total_pages) * 8192 FROM sys.partitions p
    JOIN sys.allocation_units a ON a.container_id = p.partition_id
    WHERE p.object_id = o.object_id AND p.index_id IN (0, 1)) AS [size_bytes]
FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
WHERE o.type IN ('U', 'V') AND o.is_ms_shipped = 0 AND {wanted}"""
    keys_query = """
SELECT s.name AS [schema], o.name AS [name], c.name AS [column], k.key_ordinal AS [place]
FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.indexes i ON i.object_id = o.object_id AND i.is_primary_key = 1
JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id
JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE k.key_ordinal > 0 AND {wanted}"""
    columns_query = """
SELECT s.name AS [schema], o.name AS [name], c.name AS [column], c.column_id AS [place],
  COALESCE(b.name, t.name) AS [type], t.name AS [words], c.precision AS [digits],
  c.scale AS [scale], c.max_length AS [length], CAST(c.is_nullable AS int) AS [nullable]
FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.columns c ON c.object_id = o.object_id
JOIN sys.types t ON t.user_type_id = c.user_type_id
LEFT JOIN sys.types b ON b.user_type_id = c.system_type_id AND t.is_user_defined = 1
WHERE o.type IN ('U', 'V') AND o.is_ms_shipped = 0 AND {wanted}"""
    all_tables = "1 = 1"
    one_table = "s.name = {schema} AND o.name = {name}"
    this_schema = "SCHEMA_NAME()"

    def column(self, row: Row) -> ColumnInfo:
        """Describe a column by its type; alias types by their base types."""
        kind, expression, read_as = TYPES.get(row["type"], ("string", _TEXT, "string"))
        words = row["words"]
        if row["type"] in ("decimal", "numeric"):
            kind = read_as = decimal(row["digits"], row["scale"])
            expression = "{}"
            words = f"{words}({row['digits']},{row['scale']})" if words == row["type"] else words
        expression = expression.replace("{}", self.quote(row["column"]))
        order = KeyOrder.NONE if row["type"] in UNORDERED else key_order(kind)
        nullable = bool(row["nullable"])
        return ColumnInfo(row["column"], words, kind, nullable, expression, read_as, order)

    def text(self, value: str) -> str:
        return "N" + super().text(value)

    def compared(self, column: ColumnInfo, operator: str, value: Any) -> str:
        """Write a comparison of a column of a table with a bookmark's JSON value as SQL.

        A text of `nvarchar` would make a `varchar` column one, too, which many collations order in
        another way than MAX orders `varchar`.
        """
        literal = self.literal(value, column)
        if column.sql_type in ("char", "varchar") and str(value).isascii():
            literal = f"CAST({literal} AS varchar(8000))"
        return f"{self.key(column)} {operator} {literal}"

    def moment(self, kind: str, day: str, clock: str, zone: str, column: ColumnInfo) -> str:
        """Write a date or timestamp as SQL, in a style that does not depend on the language."""
        del column
        if kind == "date":
            return f"CONVERT(date, '{day}', 120)"
        seconds, _, fraction = clock.partition(".")
        clock = f"{seconds}.{fraction[:7] or '0'}"
        if kind == "timestamp":
            return f"CONVERT(datetimeoffset(7), '{day} {clock} {zone}', 121)"
        return f"CONVERT(datetime2(7), '{day} {clock}', 121)"
