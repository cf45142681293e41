"""Failures of disks and folders as errors that name the path and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import DestinationError
from shared.storage import shown

HINTS = {
    errno.ENOSPC: "free some disk space and run again",
    errno.EDQUOT: "free some disk space and run again",
    errno.EACCES: "check the permissions of the path",
    errno.EPERM: "check the permissions of the path",
    errno.EROFS: "the file system is read-only; set another `path`",
    errno.ENOTDIR: "a file is in the way; set another `path`",
    errno.EEXIST: "a file is in the way; set another `path`",
    errno.ENAMETOOLONG: "shorten `path`",
}


def write_error(path: str, error: OSError) -> DestinationError:
    """The one-line error for a failed write below `path`."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return DestinationError(
        f"cannot write to '{shown(path)}': {reason}", hint=HINTS.get(error.errno or 0, "")
    )


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns every OSError inside into a DestinationError naming `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error
