"""How many rows the driver fetches at a time."""

from __future__ import annotations

from typing import Any

import pytest
from mysql_servers import PASSWORD, MySqlLikeServer
from postgres_server import Database
from table_reads import table_info

from tap_spark.sources.jdbc import jdbc_source
from tap_spark.sources.jdbc.dialects.dialect import ColumnInfo, dialect_for
from tap_spark.sources.jdbc.jdbc_source import (
    FETCH_BYTES,
    UNKNOWN_ROWS,
    fetch_rows,
    fitting_rows,
    greatest_width,
)
from tap_spark.sources.jdbc.metadata import reader_options
from tap_spark.stream_config import ConnectionConfig


@pytest.mark.parametrize(
    ("mean", "most", "rows"),
    [
        (0, 0, 10_000),
        (100, 100, 10_000),
        (500_000, 500_000, FETCH_BYTES // 500_000),
        (100_000_000, 100_000_000, 1),
        # One wide row among narrow ones: many as wide as it must not be too many.
        (10, 1_000_000, FETCH_BYTES * 8 // 1_000_000),
    ],
)
def test_the_bytes_of_a_fetch_are_bounded(mean: int, most: int, rows: int) -> None:
    assert fetch_rows(mean, most, 10_000) == rows
    assert fetch_rows(mean, most, 7) == min(rows, 7)


@pytest.mark.parametrize(
    ("spark_type", "sql_type", "width"),
    [
        ("bigint", "bigint", 16),
        ("string", "character varying(10)", 40),
        ("string", "varchar(20)", 80),
        ("string", "uuid", 100),
        ("string", "text", None),
        ("string", "longtext", None),
        ("binary", "bytea", None),
        ("array<int>", "integer[]", None),
        ("string", "", None),
    ],
)
def test_declared_types_bound_the_width(spark_type: str, sql_type: str, width: int | None) -> None:
    assert greatest_width([ColumnInfo("c", sql_type, spark_type, True, "c")]) == width


def rows_of_fetch(spark: Any, connection: ConnectionConfig, source: str, table: Any) -> int:
    dialect = dialect_for(str(connection.url))
    options = reader_options(connection)
    columns = table.columns
    return fitting_rows(spark, connection, dialect, columns, source, table, options)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let a sample take as long as it needs on a busy machine, until this is undone."""
    monkeypatch.setattr(jdbc_source, "SAMPLE_SECONDS", 60)
    return monkeypatch


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_postgresql(lake_spark: Any, postgres: Database, patient: pytest.MonkeyPatch) -> None:
    postgres.run("""create table wide (id int, v text);
        insert into wide select i, 'narrow' from generate_series(1, 1000) i;
        insert into wide select i, repeat('x', 64000) from generate_series(1, 4200) i;
        create table narrow as select i as id, 'x'::text as v from generate_series(1, 5000) i;
        analyze""")
    connection = postgres.connection()
    wide = table_info(lake_spark, connection, ("public", "wide"))
    # The first rows are narrow: the sample comes from all over the table.
    assert rows_of_fetch(lake_spark, connection, '"wide"', wide) < 500
    narrow = table_info(lake_spark, connection, ("public", "narrow"))
    assert rows_of_fetch(lake_spark, connection, '"narrow"', narrow) == connection.fetch_size
    patient.undo()
    slow = "(select id, v, pg_sleep(0.5) from narrow) q"
    assert rows_of_fetch(lake_spark, connection, slow, narrow) == UNKNOWN_ROWS


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
@pytest.mark.usefixtures("patient")
# The sample is the same SQL.
@pytest.mark.parametrize("kind", ["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def test_mysql_like(lake_spark: Any, request: pytest.FixtureRequest, kind: str) -> None:
    server: MySqlLikeServer = request.getfixturevalue(f"{kind}_server")
    server.run("create table wide (id int, v longtext, n varchar(9))")
    server.run("insert into wide values " + ",".join(["(1, repeat('x', 500000), 'n')"] * 60))
    connection = ConnectionConfig("m", url=server.url(), user="tester", password=PASSWORD)
    try:
        table = table_info(lake_spark, connection, ("tests", "wide"))
        assert 10 < rows_of_fetch(lake_spark, connection, "`wide`", table) < 40
    finally:
        server.run("drop table wide")
