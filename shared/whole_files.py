"""Files that are read whole, such as settings: bounded, as a device never ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path

LARGEST = 256 << 20


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file or FIFO.

    Raises:
        OSError: It cannot be read, or is larger than `LARGEST` bytes.
    """
    with Path(path).open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST >> 20} MiB", str(path))
    return content
