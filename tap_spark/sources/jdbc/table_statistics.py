"""Statistics of a table that help to split it into parts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tap_spark.sources.jdbc.dialects.postgresql import PostgreSqlDialect
from tap_spark.sources.jdbc.part_plan import KeyStatistics, TableStatistics
from tap_spark.state.bookmarks import can_be_bookmark, normal_key

if TYPE_CHECKING:
    from tap_spark.sources.jdbc.dialects.dialect import QueryRunner
    from tap_spark.sources.jdbc.table_info import ColumnInfo, TableInfo

RANGES_OF_BLOCKS = 140000
"""First version of PostgreSQL that reads a range of blocks without reading the others."""

TABLE_STATISTICS = """
WITH RECURSIVE tree AS (
  SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = {schema} AND c.relname = {name}
  UNION
  SELECT i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
)
SELECT pg_catalog.current_setting('server_version_num')::int AS version,
  (max(pg_catalog.pg_relation_size(c.oid)) / pg_catalog.current_setting('block_size')::int)::bigint
    AS pages,
  sum(pg_catalog.pg_relation_size(c.oid))::bigint AS size,
  sum(greatest(c.reltuples, 0))::bigint AS row_count,
  bool_and(c.relkind = 'p' OR c.relkind IN ('r', 'm') AND m.amname = 'heap') AS heap
FROM tree JOIN pg_catalog.pg_class c USING (oid) LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam
"""
"""A table with its partitions and inheriting tables, as conditions on blocks apply to all."""

KEY_STATISTICS = """
SELECT s.correlation::float8 AS correlation, {bounds} AS bounds,
  EXISTS (
    SELECT FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
    JOIN pg_catalog.pg_am m ON m.oid = x.relam AND m.amname = 'btree'
    WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = {key}
  ) AS indexed
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stats s
  ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = {key}
WHERE n.nspname = {schema} AND c.relname = {name}
ORDER BY s.inherited DESC NULLS LAST LIMIT 1
"""
_BOUNDS = "pg_catalog.array_to_json({bounds})::text"


def table_statistics(
    run_query: QueryRunner, database: str, table: TableInfo, key: ColumnInfo | None
) -> TableStatistics:
    """Read the statistics of a table.

    Args:
        run_query: Queries the database.
        database: Its short name.
        table: The table.
        key: The replication key, if there is one.

    Raises:
        SourceError: The database cannot be reached.
    """
    if database != "postgresql" or table.schema is None:
        return TableStatistics(size=table.size_bytes, rows=table.row_count)
    text = PostgreSqlDialect().text
    names = {"schema": text(table.schema), "name": text(table.name)}
    row = run_query(TABLE_STATISTICS.format(**names))[0]
    if not row["heap"]:
        return TableStatistics(size=table.size_bytes, rows=table.row_count)
    blocks = row["pages"] if row["version"] >= RANGES_OF_BLOCKS else None
    statistics = KeyStatistics() if key is None else _key(run_query, names, key)
    return TableStatistics(blocks, row["size"], row["row_count"], statistics)


def _key(run_query: QueryRunner, names: dict[str, str], key: ColumnInfo) -> KeyStatistics:
    # Texts are compared by their bytes, in which no ordinary index is.
    if key.spark_type == "string":
        return KeyStatistics()
    bounds = "s.histogram_bounds::text::text[]"
    if key.spark_type == "timestamp":
        bounds = (
            "(SELECT pg_catalog.array_agg((b AT TIME ZONE 'UTC')::text) FROM "
            "pg_catalog.unnest(s.histogram_bounds::text::timestamptz[]) AS b)"
        )
    written = _BOUNDS.format(bounds=bounds)
    rows = run_query(
        KEY_STATISTICS.format(**names, key=PostgreSqlDialect().text(key.name), bounds=written)
    )
    if not rows:
        return KeyStatistics()
    row = rows[0]
    return KeyStatistics(
        bool(row["indexed"]), tuple(_values(row["bounds"], key.spark_type)), row["correlation"]
    )


def _values(text: str | None, spark_type: str) -> Iterable[Any]:
    kind = key_type_of(spark_type)
    for value in json.loads(text or "null") or ():
        with suppress(ValueError):  # infinity
            if can_be_bookmark(value, kind):
                yield normal_key(value, kind)


_KEY_TYPES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def key_type_of(spark_type: str) -> str:
    """Return Spark's name of a type in plans (`long`), from its SQL name (`bigint`)."""
    return _KEY_TYPES.get(spark_type, spark_type)
