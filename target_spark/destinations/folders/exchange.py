"""Atomic exchange of two sibling folders, if the system supports it."""

from __future__ import annotations

import ctypes
import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from shared.storage.files import make_durable

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})


def exchange(first: str, second: str, spare: str) -> None:
    """Exchange two existing folders; afterwards `spare` holds what `second` held.

    On Linux file systems with `RENAME_EXCHANGE` (ext4, xfs, btrfs, tmpfs, overlayfs) this is one
    step. Elsewhere `second` is moved aside and `first` to `second`: in between, readers do not find
    the folder; `put_right` mends what a run leaves that is killed there.

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
    """Exchange by two renames: `second` becomes `spare`, then `first` becomes `second`.

    A record beside `second` says so as long as they last.
    """
    put_right(second)
    parent, record = _record(second)
    record.write_text(json.dumps([os.path.relpath(path, parent) for path in (first, spare)]))
    make_durable(str(record))
    make_durable(parent)
    os.rename(second, spare)  # noqa: PTH104
    try:
        os.rename(first, second)  # noqa: PTH104
    except OSError:
        os.rename(spare, second)  # noqa: PTH104
        raise
    os.unlink(record)  # noqa: PTH108


def put_right(folder: str) -> None:
    """Restore a folder if a killed run has moved it aside, and not put another one in its place.

    Otherwise a folder that is missing was removed by others, and stays removed.
    """
    parent, record = _record(folder)
    if not record.exists():
        return
    with suppress(ValueError):  # Cut off, as no rename had begun.
        new, old = (os.path.join(parent, name) for name in json.loads(record.read_bytes()))  # noqa: PTH118
        if os.path.lexists(new) and os.path.lexists(old) and not os.path.lexists(folder):
            os.rename(old, folder)  # noqa: PTH104
    os.unlink(record)  # noqa: PTH108


def _record(folder: str) -> tuple[str, Path]:
    """Return the parent of a folder, and the file there that says which folders are exchanged."""
    parent, name = os.path.split(folder)
    return parent, Path(parent, f".{name}.exchange")


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
