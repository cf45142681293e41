"""The typed form of one item of `streams`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tap_spark.connection_config import ConnectionConfig

PYTHON_SOURCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


@dataclass(frozen=True)
class StreamConfig:
    """One item of `streams`.

    Attributes:
        name: Name of the stream.
        format: A key of the registry of sources, or an importable Spark DataSource class.
        path: File, folder or glob, or several; None if the format has none.
        table: Table name, with parts quoted if they need it; see `tap_spark.sources.table_names`.
        query: One statement that only reads.
        connection: Name of an item of `connections`.
        database: That item.
        options: Options of Spark's reader.
        schema: Spark DDL of the source's columns; None to infer.
        key_properties: Primary key.
        replication_key: Column of the bookmark.
        replication_method: The user's choice; None lets planning decide.
        sort_by_replication_key: Sort the source, so that STATE can be written inside the stream.
        read_unterminated_line: INCREMENTAL reads a last line without line end at once.
        own: Settings that the format itself declares, in its typed form.
    """

    name: str
    format: str
    path: str | tuple[str, ...] | None = None
    table: str | None = None
    query: str | None = None
    connection: str | None = None
    database: ConnectionConfig | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    key_properties: tuple[str, ...] = ()
    replication_key: str | None = None
    replication_method: str | None = None
    sort_by_replication_key: bool = False
    read_unterminated_line: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, as a tuple even if there is only one."""
        if self.path is None:
            return ()
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def is_python_source(self) -> bool:
        """Whether the format names a Spark DataSource class."""
        return is_python_source(self.format)


def is_python_source(text: object) -> bool:
    """Return whether a format names an importable class (`package.module.Class`)."""
    return isinstance(text, str) and PYTHON_SOURCE.fullmatch(text) is not None
