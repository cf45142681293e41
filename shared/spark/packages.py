"""Packages, JDBC drivers and configuration that formats and databases need in Spark. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from shared.errors import SettingsError
from shared.spark.conf import SparkSettings
from shared.spark.spark_release import COMPLETE, RELEASES, Release, installed


@dataclass(frozen=True)
class Driver:
    """A JDBC driver.

    Attributes:
        database: Short name of the database, a key of the registry of dialects.
        prefixes: How its URLs begin.
        package: Maven coordinates.
        class_name: Java class.
    """

    database: str
    prefixes: tuple[str, ...]
    package: str
    class_name: str


DRIVERS = (
    Driver(
        "postgresql",
        ("jdbc:postgresql:",),
        "org.postgresql:postgresql:42.7.14",
        "org.postgresql.Driver",
    ),
    Driver(
        "mysql", ("jdbc:mysql:",), "com.mysql:mysql-connector-j:9.7.0", "com.mysql.cj.jdbc.Driver"
    ),
    Driver(
        "mysql",
        ("jdbc:mariadb:",),
        "org.mariadb.jdbc:mariadb-java-client:3.5.11",
        "org.mariadb.jdbc.Driver",
    ),
    Driver(
        "sqlserver",
        ("jdbc:sqlserver:",),
        "com.microsoft.sqlserver:mssql-jdbc:13.6.2.jre11",
        "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    ),
    Driver(
        "oracle",
        ("jdbc:oracle:",),
        "com.oracle.database.jdbc:ojdbc11:23.26.4.0.0",
        "oracle.jdbc.OracleDriver",
    ),
    Driver("sqlite", ("jdbc:sqlite:",), "org.xerial:sqlite-jdbc:3.53.4.0", "org.sqlite.JDBC"),
    Driver(
        "duckdb", ("jdbc:duckdb:",), "org.duckdb:duckdb_jdbc:1.5.6.0", "org.duckdb.DuckDBDriver"
    ),
)


def driver_of(url: str) -> Driver | None:
    """Find the driver for a JDBC URL; None if no known driver fits."""
    text = url.strip().lower()
    return next((driver for driver in DRIVERS if text.startswith(driver.prefixes)), None)


EXTENSIONS = "spark.sql.extensions"


@dataclass(frozen=True)
class Need:
    """What something needs to be there in the session.

    Attributes:
        package: Maven coordinates, or the name of a package of `Release`.
        extensions: Class of the SQL extensions; empty for none.
        conf: Spark configuration.
        signs: Texts in the user's `spark.conf` that show that it is wanted.
        further: Packages that it does not bring itself.
    """

    package: str
    extensions: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    signs: tuple[str, ...] = ()
    further: tuple[str, ...] = ()


LAKES: Mapping[str, Need] = {
    "delta": Need(
        "delta",
        "io.delta.sql.DeltaSparkSessionExtension",
        {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"},
        ("io.delta.", "org.apache.spark.sql.delta."),
    ),
    "iceberg": Need(
        "iceberg",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        {},
        ("org.apache.iceberg.",),
    ),
}
"""The packages that either program needs for tables of these formats."""
NEEDED = frozenset({EXTENSIONS, *(name for lake in LAKES.values() for name in lake.conf)})
"""The configuration that these packages need."""
AVRO = Need("avro")
KAFKA = Need("kafka", further=("avro",))


def with_needs(
    settings: SparkSettings,
    wanted: Iterable[Need],
    databases: Iterable[tuple[str, str | None]] = (),
) -> SparkSettings:
    """Add the packages that formats and databases need and the user does not name.

    A package is omitted if the user names another version of it, or a jar of it. A Spark Connect
    server has its own packages: settings with `remote` of a server stay unchanged.

    Args:
        settings: The user's.
        wanted: The needs of the formats that are read or written.
        databases: For each its JDBC URL, and the user's own choice of the driver's package.
    """
    if settings.remote is not None and not settings.remote.startswith("local"):
        return settings
    needs = _all(list(wanted), settings.conf)
    drivers = ((package, driver_of(url)) for url, package in databases)
    needs += [Need(package or driver.package) for package, driver in drivers if package or driver]  # type: ignore[union-attr]
    packages = list(settings.packages)
    conf = dict(settings.conf)
    for need in needs:
        for package in (need.package, *need.further):
            if not _is_there(_coordinates(package, RELEASES[COMPLETE]), packages, settings.jars):
                packages.append(_coordinates(package, installed()))
        conf = {**need.conf, **conf}
        if need.extensions:
            conf[EXTENSIONS] = _joined(conf.get(EXTENSIONS, ""), need.extensions)
    return replace(settings, packages=tuple(packages), conf=conf)


def check_released(settings: SparkSettings) -> None:
    """Check that each package has a release for the installed Spark.

    Args:
        settings: With the packages that formats and databases need; one without a release is there
            by its name alone.

    Raises:
        SettingsError: A package has none; names it.
    """
    for package in settings.packages:
        if ":" not in package:
            fitting = [line for line, release in RELEASES.items() if package in release.packages]
            raise SettingsError(
                f"'{package}' has no package for Spark {installed().line}, which is installed",
                hint=f"run `pip install 'pyspark=={fitting[-1]}.*'`, or name one in spark.packages",
            )


@dataclass(frozen=True)
class MissingJars:
    """Jars that settings name and a Java process that runs has not loaded."""

    packages: tuple[str, ...]
    jars: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return whether any is missing."""
        return bool(self.packages or self.jars)


def missing_jars(settings: SparkSettings, loaded: Iterable[str]) -> MissingJars:
    """Return what settings name and is not loaded.

    Args:
        settings: With the packages that formats and databases need.
        loaded: Names of the jar files that are, as Maven or Ivy call them.
    """
    # Ivy puts the group before the name: `io.delta_delta-spark_4.1_2.13-4.4.0.jar`.
    names = [form for name in loaded for form in (name, name.partition("_")[2])]
    packages = (item for item in settings.packages if not _is_there(item, (), names))
    jars = (jar for jar in settings.jars if PurePosixPath(jar).name not in names)
    return MissingJars(tuple(packages), tuple(jars))


def _coordinates(package: str, release: Release) -> str:
    """Return the coordinates of a package for a release; its name if it has none."""
    return package if ":" in package else release.packages.get(package, package)


def _all(wanted: Sequence[Need], conf: Mapping[str, str]) -> list[Need]:
    """Return the lakes that are wanted or that the user's settings name, then the rest, once."""
    values = list(conf.values())

    def is_named(lake: Need) -> bool:
        return any(sign in value for sign in lake.signs for value in values)

    lakes = [lake for lake in LAKES.values() if lake in wanted or is_named(lake)]
    needs = {need.package: need for need in (*lakes, *wanted)}
    return list(needs.values())


def _is_there(package: str, packages: Iterable[str], jars: Iterable[str]) -> bool:
    artifact = _artifact(package)
    files = [PurePosixPath(jar).name for jar in jars]
    return any(_artifact(other) == artifact for other in packages) or any(
        name.startswith(artifact) for name in files
    )


def _artifact(package: str) -> str:
    """Return the artifact's name without versions of Spark and Scala: `delta-spark`."""
    name = package.split(":")[1] if package.count(":") > 1 else package
    parts = name.split("_")
    while len(parts) > 1 and parts[-1][:1].isdigit():
        parts.pop()
    base = "_".join(parts)
    head, _, last = base.rpartition("-")
    return head if head and last[:1].isdigit() else base


def _joined(classes: str, added: str) -> str:
    names = [name.strip() for name in classes.split(",") if name.strip()]
    return ",".join(names if added in names else [*names, added])
