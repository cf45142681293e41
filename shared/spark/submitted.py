"""A run that spark-submit has started: its Java process, configuration and standard streams.

spark-submit runs Python as a child of its Java process, gives it no input, and passes on both of
its outputs as one. Here the program takes the streams of spark-submit itself instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from shared.errors import SparkStartError

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
