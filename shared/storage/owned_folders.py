"""Private folders on local disk that end with their process, and the owners of files.

A lock on a file in an owned folder shows that its owner is alive: the system releases it when the
owner ends, even by SIGKILL. The next process that makes a folder removes those without an owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK_NAME = "owner.lock"


class OwnedFolder:
    """A folder of this process alone (mode 0700).

    Args:
        root: Folder to make it in.
        prefix: How its name begins; the name of this machine follows, as locks are not seen
            from other machines that share the disk.

    Attributes:
        path: The folder.
        lock: The locked file in it, for `is_locked`.
        fd: The descriptor that holds the lock. Children do not inherit it; one that is given it
            (`pass_fds`) owns the folder as well.

    Raises:
        OSError: The folder cannot be made, or the file system does not support locks.
    """

    def __init__(self, root: str | os.PathLike[str], prefix: str) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_own_prefix(prefix), dir=root))
            self.lock = self.path / LOCK_NAME
            with contextlib.suppress(FileNotFoundError):
                self.fd = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._take_lock()
                # Another process may have removed it as abandoned before it was locked.
                if self.lock.exists():
                    return
                os.close(self.fd)

    def close(self) -> None:
        """Remove the folder and release the lock; safe to call twice."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            gone = self.path.with_name(f"{self.path.name}.gone")
            try:
                # Others that still work in it must not add to it while it is being emptied.
                self.path.rename(gone)
            except OSError:
                gone = self.path
            shutil.rmtree(gone, ignore_errors=True)
            os.close(fd)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        except OSError:
            self.close()
            raise

    def __enter__(self) -> OwnedFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_stale(root: str | os.PathLike[str], prefix: str) -> list[Path]:
    """Remove folders of our user on this machine whose owner has ended (a killed run).

    Args:
        root: Folder that holds owned folders.
        prefix: As given to `OwnedFolder`.

    Returns:
        The folders removed. What cannot be read or removed is left alone.
    """
    return [folder for folder in _own_folders(Path(root), prefix) if _removed(folder)]


def is_locked(lock: str | os.PathLike[str]) -> bool:
    """Return whether the owner of a folder is alive.

    Args:
        lock: `OwnedFolder.lock`, asked by any process of the same machine.
    """
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


def is_trusted(path: str | os.PathLike[str]) -> bool:
    """Return whether only we (or the administrator) can have written a file, and not an attacker.

    Args:
        path: A file or folder; a symbolic link is never trusted.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_ours = status.st_uid in {0, os.getuid()}
    return is_ours and not stat.S_ISLNK(status.st_mode) and not status.st_mode & stat.S_IWOTH


def _own_prefix(prefix: str) -> str:
    return f"{prefix}{socket.gethostname()}-"


def _own_folders(root: Path, prefix: str) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(_own_prefix(prefix)) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        yield Path(entry.path)


def _removed(folder: Path) -> bool:
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        # Made, and not yet locked: its owner is at work, or died then and there.
        with contextlib.suppress(OSError):
            folder.rmdir()
        return not folder.exists()
    except OSError:
        return False
    try:
        if not _try_lock(fd):
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return True
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
