"""Atomic exchange of two sibling folders, if the system supports it."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable
from functools import cache

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})


def exchange(first: str, second: str, spare: str) -> None:
    """Exchange two existing folders; afterwards `spare` holds what `second` held.

    On Linux file systems with `RENAME_EXCHANGE` (ext4, xfs, btrfs, tmpfs, overlayfs) this is one
    step. Elsewhere `second` is moved aside and `first` to `second`: in between, readers do not find
    the folder, and what a run leaves that is killed there, `put_right` mends.

    Raises:
        OSError: One of the folders cannot be renamed.
    """
    rename = _renameat2()
    if rename is not None:
        code = rename(
            _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE
        )
        if code == 0:
            os.rename(first, spare)  # noqa: PTH104
            return
        number = ctypes.get_errno()
        if number not in _UNSUPPORTED:
            raise OSError(number, os.strerror(number), second)
    exchange_in_two_steps(first, second, spare)


def exchange_in_two_steps(first: str, second: str, spare: str) -> None:
    """Exchange by two renames: `second` is moved aside, then `first` becomes `second`.

    Both have names beside `second` then, which tell how far a killed run has come.
    """
    put_right(second)
    near, aside = _names_between(second)
    os.rename(first, near)  # noqa: PTH104
    os.rename(second, aside)  # noqa: PTH104
    try:
        os.rename(near, second)  # noqa: PTH104
    except OSError:
        os.rename(aside, second)  # noqa: PTH104
        raise
    os.rename(aside, spare)  # noqa: PTH104


def put_right(folder: str) -> None:
    """Restore a folder if a killed run has moved it aside, and not put another one in its place.

    Otherwise a folder that is missing was removed by others, and stays removed.
    """
    near, aside = _names_between(folder)
    if os.path.lexists(aside) and os.path.lexists(near) and not os.path.lexists(folder):
        os.rename(aside, folder)  # noqa: PTH104
    for left in (aside, near):
        if os.path.lexists(left):
            shutil.rmtree(left, ignore_errors=True)


def _names_between(folder: str) -> tuple[str, str]:
    """Return the names of the new and of the old folder while they are exchanged."""
    parent, name = os.path.split(folder)
    beside = f"{parent}/.{name}"
    return f"{beside}.next", f"{beside}.old"


@cache
def _renameat2() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [
        ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint,
    ]  # fmt: skip
    function.restype = ctypes.c_int
    return function
