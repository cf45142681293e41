"""Packages and configuration that formats and databases need."""

from __future__ import annotations

import pytest

from shared.spark.jdbc_drivers import DRIVERS, driver_of
from shared.spark.packages import EXTENSIONS, LAKES, missing_jars, with_needs
from shared.spark.spark_settings import SparkSettings
from tap_spark.config import tap_config
from tap_spark.sources.source_registry import BUILT_IN

PLAIN = SparkSettings()
DELTA, ICEBERG = LAKES["delta"], LAKES["iceberg"]


def test_nothing_is_needed() -> None:
    assert [BUILT_IN[name].needs for name in ("csv", "rows", "jdbc", "table")] == [None] * 4
    assert with_needs(PLAIN, []) == PLAIN


def test_formats_bring_packages_and_extensions() -> None:
    found = with_needs(PLAIN, [ICEBERG, DELTA, DELTA])
    assert found.packages == (DELTA.package, ICEBERG.package)
    assert found.conf[EXTENSIONS] == f"{DELTA.extensions},{ICEBERG.extensions}"
    assert found.conf["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")


def test_the_users_configuration_wins() -> None:
    conf = {EXTENSIONS: "my.Extension", "spark.sql.catalog.spark_catalog": "my.Catalog"}
    found = with_needs(SparkSettings(conf=conf), [DELTA])
    assert found.conf[EXTENSIONS] == f"my.Extension,{DELTA.extensions}"
    assert found.conf["spark.sql.catalog.spark_catalog"] == "my.Catalog"


def test_extensions_are_named_once() -> None:
    found = with_needs(SparkSettings(conf={EXTENSIONS: DELTA.extensions}), [DELTA])
    assert found.conf[EXTENSIONS] == DELTA.extensions


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
    assert with_needs(SparkSettings(conf=conf), []).packages == (ICEBERG.package,)


def test_a_server_brings_its_own_packages() -> None:
    settings = SparkSettings(remote="sc://host")
    assert with_needs(settings, [DELTA]) == settings
    own = with_needs(SparkSettings(remote="local[2]"), [DELTA])
    assert own.packages == (DELTA.package,)


def test_jars_of_a_java_that_runs() -> None:
    settings = with_needs(SparkSettings(jars=("/a/mine.jar", "s3://b/own.jar")), [DELTA, ICEBERG])
    by_ivy = "io.delta_delta-spark_4.1_2.13-4.4.0.jar"
    found = missing_jars(settings, ["spark-core_2.13-4.1.4.jar", by_ivy, "own.jar"])
    assert found.packages == (ICEBERG.package,)
    assert found.jars == ("/a/mine.jar",)
    by_maven = "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
    assert not missing_jars(settings, [by_ivy, by_maven, "own.jar", "mine.jar"])


def test_drivers_follow_from_urls() -> None:
    databases = [
        ("jdbc:postgresql://h/a", None),
        ("jdbc:postgresql://h/b", None),
        ("jdbc:SQLite:/tmp/x.db", None),
        ("jdbc:unknown:x", None),
        ("jdbc:unknown:y", "org.unknown:driver:1"),
    ]
    found = with_needs(PLAIN, [], databases).packages
    assert found == (
        "org.postgresql:postgresql:42.7.14",
        next(driver.package for driver in DRIVERS if driver.database == "sqlite"),
        "org.unknown:driver:1",
    )


def test_a_driver_of_the_users_choice() -> None:
    found = with_needs(PLAIN, [], [("jdbc:postgresql://h/a", "org.postgresql:postgresql:42.6.0")])
    assert found.packages == ("org.postgresql:postgresql:42.6.0",)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.prefixes[0])
def test_every_driver_is_complete(driver: object) -> None:
    assert driver in DRIVERS
    for made in DRIVERS:
        assert driver_of(f"{made.prefixes[0]}//h/d") is made
        assert made.package.count(":") == 2
        assert "." in made.class_name


def test_no_driver() -> None:
    assert driver_of("jdbc:db2://h/d") is None


def test_what_a_stream_reads_decides() -> None:
    streams = [
        {"name": str(number), "format": name, "path": "x"}
        for number, name in enumerate(("avro", "csv", "delta", "avro"))
    ]
    found = tap_config({"streams": streams}).spark
    avro = BUILT_IN["avro"].needs
    assert avro is not None
    assert found.packages == (DELTA.package, avro.package)
    assert found.conf[EXTENSIONS] == DELTA.extensions
