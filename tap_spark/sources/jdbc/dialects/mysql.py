"""MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tap_spark.sources.jdbc.dialects.dialect import (
    TEMPORAL,
    ColumnInfo,
    KeyOrder,
    MetadataDialect,
    Row,
    TableInfo,
    decimal,
    key_order,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

_TEXT = "CAST({} AS CHAR)"
_SHAPES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
    *("multipolygon", "geomcollection", "geometrycollection"),
)
INTEGERS = {
    "tinyint": ("tinyint", "smallint"),
    "smallint": ("smallint", "int"),
    "mediumint": ("int", "int"),
    "int": ("int", "bigint"),
    "bigint": ("bigint", "decimal(20,0)"),
}
"""Spark's type of each integer type, and of its unsigned form."""
TYPES: dict[str, tuple[str, str, str]] = {
    # The text protocol returns six digits of a float, but all of a double.
    "float": ("float", "CAST({} AS DOUBLE)", "double"),
    "double": ("double", "{}", "double"),
    **dict.fromkeys(
        ("varchar", "tinytext", "text", "mediumtext", "longtext"),
        ("string", "{}", "string"),
    ),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        ("binary", "{}", "binary"),
    ),
    # Dates are read as days and microseconds since 1970, and 0000-00-00 as null.
    "date": ("date", "TO_DAYS({}) - 719528", "int"),
    "datetime": (
        "timestamp_ntz",
        "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', {})",
        "bigint",
    ),
    "timestamp": (
        "timestamp",
        "CAST(NULLIF(UNIX_TIMESTAMP({}), 0) * 1000000 AS SIGNED)",
        "bigint",
    ),
    "year": ("int", "CAST({} AS UNSIGNED)", "int"),
    **dict.fromkeys(_SHAPES, ("string", "ST_AsText({})", "string")),
    # Each server ignores the comment of the other.
    "vector": (
        "string",
        "/*!90000 VECTOR_TO_STRING({}) *//*M!110700 VEC_ToText({}) */",
        "string",
    ),
}
"""Spark's type, the SQL that reads it, and what JDBC returns; every other type is read as text."""
UNORDERED = ("enum", "set", "json", "vector", *_SHAPES)
"""Types that are read as text, but that the server orders in other ways than it compares them."""
_OF_QUERIES = {"date": "date", "timestamp_ntz": "datetime", "timestamp": "timestamp"}
_MAX_BITS = 63
_LAST_SECOND = 2**31 - 1
"""Beyond it, FROM_UNIXTIME is null on older servers."""


class MySqlDialect(MetadataDialect):
    """Quotes, metadata and values of MySQL and MariaDB. Their databases are schemas here."""

    name = "mysql"
    open_quote = close_quote = "`"
    as_text = _TEXT
    tables_query = """
SELECT t.TABLE_SCHEMA AS `schema`, t.TABLE_NAME AS `name`,
  CASE WHEN t.TABLE_TYPE LIKE '%VIEW' THEN 'view' ELSE 'table' END AS `kind`,
  CAST(t.TABLE_ROWS AS SIGNED) AS `row_count`, CAST(t.DATA_LENGTH AS SIGNED) AS `size_bytes`
FROM INFORMATION_SCHEMA.TABLES t WHERE t.TABLE_TYPE <> 'SEQUENCE' AND {wanted}"""
    keys_query = """
SELECT t.TABLE_SCHEMA AS `schema`, t.TABLE_NAME AS `name`, t.COLUMN_NAME AS `column`,
  CAST(t.SEQ_IN_INDEX AS SIGNED) AS `place`
FROM INFORMATION_SCHEMA.STATISTICS t WHERE t.INDEX_NAME = 'PRIMARY' AND {wanted}"""
    columns_query = """
SELECT t.TABLE_SCHEMA AS `schema`, t.TABLE_NAME AS `name`, t.COLUMN_NAME AS `column`,
  CAST(t.ORDINAL_POSITION AS SIGNED) AS `place`, LOWER(t.DATA_TYPE) AS `type`,
  CAST(t.COLUMN_TYPE AS CHAR) AS `words`, CAST(t.NUMERIC_PRECISION AS SIGNED) AS `digits`,
  CAST(t.NUMERIC_SCALE AS SIGNED) AS `scale`, t.IS_NULLABLE AS `nullable`
FROM INFORMATION_SCHEMA.COLUMNS t WHERE {wanted}"""
    all_tables = (
        "t.TABLE_SCHEMA = COALESCE(DATABASE(), t.TABLE_SCHEMA) AND t.TABLE_SCHEMA NOT IN"
        " ('mysql', 'information_schema', 'performance_schema', 'sys')"
    )
    one_table = "t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = {name}"
    this_schema = "DATABASE()"

    def column(self, row: Row) -> ColumnInfo:
        """Describe a column by its type, with its precision and sign."""
        kind, expression, read_as = column_type(row)
        expression = expression.replace("{}", self.quote(row["column"]))
        # Zero dates are read as null, and columns without nulls may have them.
        nullable = row["nullable"] == "YES" or kind in TEMPORAL
        order = key_order(kind) if row["type"] not in UNORDERED else KeyOrder.NONE
        return ColumnInfo(row["column"], row["words"], kind, nullable, expression, read_as, order)

    def row_widths(
        self, columns: Sequence[ColumnInfo], source: str, table: TableInfo | None, rows: int
    ) -> str:
        """Select the mean and the greatest width of the first rows."""
        del table
        width = " + ".join(f"COALESCE(OCTET_LENGTH({c.expression}), 0)" for c in columns)
        first = f"SELECT {width} AS w FROM {source} LIMIT {rows}"  # noqa: S608
        return (
            "SELECT CAST(AVG(w) AS SIGNED) AS mean, CAST(MAX(w) AS SIGNED) AS most"  # noqa: S608
            f" FROM ({first}) widths"
        )

    def described(self, field: StructField) -> ColumnInfo:
        """Describe a column of a query; dates and timestamps are read as those of tables."""
        column = super().described(field)
        if field.metadata.get("logical_time_type") or column.spark_type not in _OF_QUERIES:
            return column
        _, expression, read_as = TYPES[_OF_QUERIES[column.spark_type]]
        expression = expression.replace("{}", self.quote(field.name))
        return replace(column, expression=expression, read_as=read_as)

    def compared(self, column: ColumnInfo, operator: str, value: Any) -> str:
        """Write a comparison of a column of a table with a bookmark's JSON value as SQL.

        A text has the character set and collation of the column. A TIMESTAMP is compared by its
        moment: the clock of the session's time zone shows an hour of autumn twice.
        """
        key, literal = self.key(column), self.literal(value, column)
        if column.spark_type == "string" and value:
            literal = f"_utf8mb4 X'{value.encode().hex()}'"
        if column.spark_type != "timestamp":
            return f"{key} {operator} {literal}"
        seconds = literal.removeprefix("FROM_UNIXTIME(").removesuffix(")")
        exact = f"UNIX_TIMESTAMP({key}) {operator} {seconds}"
        if float(seconds) + 86400 > _LAST_SECOND:
            return exact
        # For the index, with a margin of a day.
        sign = "+" if operator.startswith("<") else "-"
        near = f"{key} {operator[0]}= FROM_UNIXTIME(GREATEST({seconds} {sign} 86400, 0))"
        return f"({near} AND {exact})"

    def missing(self, column: ColumnInfo) -> str:
        """Write a condition that is true where the column is read as null: also at zero dates."""
        missing = super().missing(column)
        if column.spark_type not in TEMPORAL:
            return missing
        return f"{missing} OR {self.key(column)} < '0001-01-01'"

    def present(self, column: ColumnInfo) -> str:
        """Write a condition that is true where the column is not read as null."""
        if column.spark_type not in TEMPORAL:
            return super().present(column)
        return f"{self.key(column)} >= '0001-01-01'"

    def text(self, value: str) -> str:
        """Write a string as SQL that means the same with every `sql_mode`.

        Raises:
            ValueError: It has a NUL character.
        """
        super().text(value)
        return f"CONVERT(X'{value.encode().hex()}' USING utf8mb4)" if value else "''"

    def moment(self, kind: str, day: str, clock: str, zone: str, column: ColumnInfo) -> str:
        """Write a date or timestamp as SQL; a TIMESTAMP in the session's own time zone."""
        if kind != "timestamp":
            return super().moment(kind, day, clock, zone, column)
        clock, _, fraction = clock.partition(".")
        moment = datetime.fromisoformat(f"{day}T{clock}{zone}").astimezone(timezone.utc)
        return f"FROM_UNIXTIME({int(moment.timestamp())}.{fraction or 0})"


def column_type(row: Row) -> tuple[str, str, str]:
    """Return Spark's type, the SQL that reads it (`{}` is the column), and what JDBC returns."""
    name, words = row["type"], row["words"].lower()
    if name in INTEGERS:
        kind = INTEGERS[name]["unsigned" in words]
        return kind, "{}", "int" if kind in ("tinyint", "smallint") else kind
    if name in ("decimal", "numeric"):
        kind = decimal(row["digits"], row["scale"])
        return (kind, "{}", kind) if kind != "string" else (kind, _TEXT, kind)
    if name == "bit":
        wide = (row["digits"] or 1) > _MAX_BITS
        kind = "decimal(20,0)" if wide else "bigint"
        return ("boolean" if row["digits"] == 1 else kind), "CAST({} AS UNSIGNED)", kind
    return TYPES.get(name, ("string", _TEXT, "string"))
