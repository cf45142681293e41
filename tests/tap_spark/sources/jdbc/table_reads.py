"""Plain reads of tables, with the expressions and types of the metadata."""

from __future__ import annotations

from typing import Any

from shared.errors import Where
from tap_spark.sources.jdbc.dialects.dialect import TableInfo, dialect_for
from tap_spark.sources.jdbc.jdbc_query import custom_schema, struct_of, typed_columns
from tap_spark.sources.jdbc.metadata import JdbcQueryRunner, described_table, reader_options
from tap_spark.stream_config import ConnectionConfig


def table_info(spark: Any, connection: ConnectionConfig, parts: tuple[str, ...]) -> TableInfo:
    """Describe a table by Spark's reader."""
    return described_table(JdbcQueryRunner(spark, connection), connection, parts, Where())


def read(spark: Any, connection: ConnectionConfig, table: TableInfo, where: str = "") -> Any:
    """Return a frame of the whole table, with the types that discovery promises."""
    dialect = dialect_for(str(connection.url))
    items = ", ".join(f"{c.expression} AS {dialect.quote(c.name)}" for c in table.columns)
    query = f"SELECT {items} FROM {dialect.table(table.parts)} {where}"
    frame = spark.read.format("jdbc").options(**reader_options(connection))
    types = custom_schema(table.columns)
    frame = frame.option("customSchema", types) if types else frame
    frame = frame.option("query", query).load()
    created = frame.select(*typed_columns(frame, table.columns))
    wanted = struct_of(table.columns)
    assert [f.dataType for f in created.schema] == [f.dataType for f in wanted]
    return created


def texts(frame: Any) -> list[dict[str, str | None]]:
    """Return every value as Spark writes it as text; binary in hex."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import BinaryType

    from tap_spark.sources.frame_helpers import col

    def text(field: Any) -> Any:
        column = col(field.name)
        if isinstance(field.dataType, BinaryType):
            return F.lower(F.hex(column)).alias(field.name)
        return column.cast("string").alias(field.name)

    rows = frame.select(*[text(field) for field in frame.schema]).collect()
    return [row.asDict() for row in rows]


def csv_rows(text: str) -> list[dict[str, str | None]]:
    """Return the rows of a COPY with `force_quote *`, in which only null is not quoted."""
    names, *lines = _split(text)
    return [dict(zip(map(str, names), values, strict=True)) for values in lines]


def _split(text: str) -> list[list[str | None]]:
    """Parse CSV; distinguish an empty text from null."""
    rows: list[list[str | None]] = [[]]
    at = 0
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while text[end] != '"' or text[end : end + 2] == '""':
                end += 2 if text[end] == '"' else 1
            rows[-1].append(text[at + 1 : end].replace('""', '"'))
            at = end + 1
        else:
            end = min(i for i in (text.find(",", at), text.find("\n", at)) if i >= 0)
            rows[-1].append(text[at:end] or None)
            at = end
        if text[at] == "\n" and at + 1 < len(text):
            rows.append([])
        at += 1
    return rows
