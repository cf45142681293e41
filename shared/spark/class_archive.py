"""A shared class archive for Java (AppCDS), which about halves the start of Spark.

Made once per environment by `python -m shared.spark.class_archive`; found and used by every start
after that. Java ignores an archive that does not fit: a stale one costs speed, not correctness.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from shared.errors import SparkStartError
from shared.spark.java import Java
from shared.storage.owned_folders import is_trusted

SWITCH = "SINGER_SPARK_CLASS_ARCHIVE"
"""Environment variable: `off`, or the folder of the archives."""

KEPT = 4
DUMP_SECONDS = 300.0
_DUMP_TO = "_SINGER_SPARK_DUMP_TO"
_log = logging.getLogger(__name__)


def archive_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of archives; None if they are turned off or there is no home folder."""
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
    """Options that make Java use its archive, or make it while `build` runs.

    Args:
        java: The runtime about to be started.
        jars: Its classpath.
        environ: The environment (`SINGER_SPARK_CLASS_ARCHIVE`, XDG_CACHE_HOME).
    """
    if dump_to := environ.get(_DUMP_TO):
        base = base_archive(Path(dump_to))
        below = [f"-XX:SharedArchiveFile={base}"] if base.is_file() else []
        return [*below, f"-XX:ArchiveClassesAtExit={dump_to}"]
    path = archive_path(java, jars, environ)
    if path is None:
        return []
    if not path.is_file():
        _log.debug(
            "No class archive yet: `python -m shared.spark.class_archive` makes starts faster"
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


def _make_base(java: Java, target: Path) -> None:
    """Make the archive of Java's own classes, if Java lacks it; our archive needs it."""
    if any((java.home / "lib" / "server").glob("classes*.jsa")):
        return
    subprocess.run(
        [java.binary, "-Xshare:dump", f"-XX:SharedArchiveFile={target}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=DUMP_SECONDS,
        check=False,
    )


def build(environ: MutableMapping[str, str]) -> Path | None:
    """Run a short Spark session and keep the classes it used, unless the archive exists.

    Args:
        environ: The environment (changed while this runs).

    Returns:
        The archive; None if archives are off or Java wrote none.

    Raises:
        SparkStartError: Spark cannot be started.
        OSError: The folder cannot be written.
    """
    from shared.spark.java import find_java  # noqa: PLC0415
    from shared.spark.jvm import classpath  # noqa: PLC0415

    java = find_java(environ)
    path = archive_path(java, classpath(environ), environ)
    if path is None or path.is_file():
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
        made = Path(folder) / path.name
        _make_base(java, base_archive(made))
        environ[_DUMP_TO] = str(made)
        try:
            _train(Path(folder) / "data")
        finally:
            del environ[_DUMP_TO]
        if not made.is_file():
            return None
        if base_archive(made).is_file():
            # The upper archive fits only the base file it was made with: rename both, base first.
            base_archive(made).replace(base_archive(path))
        made.replace(path)
    _prune(path)
    return path


def _train(folder: Path) -> None:
    """Use what the programs use, so that its classes are loaded."""
    from shared.spark.session import SessionStarter  # noqa: PLC0415
    from shared.spark.spark_settings import SparkSettings  # noqa: PLC0415

    starter = SessionStarter(SparkSettings(master="local[2]"))
    starter.start()
    try:
        spark = starter.get()
        columns = ["id", "id / 7.0d AS f", "cast(id AS string) AS s", "current_timestamp() AS t"]
        frame = spark.range(1000).selectExpr(*columns, "cast(id AS decimal(20,3)) AS d")
        for kind in ("csv", "json", "parquet", "orc"):
            path = str(folder / kind)
            frame.write.format(kind).save(path)
            read = spark.read.format(kind).options(inferSchema="true", header="true").load(path)
            read.sort(read.columns[0]).selectExpr("to_json(struct(*)) AS line").toArrow()
        frame.mapInArrow(lambda batches: batches, frame.schema).collect()
    except Exception as error:
        # Put into words while Java still answers.
        text = str(error).strip().partition("\n")[0]
        raise SparkStartError(f"Spark's trial run failed: {text}") from error
    finally:
        starter.stop(orderly_seconds=DUMP_SECONDS)


def _prune(newest: Path) -> None:
    """Drop old archives: each holds well over a hundred megabytes."""
    archives = sorted(newest.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime)
    for path in archives[:-KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()
            base_archive(path).unlink(missing_ok=True)


def main() -> int:
    """Make the archive, as a program."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        path = build(os.environ)
    except Exception as error:
        _log.error("No class archive was made: %s", error)
        return 1
    if path is None:
        _log.error("No class archive was made; Spark starts without one")
        return 1
    _log.info("Class archive: %s (%d MB)", path, path.stat().st_size >> 20)
    return 0


if __name__ == "__main__":
    sys.exit(main())
