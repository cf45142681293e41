"""When the allocators of a process return memory that is free."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import MutableMapping

MAPPED_BYTES = 4 * 1024 * 1024
"""Bytes from which the C library maps a block by itself, and unmaps it if freed. Left alone, it
raises this bound up to 32 MiB as blocks are freed, and then keeps such blocks in each thread."""

PURGE_DELAY = 10
"""Milliseconds after which Arrow's allocator returns memory, instead of 1,000."""

_MAPPED_VARIABLE, _PURGE_VARIABLE = "MALLOC_MMAP_THRESHOLD_", "MIMALLOC_PURGE_DELAY"
_M_MMAP_THRESHOLD = -3


def return_memory_early(environ: MutableMapping[str, str]) -> None:
    """Let this process, and processes that it starts, hold little free memory.

    Values that the user has set stay. Call it before Arrow is imported.

    Args:
        environ: The environment of the process.
    """
    environ.setdefault(_PURGE_VARIABLE, str(PURGE_DELAY))
    if _MAPPED_VARIABLE in environ:
        return
    environ[_MAPPED_VARIABLE] = str(MAPPED_BYTES)
    # The variable is read before Python starts. Only the GNU C library has the function.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
