"""Discovery of a real PostgreSQL: which tables, keys, estimates and patterns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from postgres_server import PASSWORD, Database
from table_reads import read, table_info, texts

from shared.errors import SourceError
from shared.spark.conf import SparkSettings
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import metadata_of
from tap_spark.plan.discovery import catalog_for
from tap_spark.sources.jdbc.dialects.dialect import dialect_for
from tap_spark.sources.jdbc.jdbc_source import DatabaseTables
from tap_spark.sources.jdbc.metadata import JdbcQueryRunner
from tap_spark.sources.tables import DiscoveredTable, name_parts

pytestmark = [pytest.mark.spark, pytest.mark.server]

HOSTILE = (
    "'; DROP TABLE victim; --",
    'quo"te back`tick',
    "line\nbreak dot.ted",
    "Ünï çødé 😀 back\\slash",
    "UPPER curly {} {wanted}",
)
SETUP = """
create schema "Sales Dept";
create table victim (id int);
create table keyed (b text, a int, n numeric(12,2), at timestamptz not null, j json,
  u uuid unique, s text, primary key (b, a));
insert into keyed select 'b', i, i, now() from generate_series(1, 1000) i;
create table keyless (x int); create table empty ();
create view looks as select * from keyed;
create materialized view kept as select a from keyed;
create table parted (id bigint, day date not null, primary key (id, day)) partition by range (day);
create table parted_1 partition of parted for values from ('2024-01-01') to ('2025-01-01');
create table parted_2 partition of parted for values from ('2025-01-01') to ('2026-01-01')
  partition by list (id);
create table parted_2a partition of parted_2 default;
insert into parted select i, '2024-06-01' from generate_series(1, 300) i;
insert into parted select i, '2025-06-01' from generate_series(1, 200) i;
create table "Sales Dept"."Order.Lines" ("Line No" int primary key, "Größe" numeric(5,1));
create table fresh (id int); create table hidden (id int); create table half (open int, shut int);
analyze keyed, keyless, kept, parted;
create role reader login password 'reader pw';
grant usage on schema public to reader; grant select on keyed, looks to reader;
grant select (open) on half to reader;
"""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module")
def shop(postgres: Database) -> Database:
    postgres.run(SETUP)
    for number, name in enumerate(HOSTILE):
        postgres.run(
            f"create table {quoted(name)} ({quoted(name)} int primary key, t text[]);"
            f"insert into {quoted(name)}"
            f" values ({number}, array['-']), ({number + 1}, array['x'])"
        )
    return postgres


def actual(spark: Any, shop: Database, **changes: Any) -> dict[str, DiscoveredTable]:
    connection = shop.connection(**changes)
    return {item.stream.name: item for item in DatabaseTables(connection).tables(spark)}


def test_tables(lake_spark: Any, shop: Database) -> None:
    tables = actual(lake_spark, shop)
    assert list(tables) == sorted(tables, key=lambda name: (tables[name].schema_name, name))
    plain = {name for name in tables if tables[name].table_name not in HOSTILE}
    assert plain == {
        *("public-victim", "public-keyed", "public-keyless", "public-looks", "public-kept"),
        *("public-parted", "public-fresh", "public-hidden", "public-half"),
        "Sales Dept-Order.Lines",
    }
    keyed = tables["public-keyed"]
    assert keyed.stream.key_properties == ("b", "a")
    assert keyed.replication_keys == ("b", "a", "n", "at", "u")
    assert keyed.sql_types["n"] == "numeric(12,2)"
    assert [f.nullable for f in keyed.struct] == [False, False, True, False, True, True, True]
    assert keyed.row_count == 1000
    assert not keyed.is_view
    assert tables["public-keyless"].stream.key_properties == ()
    assert tables["public-keyless"].row_count == 0
    assert tables["public-fresh"].row_count is None
    assert (tables["public-looks"].is_view, tables["public-kept"].is_view) == (True, True)
    assert tables["public-looks"].row_count is None
    assert tables["public-kept"].row_count == 1000
    assert tables["public-parted"].row_count == 500
    assert tables["public-parted"].stream.key_properties == ("id", "day")
    lines = tables["Sales Dept-Order.Lines"]
    assert name_parts(str(lines.stream.table)) == ("Sales Dept", "Order.Lines")
    assert lines.struct.names == ["Line No", "Größe"]


def test_three_queries_describe_everything(lake_spark: Any, shop: Database) -> None:
    asked: list[str] = []
    ask = JdbcQueryRunner(lake_spark, shop.connection())

    class Counting:
        def __call__(self, query: str, texts: Any = ()) -> list[dict[str, Any]]:
            asked.append(query)
            return ask(query, texts)

        struct = None

    dialect_for(shop.url).tables(Counting())  # type: ignore[arg-type]
    assert len(asked) == 2


def test_one_table_alone_is_described_the_same(lake_spark: Any, shop: Database) -> None:
    dialect = dialect_for(shop.url)
    connection = shop.connection()
    ask = JdbcQueryRunner(lake_spark, connection)
    tables = {table.name: table for table in dialect.tables(ask)}
    # All of a partitioned table's size is in its leaves.
    wanted = shop.value("select sum(pg_relation_size(relid)) from pg_partition_tree('parted')")
    for name in ("keyed", "parted", "looks", "kept", "fresh", "Order.Lines"):
        table = tables[name]
        one = table_info(lake_spark, connection, table.parts)
        assert (one.columns, one.primary_key) == (table.columns, table.primary_key)
        assert (one.kind, one.row_count) == (table.kind, table.row_count)
        if name in ("keyed", "parted"):
            assert one.size_bytes == int(wanted) if name == "parted" else one.size_bytes
    assert table_info(lake_spark, connection, ("public", "parted_1")).row_count == 300


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(lake_spark: Any, shop: Database, name: str) -> None:
    connection = shop.connection()
    table = table_info(lake_spark, connection, ("public", name))
    assert (table.name, table.primary_key) == (name, (name,))
    assert table_info(lake_spark, connection, (name,)) == table
    column, number = table.columns[0], HOSTILE.index(name)
    dialect = dialect_for(shop.url)
    condition = f"WHERE {dialect.key(column)} > {dialect.literal(number, column)}"
    (row,) = texts(read(lake_spark, connection, table, condition))
    assert row == {name: str(number + 1), "t": "[x]"}
    with pytest.raises(SourceError, match=r"table or view .* does not exist"):
        table_info(lake_spark, connection, (name, name))
    assert shop.value("select count(*) from victim") == "0"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"include": ("public.parted*", "public.look?")}, {"public-parted", "public-looks"}),
        ({"include": ("Sales Dept.*",)}, {"Sales Dept-Order.Lines"}),
        (
            {"include": ("public.k*",), "exclude": ("*less",)},
            {"public-keyed", "public-kept"},
        ),
        ({"include": ("public.k*",), "views": False}, {"public-keyed", "public-keyless"}),
        ({"include": ("*.victim",), "stream_prefix": "x_"}, {"x_public-victim"}),
        ({"include": ("nothing",)}, set()),
    ],
)
def test_patterns(
    lake_spark: Any, shop: Database, changes: Mapping[str, Any], wanted: set[str]
) -> None:
    assert set(actual(lake_spark, shop, **changes)) == wanted


def test_only_what_the_user_may_read_is_listed(lake_spark: Any, shop: Database) -> None:
    tables = actual(lake_spark, shop, user="reader", password="reader pw")
    assert set(tables) == {"public-keyed", "public-looks", "public-half"}
    assert tables["public-half"].struct.names == ["open"]
    login = shop.connection(user="reader", password="reader pw")
    assert table_info(lake_spark, login, ("public", "hidden")).columns


def test_a_catalog(lake_spark: Any, shop: Database) -> None:
    connection = shop.connection(include=("public.keyed", "public.looks"))
    config = TapConfig(
        streams=(), start_date=None, spark=SparkSettings(), connections=(connection,)
    )
    keyed, looks = catalog_for(lake_spark, config)["streams"]
    metadata = metadata_of(keyed)
    root = metadata[()]
    assert keyed["key_properties"] == root["table-key-properties"] == ["b", "a"]
    assert root["valid-replication-keys"] == ["b", "a", "n", "at", "u"]
    assert (root["schema-name"], root["table-name"], root["row-count"]) == ("public", "keyed", 1000)
    assert metadata[("properties", "n")]["sql-datatype"] == "numeric(12,2)"
    assert keyed["schema"]["properties"]["n"]["x-spark-type"] == "decimal(12,2)"
    assert looks["is_view"] is True
    assert PASSWORD not in str(keyed)


def test_a_wrong_password_is_not_shown(lake_spark: Any, shop: Database) -> None:
    with pytest.raises(SourceError) as caught:
        actual(lake_spark, shop, password="wrong hush")
    assert "hush" not in str(caught.value)
    assert "password" in str(caught.value)


def test_two_tables_with_one_stream_name_are_named(lake_spark: Any, shop: Database) -> None:
    shop.run(
        'create schema a; create schema "a-b"; create table a."b-c" (x int);'
        'create table "a-b".c (x int)'
    )
    connection = shop.connection(include=("a.*", "a-b.*"))
    with pytest.raises(SourceError) as caught:
        catalog_for(lake_spark, TapConfig(streams=(), connections=(connection,)))
    text = str(caught.value)
    assert "a-b-c" in text and "a.b-c of" in text and "a-b.c of" in text
    assert "'exclude' one of them" in text
    one = shop.connection(include=("a.*", "a-b.*"), exclude=("a.b-c",))
    [entry] = catalog_for(lake_spark, TapConfig(streams=(), connections=(one,)))["streams"]
    assert (entry["tap_stream_id"], entry["table_name"]) == ("a-b-c", "c")
    shop.run('drop schema a cascade; drop schema "a-b" cascade')


def test_texts_compare_as_spark_orders_them(lake_spark: Any, shop: Database) -> None:
    shop.run(
        'create table words (w text collate "en-x-icu" primary key);'
        "insert into words values ('a'), ('B'), ('é'), ('Z'), ('z'), (E'q\\'\\\\');"
    )
    connection = shop.connection()
    table = table_info(lake_spark, connection, ("public", "words"))
    assert table.replication_keys == ("w",)
    dialect, column = dialect_for(shop.url), table.columns[0]
    for start in ("a", "Z", "q'\\", "é"):
        condition = f"WHERE {dialect.key(column)} >= {dialect.literal(start, column)}"
        rows = {str(row["w"]) for row in texts(read(lake_spark, connection, table, condition))}
        every = ("a", "B", "é", "Z", "z", "q'\\")
        assert rows == {word for word in every if word.encode() >= start.encode()}


def test_names_of_metadata_are_in_lower_case(lake_spark: Any, shop: Database) -> None:
    ask = JdbcQueryRunner(lake_spark, shop.connection())
    assert ask('SELECT 1 AS "Up"') == [{"up": 1}]
    assert ask("SELECT 1 AS a", ["a"]) == [{"a": "1"}]
    assert ask.struct("SELECT 1 AS a").simpleString() == "struct<a:int>"
