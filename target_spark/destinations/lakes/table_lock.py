"""One writer at a time for tables on a local disk, which cannot detect lost commits."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import DestinationError
from shared.storage.urls import local_path

LONGEST_WAIT = 1800.0
_PAUSE = 0.05
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})


@contextmanager
def one_writer(
    folder: str | None,
    *,
    longest: float = LONGEST_WAIT,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[None]:
    """Lock a table against other programs of this machine that lock it, too.

    On a local disk a rename replaces an existing file, so that one of two concurrent versions of a
    table would be lost. Remote storages and file systems without locks are not locked.

    Args:
        folder: Folder of the table; None if only a catalog knows it.
        longest: Seconds to wait for another program.
        pause: Sleeps for some seconds.

    Raises:
        DestinationError: Another program holds the lock, or the folder cannot be written.
    """
    path = None if folder is None else local_path(folder)
    if path is None:
        yield
        return
    fd = _opened(Path(path))
    try:
        _wait(fd, path, longest, pause)
        yield
    finally:
        os.close(fd)


def _opened(table: Path) -> int:
    """Return an open hidden sibling of the table: formats may remove unknown files inside."""
    try:
        table.parent.mkdir(parents=True, exist_ok=True)
        name = f".{table.name}.commit-lock"
        return os.open(table.with_name(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise DestinationError(f"'{table}' cannot be written: {error.strerror}") from error


def _wait(fd: int, path: str, longest: float, pause: Callable[[float], object]) -> None:
    waited = 0.0
    while not _taken(fd):
        if waited >= longest:
            raise DestinationError(
                f"another program has been writing to '{path}' for {longest:.0f} s"
            )
        pause(_PAUSE)
        waited += _PAUSE


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
