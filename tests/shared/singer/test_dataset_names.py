"""Names of datasets, by the conventions that OpenLineage's own package writes down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openlineage.client.naming import dataset as naming

from shared.errors import InvalidSettingsError
from shared.singer.datasets import catalog_table_name, jdbc_name, place_name, table_name
from tap_spark.sources.tables import source_datasets
from tap_spark.state.stream_plans import StreamPlan
from tap_spark.stream_config import ConnectionConfig, StreamConfig
from target_spark.config import REGISTRY, target_config
from target_spark.core.differences import DryRun
from target_spark.core.load_plans import TableName
from target_spark.destinations.destination import Tools
from target_spark.destinations.dry_destination import DryDestination

SECRET = "hush"


def of(name: naming.DatasetNaming) -> tuple[str, str]:
    return name.get_namespace(), name.get_name()


@pytest.mark.parametrize(
    ("url", "table", "name"),
    [
        ("jdbc:postgresql://db/shop", ("sales", "orders"),
         naming.Postgres("db", "5432", "shop", "sales", "orders")),
        ("jdbc:postgresql://db:6432/shop?user=u&password=hush", ("orders",),
         naming.Postgres("db", "6432", "shop", "public", "orders")),
        ("jdbc:postgresql://u:hush@db/shop", ("sales", "orders"),
         naming.Postgres("db", "5432", "shop", "sales", "orders")),
        ("jdbc:mysql://db/shop", ("orders",), naming.MySQL("db", "3306", "shop", "orders")),
        ("jdbc:mysql://db/shop?password=hush", ("other", "orders"),
         naming.MySQL("db", "3306", "other", "orders")),
        ("jdbc:oracle:thin:@//db:1522/ORCL", ("HR", "STAFF"),
         naming.Oracle("db", "1522", "ORCL", "HR", "STAFF")),
        ("jdbc:oracle:thin:scott/hush@//db/ORCL", ("HR", "STAFF"),
         naming.Oracle("db", "1521", "ORCL", "HR", "STAFF")),
    ],
)  # fmt: skip
def test_tables_of_databases(url: str, table: tuple[str, ...], name: naming.DatasetNaming) -> None:
    assert jdbc_name(url, table) == of(name)


def test_tables_that_the_package_names_not() -> None:
    url = "jdbc:sqlserver://db:1433;databaseName=shop;password=hush;encrypt=true"
    assert jdbc_name(url, ("dbo", "orders")) == ("mssql://db:1433", "shop.dbo.orders")
    assert jdbc_name("jdbc:sqlite:/data/a.db?key=hush", ("t",)) == ("sqlite:/data/a.db", "t")
    assert jdbc_name("jdbc:mysql:loadbalance://me:hush@a,b/s", ("t",)) == ("mysql:a,b/s", "t")
    assert jdbc_name("jdbc:oracle:oci:scott/hush@tns", ("t",)) == ("oracle:tns", "t")
    assert jdbc_name("jdbc:mysql://(host=db,password=hush)/shop", ("t",)) is None
    addresses = "(host=a)(user=u)(password=hush)/s", "(host=a,password=hush)/s"
    for address in addresses:
        assert jdbc_name(f"jdbc:mysql:replication://address={address}", ("t",)) is None
    assert jdbc_name("jdbc:mysql:loadbalance://me:hu?sh@a/s", ("t",)) is None
    assert jdbc_name("jdbc:jtds:sqlserver://me:hush@a/s", ("t",)) == ("jtds:a/s", "t")
    assert jdbc_name("jdbc:clickhouse:http://me:hush@h/db", ("t",)) == ("clickhouse:h/db", "t")
    assert jdbc_name("jdbc:sqlite:/me@home/a.db", ("t",)) == ("sqlite:/me@home/a.db", "t")
    assert jdbc_name("jdbc:sqlite:", ("t",)) is None
    assert jdbc_name("anything hush", ("t",)) is None
    assert table_name("mariadb", "db", 3307, ("shop", "t")) == ("mariadb://db:3307", "shop.t")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("s3a://bucket/a/b/", ("s3://bucket", "a/b")),
        ("s3://key:hush@bucket/a?x=hush", ("s3://bucket", "a")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("gs://bucket/a/*.csv", ("gs://bucket", "a")),
        ("abfss://box@acc.dfs.core.windows.net/a", ("abfss://box@acc.dfs.core.windows.net", "a")),
        ("hdfs://node:8020/a/b", ("hdfs://node:8020", "/a/b")),
        ("s3://[b/x", ("s3://[b", "x")),
        ("https://u:hush@web/x.csv?token=hush", ("https://web", "/x.csv")),
        ("file:///data/a.csv", ("file", "/data/a.csv")),
        ("/data/2025-*/x.csv", ("file", "/data")),
        ("a.csv", ("file", str(Path("a.csv").absolute()))),
        ("*.csv", ("file", str(Path.cwd()))),
    ],
)
def test_places(place: str, name: tuple[str, str]) -> None:
    assert place_name(place) == name


def test_tables_of_catalogs() -> None:
    conf = {"spark.sql.catalog.lake.uri": "https://u:hush@rest/api?token=hush"}
    assert catalog_table_name(conf, ("lake", "db", "t")) == ("https://rest/api", "db.t")
    conf = {"spark.sql.catalog.lake.warehouse": "/warehouse"}
    assert catalog_table_name(conf, ("lake", "db", "t")) == ("/warehouse", "db.t")
    assert catalog_table_name({}, ("lake", "db", "t")) == ("lake", "db.t")
    assert catalog_table_name({}, ("db", "t")) == ("spark_catalog", "db.t")


def plan(**settings: object) -> StreamPlan:
    schema = {"properties": {"id": {"type": ["null", "integer"]}, "at": {"format": "date-time"}}}
    return StreamPlan("s", "s", StreamConfig(name="s", **settings), schema, ("id", "at"))


def test_what_a_stream_reads() -> None:
    [file] = source_datasets(plan(format="csv", path="/d/a.csv"), {})
    assert (file.namespace, file.name) == ("file", "/d/a.csv")
    assert file.fields == (("id", "integer"), ("at", "date-time"))
    both = source_datasets(plan(format="csv", path=("/d/a.csv", "/d/b.csv")), {})
    assert [one.name for one in both] == ["/d/a.csv", "/d/b.csv"]
    [table] = source_datasets(plan(format="table", table="lake.db.t"), {})
    assert (table.namespace, table.name) == ("lake", "db.t")
    shop = ConnectionConfig(name="shop", url="jdbc:mysql://db/shop", password=SECRET)
    [table] = source_datasets(plan(format="jdbc", table="orders", database=shop), {})
    assert (table.namespace, table.name) == ("mysql://db:3306", "shop.orders")
    assert not list(source_datasets(plan(format="jdbc", query="SELECT 1", database=shop), {}))


CATALOG = {"spark.sql.catalog.lake.uri": "http://rest:8181"}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"path": "/d"}, ("file", "/d/s/t")),
        ({"path": "s3://box/d", "format": "csv"}, ("s3://box", "d/s/t")),
        ({"path": "/d", "format": "delta"}, ("file", "/d/s/t")),
        ({"catalog": "lake", "format": "delta"}, ("lake", "s.t")),
        ({"path": "/d", "format": "iceberg"}, ("file", "/d/s/t")),
        ({"catalog": "lake", "format": "iceberg", "spark": {"conf": CATALOG}},
         ("http://rest:8181", "s.t")),
        ({"format": "jdbc", "jdbc": {"url": "jdbc:postgresql://db/shop", "password": SECRET}},
         of(naming.Postgres("db", "5432", "shop", "s", "t"))),
        ({"format": "jdbc", "jdbc": {"url": "jdbc:mysql://db/shop", "password": SECRET}},
         of(naming.MySQL("db", "3306", "s", "t"))),
    ],
)  # fmt: skip
def test_tables_of_destinations(settings: dict[str, Any], name: tuple[str, str]) -> None:
    config = target_config(settings)
    destination = REGISTRY.get(config.format).open(config, Tools(dict, dict))
    assert destination.dataset(TableName("t", "s")) == name
    dry = DryDestination(destination, DryRun())
    assert dry.dataset(TableName("t", "s")) is None


@pytest.mark.parametrize("url", ["kafka://x", "http://u:hush@h", "http://h?key=hush"])
def test_urls_that_are_refused(url: str) -> None:
    for block in ({"openlineage": {"url": url}}, {"opentelemetry": {"endpoint": url}}):
        with pytest.raises(InvalidSettingsError) as caught:
            target_config({"path": "/d", **block})
        assert next(iter(block)) in str(caught.value)
        assert "hush" not in str(caught.value)
