"""The interface of table folders: one contract for disks and object stores."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from shared.storage.files import StorageOptions
from shared.storage.urls import join
from target_spark.core.load_plans import TableName
from target_spark.destinations.folders.folder_names import folder_name


@dataclass(frozen=True)
class FolderChange:
    """The change of a table folder by one commit, atomic if the storage allows it.

    Attributes:
        add: Pending file → name in the table folder, with the folders of its partition.
        drop: Names that the added files replace.
        side: New content of the side file; None keeps it.
    """

    add: Mapping[str, str]
    drop: frozenset[str] = frozenset()
    side: bytes | None = None


class TableFolder(Protocol):
    """A table's folder and the hidden folder of this run beside it."""

    table: str
    pending: str

    @property
    def options(self) -> StorageOptions:
        """Return the options of the storage."""

    def locked(self) -> AbstractContextManager[None]:
        """Lock the table against other target processes."""

    def files(self) -> tuple[str, ...]:
        """Return the names of all visible files, sorted; also of those in folders of partitions."""

    def side(self) -> bytes | None:
        """Return the content of the side file that holds; None if there is none."""

    def publish(self, change: FolderChange) -> None:
        """Make a change visible and durable."""

    def close(self) -> None:
        """Remove the hidden files of this run."""


def visible(name: str) -> bool:
    """Return whether readers such as Spark, pyarrow and duckdb read a file of this name."""
    return not name.startswith((".", "_"))


def is_partition(name: str) -> bool:
    """Return whether a folder of this name is one of a partition: `country=DE`."""
    return "=" in name


def table_path(path: str, name: TableName) -> str:
    """Return the folder of a table below the folder or URL of all tables."""
    schema = [folder_name(name.schema)] if name.schema else []
    return join(path, *schema, folder_name(name.table))
