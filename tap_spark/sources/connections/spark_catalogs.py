"""The tables and views of a Spark catalog: Hive metastore, Unity, Glue, REST, or a plain folder."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.errors import SourceError, Where
from tap_spark.sources.catalog_tables import spark_name
from tap_spark.sources.connections.connection import DiscoveredTable
from tap_spark.sources.connections.table_patterns import is_wanted, stream_name
from tap_spark.sources.source_failures import source_error
from tap_spark.sources.source_registry import LOG_FORMATS
from tap_spark.sources.table_names import joined_name, name_parts
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.connection_config import ConnectionConfig

_logger = logging.getLogger(__name__)
DETAILS = "# Detailed Table Information"
IDENTIFIERS = "identifier-fields"
_ROWS = re.compile(r"(\d+) rows")
_LISTED = re.compile(r"\[(.*)\]")


@dataclass(frozen=True)
class Details:
    """The result of `DESCRIBE TABLE EXTENDED`.

    Attributes:
        facts: `Provider`, `Type`, `Comment`, `Statistics` and others.
        columns: Spark's names of the types, by column.
    """

    facts: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def is_view(self) -> bool:
        """Return whether it is a view."""
        return self.facts.get("Type", "").upper() == "VIEW"

    @property
    def row_count(self) -> int | None:
        """Return the number of rows, if the catalog keeps statistics."""
        found = _ROWS.search(self.facts.get("Statistics", ""))
        count = int(found.group(1)) if found else None
        # A Hive metastore writes 0 when a table is created, and does not update it.
        return None if count == 0 and self.format == "table" else count

    @property
    def format(self) -> str:
        """Return the stream's format: `delta` or `iceberg`, else `table`."""
        provider = self.facts.get("Provider", "").lower()
        return provider if provider in LOG_FORMATS and not self.is_view else "table"


class CatalogTables:
    """A catalog of the setting `connections`."""

    def __init__(self, config: ConnectionConfig) -> None:
        self.config = config
        self.catalog = config.catalog or ""

    def tables(self, spark: SparkSession) -> Iterator[DiscoveredTable]:
        """See `Connection.tables`; warns of what cannot be listed or described."""
        found = False
        for namespace in self._namespaces(spark):
            for name, is_view in self._names(spark, namespace):
                if not is_wanted(self.config, ".".join(namespace) or None, name):
                    continue
                table = self._table(spark, namespace, name, is_view=is_view)
                if table is not None and (self.config.views or not table.is_view):
                    found = True
                    yield table
        if not found:
            _logger.warning(
                "connection '%s': no table matches 'include' and 'exclude'", self.config.name
            )

    def _namespaces(self, spark: SparkSession) -> Iterator[tuple[str, ...]]:
        """Yield the root, then every namespace, each before those inside of it."""
        try:
            roots = self._inside(spark, ())
        except Exception as error:
            raise self._error(error) from error
        yield ()
        waiting = roots[::-1]
        while waiting:
            namespace = waiting.pop()
            yield namespace
            try:
                waiting += self._inside(spark, namespace)[::-1]
            except Exception as error:
                # Not every catalog has nested namespaces.
                _logger.debug("%s: %s", spark_name((self.catalog, *namespace)), error)

    def _inside(self, spark: SparkSession, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        rows = spark.sql(f"SHOW NAMESPACES IN {self._place(namespace)}").collect()
        found = {_parts(row[0]) for row in rows}
        # Spark's own catalog returns its databases for every namespace.
        return sorted(
            parts for parts in found if parts[:-1] == namespace and len(parts) == len(namespace) + 1
        )

    def _names(self, spark: SparkSession, namespace: tuple[str, ...]) -> list[tuple[str, bool]]:
        """Return the names in a namespace, each with whether it is known to be a view."""
        names: dict[str, bool] = {}
        for what, is_view in (("TABLES", False), ("VIEWS", True)):
            try:
                rows = spark.sql(f"SHOW {what} IN {self._place(namespace)}").collect()
            except Exception as error:
                if is_view or not namespace:
                    continue  # not every catalog has views, or tables outside namespaces
                self._warn((*namespace, "*"), error)
                continue
            names.update({row[1]: is_view for row in rows if not row[2]})
        return sorted(names.items())

    def _table(
        self, spark: SparkSession, namespace: tuple[str, ...], name: str, *, is_view: bool
    ) -> DiscoveredTable | None:
        """Describe one table; warn and return None if that fails."""
        parts = (self.catalog, *namespace, name)
        try:
            struct = spark.read.table(spark_name(parts)).schema
            details = self._details(spark, parts, len(struct.fields))
            keys = self._keys(spark, parts) if details.format == "iceberg" else ()
        except Exception as error:
            self._warn((*namespace, name), error)
            return None
        if not struct.fields:
            self._warn((*namespace, name), SourceError("it has no columns"))
            return None
        return DiscoveredTable(
            StreamConfig(
                name=stream_name(self.config, parts[1:]),
                format=details.format,
                table=joined_name(parts),
                connection=self.config.name,
                key_properties=tuple(key for key in keys if key in struct.names),
            ),
            struct,
            ".".join(namespace) or None,
            name,
            is_view=is_view or details.is_view,
            row_count=details.row_count,
            sql_types=details.columns,
            comment=details.facts.get("Comment"),
        )

    def _details(self, spark: SparkSession, parts: Sequence[str], width: int) -> Details:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {spark_name(parts)}").collect()
        columns = {row[0]: row[1] for row in rows[:width]}
        facts: dict[str, str] = {}
        # A column may have the name of the heading: columns come first.
        rest = [(row[0], row[1] or "") for row in rows[width:]]
        heads = [number for number, (name, _) in enumerate(rest) if name == DETAILS]
        for name, value in rest[heads[0] + 1 :] if heads else []:
            facts.setdefault(name, value)
        return Details(facts, columns)

    def _keys(self, spark: SparkSession, parts: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that identify a row of an Iceberg table."""
        rows = spark.sql(f"SHOW TBLPROPERTIES {spark_name(parts)}").collect()
        text = next((row[1] for row in rows if row[0] == IDENTIFIERS), "")
        listed = _LISTED.fullmatch(text.strip())
        return tuple(name for name in listed.group(1).split(",") if name) if listed else ()

    def _place(self, namespace: Sequence[str]) -> str:
        return spark_name((self.catalog, *namespace))

    def _warn(self, parts: Sequence[str], error: BaseException) -> None:
        _logger.warning(
            "connection '%s': skipping %s, which cannot be described: %s",
            self.config.name,
            joined_name(parts),
            source_error("", error).message,
        )

    def _error(self, cause: BaseException) -> SourceError:
        reason = source_error("", cause)
        return SourceError(
            f"connection '{self.config.name}': cannot list the catalog '{self.catalog}': "
            f"{reason.message}",
            where=Where(setting="connections"),
            hint=f"set 'spark.sql.catalog.{self.catalog}' in 'spark.conf'",
            passes=reason.retryable,
        )


def _parts(text: str) -> tuple[str, ...]:
    """Split a namespace as Spark writes it, with parts quoted if they need it."""
    try:
        return name_parts(text)
    except ValueError:
        return (text,)
