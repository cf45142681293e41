"""Put packages into an image: `python -m shared.spark.bake_packages FOLDER NAME ...`.

A program with `SINGER_SPARK_JARS=FOLDER` takes them from there, without a network.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.errors import SparkStartError, first_line
from shared.spark.conf import SparkSettings, session_conf
from shared.spark.jvm import pyspark_home, spawn_jvm
from shared.spark.packages import (
    DRIVERS,
    INDEX,
    artifact_and_version,
    fetch_packages,
    only_resolver,
)
from shared.spark.session import gateway_of
from shared.spark.spark_release import installed

_RELEASED = installed().packages
NAMES: Mapping[str, tuple[str, ...]] = {
    **{name: (package,) for name, package in _RELEASED.items()},
    **({"kafka": (_RELEASED["kafka"], _RELEASED["avro"])} if "kafka" in _RELEASED else {}),
    **{
        name: tuple(driver.package for driver in DRIVERS if driver.database == name)
        for name in dict.fromkeys(driver.database for driver in DRIVERS)
    },
}
"""Short names of what may be named, instead of Maven coordinates."""


def coordinates(names: Iterable[str]) -> list[str]:
    """Return the Maven coordinates of short names, and of coordinates themselves.

    Raises:
        SparkStartError: A name is neither.
    """
    packages: dict[str, None] = {}
    for name in names:
        if name not in NAMES and name.count(":") != 2:  # noqa: PLR2004
            raise SparkStartError(
                f"unknown package {name!r}", hint=f"{', '.join(NAMES)}, or Maven coordinates"
            )
        packages |= dict.fromkeys(NAMES.get(name, (name,)))
    return list(packages)


def bake(folder: Path, packages: Sequence[str]) -> None:
    """Resolve packages and copy their jars into a folder, with an index.

    Jars that Spark brings itself are left out: Java would take Spark's.

    Args:
        folder: Created if it does not exist.
        packages: Maven coordinates.

    Raises:
        SparkStartError: Java cannot be started.
        Py4JJavaError: A package cannot be resolved.
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    of_spark = {
        artifact_and_version(jar.name)[0] for jar in (pyspark_home(os.environ) / "jars").iterdir()
    }
    index = {}
    with only_resolver({}):
        for package, jars in _resolved(packages).items():
            # Ivy puts the group before the name.
            own = [
                jar
                for jar in jars
                if artifact_and_version(jar.name.partition("_")[2])[0] not in of_spark
            ]
            index[package] = [jar.name for jar in own]
            for jar in own:
                _copy(jar, folder / jar.name)
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def _resolved(packages: Sequence[str]) -> dict[str, list[Path]]:
    """Ask Spark, which knows the repositories, for the jars of each package."""
    jvm, connection_file = spawn_jvm(session_conf(SparkSettings(master="local[1]")), os.environ)
    try:
        jvm.wait_ready(connection_file)
        java: Any = gateway_of(jvm).jvm
        return {
            package: [
                Path(path.removeprefix("file:")) for path in fetch_packages(java, package, {})
            ]
            for package in packages
        }
    except Exception as error:
        # Java tells what went wrong only as long as it runs.
        raise RuntimeError(str(getattr(error, "java_exception", None) or error)) from error
    finally:
        jvm.close()


def _copy(source: Path, target: Path) -> None:
    """Copy a jar; one file system needs no second copy of it."""
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def main(args: Sequence[str]) -> int:
    """Bake packages, as a program."""
    if len(args) < 2:  # noqa: PLR2004
        sys.stderr.write(f"usage: bake_packages FOLDER NAME ...; names: {', '.join(NAMES)}\n")
        return 2
    try:
        bake(Path(args[0]), coordinates(args[1:]))
    except Exception as error:
        sys.stderr.write(f"No packages were baked: {first_line(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
