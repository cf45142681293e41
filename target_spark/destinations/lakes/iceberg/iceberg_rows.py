"""Changes of rows of small Iceberg tables without Spark: files are rewritten, as Spark does.

Only for tables that `iceberg_metadata.newest` accepts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from target_spark.destinations.lakes.conflicts import LostCommit
from target_spark.destinations.lakes.iceberg.iceberg_changes import (
    Activating,
    Merging,
    RowChange,
    number_of,
)
from target_spark.destinations.lakes.iceberg.iceberg_files import Columns, DataFileWriter
from target_spark.destinations.lakes.iceberg.iceberg_metadata import (
    Metadata,
    newest,
    table_of,
    written,
)
from target_spark.destinations.lakes.iceberg.iceberg_snapshots import (
    TableFiles,
    commit_files,
    files_of,
)
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.lake_table import LakeTable
from target_spark.destinations.lakes.small_flush import (
    MOST_BYTES,
    merged_once,
    places,
    rows_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile

    from target_spark.core.load_plans import Part
    from target_spark.destinations.lakes.merge import MergePlan

CHANGED = tuple(
    f"spark.merge-into.num-target-rows-{what}" for what in ("inserted", "updated", "deleted")
)
"""Properties of snapshots with the rows that a MERGE has changed, as Spark names them."""


@dataclass
class _Counts:
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    removed: list[str] = field(default_factory=list)

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted


def merge(
    folder: str,
    parts: Sequence[Part],
    now: LakeTable,
    plan: MergePlan,
    keys: int,
    properties: Mapping[str, str],
) -> int:
    """Merge parts into a table in one commit: the newest row of each key.

    Args:
        folder: Folder of the table.
        parts: Parts on the same disk, with the table's columns.
        now: The table.
        plan: Keys, columns and conditions.
        keys: Number of different keys.
        properties: Properties of the snapshot.

    Returns:
        The rows that were inserted, updated or deleted.

    Raises:
        NeedsSparkError: It is too large, or of a kind that only Spark can merge; nothing was done.
        LostCommit: Others have committed meanwhile; nothing was done.
        DestinationError: The files do not hold the rows that they must; nothing was committed.
    """
    rows = merged_once(parts, plan, keys, MOST_BYTES)
    with _left_to_spark():
        base, columns, files = _opened(folder, now)
        change = Merging(columns, rows, plan)
        return _changed(base, columns, files, change, properties).changed


def append(
    folder: str,
    parts: Sequence[Part],
    now: LakeTable,
    properties: Mapping[str, str],
    *,
    replaces: bool = False,
) -> int:
    """Append parts to a table in one commit.

    Args:
        folder: Folder of the table.
        parts: Parts on the same disk, with the table's columns.
        now: The table.
        properties: Properties of the snapshot.
        replaces: Whether all other rows leave the table.

    Returns:
        Their rows.

    Raises:
        NeedsSparkError: It is too large, or of a kind that only Spark can write; nothing was done.
        LostCommit: Others have committed meanwhile; nothing was done.
        DestinationError: The files do not hold the rows that they must; nothing was committed.
    """
    rows = rows_of(parts, now.struct.names, MOST_BYTES)
    with _left_to_spark():
        base, columns, files = _opened(folder, now)
        if replaces:
            return _exchanged(base, columns, files, rows, properties)
        return _changed(base, columns, files, RowChange(columns, rows), properties).changed


def activate(
    folder: str,
    now: LakeTable,
    columns: tuple[str, str],
    below: int,
    at: float | None,
    properties: Mapping[str, str],
) -> None:
    """Remove or mark the rows of older versions in one commit, like `merge.activate_sql`.

    Args:
        folder: Folder of the table.
        now: The table.
        columns: Column with the version of rows, and that which marks rows as deleted.
        below: Change rows with a lower version.
        at: Time for the mark, seconds since the epoch; None to delete the rows.
        properties: Properties of the snapshot.

    Raises:
        NeedsSparkError: It is too large, or of a kind that only Spark can change.
        LostCommit: Others have committed meanwhile; nothing was done.
        DestinationError: The files do not hold the rows that they must; nothing was committed.
    """
    with _left_to_spark():
        base, known, files = _opened(folder, now)
        change = Activating(known, columns, below, at)
        _changed(base, known, files, change, properties)


def lowest(folder: str, column: str) -> int | None:
    """Return the least number in a column of a table, by the bounds of files; None for no rows.

    Raises:
        NeedsSparkError: A file has no bounds of the column.
    """
    base = newest(folder)
    if base is None:
        return None
    with _left_to_spark():
        fields = {field["name"]: field for field in base.schema["fields"]}
        files = [file for file in files_of(base).data if file.record_count]
        if fields[column]["type"] not in ("int", "long"):
            raise NeedsSparkError
        found = [(file.lower_bounds or {}).get(fields[column]["id"]) for file in files]
        numbers = [number_of(bound) for bound in found if bound is not None]
        if len(numbers) < len(files):
            raise NeedsSparkError
        return min(numbers, default=None)


@contextmanager
def _left_to_spark() -> Iterator[None]:
    """Raise NeedsSparkError for what the packages cannot do."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (pa.ArrowException, LookupError, OSError, OverflowError, ValueError) as error:
        raise NeedsSparkError from error


def _opened(folder: str, now: LakeTable) -> tuple[Metadata, Columns, TableFiles]:
    base = newest(folder)
    if base is None or table_of(base) != now:
        raise LostCommit
    told = (base.snapshot or {}).get("summary", {})
    if int(told.get("total-files-size", 0)) > MOST_BYTES:
        raise NeedsSparkError
    files = files_of(base)
    if sum(file.file_size_in_bytes for file in files.data) > MOST_BYTES:
        raise NeedsSparkError
    rows = sum(file.record_count for file in files.data)
    if int(told.get("total-records", rows)) != rows:
        raise NeedsSparkError
    return base, Columns(base), files


def _changed(
    base: Metadata,
    columns: Columns,
    files: TableFiles,
    change: RowChange,
    properties: Mapping[str, str],
) -> _Counts:
    """Write what changes into new files, and commit them."""
    counts, number = _Counts(), secrets.randbits(62)
    with written(base, number) as paths:
        writer = DataFileWriter(base, columns, paths)
        for file in files.data:
            if change.may_be_in(file) and _has_any(columns, file, change):
                _rewrite(columns, file, change, writer, counts)
        added = change.added()
        writer.write(added)
        counts.inserted = added.num_rows
        if not (counts.changed or change.is_marked):
            return counts
        told = zip(CHANGED, (counts.inserted, counts.updated, counts.deleted), strict=True)
        given = {**{name: str(count) for name, count in told}, **properties}
        grown = counts.inserted - counts.deleted
        commit_files(files, number, paths, counts.removed, writer.close(), grown, given)
    return counts


def _exchanged(
    base: Metadata,
    columns: Columns,
    files: TableFiles,
    rows: pa.Table,
    properties: Mapping[str, str],
) -> int:
    """Write rows into new files, and commit them in place of all others; return how many."""
    number, old, count = secrets.randbits(62), list(files.data), int(rows.num_rows)
    with written(base, number) as paths:
        writer = DataFileWriter(base, columns, paths)
        writer.write(columns.filled(columns.known(rows)))
        grown = count - sum(file.record_count for file in old)
        removed = [file.file_path for file in old]
        commit_files(files, number, paths, removed, writer.close(), grown, properties)
    return count


def _has_any(columns: Columns, file: DataFile, change: RowChange) -> bool:
    """Return whether any row of a file changes."""
    return any(len(change.find(rows).rows) for rows in columns.chunks(file, change.needs))


def _rewrite(
    columns: Columns, file: DataFile, change: RowChange, writer: DataFileWriter, counts: _Counts
) -> None:
    """Write the rows of a file, as they are after a change.

    Raises:
        NeedsSparkError: It does not have as many rows as the table's metadata tell.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    read = 0
    for rows in columns.chunks(file, columns.names):
        found = change.find(rows)
        stays = compute.invert(compute.is_in(places(rows), found.rows))
        new = change.replaced(rows, found)
        kept = rows.filter(stays)
        if kept.num_rows + len(found.rows) != rows.num_rows:
            raise NeedsSparkError  # A row has two matches.
        writer.write(pa.concat_tables([kept, new]))
        counts.updated += new.num_rows
        counts.deleted += len(found.rows) - new.num_rows
        read += rows.num_rows
    if read != file.record_count:
        raise NeedsSparkError
    counts.removed.append(file.file_path)
