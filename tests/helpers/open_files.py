"""The files that this process has open, other than those of the session that tests share."""

from __future__ import annotations

import os
from pathlib import Path


def open_links() -> list[str]:
    """Return what the open descriptors point to, without sockets: Spark's come and go."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        # Another thread may close a descriptor meanwhile.
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return sorted(link for link in links if not link.startswith("socket:"))


def open_below(folder: Path) -> int:
    """Return the number of descriptors that point below a folder, removed files included."""
    return sum(link.startswith(f"{folder}/") for link in open_links())
