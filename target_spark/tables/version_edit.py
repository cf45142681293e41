"""ACTIVATE_VERSION for rows in files: the files to change, and the changes of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.json_lines import LineReader
from shared.maps.record_metadata import DELETED_AT, TABLE_VERSION
from shared.singer.run_report import MARKED, REMOVED
from shared.storage.access import StorageOptions
from shared.storage.files import open_random

_INSTANT = pa.timestamp("us", "UTC")
_LINE_SCHEMA = {
    "properties": {
        TABLE_VERSION: {"type": ["integer", "null"]},
        DELETED_AT: {"type": ["string", "null"], "format": "date-time"},
    }
}


@dataclass(frozen=True)
class VersionEdit:
    """The change of older rows by an activated version; picklable.

    Attributes:
        version: Change rows whose `_sdc_table_version` is below it; null is not below.
        hard_delete: Remove them; otherwise set `_sdc_deleted_at` if it is null.
        at: Time for `_sdc_deleted_at`, seconds since the epoch.
        has_rows: Whether the run has loaded rows of the version.
    """

    version: int
    hard_delete: bool
    at: float
    has_rows: bool = True

    @property
    def marked_at(self) -> float | None:
        """Time for the mark of rows; None if they are removed."""
        return None if self.hard_delete else self.at

    def phrase(self, rows: int | None) -> str:
        """Return in words what has become of so many rows; None for an unknown number."""
        count = "the rows" if rows is None else f"{rows:,} row{'' if rows == 1 else 's'}"
        return f"{REMOVED if self.hard_delete else MARKED}{count} of older versions"

    def untouched(self, urls: Iterable[str], options: StorageOptions | None = None) -> int:
        """Return the rows of Parquet files, or those without a mark if it marks, by the footers.

        Raises:
            OSError: A file cannot be opened.
        """
        groups = (group for url in urls for group in _row_groups(url, options))
        return sum(group.num_rows if self.hard_delete else _unmarked(group) for group in groups)

    def keeps_file(self, url: str, format_name: str, options: StorageOptions | None = None) -> bool:
        """Return whether a file certainly does not have rows to change, without reading its rows.

        Raises:
            OSError: The file cannot be opened.
        """
        return format_name == "parquet" and all(map(self._keeps_group, _row_groups(url, options)))

    def apply(self, table: pa.Table, format_name: str) -> tuple[pa.Table, int]:
        """Return the edited rows, and how many were changed or removed.

        Args:
            table: Rows as read by the format: lines in one column for JSON, texts for CSV.
        """
        if format_name == "json":
            return self._lines(table)
        affected = self._affected(table)
        count = pc.sum(affected).as_py() or 0
        if not count:
            return table, 0
        if self.hard_delete:
            return table.filter(pc.invert(affected)), count
        position = table.schema.get_field_index(DELETED_AT)
        field = table.schema.field(position)
        value = self._instant().cast(field.type)
        filled = pc.if_else(affected, value, table.column(position))
        return table.set_column(position, field, filled), count

    def _affected(self, table: pa.Table) -> pa.ChunkedArray:
        versions = table.column(TABLE_VERSION).cast(pa.int64())
        below = pc.fill_null(pc.less(versions, self.version), False)
        if self.hard_delete:
            return below
        return pc.and_(below, pc.is_null(table.column(DELETED_AT)))

    def _lines(self, table: pa.Table) -> tuple[pa.Table, int]:
        data = b"".join(table.column(0).to_pylist())
        result = LineReader(_LINE_SCHEMA, envelope=False, strict=False).read(data).table
        lines = pc.list_flatten(pc.split_pattern(pa.array([data.decode()]), "\n"))
        lines = lines.slice(0, len(lines) - data.endswith(b"\n"))
        if len(lines) != result.num_rows:
            raise pa.ArrowInvalid("it holds lines that are no JSON objects")
        affected = pc.cast(self._affected(result), pa.bool_()).combine_chunks()
        count = pc.sum(affected).as_py() or 0
        if count and self.hard_delete:
            lines = lines.filter(pc.invert(affected))
        elif count:
            lines = pc.if_else(affected, self._with_deleted_at(lines), lines)
        return pa.table({"value": pc.binary_join_element_wise(lines, "\n", "")}), count

    def _with_deleted_at(self, lines: pa.Array) -> pa.Array:
        # The last such key of a line: the metadata columns follow those of the record.
        text = pc.strftime(self._instant(), format="%Y-%m-%dT%H:%M:%S+00:00").as_py()
        return pc.replace_substring_regex(
            lines,
            pattern=f'^(.*)"{DELETED_AT}" *: *null(.*)$',
            replacement=f'\\1"{DELETED_AT}":"{text}"\\2',
        )

    def _instant(self) -> pa.Scalar:
        return pa.scalar(round(self.at * 1e6), pa.int64()).cast(_INSTANT)

    def _keeps_group(self, group: Any) -> bool:
        if group.num_rows == 0:
            return True
        columns = _columns(group)
        versions = columns[TABLE_VERSION].statistics if TABLE_VERSION in columns else None
        if versions is None:
            return TABLE_VERSION not in columns
        if versions.has_min_max and versions.min >= self.version:
            return True
        if versions.has_null_count and versions.null_count == group.num_rows:
            return True
        deleted = columns[DELETED_AT].statistics if DELETED_AT in columns else None
        done = deleted is not None and deleted.has_null_count and deleted.null_count == 0
        return done and not self.hard_delete


def _row_groups(url: str, options: StorageOptions | None) -> Iterator[Any]:
    """Yield the metadata of the row groups of a Parquet file."""
    from pyarrow import parquet  # noqa: PLC0415

    with open_random(url, options) as source:
        footer = parquet.read_metadata(source)
    yield from map(footer.row_group, range(footer.num_row_groups))


def _columns(group: Any) -> dict[str, Any]:
    columns = map(group.column, range(group.num_columns))
    return {column.path_in_schema: column for column in columns}


def _unmarked(group: Any) -> int:
    column = _columns(group).get(DELETED_AT)
    if column is None or column.statistics is None:
        return 0
    return int(column.statistics.null_count or 0)
