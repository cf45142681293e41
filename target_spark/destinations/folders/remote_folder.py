"""Table folders on object stores and other fsspec systems: each file appears in one step.

Folders cannot be renamed there, so a flush of several files appears file by file. The side file
is written first: readers never find columns that it does not list.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from shared.storage.access import NO_OPTIONS, StorageOptions, remote
from shared.storage.many_files import delete_all
from shared.storage.urls import join
from target_spark.destinations.folders.table_folder import (
    OLD_SIDE_FILE,
    FolderChange,
    announced,
    holding,
    is_partition,
    is_settled,
    side_name,
    visible,
    writing,
)

COPIERS = 16
"""Files that the storage copies at the same time."""


class RemoteFolder:
    """See `TableFolder`. Hidden siblings of a table `t`: `.t.schema`, `.t.run-<run>/`."""

    def __init__(self, table: str, run: str, options: StorageOptions = NO_OPTIONS) -> None:
        self.table = table
        self.options = options
        parent, _, name = table.rstrip("/").rpartition("/")
        self._run = join(parent, f".{name}.run-{run}")
        self.pending = join(self._run, "pending")

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return remote(self.table, self.options)

    def open(self) -> RemoteFolder:
        """Check that the file system of the URL can be used.

        Raises:
            DestinationError: It cannot be used.
        """
        with writing(self.table, self.options):
            _ = self._place
        return self

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: object stores do not have a common lock."""
        with writing(self.table, self.options):
            yield

    def files(self) -> tuple[str, ...]:
        """Return the names of all visible files, sorted; also of those in folders of partitions."""
        filesystem, path = self._place
        filesystem.invalidate_cache()
        try:
            result = filesystem.find(path)
        except FileNotFoundError:
            return ()
        names = {_listed(name.removeprefix(path).strip("/")) for name in result}
        return tuple(sorted(name for name in names if all(map(visible, name.split("/")))))

    def side(self) -> bytes | None:
        """Return the content of the side file that holds; None if there is none."""
        return self._found_side()[0]

    def publish(self, change: FolderChange) -> None:
        """Write the side file, copy every file, then remove the files that they replace.

        Files that are not in the hidden folder of this run stay: they belong to others. May be
        repeated after a failure: files are removed only after all others are there.

        Raises:
            DestinationError: The storage failed; some of the files may be visible.
        """
        filesystem, path = self._place
        with writing(self.table, self.options):
            before, must_write = self._found_side()
            side = before if change.side is None and must_write else change.side
            if side is not None:
                filesystem.makedirs(path, exist_ok=True)
                marker = next(iter(change.add.values()), None)
                filesystem.pipe_file(self._side, announced(side, before, marker))
            moves = {filesystem._strip_protocol(p): join(path, n) for p, n in change.add.items()}
            inside = {place.rpartition("/")[0] for place in moves.values()} - {path.rstrip("/")}
            for folder in sorted(inside):
                filesystem.makedirs(folder, exist_ok=True)
            with ThreadPoolExecutor(COPIERS, "copy") as copiers:
                list(copiers.map(filesystem.cp_file, moves, moves.values()))
            own = (url for url in change.add if url.startswith(f"{self._run}/"))
            gone = [*(join(self.table, name) for name in change.drop), *own]
            for _, error in delete_all(gone, self.options):
                raise error
            if side is not None:
                filesystem.pipe_file(self._side, side)
                _remove(filesystem, self._old_side)
            filesystem.invalidate_cache(path)

    def close(self) -> None:
        """Remove the hidden folder of this run."""
        filesystem, _ = self._place
        inside = filesystem._strip_protocol(self._run)
        with writing(self.table, self.options):
            if filesystem.exists(inside):
                filesystem.rm(inside, recursive=True)

    def _found_side(self) -> tuple[bytes | None, bool]:
        """Return the content that holds, and whether the next change must write it anew."""
        content = self._content(self._side)
        if content is None and (old := self._content(self._old_side)) is not None:
            return old, True
        return holding(content, self.files()), not is_settled(content)

    @property
    def _side(self) -> str:
        parent, _, name = self._place[1].rstrip("/").rpartition("/")
        return join(parent, side_name(name))

    @property
    def _old_side(self) -> str:
        return join(self._place[1], OLD_SIDE_FILE)

    def _content(self, path: str) -> bytes | None:
        filesystem, table = self._place
        filesystem.invalidate_cache(table)
        try:
            return bytes(filesystem.cat_file(path))
        except FileNotFoundError:
            return None


def _listed(name: str) -> str:
    """Return what the listing of a table shows for a file below it: itself, or a folder."""
    *folders, _ = name.split("/")
    for number, folder in enumerate(folders, 1):
        if not is_partition(folder):
            return "/".join(folders[:number])
    return name


def _remove(filesystem: Any, path: str) -> None:
    with suppress(FileNotFoundError):
        filesystem.rm_file(path)
