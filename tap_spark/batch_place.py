"""Where whole batch files wait on a disk that the executors share, until they are announced."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from shared.owned_folders import OwnedFolder, remove_stale
from shared.storage import local_path, make_durable
from tap_spark.batch_plan import absolute_url

if TYPE_CHECKING:
    from shared.batch_types import BatchConfig

PREFIX = ".tap-spark-batch-"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_logger = logging.getLogger(__name__)


class BatchPlace:
    """A hidden folder beside the batch files, of this process alone.

    What a killed run leaves lies in it: the next run sees that its owner is gone and removes it.

    Args:
        root: Local folder of the batch files.
        prefix: How names below it begin; may name folders.
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
        """The folder, made when it is first asked for; None where the disk knows no locks.

        Raises:
            OSError: It cannot be made.
        """
        with self._lock:
            if not self._is_made:
                self._is_made = True
                self._owned = self._make()
        return None if self._owned is None else str(self._owned.path)

    def show(self, waiting: str, url: str) -> None:
        """Move a whole file to its place, for good.

        Args:
            waiting: Where it lies in the folder.
            url: Its place.

        Raises:
            OSError: It cannot be moved.
        """
        path = Path(local_path(url) or url)
        _make_folder(path.parent)
        os.replace(waiting, path)  # noqa: PTH105
        make_durable(str(path.parent))

    def close(self) -> None:
        """Remove the folder with what was not announced; safe to call twice."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> BatchPlace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> OwnedFolder | None:
        for folder in (self._root, self._final):
            _make_folder(folder)
            for dead in remove_stale(folder, PREFIX):
                _logger.info("removed batch files that a killed run had not announced: %s", dead)
        # In the root, as prefixes change from run to run, unless files cannot be moved from there.
        same_disk = self._root.stat().st_dev == self._final.stat().st_dev
        try:
            return OwnedFolder(self._root if same_disk else self._final, PREFIX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            _logger.warning(
                "'%s' knows no file locks: a run that is killed may leave batch files there",
                self._root,
            )
            return None


def place_for(batch: BatchConfig | None) -> BatchPlace | None:
    """Give the place of files on a disk that the executors share; None on other storage."""
    path = None if batch is None or batch.root is None else local_path(absolute_url(batch.root))
    return None if batch is None or path is None else BatchPlace(path, batch.prefix)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it; what is new is durable."""
    if folder.is_dir():
        return
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        # Its owner may let us make a folder in one that we must not read.
        with contextlib.suppress(PermissionError):
            make_durable(str(path.parent))
