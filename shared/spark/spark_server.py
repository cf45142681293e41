"""A Spark Connect server that stays between runs: on loopback, for this user, until it is idle."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from shared.errors import SparkStartError
from shared.spark.conf import SparkSettings
from shared.spark.connect import (
    CONNECT_TOKEN,
    DEFAULT_IDLE_MINUTES,
    DEFAULT_PORT,
    ServerRecord,
    check_serves_connect,
    record_path,
    require_connect,
    running_server,
    visible_files,
)
from shared.spark.jvm import ORDERLY_SECONDS, with_same_path
from shared.spark.packages import LAKES, with_needs
from shared.spark.session import SessionStarter, connect_port, connect_users
from shared.storage.owned_folders import is_locked

_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_POLL_SECONDS = 1.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True)
class ServerPlan:
    """How to start a server.

    Attributes:
        master: Spark's master, of which this process is the driver.
        lakes: Formats of tables that it shall read and write: what they need of Spark cannot be
            added to a server that runs.
        packages: Further Maven coordinates.
        port: Where to listen; the next free one if it is taken.
        idle_minutes: It ends when nobody has used it for so long.
    """

    master: str = SparkSettings.master
    lakes: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    conf: Mapping[str, str] | None = None
    port: int = DEFAULT_PORT
    idle_minutes: float = DEFAULT_IDLE_MINUTES


def start_server(plan: ServerPlan, environ: Mapping[str, str]) -> ServerRecord:
    """Start a server, wait until it answers, and leave it to itself.

    Raises:
        SparkStartError: One runs already, or it could not be started.
    """
    require_connect()
    check_serves_connect()
    running = running_server(environ)
    if running is not None:
        raise SparkStartError(
            f"a server runs already: {running.url}", hint="stop it first (`spark-server stop`)"
        )
    path = _required_path(environ)
    log = path.with_suffix(".log")
    command = [sys.executable, "-m", "shared.spark.spark_server"]
    with _opened(log) as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=with_same_path(environ),
            start_new_session=True,
        )
    # Not as an argument, which every user of the machine can read: it may hold secrets.
    with contextlib.suppress(BrokenPipeError), cast(IO[bytes], process.stdin) as plan_input:
        plan_input.write(json.dumps(asdict(plan)).encode())
    while process.poll() is None:
        record = running_server(environ)
        if record is not None and record.pid == process.pid:
            return record
        time.sleep(_POLL_SECONDS / 10)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise SparkStartError(f"the server has ended: {lines[-1] if lines else 'without a word'}")


def _opened(log: Path) -> BinaryIO:
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open(log, "wb", opener=_private)
    except OSError as error:
        raise SparkStartError(
            f"the server's log cannot be written: {log} ({error.strerror})",
            hint="set XDG_CACHE_HOME to a folder that this user may write to",
        ) from error


def stop_server(environ: Mapping[str, str]) -> ServerRecord | None:
    """End the server, if one runs, and wait for its end; return it."""
    record = running_server(environ)
    if record is None:
        return None
    path = _required_path(environ)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)
        until = time.monotonic() + _STOP_SECONDS
        while is_locked(path) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS / 10)
        if not is_locked(path):
            break
    return record


def serve(plan: ServerPlan, environ: Mapping[str, str]) -> None:
    """Hold a server until a signal comes or nobody has used it for long enough.

    Raises:
        SparkStartError: Another one runs, or Spark could not be started.
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    # Not closed: the lock ends with the process.
    record = _private(str(_required_path(environ)), os.O_RDWR | os.O_CREAT)
    _lock(record)
    os.ftruncate(record, 0)
    token = os.environ[CONNECT_TOKEN] = secrets.token_urlsafe(32)
    starter = SessionStarter(_settings(plan))
    try:
        session = starter.get()
        files = visible_files() if plan.master.startswith("local") else None
        server = ServerRecord(os.getpid(), connect_port(session), token, files)
        os.write(record, json.dumps(asdict(server)).encode())
        left = most = plan.idle_minutes * 60
        while left > 0 and not ended.wait(_POLL_SECONDS):
            left = most if connect_users(session) else left - _POLL_SECONDS
    finally:
        os.ftruncate(record, 0)
        starter.stop(ORDERLY_SECONDS)


def _settings(plan: ServerPlan) -> SparkSettings:
    conf = {
        **(plan.conf or {}),
        "spark.plugins": _PLUGIN,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(plan.port),
    }
    settings = SparkSettings(plan.master, packages=tuple(plan.packages), conf=conf)
    return with_needs(settings, [LAKES[name] for name in plan.lakes])


def _lock(record: int) -> None:
    """Lock the record; those who ask whether a server runs lock it for a moment, too."""
    for _ in range(10):
        try:
            fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_POLL_SECONDS / 10)
        else:
            return
    raise SparkStartError("a server runs already")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _required_path(environ: Mapping[str, str]) -> Path:
    path = record_path(environ)
    if path is None:
        raise SparkStartError("a server needs a folder for its record", hint="set XDG_CACHE_HOME")
    return path


def main() -> int:
    """Run the process that holds a server; standard input is its plan as JSON."""
    try:
        serve(ServerPlan(**json.load(sys.stdin)), os.environ)
    except SparkStartError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
