"""Failures of disks and folders as errors with the path and a hint."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import DestinationError, SingerSparkError, Where
from shared.spark.spark_errors import SHARED_FOLDER
from shared.storage.files import StorageOptions, failures
from shared.storage.storage_errors import storage_hint
from shared.storage.urls import local_path, shown

HINTS = {
    errno.ENOSPC: "free some disk space and run again",
    errno.EDQUOT: "free some disk space and run again",
    errno.ENOENT: SHARED_FOLDER,
    errno.EACCES: "check the permissions of the path",
    errno.EPERM: "check the permissions of the path",
    errno.EROFS: "the file system is read-only; set another `path`",
    errno.ENOTDIR: "a file exists where a folder is needed; set another `path`",
    errno.EEXIST: "a file exists where a folder is needed; set another `path`",
    errno.ENAMETOOLONG: "shorten `path`",
}


def write_error(path: str, error: OSError) -> DestinationError:
    """Return the one-line error for a failed write below `path`."""
    return DestinationError(
        f"cannot write to '{shown(path)}': {reason_of(error)}", hint=hint_of(path, error)
    )


def read_error(path: str, error: OSError, where: Where | None = None) -> DestinationError:
    """Return the one-line error for a failed read below `path`."""
    return DestinationError(
        f"cannot read '{shown(path)}': {reason_of(error)}", where=where, hint=hint_of(path, error)
    )


def reason_of(error: OSError) -> str:
    """Return the text of an OSError, without its number and file."""
    found = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return " ".join(found.split())


def hint_of(path: str, error: OSError) -> str:
    """Return the hint for a failure at `path`."""
    if local_path(path) is None:
        return storage_hint(error.errno)
    return HINTS.get(error.errno or 0, "")


@contextmanager
def writing(path: str, options: StorageOptions | None = None) -> Iterator[None]:
    """Convert failures of the storage in the block to a DestinationError that names `path`."""
    try:
        if local_path(path) is not None:
            yield
            return
        with _storage(path, options):
            yield
    except OSError as error:
        raise write_error(path, error) from error


@contextmanager
def _storage(path: str, options: StorageOptions | None) -> Iterator[None]:
    """Convert errors as `shared.storage.files.failures` does, but pass our own errors on."""
    ours: SingerSparkError | None = None
    with failures(path, options):
        try:
            yield
        except SingerSparkError as error:
            ours = error
    if ours is not None:
        raise ours
