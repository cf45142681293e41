"""Discovery and values of a real MariaDB, whose metadata is MySQL's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mariadb_server import PASSWORD, MariaDbServer, server_program
from table_reads import read, texts

from tap_spark.connection_config import ConnectionConfig
from tap_spark.sources.jdbc.dialects.dialect import dialect_for
from tap_spark.sources.jdbc.metadata import query_runner, table_info

pytestmark = [pytest.mark.spark, pytest.mark.server]

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
  '9999-12-31 23:59:59.999999', '2024-03-31 03:30:00.123456', '-838:59:59.5', 1999, 'b',
  '{"a": 1.10}', point(1, 2));
insert into every (id) values (2);
set sql_mode = '';
insert into every (id, dt, dtm, ts) values (3, '0000-00-00', '0000-00-00', '0000-00-00');
create table `we``ird t;"able' {wanted}` (`a b` varchar(5), `Ü"x` int, primary key (`Ü"x`, `a b`));
insert into `we``ird t;"able' {wanted}` values ('v', 1);
create view looks as select id, tx from every;
analyze table every;
"""


@pytest.fixture(scope="module")
def mariadb(lake_spark: Any) -> Iterator[ConnectionConfig]:
    if server_program("mariadbd") is None:
        pytest.skip("MariaDB's server is not installed")
    if "mariadb-java-client" not in (lake_spark.conf.get("spark.jars", "") or ""):
        pytest.skip("the session has no driver for MariaDB")
    server = MariaDbServer()
    try:
        server.start()
        server.run(SETUP)
        url = f"jdbc:mariadb://127.0.0.1:{server.port}/tests"
        yield ConnectionConfig(name="m", url=url, user="tester", password=PASSWORD, retries=0)
    finally:
        server.stop()


def test_tables(lake_spark: Any, mariadb: ConnectionConfig) -> None:
    found = dialect_for(str(mariadb.url)).tables(query_runner(lake_spark, mariadb))
    tables = {table.name: table for table in found}
    assert set(tables) == {"every", "looks", HOSTILE}
    for table in found:
        assert table_info(lake_spark, mariadb, table.parts) == table
        assert table_info(lake_spark, mariadb, (table.name,)) == table
    every = tables["every"]
    assert (every.schema, every.primary_key, every.row_count) == ("tests", ("id",), 3)
    assert tables[HOSTILE].primary_key == ('Ü"x', "a b")
    assert tables["looks"].is_view
    assert [c.name for c in every.columns if not c.nullable] == ["id", "nn"]
    assert {c.name: c.sql_type for c in every.columns}["bu"] == "bigint(20) unsigned zerofill"
    assert not {"v", "tx", "en", "tm", "bl"}.intersection(every.replication_keys)
    assert {"id", "de", "dt", "dtm", "ts"}.issubset(every.replication_keys)


def test_values(lake_spark: Any, mariadb: ConnectionConfig) -> None:
    table = table_info(lake_spark, mariadb, ("tests", "every"))
    first, second, third = texts(read(lake_spark, mariadb, table, "ORDER BY id"))
    assert list(first.values()) == [
        *("1", "2", "255", "4294967295", "18446744073709551615"),
        "1234567890123456789012345678.0123456789",
        "12345678901234567890123456789012345.100000000000000000000000000000",
        *("1.10", "1.2345678", "0.1", "ab", "ä😀", "x'y\"\\z", "616263", "00ff", "true"),
        *("18446744073709551615", "1582-10-10", "9999-12-31 23:59:59.999999"),
        # The server's own time zone is three hours ahead.
        *("2024-03-31 00:30:00.123456", "-838:59:59.500000", "1999", "b", '{"a": 1.10}'),
        "POINT(1 2)",
    ]
    assert {name for name in second if second[name] is not None} == {"id", "nn"}
    assert {name for name in third if third[name] is not None} == {"id", "nn"}
    hostile = table_info(lake_spark, mariadb, ("tests", HOSTILE))
    assert texts(read(lake_spark, mariadb, hostile)) == [{"a b": "v", 'Ü"x': "1"}]


@pytest.mark.parametrize("name", ["id", "de", "d", "dt", "dtm", "ts"])
def test_bookmarks(lake_spark: Any, mariadb: ConnectionConfig, name: str) -> None:
    table = table_info(lake_spark, mariadb, ("tests", "every"))
    dialect, column = dialect_for(str(mariadb.url)), table.column(name)
    assert column is not None
    (row,) = texts(read(lake_spark, mariadb, table, "WHERE id = 1"))
    value = str(row[name]).replace(" ", "T")
    written = f"{dialect.key(column)} >= {dialect.literal(value, column)}"
    rows = texts(read(lake_spark, mariadb, table, f"WHERE {written} ORDER BY id"))
    assert rows[0]["id"] == "1"
    later = written.replace(">=", ">")
    assert "1" not in [r["id"] for r in texts(read(lake_spark, mariadb, table, f"WHERE {later}"))]
