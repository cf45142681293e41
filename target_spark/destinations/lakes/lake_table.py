"""A table of a lake: where it is and what it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shared.storage.urls import local_path

if TYPE_CHECKING:
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
