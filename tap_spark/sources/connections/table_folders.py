"""Delta and Iceberg tables below a folder, without a catalog."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import SourceError, Where
from shared.storage.files import remote
from shared.storage.urls import join, local_path, shown
from tap_spark.sources.connections.connection import DiscoveredTable
from tap_spark.sources.connections.table_patterns import is_wanted, stream_name
from tap_spark.sources.source import source_for
from tap_spark.sources.source_failures import all_of
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.connection_config import ConnectionConfig

MAX_DEPTH = 5
"""Depth of a table's folder below the connection's folder."""
MAX_FOLDERS = 50_000
_DELTA, _ICEBERG, _METADATA = "_delta_log", "metadata", ".metadata.json"


@dataclass(frozen=True)
class TableLocation:
    """A folder that is a table.

    Attributes:
        path: The folder.
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
        errors: list[SourceError] = []
        for place in self._places():
            *schema, table = place.parts
            schema_name = "/".join(schema) or None
            if not is_wanted(self._config, schema_name, table):
                continue
            try:
                yield self._found(spark, place, schema_name)
            except SourceError as error:
                errors.append(error)
        if errors:
            raise all_of(errors)

    def _found(
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
        local = local_path(root)
        try:
            walk = table_walk(root if local is None else str(Path(local).absolute()))
            return list(walk.tables())
        except OSError as error:
            reason = error.strerror or str(error)
            raise SourceError(
                f"cannot list the tables below {shown(root)}: {reason}",
                where=Where(setting=f"connections, '{self._config.name}'"),
                hint="check 'path'",
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
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        folders = [entry.name for entry in entries if entry.is_dir()]
        known = set(folders)
        return folders, [entry.name for entry in entries if entry.name not in known]

    def tables(self) -> Iterator[TableLocation]:
        """Yield the tables, in the order of their names.

        Raises:
            OSError: The first folder cannot be listed, or there are too many folders.
        """
        name = self.root.rpartition("/")[2] or "table"
        yield from self._below(self.root, (), name)

    def _below(self, folder: str, parts: tuple[str, ...], name: str) -> Iterator[TableLocation]:
        here = self.identity(folder)
        if here in self._seen:
            return
        self._seen.add(here)
        if len(self._seen) > MAX_FOLDERS:
            raise OSError(f"there are more than {MAX_FOLDERS} folders; choose one that has fewer")
        try:
            folders, _ = self.entries(folder)
        except OSError:
            if not parts:
                raise
            return
        kind = self._kind(folder, folders)
        if kind is not None:
            yield TableLocation(folder, kind, parts or (name,))
        elif len(parts) < MAX_DEPTH:
            for child in folders:
                if not child.startswith(("_", ".")) and "=" not in child:
                    yield from self._below(join(folder, child), (*parts, child), child)

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
        """Identify a folder, so that links do not make a circle."""
        return folder

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and files in a folder, sorted."""
        found = self._files.ls(remote(folder)[1], detail=True)
        here = remote(folder)[1].rstrip("/")
        named = [(each["name"].rstrip("/"), each["type"]) for each in found]
        named = sorted((name.rpartition("/")[2], kind) for name, kind in named if name != here)
        folders = [name for name, kind in named if kind == "directory"]
        return folders, [name for name, kind in named if kind != "directory"]


def table_walk(root: str) -> TableWalk:
    """Return what searches a local folder or URL.

    Raises:
        OSError: The package for the URL is not installed.
    """
    return TableWalk(root) if local_path(root) is not None else _RemoteWalk(root)
