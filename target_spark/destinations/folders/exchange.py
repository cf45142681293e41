"""Atomic exchange of two sibling folders, if the system supports it."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache

ASIDE = ".old"
"""Follows the name of the folder that takes a place, in the name of what was moved aside for it.

As long as both are there, the place is empty: only the first of two renames was done.
"""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})


def exchange(first: str, second: str, spare: str) -> None:
    """Exchange two existing folders; afterwards `spare` holds what `second` held.

    On Linux file systems with `RENAME_EXCHANGE` (ext4, xfs, btrfs, tmpfs, overlayfs) this is one
    step. Elsewhere `second` is moved aside and `first` to `second`: in between, readers do not find
    the folder, and a run that is killed leaves `first` with its `ASIDE`.

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

    `ASIDE` says what was moved aside for which folder, and so which step a killed run has done.
    """
    aside = f"{first}{ASIDE}"
    os.rename(second, aside)  # noqa: PTH104
    try:
        os.rename(first, second)  # noqa: PTH104
    except OSError:
        os.rename(aside, second)  # noqa: PTH104
        raise
    os.rename(aside, spare)  # noqa: PTH104


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
