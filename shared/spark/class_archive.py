"""A shared class archive for Java (AppCDS), which about halves the start of Spark.

Made once per environment by `python -m shared.spark.make_class_archive`; found and used by every
start after that. Java ignores an archive that does not fit: a stale one costs speed only.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from shared.spark.java import Java
from shared.storage.owned_folders import is_trusted

SWITCH = "SINGER_SPARK_CLASS_ARCHIVE"
"""Environment variable: `off`, or the folder of the archives."""

DUMP_TO = "_SINGER_SPARK_DUMP_TO"
"""Environment variable: where the Java that is about to start leaves its archive."""

_log = logging.getLogger(__name__)


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
