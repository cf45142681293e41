"""Unknown databases: tables from INFORMATION_SCHEMA, types from Spark's reader."""

from __future__ import annotations

from dataclasses import replace

from tap_spark.sources.jdbc.dialects.base import SqlDialect, is_ordered, sorted_tables
from tap_spark.sources.jdbc.dialects.dialect import QueryRunner, TableName
from tap_spark.sources.jdbc.table_info import TableInfo

TABLES = """
SELECT TABLE_SCHEMA AS T_SCHEMA, TABLE_NAME AS T_NAME, TABLE_TYPE AS T_TYPE
FROM INFORMATION_SCHEMA.TABLES WHERE {wanted}"""
USERS = "UPPER(TABLE_SCHEMA) NOT IN ('INFORMATION_SCHEMA', 'PG_CATALOG', 'SYS', 'SYSTEM')"


class GenericDialect(SqlDialect):
    """Standard quotes, INFORMATION_SCHEMA, and types as Spark's reader sees them."""

    name = "other"

    def tables(self, run_query: QueryRunner, only: TableName | None = None) -> list[TableInfo]:
        """Describe every table and view, by one query, and one for each table.

        Keys and row counts are unknown.
        """
        if only:
            parts = tuple(part for part in only if part is not None)
            return [self._table(run_query, TableInfo(only[0], only[1], "table", ()), parts)]
        rows = run_query(TABLES.format(wanted=USERS))
        found = [
            TableInfo(
                schema=row["t_schema"],
                name=row["t_name"],
                kind="view" if "VIEW" in str(row["t_type"]).upper() else "table",
                columns=(),
            )
            for row in rows
        ]
        return sorted_tables(self._table(run_query, table, table.parts) for table in found)

    def _table(self, run_query: QueryRunner, table: TableInfo, parts: tuple[str, ...]) -> TableInfo:
        struct = run_query.struct("SELECT * FROM " + self.table(parts))  # noqa: S608 - quoted
        columns = tuple(map(self.described, struct.fields))
        keys = tuple(column.name for column in columns if is_ordered(column.spark_type))
        return replace(table, columns=columns, replication_keys=keys)
