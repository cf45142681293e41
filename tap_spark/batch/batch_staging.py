"""Folder on a shared disk for finished batch files that are not announced yet."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from shared.storage.files import make_durable
from shared.storage.owned_folders import OwnedFolder, remove_stale
from shared.storage.urls import local_path
from tap_spark.batch.batch_plan import absolute_url

if TYPE_CHECKING:
    from shared.settings.batch.batch_settings import BatchConfig

PREFIX = ".tap-spark-batch-"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_logger = logging.getLogger(__name__)


class BatchStagingFolder:
    """A hidden, private folder beside the batch files.

    A killed run leaves its files there; the next run detects that and removes the folder.

    Args:
        root: Local folder of the batch files.
        prefix: Prefix of names below it; may contain folders.
    """

    def __init__(self, root: str, prefix: str) -> None:
        self._root = Path(root)
        self._final = Path(f"{root}/{prefix}-").parent
        self._owned: OwnedFolder | None = None
        self._is_made = False
        # Streams may be read at the same time.
        self._lock = threading.Lock()

    @property
    def work(self) -> str | None:
        """Return the folder, created at first use; None if the disk does not support locks.

        Raises:
            OSError: It cannot be created.
        """
        with self._lock:
            if not self._is_made:
                self._is_made = True
                self._owned = self._make()
        return None if self._owned is None else str(self._owned.path)

    def publish(self, waiting: str, url: str) -> None:
        """Move a finished file to its URL, durably.

        Args:
            waiting: Its path in the folder.
            url: Its URL.

        Raises:
            OSError: It cannot be moved.
        """
        path = Path(local_path(url) or url)
        _make_folder(path.parent)
        os.replace(waiting, path)  # noqa: PTH105
        make_durable(str(path.parent))

    def close(self) -> None:
        """Remove the folder and its files, which were not announced; safe to call twice."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> BatchStagingFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> OwnedFolder | None:
        for folder in (self._root, self._final):
            _make_folder(folder)
            for dead in remove_stale(folder, PREFIX):
                _logger.info(
                    "removed batch files of a killed run, which were not announced: %s", dead
                )
        # In the root, as prefixes differ between runs, unless files cannot be moved from there.
        same_disk = self._root.stat().st_dev == self._final.stat().st_dev
        try:
            return OwnedFolder(self._root if same_disk else self._final, PREFIX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            _logger.warning(
                "'%s' does not support file locks: a killed run may leave batch files there",
                self._root,
            )
            return None


def staging_folder_for(batch: BatchConfig | None) -> BatchStagingFolder | None:
    """Return the folder for files on a disk that the executors share; None for other storage."""
    path = None if batch is None or batch.root is None else local_path(absolute_url(batch.root))
    return None if batch is None or path is None else BatchStagingFolder(path, batch.prefix)


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents, durably."""
    if folder.is_dir():
        return
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        # Creating a folder does not need the right to read its parent.
        with contextlib.suppress(PermissionError):
            make_durable(str(path.parent))
