"""Sync of a commit's files to a local disk, which table formats do not do."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache

from shared.storage.urls import local_path


def sync_to_disk(folder: str | None) -> None:
    """Sync the file system of a table's folder.

    Neither Spark nor delta-rs syncs files, and a commit has many of them; so the whole file system
    is synced (`syncfs` on Linux, `sync` elsewhere). Object stores do not need it.

    Args:
        folder: Path or URL; None for a table that only a catalog knows.

    Raises:
        OSError: The disk failed.
    """
    path = None if folder is None else local_path(folder)
    if path is None or not os.path.isdir(path):  # noqa: PTH112
        return
    sync = _syncfs()
    if sync is None:
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if sync(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


@cache
def _syncfs() -> Callable[[int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [ctypes.c_int]
    function.restype = ctypes.c_int
    return function
