"""Make the class archive of this Java and Spark: `python -m shared.spark.make_class_archive`."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from shared.errors import SparkStartError, first_line
from shared.spark.conf import SparkSettings
from shared.spark.jvm import DUMP_TO, Java, archive_path, base_archive, classpath, find_java
from shared.spark.session import SessionStarter

KEPT = 4
DUMP_SECONDS = 300.0
_log = logging.getLogger(__name__)


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
    """Return the archive; else run a short Spark session, and keep the classes that it used.

    Args:
        environ: The environment (changed while this runs).

    Returns:
        None if archives are off or Java wrote none.

    Raises:
        SparkStartError: Spark cannot be started.
        OSError: The folder cannot be written.
    """
    java = find_java(environ)
    path = archive_path(java, classpath(environ), environ)
    if path is None or path.is_file():
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
        archive = Path(folder) / path.name
        _make_base(java, base_archive(archive))
        environ[DUMP_TO] = str(archive)
        try:
            _train(Path(folder) / "data")
        finally:
            del environ[DUMP_TO]
        if not archive.is_file():
            return None
        if base_archive(archive).is_file():
            # The upper archive fits only the base file it was made with: rename both, base first.
            base_archive(archive).replace(base_archive(path))
        archive.replace(path)
    _prune(path)
    return path


def _train(folder: Path) -> None:
    """Use what the programs use, so that its classes are loaded."""
    starter = SessionStarter(SparkSettings(master="local[2]"))
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
        raise SparkStartError(f"Spark's trial run failed: {first_line(error)}") from error
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
