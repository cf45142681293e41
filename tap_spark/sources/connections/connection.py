"""Connections, whose tables discovery lists: one module per kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from tap_spark.connection_config import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tap_spark.connection_config import ConnectionConfig
    from tap_spark.stream_config import StreamConfig

MODULES = {
    "url": "databases:DatabaseTables",
    "catalog": "spark_catalogs:CatalogTables",
    "path": "table_folders:FolderTables",
    "brokers": "topics:BrokerTopics",
}
"""Module and class of each kind."""


@dataclass(frozen=True)
class DiscoveredTable:
    """A table or view that discovery lists.

    Attributes:
        stream: Settings that read it, with its stream name and key properties.
        struct: Columns and exact types.
        schema_name: Schema or namespace; None if there is none.
        table_name: Name of the table alone.
        is_view: Whether it is a view.
        row_count: The source's own estimate; None if it has none.
        replication_keys: Columns that can be replication keys; None for all with an order.
        sql_types: The source's own names of the types, by column.
        comment: The table's comment; comments of columns are in the metadata of `struct`.
    """

    stream: StreamConfig
    struct: StructType
    schema_name: str | None
    table_name: str
    is_view: bool = False
    row_count: int | None = None
    replication_keys: tuple[str, ...] | None = None
    sql_types: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


class TableLister(Protocol):
    """A database, catalog or folder with tables."""

    def tables(self, spark: SparkSession) -> Iterable[DiscoveredTable]:
        """List the tables that the connection's patterns ask for, in a stable order.

        Raises:
            SourceError: It cannot be reached or read; names the connection.
        """
        ...


def table_lister(config: ConnectionConfig) -> TableLister:
    """Build the connection of an item of `connections`."""
    kind = next(kind for kind in KINDS if getattr(config, kind) is not None)
    module, name = MODULES[kind].split(":")
    made: TableLister = getattr(import_module(f"tap_spark.sources.connections.{module}"), name)(
        config
    )
    return made
