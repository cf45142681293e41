"""Failures of disks and folders as errors that name the path and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import DestinationError, SingerSparkError
from shared.storage import local_path, shown

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
    reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
    return DestinationError(
        f"cannot write to '{shown(path)}': {reason}", hint=HINTS.get(error.errno or 0, "")
    )


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns every failure of the storage inside into a DestinationError naming `path`."""
    try:
        yield
    except SingerSparkError:
        raise
    except OSError as error:
        raise write_error(path, error) from error
    except Exception as error:
        if local_path(path) is not None:
            raise
        # Packages of object stores have exceptions of their own, such as missing credentials.
        raise write_error(path, OSError(f"{type(error).__name__}: {error}")) from error
