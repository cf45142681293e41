"""Packages, JDBC drivers and configuration that formats and databases need in Spark; their jars.

Spark resolves `spark.jars.packages` anew at every start, which takes seconds, and two processes
that fill its cache at the same time get in each other's way: both programs of a pipe do so. Here
the first start of all resolves, behind a lock; later ones name the jars. `bake_packages` brings
jars into an image, so that nothing is downloaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from shared.errors import SettingsError, SparkStartError, Where
from shared.spark.conf import SparkSettings, is_one_process
from shared.spark.jvm import archive_folder, spark_defaults
from shared.spark.spark_release import COMPLETE, RELEASES, Release, installed
from shared.storage.access import account_home
from shared.storage.owned_folders import is_trusted


@dataclass(frozen=True)
class Driver:
    """A JDBC driver.

    Attributes:
        database: Short name of the database, a key of the registry of dialects.
        prefix: How its URLs begin.
        package: Maven coordinates.
    """

    database: str
    prefix: str
    package: str
    class_name: str


DRIVERS = (
    Driver(
        "postgresql",
        "jdbc:postgresql:",
        "org.postgresql:postgresql:42.7.14",
        "org.postgresql.Driver",
    ),
    Driver("mysql", "jdbc:mysql:", "com.mysql:mysql-connector-j:9.7.0", "com.mysql.cj.jdbc.Driver"),
    Driver(
        "mysql",
        "jdbc:mariadb:",
        "org.mariadb.jdbc:mariadb-java-client:3.5.11",
        "org.mariadb.jdbc.Driver",
    ),
    Driver(
        "sqlserver",
        "jdbc:sqlserver:",
        "com.microsoft.sqlserver:mssql-jdbc:13.6.2.jre11",
        "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    ),
    Driver(
        "oracle",
        "jdbc:oracle:",
        "com.oracle.database.jdbc:ojdbc11:23.26.4.0.0",
        "oracle.jdbc.OracleDriver",
    ),
    Driver("sqlite", "jdbc:sqlite:", "org.xerial:sqlite-jdbc:3.53.4.0", "org.sqlite.JDBC"),
    Driver("duckdb", "jdbc:duckdb:", "org.duckdb:duckdb_jdbc:1.5.6.0", "org.duckdb.DuckDBDriver"),
)


def driver_of(url: str) -> Driver | None:
    """Find the driver for a JDBC URL; None if no known driver fits."""
    text = url.strip().lower()
    return next((driver for driver in DRIVERS if text.startswith(driver.prefix)), None)


EXTENSIONS = "spark.sql.extensions"


@dataclass(frozen=True)
class Need:
    """What something needs to be there in the session.

    Attributes:
        package: Maven coordinates, or the name of a package of `Release`.
        extensions: Class of the SQL extensions; empty for none.
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
    server has its own packages: for `check_released`, those without a release are added alone.

    Args:
        databases: For each its JDBC URL, and the user's own choice of the driver's package.
    """
    wanted, databases = list(wanted), list(databases)
    if not (wanted or databases or settings.conf):
        return settings
    needs = _all(wanted, settings.conf)
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
    if _is_server(settings):
        names = (name for name in packages if ":" not in name or name in settings.packages)
        return replace(settings, packages=tuple(names))
    return replace(settings, packages=tuple(packages), conf=conf)


def check_released(settings: SparkSettings) -> None:
    """Check that each package has a release for the installed Spark.

    Args:
        settings: With the packages that formats and databases need; one without a release is there
            by its name alone.

    Raises:
        SettingsError: A package has none, or is none; names it.
    """
    for package in settings.packages:
        if not re.fullmatch(r"[^:]+:[^:]+:.+", package):
            fitting = [line for line, release in RELEASES.items() if package in release.packages]
            if not fitting or installed().line in fitting:
                raise SettingsError(
                    f"'{package}' is not a package of Maven",
                    where=Where(setting="spark.packages"),
                    hint="write its coordinates: group:artifact:version",
                )
            other = f"run `pip install 'pyspark=={fitting[-1]}.*'`, or name one in spark.packages"
            if _is_server(settings):
                other = f"use a server of Spark {fitting[-1]}, or name its own in spark.packages"
            raise SettingsError(
                f"'{package}' has no package for Spark {installed().line}, which is installed",
                hint=other,
            )


def _is_server(settings: SparkSettings) -> bool:
    return settings.remote is not None and not settings.remote.startswith("local")


def missing_jars(
    settings: SparkSettings, loaded: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the packages and jars that settings name and a Java process has not loaded.

    Args:
        settings: With the packages that formats and databases need.
        loaded: Names of the jar files that are, as Maven or Ivy call them.
    """
    # Ivy puts the group before the name: `io.delta_delta-spark_4.1_2.13-4.4.0.jar`.
    names = [form for name in loaded for form in (name, name.partition("_")[2])]
    packages = (item for item in settings.packages if not _is_there(item, (), names))
    jars = (jar for jar in settings.jars if PurePosixPath(jar).name not in names)
    return tuple(packages), tuple(jars)


def _coordinates(package: str, release: Release) -> str:
    """Return the coordinates of a package for a release; its name if it has none."""
    return package if ":" in package else release.packages.get(package, package)


def _all(wanted: Sequence[Need], conf: Mapping[str, str]) -> list[Need]:
    """Return the lakes that are wanted or that the user's settings name, then the rest, once."""
    text = "\n".join(conf.values())
    lakes = [one for one in LAKES.values() if one in wanted or any(s in text for s in one.signs)]
    return list({need.package: need for need in (*lakes, *wanted)}.values())


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


VARIABLE = "SINGER_SPARK_JARS"
"""Environment variable: the folder of the jars; as `local:FOLDER` if every executor has it, too."""
_EVERYWHERE = "local:"
INDEX = "packages.json"
PACKAGES, JARS = "spark.jars.packages", "spark.jars"
_NAMED = re.compile(r"(.+?)-(\d[\w.-]*)\.jar")
_FILE = re.compile(r"(?:(?:file|local):(?://)?(?=/[^/]))?([^:%#?*\[{\\]+)")
"""A jar whose path Spark and a classpath read alike: no other URL, no pattern, no escape."""
_LOADS = re.compile(r"spark\.jars|--jars|--packages|userClassPathFirst")
"""Signs of further jars, or of another order, in what a user has set."""


def with_baked(conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Replace packages by their jars, if the image has them; others stay.

    Raises:
        SparkStartError: The folder that the environment names has no valid index.
    """
    named, wanted = environ.get(VARIABLE), split(conf.get(PACKAGES, ""))
    if not named or not wanted:
        return dict(conf)
    folder = named.removeprefix(_EVERYWHERE)
    try:
        index = json.loads((Path(folder) / INDEX).read_bytes())
    except (OSError, ValueError) as error:
        raise SparkStartError(
            f"SINGER_SPARK_JARS names '{folder}', which has no valid packages.json",
            hint="make it by `python -m shared.spark.bake_packages`, or unset the variable",
        ) from error
    names = newest_jars(name for package in wanted for name in index.get(package, ()))
    jars = [(Path(folder) / name).as_uri() for name in names]
    if named.startswith(_EVERYWHERE):
        jars = [jar.replace("file://", _EVERYWHERE, 1) for jar in jars]
    left = [package for package in wanted if package not in index]
    return with_jars(conf, jars) | ({PACKAGES: ",".join(left)} if left else {})


def with_jars(conf: Mapping[str, str], jars: Iterable[str]) -> dict[str, str]:
    """Return a configuration with jars in place of its packages."""
    kept = {name: value for name, value in conf.items() if name != PACKAGES}
    return {**kept, JARS: ",".join(dict.fromkeys([*split(conf.get(JARS, "")), *jars]))}


def with_classpath(
    conf: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return a configuration, and the paths of its jars if Java's classpath can hold them.

    Spark serves and copies each jar of a configuration, even within one process. All or none: the
    classes of the classpath cannot see those that Spark adds to it.
    """
    jars = split(conf.get(JARS, ""))
    paths = [
        match[1]
        for jar in jars
        if (match := _FILE.fullmatch(jar))
        and Path(match[1]).is_file()
        and os.access(match[1], os.R_OK)
    ]
    if not jars or len(paths) < len(jars) or not is_one_process(conf["spark.master"]):
        return dict(conf), []
    others = [*(conf.keys() - {JARS, *IVY}), environ.get("PYSPARK_SUBMIT_ARGS", "")]
    if _LOADS.search(f"{others} {spark_defaults(environ)!r}"):
        return dict(conf), []
    return {name: text for name, text in conf.items() if name != JARS}, paths


def newest_jars(names: Iterable[str]) -> list[str]:
    """Return the jars without older versions of the same: packages were resolved one by one."""
    versions: dict[str, tuple[list[int], str]] = {}
    for name in names:
        artifact, version = artifact_and_version(name)
        this = [int(number) for number in re.findall(r"\d+", version)], name
        versions[artifact] = max(versions.get(artifact, this), this)
    return [name for _, name in versions.values()]


def artifact_and_version(name: str) -> tuple[str, str]:
    """Return both parts of a jar's name; the version is empty if the name has none."""
    match = _NAMED.fullmatch(name)
    return (match[1], match[2]) if match else (name, "")


def split(text: str) -> list[str]:
    """Return the parts of a list of Spark's configuration."""
    return [part.strip() for part in text.split(",") if part.strip()]


IVY = (
    "spark.jars.excludes",
    "spark.jars.repositories",
    "spark.jars.ivy",
    "spark.jars.ivySettings",
)
"""Settings of how packages are fetched, in the order of Spark's own function."""
Remember = Callable[[str], None]


def add_packages(java: Any, conf: Any) -> None:
    """Put the jars and packages of a configuration on the classpath of a running JVM.

    Args:
        conf: The `SparkConf`; its jars become the paths of all.

    Raises:
        Py4JJavaError: A package cannot be resolved, or a jar not be read.
    """
    jars = split(conf.get(JARS, ""))
    if packages := conf.get(PACKAGES, ""):
        jars += fetch_packages(java, packages, conf)
    if not jars:
        return
    hadoop = java.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf._jconf)
    utils = java.org.apache.spark.util.DependencyUtils
    # The second argument is a jar to leave out; a comma is in no name of this list.
    paths = utils.resolveAndDownloadJars(",".join(jars), ",", conf._jconf, hadoop)
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    utils.addJarsToClassPath(paths, loader)
    conf.set(JARS, paths)


def fetch_packages(java: Any, packages: str, conf: Any) -> list[str]:
    """Let Spark fetch packages, and what they need, by Ivy; return the paths of the jars.

    Args:
        packages: Maven coordinates, separated by commas.
        conf: Returns the settings of Ivy by `get`.

    Raises:
        Py4JJavaError: A package cannot be resolved.
    """
    # A static method of this name has other arguments.
    utils = getattr(getattr(java.org.apache.spark.util, "DependencyUtils$"), "MODULE$")
    excludes, repositories, ivy, settings = map(conf.get, IVY)
    option = java.scala.Option.apply(settings)
    jars = utils.resolveMavenDependencies(True, excludes, packages, repositories, ivy, option)
    return [jars.apply(number) for number in range(jars.size())]


@contextmanager
def resolved(
    conf: Mapping[str, str], environ: Mapping[str, str]
) -> Iterator[tuple[dict[str, str], Remember]]:
    """Replace packages by their jars if these are known; else hold a lock while Spark resolves.

    Args:
        environ: The environment (`SINGER_SPARK_CLASS_ARCHIVE`, XDG_CACHE_HOME set the
            folder; `SINGER_SPARK_JARS` has jars of an image).

    Yields:
        The configuration to start Spark with, and a function that takes what `spark.jars` is
        once Spark runs.
    """
    conf = with_baked(conf, environ)
    own = set(split(conf.get(JARS, "")))
    place = _place(conf, environ)
    jars = None if place is None else _remembered(place)
    with ExitStack() as stack:
        if conf.get(PACKAGES) and jars is None:
            stack.enter_context(only_resolver(conf))
            jars = None if place is None else _remembered(place)

        def remember(paths: str) -> None:
            if place is not None and jars is None:
                _write(place, [jar for jar in split(paths) if jar not in own])

        yield conf if jars is None else with_jars(conf, jars), remember


def _place(conf: Mapping[str, str], environ: Mapping[str, str]) -> Path | None:
    folder = archive_folder(environ)
    packages = conf.get(PACKAGES, "")
    if folder is None or not packages or "SNAPSHOT" in packages:
        return None
    # Another home for Spark's own cache means another set of files.
    ivy = [conf.get(name, "") for name in (PACKAGES, *IVY)]
    decides = json.dumps([ivy, environ.get("HOME", "")])
    return folder / f"packages-{hashlib.sha256(decides.encode()).hexdigest()[:16]}.json"


def _remembered(place: Path) -> list[str] | None:
    """Return the jars, if they all still exist and only we can have named them."""
    if not (is_trusted(place.parent) and is_trusted(place)):
        return None
    with suppress(OSError, ValueError):
        jars = json.loads(place.read_bytes())
        if isinstance(jars, list) and jars and all(map(_is_file, jars)):
            return jars
    return None


def _is_file(jar: object) -> bool:
    return isinstance(jar, str) and Path(jar.removeprefix("file:")).is_file()


def _write(place: Path, jars: list[str]) -> None:
    if not jars or not all(map(_is_file, jars)):
        return
    part = place.with_suffix(f".{os.getpid()}.part")
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_text(json.dumps(jars), encoding="utf-8")
        part.replace(place)


@contextmanager
def only_resolver(conf: Mapping[str, str]) -> Iterator[None]:
    """Wait for another process that fills the same cache of Ivy, which two would damage.

    The lock lies where that cache is: in the user's home as Java knows it, whatever HOME or
    XDG_CACHE_HOME say.

    Args:
        conf: Configuration of Spark; `spark.jars.ivy` is another folder.
    """
    own = conf.get("spark.jars.ivy")
    folder = Path(own or f"{account_home()}/.ivy2")
    with ExitStack() as stack:
        with suppress(OSError):  # it works without
            # A home that is missing stays so: Java takes another one then.
            folder.mkdir(parents=own is not None, exist_ok=True)
            lock = folder / "singer-spark.lock"
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
