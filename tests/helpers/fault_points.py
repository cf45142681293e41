"""A process that is killed right before its n-th effect: a change of a file, a commit, a message.

Run as `python fault_points.py PROGRAM ARGUMENT...`. The environment says which effect
(`FAULT_AT`, 0 for none), which folder counts (`FAULT_FOLDER`), and where to write down the effects
(`FAULT_LOG`). With `FAULT_DISK` a file that reaches so many bytes cannot be written any more, as on
a full disk. Python's audit events show every change of a folder by itself, so the programs need
no points of their own.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class FaultPoints:
    """Counts effects, writes them down, and kills the process before one of them."""

    def __init__(self, at: int, folder: str, log: str) -> None:
        self._at = at
        self._folder = folder
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lock = threading.Lock()
        self._count = 0
        self._write = os.write

    def effect(self, text: str) -> None:
        with self._lock:
            self._count += 1
            if self._count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
            self._write(self._log, f"{text}\n".encode())

    def audited(self, event: str, args: tuple[Any, ...]) -> None:
        """Hear of an event of Python's runtime."""
        if (event == "open" and isinstance(args[2], int) and args[2] & WRITES) or event in CHANGES:
            self._named(event, args[0])

    def _named(self, event: str, path: object) -> None:
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._folder):
            self.effect(f"{event} {os.fspath(path)}")

    def before(self, owner: Any, name: str) -> None:
        """Make calls of a function effects."""
        call: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if name != "write" or len(args[1]) > 1:  # One byte wakes the run loop.
                self.effect(name)
            return call(*args, **kwargs)

        setattr(owner, name, wrapped)


def main() -> int:
    points = FaultPoints(
        int(os.environ["FAULT_AT"]), os.environ["FAULT_FOLDER"], os.environ["FAULT_LOG"]
    )
    if size := int(os.environ.get("FAULT_DISK") or 0):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    sys.argv = sys.argv[1:]
    program = import_module("singer_spark")
    if "jdbc" in os.environ.get("FAULT_KIND", ""):
        points.before(import_module("psycopg").Connection, "commit")
    for name in ("write", "pwrite", "fsync"):
        points.before(os, name)
    sys.addaudithook(points.audited)
    return int(program.tap() if sys.argv[0] == "tap-spark" else program.target())


if __name__ == "__main__":
    sys.exit(main())
