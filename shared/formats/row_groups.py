"""Files that tasks share by groups of rows: row groups of Parquet, record batches of Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from shared.formats import arrow_encoding, columnar_encoding
from shared.formats.parquet_profile import Facts, parquet_profile
from shared.storage.files import StorageOptions


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


def told_by_footer(
    name: str, url: str, options: StorageOptions | None = None
) -> tuple[int | None, dict[str, Facts]]:
    """Return the rows that a file says it has, None if its encoding does not; facts of columns."""
    if name == "parquet":
        return parquet_profile(url, options)
    return columnar_encoding.orc_rows(url, options) if name == "orc" else None, {}


ROW_GROUPS: Mapping[str, RowGroups] = {"parquet": columnar_encoding, "arrow": arrow_encoding}
"""The encodings that have groups, by name."""
