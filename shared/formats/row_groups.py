"""Files that tasks share by groups of rows: row groups of Parquet, record batches of Arrow.

The footer of a Parquet file tells the number of its rows, and facts of columns.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from shared.formats import arrow_encoding, columnar_encoding
from shared.storage.access import StorageOptions
from shared.storage.files import open_random

Facts = list[Any]
"""Nulls, least and greatest value of a column; a bound is a number, a text, or None."""

MOST_COLUMNS = 1000
LONGEST_TEXT = 64


def parquet_profile(
    url: str, options: StorageOptions | None = None
) -> tuple[int, dict[str, Facts]]:
    """Return the rows of a file, and the facts of its first columns that are not nested.

    Args:
        url: The file.
        options: Options of its storage.

    Raises:
        OSError: The file cannot be opened.
        ArrowInvalid: It is not Parquet.
    """
    from pyarrow import parquet  # noqa: PLC0415

    with open_random(url, options) as source:
        footer = parquet.read_metadata(source)
    return footer.num_rows, footer_facts(footer)


def footer_facts(footer: Any) -> dict[str, Facts]:
    """Return the facts of the first columns that are not nested, of a `FileMetaData`."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    profile: dict[str, Facts] = {}
    for number in range(min(footer.num_columns, MOST_COLUMNS)):
        column = footer.schema.column(number)
        if column.path == column.name and column.max_repetition_level == 0:
            facts = _facts([group.column(number).statistics for group in groups])
            if facts is not None:
                profile[column.name] = facts
    return profile


def merged(one: Facts, other: Facts) -> Facts:
    """Return the facts of a column in two files; bounds of different types are dropped."""
    return [one[0] + other[0], _bound(min, one[1], other[1]), _bound(max, one[2], other[2])]


def _bound(choose: Any, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return None
    is_text = isinstance(one, str), isinstance(other, str)
    return None if is_text[0] != is_text[1] else choose(one, other)


def _facts(chunks: Sequence[Any]) -> Facts | None:
    if any(chunk is None or not chunk.has_null_count for chunk in chunks):
        return None
    nulls = sum(chunk.null_count for chunk in chunks)
    filled = [chunk for chunk in chunks if chunk.num_values]
    if not filled or not all(chunk.has_min_max for chunk in filled):
        return [nulls, None, None]
    try:
        least, greatest = min(c.min for c in filled), max(c.max for c in filled)
    except (OverflowError, ValueError, TypeError):
        return [nulls, None, None]  # a date that Python does not have
    return [nulls, _plain(least), _plain(greatest)]


def _plain(value: Any) -> int | float | str | None:
    """Return a bound as JSON has it; None for one without order as text, or too long."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.timezone.utc)
    if isinstance(value, dt.date):  # also one with a time
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else None
    if isinstance(value, float | decimal.Decimal):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, int) else None


class RowGroups(Protocol):
    """The module of an encoding whose files consist of groups of rows."""

    def read_groups(
        self, url: str, groups: range | None, options: StorageOptions | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of some groups (None: all), in bounded tables."""
        ...

    def group_sizes(self, url: str, options: StorageOptions | None = None) -> list[tuple[int, int]]:
        """Return bytes and rows of each group; empty if the file is not of this encoding."""
        ...


def read_footer(
    name: str, url: str, options: StorageOptions | None = None
) -> tuple[int | None, dict[str, Facts]]:
    """Return the rows that a file says it has, None if its encoding does not; facts of columns."""
    if name == "parquet":
        return parquet_profile(url, options)
    return columnar_encoding.orc_rows(url, options) if name == "orc" else None, {}


ROW_GROUPS: Mapping[str, RowGroups] = {"parquet": columnar_encoding, "arrow": arrow_encoding}
"""The encodings that have groups, by name."""
