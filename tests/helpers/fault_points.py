"""A process that is killed right before its n-th effect: a change of a file, a commit, a message.

`main` takes the name of the program and its arguments; `ForkServer` calls it. The environment says
which effect (`FAULT_AT`, 0 for none), which folder counts (`FAULT_FOLDER`), where to write down the
effects (`FAULT_LOG`), and what else has them (`FAULT_KIND`: a database or `s3`). With `FAULT_DISK`
a file that reaches so many bytes cannot be written any more, as on a full disk. Python's audit
events show every change of a folder by itself, so the programs need no points of their own.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
READING = ("select", "show", "set ")


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

    def before(self, owner: Any, name: str, text: Callable[..., str]) -> None:
        """Make calls of a function effects if a text about their arguments is not empty."""
        call: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if shown := text(*args):
                self.effect(shown)
            return call(*args, **kwargs)

        setattr(owner, name, wrapped)


def _statement(_connection: Any, _command: Any, sql: Any) -> str:
    """Tell of a statement for MySQL, where each that changes a table is a commit."""
    text = sql.decode(errors="replace") if isinstance(sql, bytes | bytearray) else str(sql)
    return "" if text.lower().startswith(READING) else " ".join(text[:60].split())


def _request(_client: Any, operation: str, _parameters: Any) -> str:
    return "" if operation.startswith(("Get", "Head", "List")) else operation


def _watch(points: FaultPoints, kind: str) -> None:
    """Watch what a destination does outside of this machine's files."""
    if kind == "postgresql":
        connection = import_module("psycopg").Connection
        points.before(connection, "commit", lambda _: "commit")
    elif kind in {"mysql", "mariadb"}:
        connection = import_module("pymysql.connections").Connection
        points.before(connection, "_execute_command", _statement)
    elif kind == "s3":
        client = import_module("aiobotocore.client").AioBaseClient
        points.before(client, "_make_api_call", _request)


def main(arguments: Sequence[str]) -> int:
    """Run a program; return its exit code.

    Args:
        arguments: Its name, and its own arguments.
    """
    points = FaultPoints(
        int(os.environ["FAULT_AT"]), os.environ["FAULT_FOLDER"], os.environ["FAULT_LOG"]
    )
    if size := int(os.environ.get("FAULT_DISK") or 0):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    sys.argv = list(arguments)
    program = import_module("singer_spark")
    _watch(points, os.environ.get("FAULT_KIND", ""))
    # One byte wakes the run loop; one byte at a place makes a note valid.
    points.before(os, "write", lambda _fd, data: "write" if len(data) > 1 else "")
    points.before(os, "pwrite", lambda *_: "pwrite")
    points.before(os, "fsync", lambda _: "fsync")
    sys.addaudithook(points.audited)
    return int(program.tap() if sys.argv[0] == "tap-spark" else program.target())
