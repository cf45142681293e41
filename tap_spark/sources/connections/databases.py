"""Tables and views of a database, from its metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tap_spark.sources.connections.connection import DiscoveredTable
from tap_spark.sources.connections.table_patterns import is_wanted, stream_name
from tap_spark.sources.jdbc.dialects.dialect import dialect_for
from tap_spark.sources.table_names import joined_name
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.connection_config import ConnectionConfig
    from tap_spark.sources.jdbc.table_info import TableInfo


class DatabaseTables:
    """The item of `connections` with a `url`."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config

    def tables(self, spark: SparkSession) -> Iterable[DiscoveredTable]:
        """List the tables that the connection's patterns ask for, by schema and name.

        Raises:
            SourceError: The database cannot be reached or read.
            SettingsError: The URL or a property is rejected.
        """
        from tap_spark.sources.jdbc.metadata import query_runner  # noqa: PLC0415

        run_query = query_runner(spark, self._config)
        found = dialect_for(str(self._config.url)).tables(run_query)
        return [self._found(table) for table in found if self._is_wanted(table)]

    def _is_wanted(self, table: TableInfo) -> bool:
        if table.is_view and not self._config.views:
            return False
        return is_wanted(self._config, table.schema, table.name)

    def _found(self, table: TableInfo) -> DiscoveredTable:
        from tap_spark.sources.jdbc.jdbc_columns import struct_of  # noqa: PLC0415

        stream = StreamConfig(
            name=stream_name(self._config, table.parts),
            format="jdbc",
            table=joined_name(table.parts),
            connection=self._config.name,
            database=self._config,
            key_properties=table.primary_key,
        )
        return DiscoveredTable(
            stream=stream,
            struct=struct_of(table.columns),
            schema_name=table.schema,
            table_name=table.name,
            is_view=table.is_view,
            row_count=table.row_count,
            replication_keys=table.replication_keys,
            sql_types={column.name: column.sql_type for column in table.columns},
        )
