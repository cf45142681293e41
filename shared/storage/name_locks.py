"""Locks by name within a folder: one file and one descriptor for all that a process holds.

Each name is a byte of the file, far beyond its end, which the system unlocks when the process ends.
A lock file for each of thousands of streams would take as many descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

LOCKS_NAME = ".singer-spark.locks"
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""Error numbers of a file system without locks."""
_NAME_BYTES = 7
_PAUSES = (0.001, 0.01)
_guard = threading.Lock()
_open: dict[Path, _LocksFile] = {}


class NameLock:
    """A name that this process holds in a folder, until `release`."""

    def __init__(self, file: _LocksFile, name: str) -> None:
        self._file = file
        self._name = name

    def release(self) -> None:
        """Let others take the name; safe to call twice."""
        with _guard:
            self._file.unlock(self._name)


def lock_name(folder: Path, name: str) -> NameLock:
    """Take a name in a folder.

    Args:
        folder: An existing folder.
        name: Any text.

    Raises:
        BlockingIOError: It is taken, by this process or another one.
        OSError: The lock file cannot be opened, or the file system does not support locks.
    """
    place = Path(os.path.realpath(folder))
    with _guard:
        while True:
            file = _open.get(place) or _LocksFile(place)
            file.lock(name)
            if file.is_current():
                return NameLock(file, name)
            # The last owner has removed the file, or somebody has.
            file.unlock(name)
            _open.pop(place, None)


class _LocksFile:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / LOCKS_NAME
        self._held: set[str] = set()
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # of another user, whose settings stand
            os.fchmod(self._fd, 0o600 | folder.stat().st_mode & 0o066)

    def lock(self, name: str) -> None:
        if name in self._held:
            raise BlockingIOError
        try:
            _take_byte(self._fd, name)
        except OSError as error:
            self._close_if_idle()
            if isinstance(error, PermissionError):  # what some systems answer
                raise BlockingIOError from error
            raise
        self._held.add(name)
        _open[self._folder] = self

    def unlock(self, name: str) -> None:
        if name in self._held:
            self._held.remove(name)
            _set_lock(self._fd, fcntl.F_UNLCK, *_byte(name))
            self._close_if_idle()

    def is_current(self) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        return False

    def _close_if_idle(self) -> None:
        """Close the file if nothing is held; remove it if nobody else holds anything."""
        if self._held:
            return
        if _open.get(self._folder) is self:
            del _open[self._folder]
        with suppress(OSError):
            _set_lock(self._fd, fcntl.F_WRLCK, 0, 0)
            if self.is_current():
                self._path.unlink()
        os.close(self._fd)


def _byte(name: str) -> tuple[int, int]:
    """Return the place of a name in the file, and its length: of 2^56, no two names share one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:_NAME_BYTES], "big"), 1


def _set_lock(fd: int, kind: int, start: int, length: int) -> None:
    """Lock or unlock a range of bytes, without waiting.

    Linux has locks of an open file, which no other descriptor of the process can lose.
    """
    if hasattr(fcntl, "F_OFD_SETLK"):
        request = struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
    else:
        command = fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
        fcntl.lockf(fd, command, length, start)


def _take_byte(fd: int, name: str) -> None:
    """Lock a name; try again, as a process that removes the file holds all for an instant."""
    for pause in _PAUSES:
        with suppress(BlockingIOError, PermissionError):
            _set_lock(fd, fcntl.F_WRLCK, *_byte(name))
            return
        time.sleep(pause)
    _set_lock(fd, fcntl.F_WRLCK, *_byte(name))
