"""A table of a lake: where it is and what it has; existing tables by folder or catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shared.storage.access import StorageOptions, failures, remote
from shared.storage.urls import join, local_path
from target_spark.destinations.lakes.lake_sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


DEFAULT = "CURRENT_DEFAULT"
"""Metadata of a column: SQL of the value that rows without the column get."""


@dataclass(frozen=True)
class Place:
    """The location of a table.

    Attributes:
        table: Its name in SQL text, quoted: `delta`.`/path` or `catalog`.`schema`.`table`.
        shown: Its name in messages.
        folder: Path or URL of its folder by the settings; None in a catalog.
    """

    table: str
    shown: str
    folder: str | None = None


@dataclass(frozen=True)
class LakeTable:
    """An existing table.

    Attributes:
        struct: Its columns; `nullable` is false for NOT NULL, and metadata `default` tells that
            rows may omit one.
        names: Stream's name → table's name of columns, as `TableChange.mapping` was stored.
        partitions: Columns it is partitioned by, unchanged (no transforms).
        properties: Properties of the table.
        size: Bytes of its files; None if the format does not know them without reading.
        spec: All partition fields as Spark shows them, for formats that can change them.
        computed: Columns that the table computes itself: rows cannot set them.
    """

    struct: StructType
    names: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None
    spec: tuple[str, ...] = ()
    computed: frozenset[str] = frozenset()


def absolute(path: str) -> str:
    """Return the setting `path` without a trailing slash; absolute if it is local."""
    local = local_path(path)
    return path.rstrip("/") if local is None else str(Path(local).expanduser().resolve())


_HIDDEN = (".", "_")


def folders_of_tables(path: str, log: str, options: StorageOptions) -> Iterator[tuple[str, ...]]:
    """Yield the folders of tables below a path, one or two levels deep, as names.

    Args:
        path: Path or URL.
        log: Name of the folder inside of a table that shows what it is.
        options: Options of the storage.

    Raises:
        OSError: The path cannot be listed.
    """
    for outer in _shown(_folders(path, options)):
        inside = _folders(join(path, outer), options)
        if log in inside:
            yield (outer,)
            continue
        for inner in _shown(inside):
            if log in _folders(join(path, outer, inner), options):
                yield (outer, inner)


def tables_in(spark: SparkSession, catalog: str) -> Mapping[str, Place]:
    """Return the tables of all schemas of a catalog, by schema and name."""
    results = {}
    for space in spark.sql(f"SHOW NAMESPACES IN {quoted(catalog)}").collect():
        schema = space[0].strip("`")
        for row in spark.sql(f"SHOW TABLES IN {quoted(catalog, schema)}").collect():
            parts = schema, row["tableName"]
            if not row["isTemporary"]:
                results[".".join(parts)] = Place(
                    quoted(catalog, *parts), ".".join((catalog, *parts))
                )
    return results


def _shown(names: list[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith(_HIDDEN))


def _folders(url: str, options: StorageOptions) -> list[str]:
    path = local_path(url)
    if path is not None:
        return [entry.name for entry in Path(path).iterdir() if entry.is_dir()]
    filesystem, inside = remote(url, options)
    with failures(url, options):
        filesystem.invalidate_cache()
        result = filesystem.ls(inside, detail=True)
    folders = (str(item["name"]) for item in result if item["type"] == "directory")
    return [name.rstrip("/").rpartition("/")[2] for name in folders]
