"""The driver's side of the spool: a private folder of chunk files, written by executors."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.errors import DestinationError, Where
from tap_spark.config import SpoolSettings
from tap_spark.line_chunks import (
    LINES_SUFFIX,
    META_SUFFIX,
    KeyMax,
    is_locked,
    unpack_meta,
)

PREFIX = "tap-spark-spool-"
LOCK_NAME = "owner.lock"
_ABANDONED_SECONDS = 3600.0


@dataclass(frozen=True)
class SpooledChunk:
    """A finished chunk file.

    Attributes:
        path: The file with the lines.
        rows: Number of lines.
        key: Greatest replication key in it; None where it has none.
    """

    path: Path
    rows: int
    key: KeyMax | None

    def remove(self) -> None:
        """Make room for others."""
        self.path.with_suffix(META_SUFFIX).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class SpoolFolder:
    """Where the tasks of one job leave their chunks.

    Attributes:
        path: The folder.
        lock: The file whose lock this process holds.
        room: Bytes that may wait there.
    """

    path: Path
    lock: Path
    room: int

    def finished(self) -> list[SpooledChunk]:
        """List the chunks that are ready, in no particular order.

        Raises:
            DestinationError: The folder cannot be read.
        """
        try:
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(LINES_SUFFIX)]
            return [_read_chunk(self.path / name) for name in names]
        except OSError as error:
            raise spool_error(error, self.path) from error

    def remove(self) -> None:
        """Remove the folder; a task that still runs can then no longer write to it."""
        shutil.rmtree(self.path, ignore_errors=True)


class Spool:
    """A folder of this process alone (mode 0700) that is removed when the run ends.

    A lock held on a file in it tells executors, and later runs, that this process lives: the
    system lets go of it however the process ends.

    Args:
        settings: Where the folder is made, and how much may wait in it.

    Raises:
        DestinationError: The folder cannot be made.
    """

    def __init__(self, settings: SpoolSettings) -> None:
        root = Path(settings.root or tempfile.gettempdir())
        self._jobs = 0
        try:
            root.mkdir(parents=True, exist_ok=True)
            remove_stale(root)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
            self._lock = _lock_owner(self.path)
            # A disk smaller than the setting would fill up before anybody waits.
            self.room = min(settings.bytes, shutil.disk_usage(root).free // 2)
        except OSError as error:
            raise spool_error(error, root) from error

    def new_folder(self) -> SpoolFolder:
        """Make a folder for one job.

        Raises:
            DestinationError: It cannot be made.
        """
        self._jobs += 1
        path = self.path / str(self._jobs)
        try:
            path.mkdir(mode=0o700)
        except OSError as error:
            raise spool_error(error, path) from error
        return SpoolFolder(path, self.path / LOCK_NAME, self.room)

    def close(self) -> None:
        """Remove the folder; safe to call twice."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read_chunk(path: Path) -> SpooledChunk:
    rows, key = unpack_meta(path.with_suffix(META_SUFFIX).read_text(encoding="utf-8"))
    return SpooledChunk(path, rows, key)


def _lock_owner(folder: Path) -> int:
    # Not inheritable (PEP 446): a JVM that outlives this process must not keep the lock.
    fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def remove_stale(root: Path) -> list[Path]:
    """Remove spool folders whose owner is gone (a killed run).

    Args:
        root: Folder that holds spool folders.

    Returns:
        The folders removed.
    """
    stale = [folder for folder in _own_folders(root) if _is_stale(folder)]
    for folder in stale:
        shutil.rmtree(folder, ignore_errors=True)
    return stale


def _own_folders(root: Path) -> Iterator[Path]:
    for folder in root.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                yield folder


def _is_stale(folder: Path) -> bool:
    # Between its making and its locking a folder looks as if nobody owned it.
    with contextlib.suppress(OSError):
        if not (folder / LOCK_NAME).exists():
            return time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
        return not is_locked(str(folder / LOCK_NAME))
    return False


def spool_error(error: OSError, place: Path) -> DestinationError:
    """Explain why the spool cannot be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = (
        "free some space, or point spool.root at a larger disk"
        if full
        else "point spool.root at a folder this user may write to"
    )
    return DestinationError(
        f"lines cannot be spooled: {error.strerror or error}",
        where=Where(file=str(place), setting="spool.root"),
        hint=hint,
    )
