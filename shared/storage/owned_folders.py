"""Private folders and locks on local disk that end with their process, and the owners of files.

A lock on a file in an owned folder shows that its owner is alive: the system releases it when the
owner ends, even by SIGKILL. The next process that makes a folder removes those without an owner.

A process holds locks by name with one file and one descriptor: each name is a byte of the file, far
beyond its end. A lock file for each of thousands of streams would take as many descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import shutil
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCK_NAME = "owner.lock"
_GONE = ".gone"
"""End of the name of a folder that is being removed, also without its lock."""
_MACHINE = f"{socket.gethostname()}-"


class OwnedFolder(AbstractContextManager["OwnedFolder"]):
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
            self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{_MACHINE}", dir=root))
            self.lock = self.path / LOCK_NAME
            with suppress(FileNotFoundError):
                self.fd = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(self.fd, fcntl.LOCK_EX)
                except OSError:
                    self.close()
                    raise
                # Another process may have removed it as abandoned before it was locked.
                if self.lock.exists():
                    return
                os.close(self.fd)

    def close(self) -> None:
        """Remove the folder and release the lock; safe to call twice."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            gone = self.path
            with suppress(OSError):
                # Others that still work in it must not add to it while it is being emptied.
                gone = gone.rename(f"{gone}{_GONE}")
            shutil.rmtree(gone, ignore_errors=True)
            os.close(fd)

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_stale(root: str | os.PathLike[str], prefix: str) -> list[Path]:
    """Remove folders of our user on this machine whose owner has ended (a killed run); return them.

    What cannot be read or removed is left alone. Both arguments are those of `OwnedFolder`.
    """
    removed: list[Path] = []
    with suppress(OSError):
        for folder in Path(root).glob(f"{glob.escape(prefix + _MACHINE)}*"):
            with suppress(OSError):
                status = folder.lstat()
                is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
                if is_own and _removed(folder):
                    removed.append(folder)
    return removed


def is_locked(lock: str | os.PathLike[str]) -> bool:
    """Return whether the owner of `OwnedFolder.lock` is alive, asked on the same machine."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


def is_trusted(path: str | os.PathLike[str]) -> bool:
    """Return whether only we (or the administrator) can have written a file or folder.

    A symbolic link is never trusted.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_ours = status.st_uid in {0, os.getuid()}
    return is_ours and not stat.S_ISLNK(status.st_mode) and not status.st_mode & stat.S_IWOTH


def _removed(folder: Path) -> bool:
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        if folder.name.endswith(_GONE):  # Its removal has been killed, or is at its end.
            shutil.rmtree(folder, ignore_errors=True)
        # Made, and not yet locked: its owner is at work, or died then and there.
        with suppress(OSError):
            folder.rmdir()
        return not folder.exists()
    except OSError:
        return False
    try:
        if not _try_lock(fd):
            return False
        gone = folder
        if not folder.name.endswith(_GONE):
            with suppress(FileExistsError, PermissionError):
                gone = folder.rename(f"{folder}{_GONE}")
        shutil.rmtree(gone, ignore_errors=True)
        return True
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


LOCKS_NAME = ".singer-spark.locks"
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Error numbers of a file system without locks."""
_NAME_BYTES = 7
_PAUSES = (0.001, 0.01)
_guard = threading.Lock()
_open: dict[Path, _LocksFile] = {}


@contextmanager
def without_locks_too() -> Iterator[None]:
    """Go on behind the block if its lock fails because the file system has none."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


@dataclass(eq=False)
class NameLock:
    """A name that this process holds in a folder, until `release`."""

    file: _LocksFile
    name: str

    def release(self) -> None:
        """Let others take the name; safe to call twice."""
        with _guard:
            self.file.unlock(self.name)


def lock_name(folder: Path, name: str) -> NameLock:
    """Take a name, which is any text, in an existing folder.

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
            _set_lock(self._fd, fcntl.F_UNLCK, name)
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
            _set_lock(self._fd, fcntl.F_WRLCK)
            if self.is_current():
                self._path.unlink()
        os.close(self._fd)


def _set_lock(fd: int, kind: int, name: str | None = None) -> None:
    """Lock or unlock a name, or all names, without waiting.

    A name is a byte of the file: of 2^56, no two names share one. Linux has locks of an open file,
    which no other descriptor of the process can lose.
    """
    start, length = 0, 0
    if name is not None:
        digest = hashlib.sha256(name.encode()).digest()[:_NAME_BYTES]
        start, length = int.from_bytes(digest, "big"), 1
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
            _set_lock(fd, fcntl.F_WRLCK, name)
            return
        time.sleep(pause)
    _set_lock(fd, fcntl.F_WRLCK, name)


LIVING, ENDED, UNKNOWN = "living", "ended", "unknown"


def process_owner() -> dict[str, Any]:
    """Return the identity of this process as JSON."""
    return {"place": _place(), "pid": os.getpid(), "started": _started(os.getpid())}


def owner_status(owner: dict[str, Any]) -> str:
    """Return whether a process is `LIVING`, has `ENDED`, or is `UNKNOWN`: elsewhere, or hidden."""
    place, pid = owner.get("place"), owner.get("pid")
    here = _place()
    if not here or place != here or not isinstance(pid, int) or not owner.get("started"):
        return UNKNOWN
    started = _started(pid)
    if started is None:
        return UNKNOWN
    return LIVING if started == owner["started"] else ENDED


def boot_id() -> str:
    """Return what identifies the machine since its last start; empty if that is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _place() -> list[str]:
    """Return machine, boot and process namespace; empty if they are unknown."""
    boot = boot_id()
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return []
    return [socket.gethostname(), boot, space] if boot else []


def _started(pid: int) -> str | None:
    """Return the start of a process in ticks since boot; empty if it has ended, None if unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        # It has ended, or the system hides the processes of other users.
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return ""
        except OSError:
            pass
        return None
    # The name of the program, in brackets, may hold anything.
    status, *rest = fields.rpartition(")")[2].split()
    return "" if status in {"Z", "X"} else rest[18]
