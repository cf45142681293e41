"""A table of a lake: where it is, what it has, and what waits for it in a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.storage.access import StorageOptions, failures, remote
from shared.storage.urls import join, local_path
from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Flush
from target_spark.destinations.folders.table_folder import TableFolder
from target_spark.destinations.lakes.lake_sql import quoted
from target_spark.tables.version_edit import VersionEdit

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


@dataclass(frozen=True)
class HeldEdit:
    """An ACTIVATE_VERSION that takes effect after the flushes before it."""

    request: TableRequest
    edit: VersionEdit


Step = Flush | HeldEdit


def steps_of(held: Sequence[Step]) -> list[Step]:
    """Return the steps with those flushes merged that one commit can load; none without rows.

    A merged flush has the token, the request and the STATE of its last one.
    """
    return [step for _, group in groupby(held, key=_kind) for step in _merged(list(group))]


def flushes_in(held: Sequence[Step]) -> list[Flush]:
    """Return the flushes alone."""
    return [step for step in held if isinstance(step, Flush)]


def summed(results: Sequence[Committed]) -> Committed:
    """Return what several commits tell together."""
    rows = [one.rows for one in results if one.rows is not None]
    keys = [one.keys for one in results if one.keys is not None]
    return Committed(
        rows=sum(rows) if len(rows) == len(results) else None,
        keys=sum(keys) if results and len(keys) == len(results) else None,
        by_key=any(one.by_key for one in results),
        may_skip=any(one.may_skip for one in results),
    )


def _kind(step: Step) -> Hashable:
    if isinstance(step, HeldEdit):
        return step.request.stream
    return step.request.struct.json(), step.request.keys


def _merged(group: Sequence[Step]) -> Iterator[Step]:
    flushes = flushes_in(group)
    if not flushes:
        yield from group
        return
    parts = tuple(part for flush in flushes for part in flush.parts)
    if parts:
        yield replace(flushes[-1], parts=parts)


@dataclass
class OpenTable:
    """A table that a stream of this run uses.

    Attributes:
        place: Location of the table.
        folder: Folder for its parts.
        sessions: Returns its own session, and starts Spark if it has not been started.
        lock: Allows one commit at a time.
        held: What waits for the end of the run: with `overwrite`, or until it is audited.
        tried: Tokens of flushes whose commit has been tried.
        view: Columns of its view that this run has created.
        is_staged: Its commits are not published yet.
        base: What was published when they began.
        ending: The request of a stream that ends when they are published.
        copy: A copy of the table with what waits, to be audited; None if nothing does.
        copied: What the commits to the copy tell.
        is_copy: Whether it is such a copy.
    """

    place: Place
    folder: TableFolder
    sessions: Callable[[], SparkSession]
    lock: Any
    held: list[Step] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    view: StructType | None = None
    is_staged: bool = False
    base: str | None = None
    ending: TableRequest | None = None
    copy: OpenTable | None = None
    copied: Committed | None = None
    is_copy: bool = False

    @property
    def flushes(self) -> list[Flush]:
        """Return the flushes that wait."""
        return flushes_in(self.held)

    @cached_property
    def spark(self) -> SparkSession:
        """Return the session of the table."""
        return self.sessions()
