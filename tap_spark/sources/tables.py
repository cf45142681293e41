"""Tables: their names as users write them, and connections, whose tables discovery lists."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from shared.encodings.encoding_format import imported
from shared.settings.checking import MOST_COMPARED, nearest
from shared.singer.datasets import (
    Dataset,
    DatasetName,
    catalog_table_name,
    jdbc_name,
    place_name,
    schema_fields,
)
from tap_spark.state.stream_plans import StreamPlan
from tap_spark.stream_config import KINDS, ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


_log = logging.getLogger("tap-spark")

LISTERS = {
    "url": "tap_spark.sources.jdbc.jdbc_source:DatabaseTables",
    "catalog": "tap_spark.sources.lakes.lake_tables:CatalogTables",
    "path": "tap_spark.sources.lakes.lake_tables:FolderTables",
    "brokers": "tap_spark.sources.kafka.kafka_source:BrokerTopics",
}
"""The class that lists the tables of each kind."""


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


@runtime_checkable
class DriverLister(Protocol):
    """What a `TableLister` may add: tables that the driver lists without Spark."""

    @property
    def on_driver(self) -> bool:
        """Return whether the settings allow it."""
        ...

    def tables_on_driver(self) -> Iterable[DiscoveredTable] | None:
        """Do the same as `TableLister.tables`; None if Spark has to."""
        ...


def table_lister(config: ConnectionConfig) -> TableLister:
    """Build the connection of an item of `connections`."""
    kind = next(kind for kind in KINDS if getattr(config, kind) is not None)
    return cast("Callable[[ConnectionConfig], TableLister]", imported(LISTERS[kind]))(config)


def is_wanted(config: ConnectionConfig, schema: str | None, table: str) -> bool:
    """Return whether `include` and `exclude` select a table.

    Without a schema, patterns match the table's name alone.
    """
    name = full_name(schema, table)
    included = any(fnmatchcase(name, pattern) for pattern in config.include)
    return included and not any(fnmatchcase(name, pattern) for pattern in config.exclude)


def full_name(schema: str | None, table: str) -> str:
    """Return the name of a table for `include` and `exclude`."""
    return table if schema is None else f"{schema}.{table}"


def warn_of_unmatched(config: ConnectionConfig, names: Collection[str]) -> None:
    """Warn of each pattern of `include` and `exclude` that no table matches: it may be mistyped.

    Args:
        names: The tables of the connection; see `full_name`.
    """
    for setting in ("include", "exclude"):
        for pattern in getattr(config, setting):
            if pattern == "*" or any(fnmatchcase(name, pattern) for name in names):
                continue
            match = nearest(pattern, names) if len(names) <= MOST_COMPARED else None
            hint = f" (did you mean {match!r}?)" if match else ""
            _log.warning(
                "connection '%s': no table matches %r of '%s'%s",
                *(config.name, pattern, setting, hint),
            )


def stream_name(config: ConnectionConfig, parts: Sequence[str]) -> str:
    """Return the name of a table's stream as in the SDK: `schema-table`, after the prefix."""
    return config.stream_prefix + "-".join(parts)


_PLAIN = re.compile(r"[^\s.\"`\[\]]+")
_PART = re.compile(r'\s*("(?:[^"]|"")+"|`(?:[^`]|``)+`|\[(?:[^\]]|\]\])+\]|[^\s."`\[\]]+)\s*')


def name_parts(text: str) -> tuple[str, ...]:
    """Split a table name at the dots outside of quotes.

    Args:
        text: `schema.table`; a part that holds dots, spaces or quotes is quoted by `"`, a
            backtick, or brackets, with the closing one doubled inside the name.

    Raises:
        ValueError: It is not a table name.
    """
    parts: list[str] = []
    at = 0
    while match := _PART.match(text, at):
        part, close = match[1], match[1][-1]
        parts.append(part[1:-1].replace(close * 2, close) if close in '"`]' else part)
        at = match.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            break
        at += 1
    raise ValueError(f"{text!r} is not a table name")


def joined_name(parts: Sequence[str], quote: str = '"') -> str:
    """Join catalog, schema and table, or the last of these, as `name_parts` splits them."""
    return ".".join(
        part if _PLAIN.fullmatch(part) else quote + part.replace(quote, quote * 2) + quote
        for part in parts
    )


def source_datasets(plan: StreamPlan, conf: Mapping[str, str]) -> Iterator[Dataset]:
    """Yield what a stream reads: files or folders, or a table; nothing for queries and generators.

    Spark's configuration says where catalogs are.
    """
    fields = schema_fields(plan.schema)
    for namespace, name in _names(plan.config, conf):
        yield Dataset(name, namespace, fields)


def _names(stream: StreamConfig, conf: Mapping[str, str]) -> Iterator[DatasetName]:
    yield from map(place_name, stream.paths)
    if stream.table is None:
        return
    parts = name_parts(stream.table)
    if stream.database is None or stream.database.url is None:
        yield catalog_table_name(conf, parts)
        return
    name = jdbc_name(stream.database.url, parts)
    if name is not None:
        yield name
