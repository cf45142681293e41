"""Discovery and values of real SQLite and DuckDB files."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from table_reads import read, table_info, texts

from shared.settings.config_text import without_comments
from tap_spark.config import TapConfig, tap_config
from tap_spark.source_draft import source_draft
from tap_spark.sources.jdbc.dialects.dialect import TableInfo, dialect_for
from tap_spark.sources.jdbc.metadata import JdbcQueryRunner
from tap_spark.sources.tables import DiscoveredTable, table_lister
from tap_spark.stream_config import ConnectionConfig

pytestmark = [pytest.mark.spark, pytest.mark.server]

HOSTILE = "we\"ird `t;able' {wanted}"
SQLITE = """
create table every (id integer primary key, i int, big bigint not null, r real, d decimal(10,2),
  n numeric, t text, b blob, bo boolean, ts datetime);
insert into every values (1,-5,9223372036854775807,0.1,1.10,3,'a''b"c😀',x'00ff',1,'2024-01-01'),
  (2,null,0,1e300,99999999.99,1.5,'',x'',0,'x'), (3,null,1,null,null,null,null,null,null,null);
create table "we""ird `t;able' {wanted}" ("a b" text, "Ü`x" int, primary key ("Ü`x","a b"));
insert into "we""ird `t;able' {wanted}" values ('v', 1);
create view looks as select id, t from every; create table empty (a int); analyze;
create table wrong (i int); insert into wrong values ('no number');
"""
DUCKDB = """
create type mood as enum ('sad', 'ok'); create schema s2;
create table every (id integer primary key, bo boolean, ti tinyint, ub ubigint, hu hugeint,
  f float, d double, n decimal(38,10), v varchar not null default '', b blob, dt date, tm time,
  ts timestamp, ns timestamp_ns, tz timestamptz, u uuid, j json, m mood, l int[], s struct(a int));
insert into every values (1,true,-128,18446744073709551615,170141183460469231731687303715884105727,
  1.1,0.1,'1234567890123456789012345678.0123456789','a''é😀','\\xAA\\x00','1582-10-10','12:34:56.789',
  '1582-10-10 01:02:03.123456','2024-01-01 00:00:00.123456789','2024-01-01 00:00:00+05',
  'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11','{"a":1}','ok',[1,null],{'a':1});
insert into every (id) values (2);
insert into every (id,f,d,dt,ts,tz) values (3,'nan','-inf','infinity','-infinity','infinity');
create table s2."we""ird `t;able' {wanted}" ("a b" text, "Ü`x" int, primary key ("Ü`x","a b"));
insert into s2."we""ird `t;able' {wanted}" values ('v', 1);
create view s2.looks as select 1 as x;
"""


def described(spark: Any, connection: ConnectionConfig) -> dict[str, TableInfo]:
    actual = dialect_for(str(connection.url)).tables(JdbcQueryRunner(spark, connection))
    for table in actual:
        assert table_info(spark, connection, table.parts) == table
    return {table.name: table for table in actual}


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> ConnectionConfig:
    path = tmp_path_factory.mktemp("sqlite") / "a b.db"
    database = sqlite3.connect(path)
    database.executescript(SQLITE)
    database.close()
    return ConnectionConfig(name="s", url=f"jdbc:sqlite:{path}")


def test_init_drafts_settings_with_the_tables(sqlite: ConnectionConfig, spark: Any) -> None:
    def ask(config: TapConfig) -> list[DiscoveredTable]:
        [connection] = config.connections
        return list(table_lister(connection).tables(spark))

    created = without_comments(source_draft(str(sqlite.url), None, {}, ask))
    [drafted] = tap_config(created).connections
    assert drafted.name == "a_b"
    assert "every" in drafted.include
    # Each name is a glob that finds its table.
    actual = list(table_lister(drafted).tables(spark))
    assert [table.table_name for table in actual] == [
        table.table_name for table in table_lister(sqlite).tables(spark)
    ]


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> ConnectionConfig:
    created = pytest.importorskip("duckdb")
    path: Path = tmp_path_factory.mktemp("duckdb") / "a b.duckdb"
    with created.connect() as database:
        # The Java driver may be older than Python's library.
        database.execute(f"attach '{path}' as x (storage_version 'v1.0.0'); use x")
        database.execute(DUCKDB)
    return ConnectionConfig(name="d", url=f"jdbc:duckdb:{path}")


@pytest.fixture(scope="module")
def sqlite_tables(lake_spark: Any, sqlite: ConnectionConfig) -> dict[str, TableInfo]:
    return described(lake_spark, sqlite)


def test_tables_of_sqlite(sqlite_tables: dict[str, TableInfo]) -> None:
    tables = sqlite_tables
    assert list(tables) == sorted(("every", HOSTILE, "looks", "empty", "wrong"))
    every = tables["every"]
    assert (every.schema, every.kind, every.primary_key) == (None, "table", ("id",))
    assert every.row_count == 3
    assert every.replication_keys == ("id", "i", "big", "r", "d", "ts")
    assert {c.name: c.spark_type for c in every.columns} == {
        **{"id": "bigint", "i": "bigint", "big": "bigint", "r": "double", "d": "decimal(10,2)"},
        **{"n": "string", "t": "string", "b": "binary", "bo": "boolean", "ts": "string"},
    }
    assert [c.name for c in every.columns if not c.nullable] == ["id", "big"]
    assert tables[HOSTILE].primary_key == ("Ü`x", "a b")
    assert tables["looks"].is_view
    assert tables["looks"].row_count is None


def test_values_of_sqlite(
    lake_spark: Any, sqlite: ConnectionConfig, sqlite_tables: dict[str, TableInfo]
) -> None:
    tables = sqlite_tables
    rows = texts(read(lake_spark, sqlite, tables["every"], "ORDER BY id"))
    assert list(rows[0].values()) == [
        *("1", "-5", "9223372036854775807", "0.1", "1.10", "3", "a'b\"c😀", "00ff"),
        *("true", "2024-01-01"),
    ]
    assert list(rows[1].values()) == [
        *("2", None, "0", "1.0E300", "99999999.99", "1.5", "", "", "false", "x")
    ]
    assert [value for value in rows[2].values() if value is not None] == ["3", "1"]
    assert texts(read(lake_spark, sqlite, tables[HOSTILE])) == [{"a b": "v", "Ü`x": "1"}]
    assert texts(read(lake_spark, sqlite, tables["empty"])) == []


def test_a_value_of_another_type_fails_loudly(
    lake_spark: Any, sqlite: ConnectionConfig, sqlite_tables: dict[str, TableInfo]
) -> None:
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        texts(read(lake_spark, sqlite, sqlite_tables["wrong"]))


@pytest.fixture(scope="module")
def duckdb_tables(lake_spark: Any, duckdb: ConnectionConfig) -> dict[str, TableInfo]:
    return described(lake_spark, duckdb)


def test_tables_of_duckdb(duckdb_tables: dict[str, TableInfo]) -> None:
    tables = duckdb_tables
    every = tables["every"]
    assert (every.schema, every.primary_key, every.row_count) == ("main", ("id",), 3)
    assert [c.name for c in every.columns if not c.nullable] == ["id", "v"]
    assert every.replication_keys == (*("id", "ti", "ub", "f", "d", "n", "dt", "ts", "tz"),)
    assert (tables[HOSTILE].schema, tables[HOSTILE].primary_key) == ("s2", ("Ü`x", "a b"))
    assert tables["looks"].is_view


def test_values_of_duckdb(
    lake_spark: Any, duckdb: ConnectionConfig, duckdb_tables: dict[str, TableInfo]
) -> None:
    tables = duckdb_tables
    rows = texts(read(lake_spark, duckdb, tables["every"], "ORDER BY id"))
    assert list(rows[0].values()) == [
        *("1", "true", "-128", "18446744073709551615", "170141183460469231731687303715884105727"),
        *("1.1", "0.1", "1234567890123456789012345678.0123456789", "a'é😀", "aa00", "1582-10-10"),
        *("12:34:56.789", "1582-10-10 01:02:03.123456", "2024-01-01 00:00:00.123456789"),
        *("2023-12-31 19:00:00", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '{"a":1}', "ok"),
        *("[1, null]", '{"a":1}'),
    ]
    assert [value for value in rows[1].values() if value is not None] == ["2", ""]
    assert [value for value in rows[2].values() if value is not None] == [
        *("3", "NaN", "-Infinity", "", "9999-12-31", "0001-01-01 00:00:00"),
        "9999-12-31 23:59:59.999999",
    ]
    assert texts(read(lake_spark, duckdb, tables[HOSTILE])) == [{"a b": "v", "Ü`x": "1"}]
