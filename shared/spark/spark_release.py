"""What differs between the releases of Spark that are supported: 3.5, 4.0, 4.1, 4.2 and 4.3.

Packages that Spark loads exist for some of them only. Types and functions are asked for where
PySpark is imported anyway: see `spark_types` and `spark_functions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from shared.errors import SettingsError, SparkStartError, Where

LINES = ("3.5", "4.0", "4.1", "4.2", "4.3")
"""The supported releases, without their last number."""


@dataclass(frozen=True)
class Release:
    """A release of Spark.

    Attributes:
        line: Its version without the last number, such as `4.1`.
        scala: The version of Scala that its jars are for.
        packages: Maven coordinates by short name, of what has a release for it.
        loads_defaults: Whether its launcher takes `--load-spark-defaults`; older ones ignore
            `spark-defaults.conf` if they are given another file.
        tags_sessions: Whether a classic session tags and cancels its jobs.
        activates_sessions: Whether a thread that reads uses the session of the reader.
        serves_connect: Whether it brings a Spark Connect server, and that one takes a token.
    """

    line: str
    scala: str
    packages: Mapping[str, str]
    loads_defaults: bool
    tags_sessions: bool
    activates_sessions: bool
    serves_connect: bool


def _release(
    line: str, *, hadoop: str, spark: str = "", delta: str = "", iceberg: str = ""
) -> Release:
    """Return a release by the versions of its packages; empty for one that has none for it."""
    is_4 = line >= "4"
    scala = "2.13" if is_4 else "2.12"
    delta_spark = f"delta-spark_{line}" if is_4 else "delta-spark"
    named = {
        "avro": spark and f"org.apache.spark:spark-avro_{scala}:{spark}",
        "kafka": spark and f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}",
        "s3": f"org.apache.hadoop:hadoop-aws:{hadoop}",
        "delta": delta and f"io.delta:{delta_spark}_{scala}:{delta}",
        "iceberg": iceberg and f"org.apache.iceberg:iceberg-spark-runtime-{line}_{scala}:{iceberg}",
    }
    return Release(
        line,
        scala,
        {name: package for name, package in named.items() if package},
        loads_defaults=is_4,
        tags_sessions=is_4,
        activates_sessions=is_4,
        serves_connect=is_4,
    )


RELEASES: Mapping[str, Release] = {
    release.line: release
    for release in (
        _release("3.5", spark="3.5.7", hadoop="3.3.4", delta="3.3.2", iceberg="1.12.0"),
        _release("4.0", spark="4.0.0", hadoop="3.4.1", delta="4.4.0", iceberg="1.11.0"),
        _release("4.1", spark="4.1.1", hadoop="3.4.2", delta="4.4.0", iceberg="1.12.0"),
        _release("4.2", spark="4.2.0", hadoop="3.5.0", delta="4.4.0"),
        _release("4.3", hadoop="3.5.0"),
    )
}
COMPLETE = "4.1"
"""The newest release that every package has a release for."""


@cache
def installed() -> Release:
    """Return the release of the installed PySpark; the nearest one if it is not supported."""
    try:
        line = release_line(version("pyspark"))
    except PackageNotFoundError:  # SPARK_HOME/python on the path: no metadata
        line = COMPLETE
    return RELEASES.get(line) or RELEASES[LINES[0] if line < LINES[0] else LINES[-1]]


def release_line(version_text: str) -> str:
    """Return a version without its last number: `4.1.4` → `4.1`."""
    return ".".join(version_text.split(".")[:2])


def check_home(home: Path) -> None:
    """Check that Spark in a folder is of the release of the installed PySpark.

    Raises:
        SparkStartError: It is of another one: their protocols do not fit.
    """
    jars = sorted((home / "jars").glob("spark-core_*.jar"))
    if not jars:
        return
    line, own = release_line(jars[0].stem.rpartition("-")[2]), installed().line
    if line != own:
        raise SparkStartError(
            f"Spark {line} in {home} does not fit PySpark {own}, which is installed",
            hint=f"run `pip install 'pyspark=={line}.*'`, or unset SPARK_HOME",
        )


def too_old(what: str, line: str, where: Where | None = None) -> SettingsError:
    """Return the error of a feature that the installed release lacks."""
    return SettingsError(
        f"{what}: Spark {installed().line} is installed, {line} or later is needed",
        where=where,
        hint=f"run `pip install 'pyspark>={line}'`, or change the setting",
    )
