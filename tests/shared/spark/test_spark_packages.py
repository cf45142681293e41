"""Packages and configuration that formats and databases need."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import SettingsError, SparkStartError
from shared.spark import packages, spark_release
from shared.spark.conf import SparkSettings
from shared.spark.packages import (
    DRIVERS,
    EXTENSIONS,
    LAKES,
    check_released,
    driver_of,
    missing_jars,
    with_needs,
)
from shared.spark.spark_release import COMPLETE, LINES, RELEASES, installed
from tap_spark.config import tap_config
from tap_spark.sources.formats import BUILT_IN

PLAIN = SparkSettings()
PACKAGES = installed().packages
DELTA, ICEBERG = LAKES["delta"], LAKES["iceberg"]


def test_nothing_is_needed() -> None:
    assert [BUILT_IN[name].needs for name in ("csv", "rows", "jdbc", "table")] == [None] * 4
    assert with_needs(PLAIN, []) == PLAIN


def test_formats_bring_packages_and_extensions() -> None:
    actual = with_needs(PLAIN, [ICEBERG, DELTA, DELTA])
    assert actual.packages == (PACKAGES["delta"], PACKAGES["iceberg"])
    assert actual.conf[EXTENSIONS] == f"{DELTA.extensions},{ICEBERG.extensions}"
    assert actual.conf["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")


def test_the_users_configuration_wins() -> None:
    conf = {EXTENSIONS: "my.Extension", "spark.sql.catalog.spark_catalog": "my.Catalog"}
    actual = with_needs(SparkSettings(conf=conf), [DELTA])
    assert actual.conf[EXTENSIONS] == f"my.Extension,{DELTA.extensions}"
    assert actual.conf["spark.sql.catalog.spark_catalog"] == "my.Catalog"


def test_extensions_are_named_once() -> None:
    actual = with_needs(SparkSettings(conf={EXTENSIONS: DELTA.extensions}), [DELTA])
    assert actual.conf[EXTENSIONS] == DELTA.extensions


@pytest.mark.parametrize(
    "settings",
    [
        SparkSettings(packages=("io.delta:delta-spark_4.0_2.13:4.0.0",)),
        SparkSettings(packages=("io.delta:delta-spark_2.13:3.0.0",)),
        SparkSettings(jars=("/opt/jars/delta-spark_4.1_2.13-4.4.0.jar",)),
        SparkSettings(jars=("s3://b/delta-spark-9.jar",)),
    ],
)
def test_another_version_of_a_package_replaces_ours(settings: SparkSettings) -> None:
    assert with_needs(settings, [DELTA]).packages == settings.packages


def test_a_catalog_of_the_users_tells_what_is_needed() -> None:
    conf = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}
    assert with_needs(SparkSettings(conf=conf), []).packages == (PACKAGES["iceberg"],)


def test_a_server_brings_its_own_packages() -> None:
    settings = SparkSettings(remote="sc://host", packages=("a:mine:1",))
    assert with_needs(settings, [DELTA]) == settings
    own = with_needs(SparkSettings(remote="local[2]"), [DELTA])
    assert own.packages == (PACKAGES["delta"],)


def test_jars_of_a_java_that_runs() -> None:
    settings = with_needs(SparkSettings(jars=("/a/mine.jar", "s3://b/own.jar")), [DELTA, ICEBERG])
    by_ivy = "io.delta_delta-spark_4.1_2.13-4.4.0.jar"
    actual = missing_jars(settings, ["spark-core_2.13-4.1.4.jar", by_ivy, "own.jar"])
    assert actual == ((PACKAGES["iceberg"],), ("/a/mine.jar",))
    by_maven = "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
    assert missing_jars(settings, [by_ivy, by_maven, "own.jar", "mine.jar"]) == ((), ())


def test_drivers_follow_from_urls() -> None:
    databases = [
        ("jdbc:postgresql://h/a", None),
        ("jdbc:postgresql://h/b", None),
        ("jdbc:SQLite:/tmp/x.db", None),
        ("jdbc:unknown:x", None),
        ("jdbc:unknown:y", "org.unknown:driver:1"),
    ]
    actual = with_needs(PLAIN, [], databases).packages
    assert actual == (
        "org.postgresql:postgresql:42.7.14",
        next(driver.package for driver in DRIVERS if driver.database == "sqlite"),
        "org.unknown:driver:1",
    )


def test_a_driver_of_the_users_choice() -> None:
    actual = with_needs(PLAIN, [], [("jdbc:postgresql://h/a", "org.postgresql:postgresql:42.6.0")])
    assert actual.packages == ("org.postgresql:postgresql:42.6.0",)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.prefix)
def test_every_driver_is_complete(driver: object) -> None:
    assert driver in DRIVERS
    for created in DRIVERS:
        assert driver_of(f"{created.prefix}//h/d") is created
        assert created.package.count(":") == 2
        assert "." in created.class_name


def test_no_driver() -> None:
    assert driver_of("jdbc:db2://h/d") is None


def test_what_a_stream_reads_decides() -> None:
    streams = [
        {"name": str(number), "format": name, "path": "x"}
        for number, name in enumerate(("avro", "csv", "delta", "avro"))
    ]
    actual = tap_config({"streams": streams}).spark
    avro = BUILT_IN["avro"].needs
    assert avro is not None
    assert actual.packages == (PACKAGES["delta"], PACKAGES["avro"])
    assert actual.conf[EXTENSIONS] == DELTA.extensions


@pytest.mark.parametrize("line", LINES)
def test_packages_of_every_release(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release = RELEASES[line]
    monkeypatch.setattr(packages, "installed", lambda: release)
    assert release.packages.keys() <= RELEASES[COMPLETE].packages.keys()
    assert all(package.count(":") == 2 for package in release.packages.values())
    for name, lake in LAKES.items():
        actual = with_needs(PLAIN, [lake])
        if name in release.packages:
            check_released(actual)
            assert actual.packages == (release.packages[name],)
            continue
        with pytest.raises(SettingsError, match=rf"'{name}' has no package for Spark {line}"):
            check_released(actual)
        own = PACKAGES[name]
        check_released(with_needs(SparkSettings(packages=(own,)), [lake]))
        with pytest.raises(SettingsError, match=r"use a server of Spark 4\.[12], or name its own"):
            check_released(with_needs(SparkSettings(remote="sc://host"), [lake]))
        check_released(with_needs(SparkSettings(remote="sc://host", packages=(own,)), [lake]))


@pytest.mark.parametrize("name", ["delta", "delta-spark"])
def test_a_package_without_coordinates(name: str) -> None:
    with pytest.raises(SettingsError, match=r"is not a package of Maven .*group:artifact:version"):
        check_released(with_needs(SparkSettings(packages=(name,)), []))


def test_the_installed_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    spark_release.check_home(tmp_path)  # a folder without jars tells nothing
    for line, text in {"3.4": "3.5", "4.0": "4.0", "4.9": "4.3"}.items():
        monkeypatch.setattr(spark_release, "version", lambda _, line=line: f"{line}.7")
        installed.cache_clear()
        assert installed().line == text
    installed.cache_clear()
    monkeypatch.undo()
    (jars / "spark-core_2.12-3.5.1.jar").touch()
    with pytest.raises(SparkStartError, match=r"Spark 3\.5 in .* does not fit PySpark 4\.1"):
        spark_release.check_home(tmp_path)
