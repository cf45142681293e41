"""The identity of a process, by which others on the same machine see whether it still lives."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

LIVING, ENDED, UNKNOWN = "living", "ended", "unknown"


def process_owner() -> dict[str, Any]:
    """Return the identity of this process as JSON."""
    return {"place": _place(), "pid": os.getpid(), "started": _started(os.getpid())}


def owner_status(owner: dict[str, Any]) -> str:
    """Return whether a process is `LIVING`, has `ENDED`, or is `UNKNOWN`: of another machine."""
    place, pid = owner.get("place"), owner.get("pid")
    here = _place()
    if not here or place != here or not isinstance(pid, int) or not owner.get("started"):
        return UNKNOWN
    return LIVING if _started(pid) == owner["started"] else ENDED


def boot_id() -> str:
    """Return what identifies the machine since its last start; empty if that is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _place() -> list[str]:
    """Return machine, boot and process namespace; empty if they are unknown."""
    boot = boot_id()
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return []
    return [socket.gethostname(), boot, space] if boot else []


def _started(pid: int) -> str | None:
    """Return the start of a process in ticks since boot; None if it does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program, in brackets, may hold anything.
    status, *rest = fields.rpartition(")")[2].split()
    return None if status in {"Z", "X"} else rest[18]
