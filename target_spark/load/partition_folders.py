"""Rows divided by the folders of their partitions, on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.encoding_base import grouped
from shared.formats.parquet_profile import LONGEST_TEXT, Facts
from target_spark.destinations.files.partition_layout import PartitionError, partition_folder

MOST_FOLDERS = 1000
"""Folders that a task may write to: a table of more is better one of a lake."""

COLLECTED_BYTES = 64 * 1024 * 1024
"""Arrow bytes of rows that are divided at once, into one file for each folder."""

_ROW = "row"


def in_folders(
    tables: Iterable[pa.Table], columns: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, pa.Table, dict[str, Facts]]]:
    """Divide rows by the values of columns; a bounded number of bytes is held at once.

    Args:
        tables: The rows.
        columns: Names of the partition columns, in the rows and in the folders.

    Yields:
        A folder, rows for it without these columns, and facts of the columns (see
        `shared.formats.parquet_profile`). A folder comes again if there are more rows.

    Raises:
        PartitionError: There are too many folders, or the name of one is too long.
    """
    seen: set[str] = set()
    names = [name for name, _ in columns]
    for table in grouped(tables, COLLECTED_BYTES):
        keys, rest = table.select(names), table.drop_columns(names).combine_chunks()
        del table  # its bytes are in `rest` now
        for values, places in _groups(keys.combine_chunks()):
            shown = [name for _, name in columns]
            folder = "/".join(map(partition_folder, shown, values))
            seen.add(folder)
            if len(seen) > MOST_FOLDERS:
                raise _too_many()
            facts = zip(shown, values, strict=True)
            yield folder, rest.take(places), {n: _facts(v, len(places)) for n, v in facts}
        del rest  # before the next rows are collected


def _groups(keys: pa.Table) -> Iterator[tuple[list[str | None], pa.Array]]:
    """Yield each combination of values, as texts, and its rows in order."""
    if not keys.num_rows:
        return
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), keys.num_rows))
    names = [str(number) for number in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column(_ROW, pc.subtract(numbers, 1))
    found = numbered.group_by(names, use_threads=False).aggregate([(_ROW, "list")])
    if found.num_rows > MOST_FOLDERS:
        raise _too_many()
    texts = [found.column(name).cast(pa.string()).to_pylist() for name in names]
    places = found.column(f"{_ROW}_list").combine_chunks()
    for number, values in enumerate(zip(*texts, strict=True)):
        yield list(values), places[number].values


def _facts(value: str | None, rows: int) -> list[Any]:
    if not value:
        return [rows, None, None]
    bound = value if len(value) <= LONGEST_TEXT else None
    return [0, bound, bound]


def _too_many() -> PartitionError:
    return PartitionError(
        f"the rows of one task have more than {MOST_FOLDERS:,} different values in the columns of "
        "partition_by"
    )
