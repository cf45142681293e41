"""A Java process that runs already: that of spark-submit, or that of both programs of a pipe.

spark-submit runs Python as a child of its Java process, gives it no input, and passes on both of
its outputs as one. Here the program takes the streams of spark-submit itself instead.

A command that starts both programs makes a private folder with a pipe. Each program writes into the
folder what it needs of Spark. The first one that uses Spark starts Java with what both need, and
the other one connects to that Java process. Java reads the pipe, so that it ends with the command,
even if that is killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import select
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from shared.errors import SparkStartError
from shared.settings.kinds import typed
from shared.spark.conf import SCHEDULES, SparkSettings, is_one_process, with_cores
from shared.spark.jvm import FOLDER_PREFIX, ORDERLY_SECONDS
from shared.spark.packages import EXTENSIONS, NEEDED, Need, with_needs
from shared.spark.spark_release import installed
from shared.storage.owned_folders import OwnedFolder, remove_stale

_log = logging.getLogger(__name__)

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_STREAMS = {0: "input", 1: "output", 2: "error"}
_ANCESTORS = 8
_JARS = ("spark.jars", "spark.yarn.dist.jars")


@dataclass(frozen=True)
class Submitted:
    """What spark-submit has started.

    Attributes:
        gateway: py4j's connection to its Java process.
        conf: The Spark configuration: options of spark-submit and spark-defaults.conf.
        jars: Names of the jar files that Java has loaded.
    """

    gateway: Any
    conf: Mapping[str, str]
    jars: tuple[str, ...]

    def settings(self) -> dict[str, Any]:
        """Return the settings of a program that follow from it; they override all others."""
        return {"spark": {"master": self.conf["spark.master"], "conf": dict(self.conf)}}


_current: Submitted | None = None


def current() -> Submitted | None:
    """Return what spark-submit has started; None if it has not started this process."""
    return _current


def join_submitted() -> None:
    """Take the streams of spark-submit and connect to its Java process; for the script it runs.

    Raises:
        SparkStartError: A stream cannot be taken: it is a socket or a file that is overwritten, or
            this system has no /proc.
    """
    global _current  # noqa: PLW0603
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    _take_streams(_java_process())
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    for name in (PORT, SECRET):
        del os.environ[name]  # programs that we start are not part of it
    java = gateway.jvm
    conf = {pair._1(): pair._2() for pair in java.org.apache.spark.SparkConf().getAll()}
    paths = java.java.lang.System.getProperty("java.class.path").split(os.pathsep)
    paths += [jar for name in _JARS for jar in conf.get(name, "").split(",")]
    names = (PurePosixPath(path.strip()).name for path in paths)
    _current = Submitted(gateway, conf, tuple(name for name in names if name.endswith(".jar")))


def _java_process() -> Path:
    """Return the folder in /proc of the Java process that runs us, perhaps by a script."""
    process = Path("/proc/self")
    with contextlib.suppress(OSError, AttributeError):
        for _ in range(_ANCESTORS):
            status = (process / "status").read_text(encoding="utf-8", errors="replace")
            process = Path("/proc") / re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE)[1]  # type: ignore[index]
            if (process / "comm").read_text(encoding="utf-8").strip() == "java":
                return process
    raise SparkStartError(
        "the Java process of spark-submit was not found in /proc",
        hint="start the program without spark-submit, or on Linux",
    )


def _take_streams(java: Path) -> None:
    """Replace our standard streams by those of the Java process; end when that ends."""
    threading.Thread(target=_end_with, args=(os.dup(0),), daemon=True).start()
    for number, name in _STREAMS.items():
        try:
            taken = _opened(java, number)
        except OSError as error:
            raise SparkStartError(
                f"the standard {name} of spark-submit cannot be used: {error.strerror}",
                hint="redirect it to a pipe, or by >> or 2>> to a file",
            ) from error
        os.dup2(taken, number)
        os.close(taken)


def _opened(java: Path, number: int) -> int:
    """Open a standard stream of the Java process once more, where that stands."""
    path = java / "fd" / str(number)
    if not stat.S_ISREG(path.stat().st_mode):
        return os.open(path, os.O_WRONLY if number else os.O_RDONLY)
    _, position, _, flags, *_ = (java / "fdinfo" / str(number)).read_text("utf-8").split()
    if number:
        if not int(flags, 8) & os.O_APPEND:
            # Both of us have a position of their own: one would write over the lines of the other.
            raise OSError(errno.EINVAL, "it is a file that is not open for appending")
        return os.open(path, os.O_WRONLY | os.O_APPEND)
    taken = os.open(path, os.O_RDONLY)
    os.lseek(taken, int(position), os.SEEK_SET)
    return taken


def _end_with(pipe: int) -> None:
    """Terminate the run when the Java process ends, which never writes into this pipe."""
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)


VARIABLE = "SINGER_SPARK_BOTH_ENDS"
"""Environment variable: process id of the command, `:`, the folder."""
_SIDES = ("tap", "target")
_LIFELINE = "lifeline"
_SECONDS = 10.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class JavaRecord:
    """The Java process of both programs, which serves py4j on loopback.

    Attributes:
        secret: What a client must send first.
        orderly: Whether it must run its shutdown hooks.
    """

    pid: int
    port: int
    secret: str
    orderly: bool


@dataclass(frozen=True)
class BothEnds:
    """What both programs of a pipe share: a folder that only this user can read."""

    folder: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> BothEnds | None:
        """Return what this program shares with the other one; None if it was started alone.

        Programs that either one starts inherit the variable, too, and may outlive the command.
        """
        command, _, folder = environ.get(VARIABLE, "").partition(":")
        return cls(Path(folder)) if command == str(os.getppid()) else None

    def open_lifeline(self) -> int:
        """Open the pipe that ends when the command has ended."""
        # To open it after the end of the command would block.
        reader = os.open(self.folder / _LIFELINE, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reader, True)
        return reader

    def joined(self) -> SparkSettings | None:
        """Wait for what both need; return settings of one Spark; None, and log why, if apart."""
        until = time.monotonic() + _SECONDS
        while len(needs := self._needs()) < len(_SIDES) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        if len(needs) < len(_SIDES):
            why = f"the other program has not said what it needs within {_SECONDS:.0f} s"
        elif not (why := needs[0]["apart"] or needs[1]["apart"]):
            tap, target = (typed(SparkSettings, need["settings"]) for need in needs)
            if not (why := why_apart(tap, target)):
                return joined(tap, target, needs[0]["waiting"])
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


def declare(
    side: str,
    settings: SparkSettings,
    apart: str = "",
    waiting: int = 0,
    needs: Sequence[Need] = (),
) -> None:
    """Say what this program needs of Spark, if one command has started both.

    Args:
        side: `tap` or `target`.
        apart: Why it cannot share a Spark; empty if it can.
        waiting: How many of its tasks may wait for the other program at a time.
    """
    ends = BothEnds.of(os.environ)
    if ends is not None:
        settings = with_needs(settings, needs)
        ends.write(side, {"settings": asdict(settings), "apart": apart, "waiting": waiting})


def why_apart(one: SparkSettings, other: SparkSettings) -> str:
    """Return why two programs need a Spark each; empty if one does for both."""
    names = [
        f"spark.{name}"
        for name in ("master", "remote", "jars")
        if getattr(one, name) != getattr(other, name)
    ]
    # What formats of either program need is put together.
    conf, other_conf = (
        {**{n: others[n] for n in NEEDED & others.keys()}, **own, EXTENSIONS: "", SCHEDULES: ""}
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


def joined(one: SparkSettings, other: SparkSettings, waiting: int = 0) -> SparkSettings:
    """Return what two programs need of one Spark.

    Args:
        one: The `spark` block of a program, with the packages of its formats.
        waiting: How many tasks may wait; they get cores of their own.
    """
    texts = (settings.conf.get(EXTENSIONS, "") for settings in (one, other))
    classes = dict.fromkeys(name for text in texts for name in text.split(",") if name)
    conf = {**one.conf, **other.conf, **({EXTENSIONS: ",".join(classes)} if classes else {})}
    if not (SCHEDULES in one.conf and SCHEDULES in other.conf):
        conf.pop(SCHEDULES, None)
    packages = tuple(dict.fromkeys((*one.packages, *other.packages)))
    both = replace(one, packages=packages, conf=conf)
    return with_cores(both, waiting) if waiting else both


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
            yield {VARIABLE: f"{os.getpid()}:{ends.folder}"}
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
