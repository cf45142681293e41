"""What a table folder offers to the file destination: one contract for disks and object stores."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from shared.naming import folder_name
from shared.storage import StorageOptions, join
from target_spark.plans import TableName

SIDE_FILE = "_schema.json"
"""Hidden file in every table folder that holds the table's exact columns and format."""


@dataclass(frozen=True)
class FolderChange:
    """What one commit does to a table folder, in one step where the storage allows it.

    Attributes:
        add: Pending file → name in the table folder.
        drop: Names that the added files replace.
        side: New contents of the side file; None keeps it.
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
        """Of the storage."""

    def locked(self) -> AbstractContextManager[None]:
        """Keeps other target processes from changing the table."""

    def files(self) -> tuple[str, ...]:
        """Names of everything readers see, sorted."""

    def side(self) -> bytes | None:
        """Contents of the side file, or None where there is none."""

    def publish(self, change: FolderChange) -> None:
        """Makes a change visible and durable."""

    def swap(self, replacement: TableFolder) -> None:
        """Puts another folder in the table's place; the old one goes."""

    def close(self) -> None:
        """Removes what is hidden and belongs to this run."""


def visible(name: str) -> bool:
    """Whether readers such as Spark, pyarrow and duckdb look at a file of this name."""
    return not name.startswith((".", "_"))


def table_path(path: str, name: TableName) -> str:
    """Folder of a table below the folder or URL that holds all of them."""
    schema = [folder_name(name.schema)] if name.schema else []
    return join(path, *schema, folder_name(name.table))
