"""Files that a living process owns by a lock, which the system releases when the process ends."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from shared.storage.files import make_durable


def lock_file(path: Path, mode: int = 0o600) -> int:
    """Create a file if it is missing, lock it, and return its descriptor.

    Children do not inherit the descriptor. The owner may remove the file before it closes it.

    Args:
        path: The file; its folder exists.
        mode: Permissions of a new file.

    Raises:
        BlockingIOError: Another process owns it.
        OSError: The file cannot be opened, or the file system does not support locks.
    """
    while True:
        made = not path.exists()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        # Its last owner may have removed it before it was locked.
        with suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == path.stat().st_ino:
                if made:
                    make_durable(str(path.parent))
                return fd
        os.close(fd)
