"""Tables that discovery lists: of a Spark catalog, or Delta and Iceberg tables below a folder."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import SourceError, Where
from shared.storage.access import failures, remote
from shared.storage.urls import join, local_path, shown
from tap_spark.sources.formats import LOG_FORMATS
from tap_spark.sources.source import source_for
from tap_spark.sources.source_failures import SourceErrors, source_error
from tap_spark.sources.spark_tables import spark_name
from tap_spark.sources.tables import (
    DiscoveredTable,
    full_name,
    is_wanted,
    joined_name,
    name_parts,
    stream_name,
    warn_of_unmatched,
)
from tap_spark.stream_config import ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        return self.facts.get("Type", "").upper() == "VIEW"

    @property
    def row_count(self) -> int | None:
        """Return the number of rows, if the catalog keeps statistics."""
        match = _ROWS.search(self.facts.get("Statistics", ""))
        count = int(match.group(1)) if match else None
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
        has_tables, names = False, list[str]()
        for namespace in self._namespaces(spark):
            for name, is_view in self._names(spark, namespace):
                schema = ".".join(namespace) or None
                names.append(full_name(schema, name))
                if not is_wanted(self.config, schema, name):
                    continue
                table = self._table(spark, namespace, name, is_view=is_view)
                if table is not None and (self.config.views or not table.is_view):
                    has_tables = True
                    yield table
        warn_of_unmatched(self.config, names)
        if not has_tables:
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
        namespaces = {_parts(row[0]) for row in rows}
        # Spark's own catalog returns its databases for every namespace.
        return sorted(
            parts
            for parts in namespaces
            if parts[:-1] == namespace and len(parts) == len(namespace) + 1
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


MAX_DEPTH = 5
"""Depth of a table's folder below the connection's folder."""
MAX_FOLDERS = 50_000
_DELTA, _ICEBERG, _METADATA = "_delta_log", "metadata", ".metadata.json"


@dataclass(frozen=True)
class TableLocation:
    """A folder that is a table.

    Attributes:
        format: `delta` or `iceberg`.
        parts: Names of the folders from the connection's folder down to it.
    """

    path: str
    format: str
    parts: tuple[str, ...]


class FolderTables:
    """A folder with tables below it."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config

    def tables(self, spark: SparkSession) -> Iterator[DiscoveredTable]:
        """Yield the tables, in the order of their names.

        Raises:
            SourceError: The folder cannot be listed, or naming every table that cannot be read.
        """
        errors = SourceErrors()
        places = [("/".join(p.parts[:-1]) or None, p.parts[-1], p) for p in self._places()]
        warn_of_unmatched(self._config, [full_name(schema, table) for schema, table, _ in places])
        for schema_name, table, place in places:
            if not is_wanted(self._config, schema_name, table):
                continue
            with errors.of():
                yield self._discovered(spark, place, schema_name)
        errors.raise_if_any()

    def _discovered(
        self, spark: SparkSession, place: TableLocation, schema: str | None
    ) -> DiscoveredTable:
        name = stream_name(self._config, place.parts)
        stream = StreamConfig(name, place.format, place.path, connection=self._config.name)
        source = source_for(stream)
        struct = source.schema(spark)
        stream = replace(stream, key_properties=source.key_properties)
        return DiscoveredTable(stream, struct, schema, place.parts[-1])

    def _places(self) -> list[TableLocation]:
        root = str(self._config.path)
        try:
            walk = table_walk(root)
            return list(walk.tables(walk.root))
        except OSError as error:
            reason = error.strerror or str(error)
            raise SourceError(
                f"cannot list the tables below {shown(root)}: {reason}",
                where=Where(setting=f"connections, '{self._config.name}'"),
                hint="check 'path', and for a URL the credentials of this program",
            ) from error


class TableWalk:
    """Searches tables below a local folder, one folder at a time."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"
        self._seen: set[str] = set()

    def identity(self, folder: str) -> str:
        """Identify a folder, so that links do not make a circle."""
        return str(Path(folder).resolve())

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and files in a folder, sorted."""
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        folders = [entry.name for entry in entries if entry.is_dir()]
        links = set(folders)
        return folders, [entry.name for entry in entries if entry.name not in links]

    def tables(self, folder: str, parts: tuple[str, ...] = ()) -> Iterator[TableLocation]:
        """Yield the tables from a folder on, in the order of their names.

        Raises:
            OSError: The first folder cannot be listed, or there are too many folders.
        """
        here = self.identity(folder)
        if here in self._seen:
            return
        self._seen.add(here)
        if len(self._seen) > MAX_FOLDERS:
            raise OSError(f"there are more than {MAX_FOLDERS} folders; choose one that has fewer")
        try:
            folders, _ = self.entries(folder)
            kind = self._kind(folder, folders)
        except OSError:
            if not parts:
                raise
            return
        if kind is not None:
            yield TableLocation(folder, kind, parts or (folder.rpartition("/")[2] or "table",))
        elif len(parts) < MAX_DEPTH:
            for child in folders:
                if not child.startswith(("_", ".")) and "=" not in child:
                    yield from self.tables(join(folder, child), (*parts, child))

    def _kind(self, folder: str, folders: list[str]) -> str | None:
        if _DELTA in folders:
            return "delta"
        if _ICEBERG in folders:
            _, files = self.entries(join(folder, _ICEBERG))
            if any(name.endswith((_METADATA, _METADATA + ".gz")) for name in files):
                return "iceberg"
        return None


class _RemoteWalk(TableWalk):
    """Searches tables below a remote folder, through fsspec."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._files: Any = remote(root)[0]

    def identity(self, folder: str) -> str:
        return folder

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        with failures(folder):
            entries = self._files.ls(remote(folder)[1], detail=True)
        here = remote(folder)[1].rstrip("/")
        named = [(each["name"].rstrip("/"), each["type"]) for each in entries]
        named = sorted((name.rpartition("/")[2], kind) for name, kind in named if name != here)
        folders = [name for name, kind in named if kind == "directory"]
        return folders, [name for name, kind in named if kind != "directory"]


def table_walk(root: str) -> TableWalk:
    """Return what searches a local folder or URL.

    Raises:
        OSError: The package for the URL is not installed.
    """
    local = local_path(root)
    return _RemoteWalk(root) if local is None else TableWalk(str(Path(local).absolute()))
