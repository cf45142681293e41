"""Discovery of Spark catalogs: Spark's own, and an Iceberg catalog with nested namespaces."""

from __future__ import annotations

import logging

import pytest
from tap_runs import rows

from shared.errors import SourceError
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import SOURCE, metadata_of
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.sources.lakes.lake_tables import Details
from tap_spark.sources.tables import table_lister
from tap_spark.stream_config import ConnectionConfig, StreamConfig

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture(scope="module")
def lake(lake_spark):
    """Namespaces `d`, `d.e` and `d.a.b` (a dot in its name) of the Iceberg catalog."""
    sql = lake_spark.sql
    for name in ("d", "d.e", "d.`a.b`"):
        sql(f"CREATE NAMESPACE ice.{name}")
    sql(
        "CREATE TABLE ice.d.orders (id BIGINT NOT NULL COMMENT 'the number', total DECIMAL(12,2)) "
        "USING iceberg COMMENT 'What was ordered'"
    )
    sql("ALTER TABLE ice.d.orders SET IDENTIFIER FIELDS id")
    sql("INSERT INTO ice.d.orders VALUES (1, 2.5), (2, 3.5)")
    sql("CREATE TABLE ice.d.e.`# Detailed Table Information` (`# Detailed Table Information` INT)")
    sql('CREATE TABLE ice.d.`a.b`.`we``ird "t` (a INT)')
    sql('INSERT INTO ice.d.`a.b`.`we``ird "t` VALUES (7)')
    yield lake_spark
    for name in (
        "d.orders",
        "d.e.`# Detailed Table Information`",
        'd.`a.b`.`we``ird "t`',
    ):
        sql(f"DROP TABLE ice.{name}")
    for name in ("d.`a.b`", "d.e", "d"):
        sql(f"DROP NAMESPACE ice.{name}")


@pytest.fixture(scope="module")
def own(lake_spark):
    """A database of Spark's own catalog with tables of several kinds and views."""
    sql = lake_spark.sql
    sql("CREATE DATABASE own_db")
    sql("CREATE TABLE own_db.plain (a INT COMMENT 'first', b VARCHAR(5)) USING parquet")
    sql("INSERT INTO own_db.plain VALUES (1, 'x')")
    sql("ANALYZE TABLE own_db.plain COMPUTE STATISTICS")
    sql("CREATE TABLE own_db.changes (a INT) USING delta")
    sql("CREATE VIEW own_db.seen AS SELECT a FROM own_db.plain")
    sql("CREATE TEMPORARY VIEW own_temp AS SELECT 1 AS a")
    yield lake_spark
    sql("DROP VIEW own_temp")
    sql("DROP DATABASE own_db CASCADE")


def connection(catalog: str, **settings) -> ConnectionConfig:
    return ConnectionConfig(name="c", catalog=catalog, **settings)


def actual(spark, config: ConnectionConfig):
    return {table.stream.name: table for table in table_lister(config).tables(spark)}


def test_spark_s_own_catalog(own):
    tables = actual(own, connection("spark_catalog", include=("own_db.*",)))
    assert {name: table.stream.format for name, table in tables.items()} == {
        "own_db-changes": "delta",
        "own_db-plain": "table",
        "own_db-seen": "table",
    }
    plain, seen = tables["own_db-plain"], tables["own_db-seen"]
    assert (plain.row_count, plain.is_view, plain.schema_name) == (1, False, "own_db")
    assert plain.stream.table == "spark_catalog.own_db.plain"
    assert plain.sql_types == {"a": "int", "b": "varchar(5)"}
    assert seen.is_view
    assert tables["own_db-changes"].row_count is None


def test_views_may_be_excluded(own):
    config = connection("spark_catalog", include=("own_db.*",), views=False)
    assert "own_db-seen" not in actual(own, config)
    config = connection("spark_catalog", include=("own_db.*",), exclude=("*.[pc]*",))
    assert list(actual(own, config)) == ["own_db-seen"]


def test_nested_namespaces_keys_and_comments(lake):
    tables = actual(lake, connection("ice", include=("d.*",), stream_prefix="x_"))
    assert [(t.schema_name, t.table_name) for t in tables.values()] == [
        ("d", "orders"),
        ("d.a.b", 'we`ird "t'),
        ("d.e", "# Detailed Table Information"),
    ]
    orders = tables["x_d-orders"]
    assert orders.stream.key_properties == ("id",)
    assert (orders.row_count, orders.comment) == (2, "What was ordered")
    assert {table.stream.format for table in tables.values()} == {"iceberg"}


def test_entries_lead_back_to_the_table(lake, own):
    settings = (
        connection("spark_catalog", include=("own_db.plain",)),
        ConnectionConfig(name="lake", catalog="ice", include=("d.*",)),
    )
    tap = TapConfig(connections=settings)
    catalog = catalog_for(own, tap)
    entries = {entry["stream"]: entry for entry in catalog["streams"]}
    plain = entries["own_db-plain"]
    assert plain["schema"]["properties"]["a"]["description"] == "first"
    assert "description" not in plain["schema"]["properties"]["b"]
    assert metadata_of(plain)[()][SOURCE] == {
        "format": "table",
        "table": "spark_catalog.own_db.plain",
        "connection": "c",
    }
    assert entries["d-orders"]["schema"]["description"] == "What was ordered"
    plans = {plan.stream: plan.config for plan in plan_streams(tap, catalog, None, 1)}
    assert rows(own, StreamConfig("s", "table", table=plans["own_db-plain"].table)) == [
        {"a": 1, "b": "x"}
    ]
    weird = plans['d-a.b-we`ird "t']
    assert rows(own, StreamConfig("s", "table", table=weird.table)) == [{"a": 7}]


def test_a_table_that_cannot_be_described_is_a_warning(own, caplog):
    own.sql("CREATE TABLE own_db.base (a INT) USING parquet")
    own.sql("CREATE VIEW own_db.broken AS SELECT a FROM own_db.base")
    own.sql("DROP TABLE own_db.base")
    try:
        with caplog.at_level(logging.WARNING):
            tables = actual(own, connection("spark_catalog", include=("own_db.*",)))
    finally:
        own.sql("DROP VIEW own_db.broken")
    assert set(tables) == {"own_db-changes", "own_db-plain", "own_db-seen"}
    (record,) = [r for r in caplog.records if "skipping" in r.getMessage()]
    assert "connection 'c': skipping own_db.broken, which" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize(
    ("provider", "statistics", "count"),
    [
        ("iceberg", "28 bytes, 1 rows", 1),
        ("iceberg", "0 bytes, 0 rows", 0),
        ("parquet", "662 bytes, 12 rows", 12),
        ("parquet", "662 bytes", None),
        ("hive", "0 bytes, 0 rows", None),
        ("hive", "", None),
    ],
)
def test_row_counts(provider, statistics, count):
    details = Details({"Provider": provider, "Statistics": statistics})
    assert details.row_count == count


def test_nothing_wanted_is_a_warning(own, caplog):
    assert actual(own, connection("spark_catalog", include=("nope.*",))) == {}
    assert "connection 'c': no table matches 'include' and 'exclude'" in caplog.text


def test_an_unknown_catalog(lake_spark):
    with pytest.raises(SourceError, match="connection 'c': cannot list the catalog 'nowhere'"):
        actual(lake_spark, connection("nowhere"))
