"""How many rows the driver fetches at a time: no more than fit in a number of bytes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from shared.errors import SourceError
from tap_spark.sources.jdbc.metadata import JdbcQueryRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.connection_config import ConnectionConfig
    from tap_spark.sources.jdbc.dialects.dialect import Dialect
    from tap_spark.sources.jdbc.table_info import ColumnInfo, TableInfo

FETCH_BYTES = 16 * 1024**2
"""What one fetch may hold, by the mean width of a row."""
BURST = 8
"""How many times that a fetch may hold if all rows are as wide as the widest of the sample."""
SAMPLE_ROWS, SAMPLE_SECONDS = 50, 2
UNKNOWN_ROWS = 100
"""Rows of a fetch if the width of the rows is unknown."""
_LENGTH = re.compile(r"char\w*(?: varying)?\((\d+)\)", re.IGNORECASE)
_SHORT = re.compile(r"uuid|inet|cidr|macaddr|time|interval|year|numeric|decimal|number|enum")
_SHORT_BYTES, _FIXED_BYTES, _BYTES_OF_CHARACTER = 100, 16, 4
_log = logging.getLogger("tap-spark")


def fetch_rows(mean: int, most: int, limit: int) -> int:
    """Return the rows of a fetch.

    Args:
        mean: Mean width of a row in bytes.
        most: Width of the widest row that was seen.
        limit: The most rows that the settings allow.
    """
    return max(1, min(limit, FETCH_BYTES // max(mean, most // BURST, 1)))


def greatest_width(columns: Iterable[ColumnInfo]) -> int | None:
    """Return the most bytes of a row by the declared types; None if they have no limit."""
    total = 0
    for column in columns:
        if column.spark_type.startswith(("string", "binary", "array")):
            length = _LENGTH.search(column.sql_type)
            if column.spark_type == "string" and length:
                total += int(length[1]) * _BYTES_OF_CHARACTER
            elif column.spark_type == "string" and _SHORT.match(column.sql_type.lower()):
                total += _SHORT_BYTES
            else:
                return None
        else:
            total += _FIXED_BYTES
    return total


def fitting_rows(
    spark: SparkSession,
    connection: ConnectionConfig,
    dialect: Dialect,
    columns: tuple[ColumnInfo, ...],
    source: str,
    table: TableInfo | None,
    options: Mapping[str, str],
) -> int:
    """Return how many rows the driver may fetch at a time, by a sample of their widths.

    Args:
        spark: The session.
        connection: The database.
        dialect: Its dialect.
        columns: The columns that are read.
        source: The table's name, or a named subquery.
        table: The table; None for a query.
        options: Options of Spark's reader.
    """
    limit = connection.fetch_size
    width = greatest_width(columns)
    if width is not None and fetch_rows(width, 0, limit) == limit:
        return limit
    mean, most = 0, 0
    if table is not None and table.row_count and table.size_bytes:
        mean = table.size_bytes // table.row_count
    sample = dialect.row_widths(columns, source, table, SAMPLE_ROWS)
    if sample is None:
        return fetch_rows(mean, most, limit)
    run_query = JdbcQueryRunner(
        spark, connection, options={**options, "queryTimeout": str(SAMPLE_SECONDS)}
    )
    try:
        [row] = run_query(sample)
    except SourceError as error:
        # A failure that is not one of time comes again when the rows are read.
        _log.debug("cannot sample the width of rows: %s", error)
        return min(limit, UNKNOWN_ROWS)
    return fetch_rows(max(mean, row["mean"] or 0), row["most"] or 0, limit)
