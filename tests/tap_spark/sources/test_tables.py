"""Tables, views and SQL of Spark catalogs, read through plans as a run does."""

from __future__ import annotations

from datetime import datetime

import pytest
from tap_runs import read_all, rows, stream, types

from shared.errors import SettingsError, SourceError
from tap_spark.config import TapConfig
from tap_spark.plan.discovery import catalog_for
from tap_spark.sources.source import source_for
from tap_spark.sources.source_failures import source_error

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark):
    """A schema of Spark's own catalog with a table, a view, and awkward names."""
    spark.sql("CREATE DATABASE sh_op")
    spark.sql(
        "CREATE TABLE sh_op.order_lines (id BIGINT, `we``ird.name` STRING, at TIMESTAMP, "
        "deep STRUCT<a: INT, `b.c`: ARRAY<STRUCT<x: INT, y: STRING>>>) USING parquet"
    )
    spark.sql(
        "INSERT INTO sh_op.order_lines VALUES "
        "(1, 'one', TIMESTAMP '2026-01-01 00:00:00', struct(1, array(struct(10, 'p')))), "
        "(2, NULL, TIMESTAMP '2026-01-02 00:00:00', NULL), "
        "(3, 'three', TIMESTAMP '2026-01-03 00:00:00', struct(3, NULL))"
    )
    spark.sql("CREATE VIEW sh_op.big AS SELECT id, at FROM sh_op.order_lines WHERE id > 1")
    yield "sh_op"
    spark.sql("DROP DATABASE sh_op CASCADE")


LINES = "sh_op.ORDER_LINES"


def table(name: str = LINES, **settings):
    return stream("table", table=name, **settings)


def sql(text: str, **settings):
    return stream("sql", query=text, **settings)


def failure(spark, config, call=rows) -> str:
    with pytest.raises(Exception) as caught:
        call(spark, config)
    error = source_error("s", caught.value)
    assert "\n" not in str(error)
    return str(error)


def test_a_table_with_awkward_names(spark, shop):
    actual = rows(spark, table())
    assert actual[0]["we`ird.name"] == "one"
    assert actual[0]["deep"] == {"a": 1, "b.c": [{"x": 10, "y": "p"}]}
    assert [row["id"] for row in actual] == [1, 2, 3]
    assert types(spark, table())["at"] == "timestamp"


def test_a_view(spark, shop):
    assert [row["id"] for row in rows(spark, table("spark_catalog.sh_op.big"))] == [2, 3]


def test_columns_and_fields_are_narrowed(spark, shop):
    actual = rows(spark, table(), deselect=["at", ("deep", "a"), "we`ird.name"])
    assert actual == [
        {"id": 1, "deep": {"b.c": [{"x": 10, "y": "p"}]}},
        {"id": 2, "deep": None},
        {"id": 3, "deep": {"b.c": None}},
    ]


def test_fields_inside_of_arrays_are_narrowed(spark, shop):
    config = table()
    catalog = catalog_for(spark, TapConfig(streams=(config,)))
    inner = ["properties", "deep", "properties", "b.c", "items", "properties", "y"]
    item = {"breadcrumb": inner, "metadata": {"selected": False}}
    catalog["streams"][0]["metadata"].append(item)
    actual = rows(spark, config, catalog=catalog)
    assert [row["deep"] for row in actual] == [
        {"a": 1, "b.c": [{"x": 10}]},
        None,
        actual[2]["deep"],
    ]


@pytest.mark.parametrize("config", [table, lambda **s: sql(f"SELECT * FROM {SHOP_LINES}", **s)])
def test_the_bookmark_is_pushed_down(spark, shop, config):
    created = config(replication_key="at", sort_by_replication_key=True)
    state = {
        "bookmarks": {
            "s": {"replication_key": "at", "replication_key_value": "2026-01-02T00:00:00+00:00"}
        }
    }
    actual, (piece,) = read_all(spark, created, state=state, deselect=["deep"])
    assert [row["at"] for row in actual] == [datetime(2026, 1, 2), datetime(2026, 1, 3)]
    assert piece.ordered
    plan = piece.frame._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [Or(GreaterThanOrEqual(at,2026-01-02" in plan
    assert "deep" not in plan.split("ReadSchema")[1]


SHOP_LINES = "sh_op.order_lines"


def test_a_missing_table(spark, shop):
    text = failure(spark, table("NOWHERE.T"))
    assert "`NOWHERE`.`T` cannot be found" in text
    assert "it was dropped or renamed" in text


def test_a_table_dropped_after_discovery(spark, shop):
    spark.sql("CREATE TABLE sh_op.soon (id INT) USING parquet")
    config = table('"sh_op".soon')
    catalog = catalog_for(spark, TapConfig(streams=(config,)))
    spark.sql("DROP TABLE sh_op.soon")
    text = failure(spark, config, lambda s, c: rows(s, c, catalog=catalog))
    assert "`soon` cannot be found" in text
    assert "it was dropped" in text


def test_columns_that_changed_after_discovery(spark, shop):
    config = sql("SELECT 1 AS a, 'x' AS b, 2 AS c")
    catalog = catalog_for(spark, TapConfig(streams=(config,)))
    dropped = sql("SELECT 1 AS a, 'x' AS b")
    assert "no longer in the source: c" in failure(
        spark, dropped, lambda s, c: rows(s, c, catalog=catalog)
    )
    retyped = sql("SELECT 1 AS a, 2.5D AS b, 2 AS c, 4 AS more")
    text = failure(spark, retyped, lambda s, c: rows(s, c, catalog=catalog))
    assert "'b' was string and is double" in text
    assert "run --discover again" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1 AS a", [{"a": 1}]),
        ("SELECT 1 AS a ; ", [{"a": 1}]),
        ("SELECT 1 AS a -- the end", [{"a": 1}]),
        ("SELECT 1 AS a; -- the end", [{"a": 1}]),
        ("/* first */ SELECT ';--' AS a", [{"a": ";--"}]),
        ("WITH t AS (SELECT 1 AS a) SELECT a + 1 AS a FROM t", [{"a": 2}]),
        ("VALUES (1), (2) AS t(a)", [{"a": 1}, {"a": 2}]),
        ("SELECT 1 AS a UNION ALL SELECT 2 ORDER BY a DESC LIMIT 1", [{"a": 2}]),
    ],
)
def test_queries(spark, text, expected):
    assert rows(spark, sql(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE x",
        "INSERT INTO x VALUES (1)",
        "SELECT 1 AS a; DROP TABLE x",
        "SELECT 1) t; DROP TABLE x --",
        "CREATE TABLE y AS SELECT 1 AS a",
        "SET spark.sql.ansi.enabled=false",
        "ADD JAR '/tmp/x.jar'",
        "WITH t AS (SELECT 1) INSERT INTO x SELECT * FROM t",
        "",
        "-- nothing",
    ],
)
def test_what_is_not_a_read_is_refused(text):
    with pytest.raises(SettingsError, match="the query is not a read"):
        source_for(sql(text))


@pytest.mark.parametrize("text", ["DROP DATABASE keep", "CREATE DATABASE made"])
def test_a_command_that_passed_the_check_would_not_run(spark, text, monkeypatch):
    monkeypatch.setattr("tap_spark.sources.spark_tables.check_reads", lambda *_: None)
    spark.sql("CREATE DATABASE IF NOT EXISTS keep")
    with pytest.raises(Exception, match="Syntax error at or near"):
        rows(spark, sql(text))
    assert spark.catalog.databaseExists("keep")
    assert not spark.catalog.databaseExists("made")


@pytest.mark.parametrize("text", ["SELECT 1 AS a, 2 AS A", "SELECT 1 AS a, 2 AS a"])
def test_columns_of_one_name(spark, text):
    with pytest.raises(SourceError, match="several columns have the same name, ignoring case: a, "):
        types(spark, sql(text))


def test_a_query_that_spark_does_not_understand(spark):
    assert "`nope`" in failure(spark, sql("SELECT nope FROM VALUES (1) AS t(a)"))


def test_a_name_that_is_none():
    with pytest.raises(SettingsError, match=r"setting 'table': 'a\.\.b' is not a table name"):
        source_for(table("a..b"))
