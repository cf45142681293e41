"""Streams with a `query`: each value as the database has it, or an error that names the column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jdbc_runs import catalog_of, rows_of, run_tap, slices_of, table_stream
from mysql_servers import PASSWORD, MySqlLikeServer
from postgres_server import PASSWORD as SECRET
from postgres_server import Database

from shared.errors import SourceError
from shared.formats import json_values
from tap_spark.sources.source_failures import source_error
from tap_spark.stream_config import ConnectionConfig, StreamConfig

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]

VALUES = {
    "time '12:34:56.789'": "12:34:56.789",
    "timetz '12:34:56.789+02'": "12:34:56.789+02",
    "'infinity'::timestamp": "9999-12-31 23:59:59.999999",
    "'-infinity'::date": "0001-01-01",
    "'0044-03-15 BC'::date": "-0043-03-15",
    "timestamptz '2024-01-01 00:00:00.123456+02'": "2023-12-31 22:00:00.123456",
    "timestamp '1582-10-10 01:02:03'": "1582-10-10 01:02:03",
    "interval '1 year -3 days'": "P1Y-3D",
    "12345678901234567890.123456789012345678::numeric": "12345678901234567890.123456789012345678",
    "1.10::numeric(5,2)": "1.10",
    "1234567890123456789012345678.0123456789::numeric(38,10)": (
        "1234567890123456789012345678.0123456789"
    ),
    "array[1.000000000000000000000000001]": "[1.000000000000000000000000001]",
    "'{\"a\" : 1.10}'::json": '{"a" : 1.10}',
    "array['\"x\"'::jsonb, null]": '["x", null]',
    "'10.1.2.3'::inet": "10.1.2.3",
    "B'1'": "1",
    "12.5::money": "12.50",
    "array['0044-03-15 BC'::date]": "[-0043-03-15]",
    "'{\"a\": 1}'::jsonb ? 'a'": "true",
    "'{\"a\": 1}'::jsonb ?| array['b?', 'c']": "false",
}


def text_of(spark: Any, stream: StreamConfig) -> tuple[Any, ...]:
    from pyspark.sql import functions as F  # noqa: N812

    [piece] = slices_of(spark, stream)
    [row] = piece.frame.select(
        [F.col(f"`{c}`").cast("string") for c in piece.frame.columns]
    ).collect()
    return tuple(row)


def test_values_of_postgresql(lake_spark: Any, postgres: Database) -> None:
    items = ", ".join(f"{value} as c_{n}" for n, value in enumerate(VALUES))
    stream = table_stream(postgres, "", query=f"select {items} -- '?'")
    assert text_of(lake_spark, stream) == tuple(VALUES.values())


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("1e-20::numeric", "column x of the query"),
        ("1e30::numeric", "column x of the query"),
        ("'NaN'::numeric", "column x of the query"),
        ("array[[1,2],[3,4]]", "column 'x'"),
    ],
)
def test_values_that_do_not_fit(
    lake_spark: Any, postgres: Database, value: str, place: str
) -> None:
    # No constant: PostgreSQL would fail before it reads a row.
    query = f"select {value} as x from generate_series(1, 2)"
    error = failed(lake_spark, table_stream(postgres, "", query=query))
    assert place in str(error)
    assert "text" in str(error)
    assert not error.retryable


def failed(spark: Any, stream: StreamConfig) -> SourceError:
    with pytest.raises(Exception) as caught:
        rows_of(spark, stream)
    error = source_error("s", caught.value)
    assert "\n" not in str(error)
    return error


def test_a_view_over_arrays_of_other_dimensions(lake_spark: Any, postgres: Database) -> None:
    postgres.run("""create table grids (g int[][]); insert into grids values ('{{1,2},{3,4}}');
        create view grids_seen as select g from grids""")
    assert rows_of(lake_spark, table_stream(postgres, "grids")) == [([[1, 2], [3, 4]],)]
    error = str(failed(lake_spark, table_stream(postgres, "grids_seen")))
    assert "column 'g'" in error
    assert "'query'" in error
    cast = table_stream(postgres, "", query="select g::text as g from grids_seen")
    assert rows_of(lake_spark, cast) == [("{{1,2},{3,4}}",)]


def test_keys_of_queries(lake_spark: Any, postgres: Database) -> None:
    postgres.run(
        "create table amounts (n numeric); insert into amounts values (9), (10), (11), (100)"
    )
    query = "select n::text::numeric as n, n::text as t from amounts"
    for start, texts in (("100", {"9", "11", "100"}), ("9", {"9"})):
        stream = table_stream(postgres, "", query=query, replication_key="t")
        state = {"bookmarks": {"s": {"replication_key": "t", "replication_key_value": start}}}
        assert {row[1] for row in rows_of(lake_spark, stream, state=state)} == texts


def test_names_that_differ_by_case(lake_spark: Any, postgres: Database) -> None:
    # Arrays pass Spark's columns; other types of PostgreSQL do not, and may have such names.
    postgres.run('create table cased (id int, "Id" int, a int[]); insert into cased values (1, 2)')
    connection = {"name": "pg", "url": postgres.url, "user": "postgres", "password": SECRET}
    settings = {"connections": [connection], "streams": []}
    for place, hint in (("table", "deselect"), ("query", "by AS")):
        what = {"table": "cased", "query": 'select id, "Id" from cased'}[place]
        stream = {"name": "s", "format": "jdbc", "connection": "pg", place: what}
        with pytest.raises(SourceError) as caught:
            run_tap(lake_spark, {**settings, "streams": [stream]})
        error = str(caught.value)
        assert "id" in error and "spark.sql.caseSensitive" in error and hint in error
    catalog = catalog_of(lake_spark, table_stream(postgres, "cased"))
    only = rows_of(lake_spark, table_stream(postgres, "cased"), catalog=catalog, deselect=["id"])
    assert only == [(2, None)]
    postgres.run('create table plain as select id, "Id" from cased')
    assert rows_of(lake_spark, table_stream(postgres, "plain")) == [(1, 2)]


@pytest.fixture(params=["mariadb", "mysql"])
def my(request: pytest.FixtureRequest) -> Iterator[ConnectionConfig]:
    server: MySqlLikeServer = request.getfixturevalue(f"{request.param}_server")
    server.run(
        "create table moments (d date not null, t time(3), dt datetime(6), b tinyint(1), y year,"
        " ts timestamp(6) null)"
    )
    server.run("""insert into moments values ('1582-10-10', '-12:34:56.789',
        '1582-10-10 01:02:03.5', 2, 1999, '2024-01-01 00:00:00.5')""")
    yield ConnectionConfig("m", url=server.url(), user="tester", password=PASSWORD, retries=0)
    server.run("drop table moments")


def test_values_of_mysql(lake_spark: Any, my: ConnectionConfig) -> None:
    stream = StreamConfig("s", "jdbc", database=my, query="select * from moments")
    values = text_of(lake_spark, stream)
    assert values[:5] == ("1582-10-10", "-12:34:56.789", "1582-10-10 01:02:03.5", "2", "1999")


def test_values_of_duckdb(lake_spark: Any, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as base:
        base.execute(f"attach '{tmp_path / 'a.duckdb'}' as x (storage_version 'v1.0.0')")
    database = ConnectionConfig("d", url=f"jdbc:duckdb:{tmp_path / 'a.duckdb'}")
    query = (
        "select time '12:34:56.5' as t, timestamp 'infinity' as i, date '0044-03-15 (BC)' as d,"
        " [1.000000000000000001::decimal(38,18)] as l,"
        " {'a': 1.000000000000000001::decimal(38,18)} as s"
    )
    stream = StreamConfig("s", "jdbc", database=database, query=query)
    assert text_of(lake_spark, stream) == (
        *("12:34:56.5", "9999-12-31 23:59:59.999999", "-0043-03-15", "[1.000000000000000001]"),
        '{"a":1.000000000000000001}',
    )


def test_records_of_all_years_can_be_loaded(lake_spark: Any, postgres: Database) -> None:
    values = "'0044-03-15 BC'::date as d, '0044-03-15 12:00 BC'::timestamp as t, 1 as i"
    later = "'20000-01-01'::date, '20000-01-01 00:00:00.5'::timestamp, 2"
    connection = {"name": "pg", "url": postgres.url, "user": "postgres", "password": SECRET}
    query = f"select {values} union all select {later}"
    stream = {"name": "s", "format": "jdbc", "connection": "pg", "query": query}
    messages = run_tap(lake_spark, {"connections": [connection], "streams": [stream]})
    records = {m["record"]["i"]: m["record"] for m in messages if m["type"] == "RECORD"}
    for record, days in ((records[1], -735_160), (records[2], 6_585_322)):
        assert json_values.date(strict=True)(record["d"]) == days
        assert json_values.instant(record["t"]) // 86_400_000_000 == days
