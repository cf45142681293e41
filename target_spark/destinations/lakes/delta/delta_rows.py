"""Changes of rows of small Delta tables by the package `deltalake`: Spark only plans for longer.

Only for tables that `delta_files.is_plain` accepts. A commit is checked before others can see it:
it is made on a copy of the table, of hard links.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import types as T  # noqa: N812

from shared.storage.owned_folders import OwnedFolder, remove_stale
from shared.storage.urls import local_path
from target_spark.destinations.lakes.delta.delta_files import (
    Transaction,
    commit_arguments,
    has_transaction,
    is_append_only,
    left_to_spark,
)
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.lake_table import LakeTable
from target_spark.destinations.lakes.small_flush import (
    MOST_BYTES,
    has_exact_bounds,
    merged_once,
)
from target_spark.tables.row_layout import not_older

if TYPE_CHECKING:
    from deltalake import DeltaTable, WriterProperties
    from deltalake.table import TableMerger
    from pyspark.sql.types import DataType

    from target_spark.core.load_plans import Part
    from target_spark.destinations.lakes.lake_sql import MergePlan


_PREFIX = ".singer-spark-trial-"
_LOG = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"


class TrialTable:
    """A copy of a local Delta table, for one commit that `publish` makes that of the table.

    Used as a context manager: entering links the files of the current version into a private
    folder beside the table, leaving removes it.

    Args:
        opened: The table.
        path: Its folder, without folders of partitions.

    Raises:
        NeedsSparkError: Files of the table are in other folders: entering does nothing.

    Attributes:
        table: The copy.
    """

    table: DeltaTable

    def __init__(self, opened: DeltaTable, path: Path) -> None:
        self._opened = opened
        self._path = path

    def __enter__(self) -> TrialTable:
        from deltalake import DeltaTable  # noqa: PLC0415

        names = [*_log_files(self._path / _LOG), *map(_name, self._opened.file_uris())]
        if not all((self._path / name).exists() for name in names):
            raise NeedsSparkError  # those of a shallow clone, or below prefixes
        remove_stale(self._path.parent, _PREFIX)
        self._owned = OwnedFolder(self._path.parent, _PREFIX)
        self._copy = self._owned.path / "t"
        (self._copy / _LOG).mkdir(parents=True)
        for name in names:
            os.link(self._path / name, self._copy / name)
        self.table = DeltaTable(str(self._copy))
        self._linked = {file.name for file in self._copy.iterdir()}
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.close()

    def publish(self) -> None:
        """Make the commit of the copy that of the table.

        Raises:
            deltalake.exceptions.CommitFailedError: Others have committed meanwhile.
        """
        from deltalake.exceptions import CommitFailedError  # noqa: PLC0415

        version = self.table.version()
        if version == self._opened.version():
            return
        added = [file.name for file in self._copy.iterdir() if file.name not in self._linked]
        for name in added:
            os.link(self._copy / name, self._path / name)
        commit = f"{_LOG}/{version:020d}.json"
        try:
            os.link(self._copy / commit, self._path / commit)
        except FileExistsError:
            for name in added:
                with suppress(OSError):
                    (self._path / name).unlink()
            raise CommitFailedError(f"version {version} exists") from None
        self._publish_checkpoint(version)

    def _publish_checkpoint(self, version: int) -> None:
        """Take the checkpoint that followed the commit; the table is complete without it."""
        with suppress(OSError):
            for file in (self._copy / _LOG).glob(f"{version:020d}.checkpoint*"):
                os.link(file, self._path / _LOG / file.name)
                latest = self._owned.path / _LAST_CHECKPOINT
                shutil.copyfile(self._copy / _LOG / _LAST_CHECKPOINT, latest)
                latest.replace(self._path / _LOG / _LAST_CHECKPOINT)


def _log_files(log: Path) -> list[str]:
    """Return the files of a log from the last checkpoint on."""
    names = sorted(file.name for file in log.iterdir() if file.name[:20].isdigit())
    checkpoints = [name[:20] for name in names if ".checkpoint" in name]
    first = checkpoints[-1] if checkpoints else ""
    also = [_LAST_CHECKPOINT] if (log / _LAST_CHECKPOINT).exists() else []
    return [f"{_LOG}/{name}" for name in (*names, *also) if name >= first]


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]


MEMORY = 512 << 20
"""Bytes of memory for the join; Spark merges what needs more."""

_EXACT_DIGITS = 15
"""Digits of a decimal that a double holds exactly."""
_LONGEST_BOUND = 64
"""Bytes of a bound of texts, as the package has it by default."""
_TARGET, _SOURCE = "target__", "source__"
_EQUAL = "IS NOT DISTINCT FROM"


def merge(
    folder: str,
    parts: Sequence[Part],
    now: LakeTable,
    plan: MergePlan,
    keys: int,
    metadata: str,
    transaction: Transaction | None,
) -> int | None:
    """Merge parts into a table in one commit: the newest row of each key.

    Args:
        folder: Folder of the table.
        parts: Parts on the same disk, with the table's columns.
        now: The table.
        plan: Keys, columns and conditions.
        keys: Number of different keys.
        metadata: Metadata of the commit.
        transaction: Application and version, if the commit has them.

    Returns:
        The rows that were inserted, updated or deleted; None if the table has this transaction.

    Raises:
        NeedsSparkError: It is too large, or the package cannot merge it or would lose or double
            rows; nothing was committed.
        deltalake.exceptions.CommitFailedError: Others have committed meanwhile.
    """
    from deltalake import DeltaTable  # noqa: PLC0415

    _check_size(now)
    rows = merged_once(parts, plan, keys, MOST_BYTES)
    opened = DeltaTable(local_path(folder) or folder)
    if has_transaction(opened, transaction):
        return None
    with TrialTable(opened, Path(local_path(folder) or folder)) as trial:
        reported = _merged(trial.table, rows, now, plan, commit_arguments(metadata, transaction))
        if not is_balanced(_records(opened), _records(trial.table), reported):
            raise NeedsSparkError
        trial.publish()
    return sum(
        int(reported[f"num_target_rows_{what}"]) for what in ("inserted", "updated", "deleted")
    )


def _merged(
    table: DeltaTable, rows: pa.Table, now: LakeTable, plan: MergePlan, commit: dict[str, Any]
) -> dict[str, Any]:
    """Merge rows into a table; return the metrics of the MERGE."""
    merger = table.merge(
        rows,
        " AND ".join(f"({_pair(key.column, _EQUAL if key.nulls else '=')})" for key in plan.keys),
        source_alias=_SOURCE,
        target_alias=_TARGET,
        # With bounds of the keys it skips files, whose statistics it reads as inexact numbers.
        streamed_exec=not all(map(has_exact_bounds, _types(rows, plan))),
        max_spill_size=MEMORY,
        writer_properties=_writing(now),
        **commit,
    )
    with left_to_spark():
        metrics: dict[str, Any] = _with_clauses(merger, plan, rows.column_names).execute()
    return metrics


def activate(
    folder: str,
    now: LakeTable,
    columns: tuple[str, str],
    below: int,
    at: float | None,
    metadata: str,
) -> None:
    """Remove or mark the rows of older versions in one commit, like `merge.activate_sql`.

    Args:
        folder: Folder of the table.
        now: The table.
        columns: Column with the version of rows, and that which marks rows as deleted.
        below: Change rows with a lower version.
        at: Time for the mark, seconds since the epoch; None to delete the rows.
        metadata: Metadata of the commit.

    Raises:
        NeedsSparkError: It is too large, or the package cannot change it; nothing was committed.
        deltalake.exceptions.CommitFailedError: Others have committed meanwhile.
    """
    from deltalake import DeltaTable  # noqa: PLC0415

    _check_size(now)
    opened, (version, deleted) = DeltaTable(local_path(folder) or folder), map(_quoted, columns)
    old, writing = f"{version} < {below}", _writing(now)
    with left_to_spark():
        if at is None:
            opened.delete(old, writer_properties=writing, **commit_arguments(metadata))
            return
        mark = dt.datetime.fromtimestamp(0, dt.timezone.utc) + dt.timedelta(seconds=at)
        opened.update(
            new_values={deleted: mark},
            predicate=f"{old} AND {deleted} IS NULL",
            writer_properties=writing,
            **commit_arguments(metadata),
        )


def is_balanced(before: int | None, after: int | None, reported: Mapping[str, Any]) -> bool:
    """Return whether a MERGE has kept the rows that it did not insert or delete.

    Args:
        before: Rows of the table before, by the statistics of its files; None if they do not tell.
        after: Rows after it.
        reported: Metrics of the MERGE.
    """
    if before is None or after is None:
        return True
    inserted, deleted = (reported[f"num_target_rows_{what}"] for what in ("inserted", "deleted"))
    return bool(before + inserted - deleted == after)


def _check_size(now: LakeTable) -> None:
    if now.size is None or now.size > MOST_BYTES or is_append_only(now):
        raise NeedsSparkError


def _writing(now: LakeTable) -> WriterProperties:
    """Return how files are written: without bounds that would make readers skip rows.

    The package writes bounds of decimals as doubles, and leaves out NaN, which is the greatest for
    Spark.
    """
    from deltalake import ColumnProperties, WriterProperties  # noqa: PLC0415

    exact = ColumnProperties(statistics_enabled="CHUNK")
    return WriterProperties(
        compression="SNAPPY",
        statistics_truncate_length=_LONGEST_BOUND,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={f.name: exact for f in now.struct if _is_exact(f.dataType)},
    )


def _is_exact(dtype: DataType) -> bool:
    """Return whether the package writes exact bounds of a type."""
    if isinstance(dtype, T.DecimalType):
        return dtype.precision <= _EXACT_DIGITS
    times = T.DateType, T.TimestampType, T.TimestampNTZType
    return isinstance(dtype, (T.IntegralType, T.StringType, T.BooleanType, *times))


def _with_clauses(merger: TableMerger, plan: MergePlan, supplied: Sequence[str]) -> TableMerger:
    pairs = [(_named(_SOURCE, name), _named(_TARGET, name)) for name in plan.order_by]
    newer = [not_older(pairs, _EQUAL)] if pairs else []
    gone = None if plan.deleted is None else _named(_SOURCE, plan.deleted)
    if gone is not None:
        merger = merger.when_matched_delete(" AND ".join([*newer, f"{gone} IS NOT NULL"]))
    kept = [] if gone is None else [f"{gone} IS NULL"]
    if plan.update:
        merger = merger.when_matched_update(
            _assigned(plan.update, supplied), " AND ".join([*newer, *kept]) or None
        )
    return merger.when_not_matched_insert(
        _assigned(plan.insert, supplied), " AND ".join(kept) or None
    )


def _assigned(names: Sequence[str], supplied: Sequence[str]) -> dict[str, str]:
    return {_quoted(name): _named(_SOURCE, name) if name in supplied else "NULL" for name in names}


def _pair(name: str, operator: str) -> str:
    return f"{_named(_TARGET, name)} {operator} {_named(_SOURCE, name)}"


def _named(alias: str, name: str) -> str:
    return f"{alias}.{_quoted(name)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _types(rows: pa.Table, plan: MergePlan) -> list[pa.DataType]:
    return [rows.schema.field(key.column).type for key in plan.keys]


def _records(table: DeltaTable) -> int | None:
    """Return the rows of a table by the statistics of its files; None if they do not tell."""
    files = pa.table(table.get_add_actions())
    if "num_records" not in files.column_names or files["num_records"].null_count:
        return None
    return int(compute.sum(files["num_records"], min_count=0).as_py())
