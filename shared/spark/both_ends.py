"""One local Spark for both programs of a pipe that one command has started.

The command makes a private folder with a pipe. Each program writes into the folder what it needs of
Spark. The first one that uses Spark starts Java with what both need, and the other one connects to
that Java process. Java reads the pipe, so that it ends with the command, even if that is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shared.settings.kinds import typed
from shared.spark.conf import SparkSettings, is_one_process
from shared.spark.jvm import FOLDER_PREFIX, ORDERLY_SECONDS
from shared.spark.packages import EXTENSIONS, NEEDED
from shared.spark.spark_release import installed
from shared.storage.owned_folders import OwnedFolder, remove_stale

VARIABLE = "SINGER_SPARK_BOTH_ENDS"
_SIDES = ("tap", "target")
_LIFELINE = "lifeline"
_SECONDS = 10.0
_POLL_SECONDS = 0.02
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JavaRecord:
    """The Java process of both programs.

    Attributes:
        pid: Its number.
        port: Where it serves py4j, on loopback.
        secret: What a client must send first.
        orderly: Whether it must run its shutdown hooks.
    """

    pid: int
    port: int
    secret: str
    orderly: bool


@dataclass(frozen=True)
class BothEnds:
    """What both programs of a pipe share.

    Attributes:
        folder: Only this user can read it.
    """

    folder: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> BothEnds | None:
        """Return what this program shares with the other one; None if it was started alone."""
        folder = environ.get(VARIABLE)
        return cls(Path(folder)) if folder else None

    def open_lifeline(self) -> int:
        """Open the pipe that ends when the command has ended."""
        # To open it after the end of the command would block.
        reader = os.open(self.folder / _LIFELINE, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reader, True)
        return reader

    def joined(self) -> SparkSettings | None:
        """Wait for what both programs need; return the settings of one Spark for both.

        Returns:
            None if each must have its own; a log line says why.
        """
        until = time.monotonic() + _SECONDS
        while len(needs := self._needs()) < len(_SIDES) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        if len(needs) < len(_SIDES):
            why = f"the other program has not said what it needs within {_SECONDS:.0f} s"
        elif not (why := needs[0]["apart"] or needs[1]["apart"]):
            both = [typed(SparkSettings, need["settings"]) for need in needs]
            if not (why := why_apart(*both)):
                return joined(*both)
        _log.info("uses a Spark of its own, not one for both programs: %s", why)
        return None

    def _needs(self) -> list[dict[str, Any]]:
        return [need for side in _SIDES if (need := self._read(side))]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the other program from starting Java within the block."""
        with (self.folder / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @property
    def java(self) -> JavaRecord | None:
        """Return the Java process; None if none has been started."""
        record = self._read("java")
        return JavaRecord(**record) if record else None

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a file that the other program, or the command, reads."""
        path = self.folder / f"{name}.new"
        path.write_text(json.dumps(values), encoding="utf-8")
        path.rename(path.with_suffix(".json"))

    def _read(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError):
            values: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_bytes())
            return values
        return {}


def declare(side: str, settings: SparkSettings, apart: str = "") -> None:
    """Say what this program needs of Spark, if one command has started both.

    Args:
        side: `tap` or `target`.
        settings: With the packages of its formats.
        apart: Why it cannot share a Spark; empty if it can.
    """
    ends = BothEnds.of(os.environ)
    if ends is not None:
        ends.write(side, {"settings": asdict(settings), "apart": apart})


def why_apart(one: SparkSettings, other: SparkSettings) -> str:
    """Return why two programs need a Spark each; empty if one does for both."""
    names = [
        f"spark.{name}"
        for name in ("master", "remote", "jars")
        if getattr(one, name) != getattr(other, name)
    ]
    # What formats of either program need is put together.
    conf, other_conf = (
        {**{name: others[name] for name in NEEDED & others.keys()}, **own, EXTENSIONS: ""}
        for own, others in ((one.conf, other.conf), (other.conf, one.conf))
    )
    names += sorted(
        f"spark.conf: {name}"
        for name in conf.keys() | other_conf.keys()
        if conf.get(name) != other_conf.get(name)
    )
    if names:
        return f"their settings differ ({', '.join(names)})"
    if one.remote or not is_one_process(one.master):
        return "spark.master or spark.remote names a cluster or a server"
    # Java keeps one connection to a bucket for all sessions, whatever their credentials.
    if any("hadoop-aws" in package for package in (*one.packages, *other.packages)):
        return "Spark reads or writes S3, with credentials for each program"
    # Only tags keep the jobs of both apart.
    return "" if installed().tags_sessions else f"Spark is {installed().line}"


def joined(one: SparkSettings, other: SparkSettings) -> SparkSettings:
    """Return what two programs need of one Spark.

    Args:
        one: The `spark` block of a program, with the packages of its formats.
        other: That of the other one.
    """
    texts = (settings.conf.get(EXTENSIONS, "") for settings in (one, other))
    classes = dict.fromkeys(name for text in texts for name in text.split(",") if name)
    conf = {**one.conf, **other.conf, **({EXTENSIONS: ",".join(classes)} if classes else {})}
    packages = tuple(dict.fromkeys((*one.packages, *other.packages)))
    return replace(one, packages=packages, conf=conf)


@contextlib.contextmanager
def spark_of_both_ends() -> Iterator[dict[str, str]]:
    """Let programs that are started within the block share one Spark; end it with the block.

    Yields:
        The environment variable by which they find each other; none if the temporary folder has no
        locks or pipes.
    """
    with contextlib.ExitStack() as stack:
        try:
            root = tempfile.gettempdir()
            remove_stale(root, FOLDER_PREFIX)
            ends = BothEnds(stack.enter_context(OwnedFolder(root, FOLDER_PREFIX)).path)
            os.mkfifo(ends.folder / _LIFELINE, 0o600)
        except OSError as error:
            _log.info("each program uses a Spark of its own: %s", error)
            yield {}
            return
        reader = ends.open_lifeline()
        writer = os.open(ends.folder / _LIFELINE, os.O_WRONLY)
        try:
            yield {VARIABLE: str(ends.folder)}
        finally:
            os.close(reader)
            if (java := ends.java) is not None:
                _end(java, writer)
            os.close(writer)


def _end(java: JavaRecord, writer: int) -> None:
    """End Java; as long as the pipe has a reader, its process id cannot be that of another one."""
    gone = select.poll()
    gone.register(writer, 0)
    for number in (signal.SIGTERM if java.orderly else signal.SIGKILL, signal.SIGKILL):
        if gone.poll(0):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(java.pid, number)
        gone.poll(ORDERLY_SECONDS * 1000)
