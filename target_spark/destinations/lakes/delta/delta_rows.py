"""Rows of older versions in small Delta tables, changed by the package `deltalake`.

Only for tables that `delta_files.is_plain` accepts: Spark only plans for longer.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812

from shared.storage.urls import local_path
from target_spark.destinations.lakes.delta.delta_files import (
    commit_arguments,
    is_append_only,
    left_to_spark,
)
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.lake_table import LakeTable
from target_spark.destinations.lakes.small_flush import MOST_BYTES

if TYPE_CHECKING:
    from deltalake import WriterProperties
    from pyspark.sql.types import DataType


_EXACT_DIGITS = 15
"""Digits of a decimal that a double holds exactly."""
_LONGEST_BOUND = 64
"""Bytes of a bound of texts, as the package has it by default."""


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

    if now.size is None or now.size > MOST_BYTES or is_append_only(now):
        raise NeedsSparkError
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
