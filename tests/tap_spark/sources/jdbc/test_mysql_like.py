"""Discovery and values of real servers: MariaDB, and MySQL itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from engines import jars_of
from jdbc_runs import run_tap
from mysql_servers import PASSWORD, MariaDbServer, MySqlLikeServer, MySqlServer
from table_reads import read, table_info, texts

from tap_spark.sources.jdbc.dialects.dialect import dialect_for
from tap_spark.sources.jdbc.metadata import JdbcQueryRunner
from tap_spark.stream_config import ConnectionConfig

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]

HOSTILE = "we`ird t;\"able' {wanted}"
SETUP = """
create table every (id bigint auto_increment primary key, t1 tinyint(1), tu tinyint unsigned,
  iu int unsigned, bu bigint unsigned zerofill, de decimal(38,10), wide decimal(65,30),
  nn decimal(10,2) not null default 0, f float, d double, c char(5), v varchar(10), tx text,
  bn binary(3), bl blob, b1 bit(1), b64 bit(64), dt date, dtm datetime(6), ts timestamp(6) null,
  tm time(6), y year, en enum('a','b'), j json, g point);
insert into every values (1, 2, 255, 4294967295, 18446744073709551615,
  '1234567890123456789012345678.0123456789', '12345678901234567890123456789012345.1', 1.10,
  1.2345678, 0.1, 'ab', 'ä😀', 'x\\'y"\\\\z', 'abc', x'00ff', 1, 18446744073709551615, '1582-10-10',
  '9999-12-31 23:59:59.999999', '2024-03-31 03:30:00.123456', '-838:59:58.5', 1999, 'b',
  '{"a": 1.10}', point(1, 2));
insert into every (id) values (2);
set sql_mode = '';
insert into every (id, dt, dtm, ts) values (3, '0000-00-00', '0000-00-00', '0000-00-00');
create table `we``ird t;"able' {wanted}` (`a b` varchar(5), `Ü"x` int, primary key (`Ü"x`, `a b`));
insert into `we``ird t;"able' {wanted}` values ('v', 1);
create view looks as select id, tx from every;
analyze table every;
"""


@pytest.fixture(scope="module", params=[MariaDbServer, MySqlServer], ids=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, lake_spark: Any) -> Iterator[MySqlLikeServer]:
    kind: type[MySqlLikeServer] = request.param
    if why := kind.missing():
        pytest.skip(why)
    if not any(f"{kind.kind}-" in name for name in jars_of(lake_spark)):
        pytest.skip(f"the session has no driver for {kind.kind}")
    server = kind()
    try:
        server.start()
        server.run(SETUP)
        # Sessions that do not set their own would get one row.
        server.run("set global sql_select_limit = 1")
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def database(server: MySqlLikeServer) -> ConnectionConfig:
    properties = {"sessionVariables": "net_write_timeout=600"}
    return ConnectionConfig("m", server.url(), "tester", PASSWORD, properties=properties, retries=0)


def test_tables(lake_spark: Any, database: ConnectionConfig) -> None:
    actual = dialect_for(str(database.url)).tables(JdbcQueryRunner(lake_spark, database))
    tables = {table.name: table for table in actual}
    assert set(tables) == {"every", "looks", HOSTILE}
    for table in actual:
        assert table_info(lake_spark, database, table.parts) == table
        assert table_info(lake_spark, database, (table.name,)) == table
    every = tables["every"]
    assert (every.schema, every.primary_key, every.row_count) == ("tests", ("id",), 3)
    assert tables[HOSTILE].primary_key == ('Ü"x', "a b")
    assert tables["looks"].is_view
    assert [c.name for c in every.columns if not c.nullable] == ["id", "nn"]
    assert {c.name: c.sql_type for c in every.columns}["bu"] == "bigint(20) unsigned zerofill"
    assert not {"v", "tx", "en", "tm", "bl"}.intersection(every.replication_keys)
    assert {"id", "de", "dt", "dtm", "ts"}.issubset(every.replication_keys)


def test_values(lake_spark: Any, server: MySqlLikeServer, database: ConnectionConfig) -> None:
    table = table_info(lake_spark, database, ("tests", "every"))
    first, second, third = texts(read(lake_spark, database, table, "ORDER BY id"))
    assert list(first.values()) == [
        *("1", "2", "255", "4294967295", "18446744073709551615"),
        "1234567890123456789012345678.0123456789",
        "12345678901234567890123456789012345.100000000000000000000000000000",
        *("1.10", "1.2345678", "0.1", "ab", "ä😀", "x'y\"\\z", "616263", "00ff", "true"),
        *("18446744073709551615", "1582-10-10", "9999-12-31 23:59:59.999999"),
        # The server's own time zone is three hours ahead.
        *("2024-03-31 00:30:00.123456", "-838:59:58.500000", "1999", "b"),
        # MariaDB keeps the text of JSON.
        '{"a": 1.1}' if server.kind == "mysql" else '{"a": 1.10}',
        "POINT(1 2)",
    ]
    assert {name for name in second if second[name] is not None} == {"id", "nn"}
    assert {name for name in third if third[name] is not None} == {"id", "nn"}
    hostile = table_info(lake_spark, database, ("tests", HOSTILE))
    assert texts(read(lake_spark, database, hostile)) == [{"a b": "v", 'Ü"x': "1"}]


def test_bookmarks(lake_spark: Any, database: ConnectionConfig) -> None:
    """By keys of all types at once: a row is at its own bookmark, and later than none."""
    table = table_info(lake_spark, database, ("tests", "every"))
    dialect = dialect_for(str(database.url))
    (row,) = texts(read(lake_spark, database, table, "WHERE id = 1"))
    written = []
    for name in ("id", "de", "d", "dt", "dtm", "ts"):
        column, value = table.column(name), str(row[name]).replace(" ", "T")
        assert column is not None
        written.append(f"{dialect.key(column)} >= {dialect.literal(value, column)}")
    at = texts(read(lake_spark, database, table, f"WHERE {' AND '.join(written)} ORDER BY id"))
    assert at[0]["id"] == "1"
    later = " OR ".join(written).replace(">=", ">")
    rows = texts(read(lake_spark, database, table, f"WHERE {later}"))
    assert rows
    assert "1" not in [one["id"] for one in rows]


def test_vectors(lake_spark: Any, server: MySqlLikeServer, database: ConnectionConfig) -> None:
    if server.kind != "mysql":
        pytest.skip("not offered: vectors by this version of MariaDB")
    server.run("create table vectors (v vector(2))")
    server.run("insert into vectors values (string_to_vector('[1,-2.5]')), (null)")
    try:
        table = table_info(lake_spark, database, ("tests", "vectors"))
        values = [row["v"] for row in texts(read(lake_spark, database, table, "ORDER BY 1 DESC"))]
    finally:
        server.run("drop table vectors")
    assert values == ["[1.00000e+00,-2.50000e+00]", None]


def test_zero_dates_of_columns_without_nulls(
    lake_spark: Any, server: MySqlLikeServer, database: ConnectionConfig
) -> None:
    add = "set sql_mode = ''; insert into zeros values "
    server.run(
        "create table zeros (i int, d date not null, k datetime not null, t timestamp not null)"
    )
    server.run(f"{add} (1, '0000-00-00', '2024-01-01', '0000-00-00'), (2, '2024-02-03', 0, 0)")
    connection = {"name": "m", "url": database.url, "user": "tester", "password": PASSWORD}
    place = {"table": "tests.zeros", "connection": "m"}
    stream = {"name": "s", "format": "jdbc", "replication_key": "k", **place}
    settings = {"streams": [stream], "connections": [connection]}
    try:
        first = run_tap(lake_spark, settings)
        server.run(f"{add} (3, '2024-01-01', '0000-00-00', 0), (4, 0, '2023-01-01', 0)")
        second = run_tap(lake_spark, settings, first[-1]["value"])
    finally:
        server.run("drop table zeros")
    properties = next(m["schema"]["properties"] for m in first if m["type"] == "SCHEMA")
    assert all("null" in properties[name]["type"] for name in "dkt")
    records = {m["record"]["i"]: m["record"] for m in first if m["type"] == "RECORD"}
    assert (records[1]["d"], records[1]["t"], records[2]["k"]) == (None, None, None)
    assert records[2]["d"] == "2024-02-03"
    # Rows without a key come each time.
    assert {m["record"]["i"] for m in second if m["type"] == "RECORD"} == {1, 2, 3}
