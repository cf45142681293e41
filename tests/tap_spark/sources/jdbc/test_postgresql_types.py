"""Every common type of a real PostgreSQL: its catalog entry, and each value as read."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from postgres_server import Database
from table_reads import csv_rows, read, table_info, texts

from tap_spark.sources.jdbc.copy_driver import CopyRule
from tap_spark.sources.jdbc.copy_reader import CopySource
from tap_spark.sources.jdbc.dialects.dialect import TableInfo, dialect_for
from tap_spark.sources.jdbc.dialects.postgresql import column_type
from tap_spark.sources.jdbc.jdbc_query import JdbcQuery, custom_schema, struct_of
from tap_spark.sources.source_failures import source_error

pytestmark = [pytest.mark.spark, pytest.mark.server]

SETUP = """
create extension hstore;
create type mood as enum ('sad', 'happy');
create type pair as (a int, b text);
create domain price as numeric(12,3) check (value > 0);
create domain needed as price not null;
create domain exact as numeric;
create domain tags as text[];
create domain grid as int[];
"""
# type, Spark's type, values as SQL, what is read if it differs from what COPY prints
CASES: list[tuple[str, str, list[str], list[str] | None]] = [
    ("bool", "boolean", ["true", "false"], ["true", "false"]),
    ("int2", "smallint", ["-32768", "32767"], None),
    ("int4", "int", ["-2147483648", "2147483647"], None),
    ("int8", "bigint", ["-9223372036854775808", "9223372036854775807"], None),
    ("float4", "float", ["1.1", "'NaN'", "'-Infinity'", "3.4028235e38"], None),
    ("float8", "double", ["0.1", "'NaN'", "'Infinity'", "5e-324"], None),
    (
        "numeric(38,10)",
        "decimal(38,10)",
        ["1234567890123456789012345678.0123456789", "-0.0000000001", "'NaN'"],
        ["1234567890123456789012345678.0123456789", "-0.0000000001", None],  # type: ignore[list-item]
    ),
    ("numeric(5,2)", "decimal(5,2)", ["-999.99", "0"], None),
    ("numeric(5,-2)", "decimal(7,0)", ["1234567", "-9999900"], None),
    ("numeric(3,5)", "decimal(5,5)", ["0.00123"], None),
    ("numeric(50,20)", "string", ["123456789012345678901234567890.12345678901234567890"], None),
    ("numeric", "string", ["1e-20", "12345678901234567890123456789012345678901", "'NaN'"], None),
    ("price", "decimal(12,3)", ["1.234"], None),
    ("money", "decimal(19,2)", ["'-$92,233,720,368,547,758.08'"], ["-92233720368547758.08"]),
    ("text", "string", ["E'a\"b''c\\\\d\\n\\t\\u00e9\\U0001F600'", "''"], None),
    ("varchar(10)", "string", ["'ä b'"], None),
    ("char(5)", "string", ["'ab'", "''"], None),
    ('"char"', "string", ["'x'"], None),
    ("name", "string", ["'nm'"], None),
    ("bytea", "binary", ["'\\xdeadbeef00'", "''"], ["deadbeef00", ""]),
    (
        "date",
        "date",
        [
            "'2024-02-29'",
            "'1582-10-10'",
            "'0001-01-01'",
            "'0044-03-15 BC'",
            "'10000-01-01'",
            "'infinity'",
            "'-infinity'",
        ],
        [
            "2024-02-29",
            "1582-10-10",
            "0001-01-01",
            "-0043-03-15",
            "+10000-01-01",
            "9999-12-31",
            "0001-01-01",
        ],
    ),
    (
        "timestamp",
        "timestamp_ntz",
        [
            "'2024-03-31 02:30:00.123456'",
            "'1582-10-10 01:02:03'",
            "'0044-03-15 12:00:00 BC'",
            "'9999-12-31 23:59:59.999999'",
            "'infinity'",
            "'-infinity'",
            "'294246-12-31 23:59:59.999999'",
        ],
        [
            "2024-03-31 02:30:00.123456",
            "1582-10-10 01:02:03",
            "-0043-03-15 12:00:00",
            "9999-12-31 23:59:59.999999",
            "9999-12-31 23:59:59.999999",
            "0001-01-01 00:00:00",
            "+294246-12-31 23:59:59.999999",
        ],
    ),
    ("timestamp(3)", "timestamp_ntz", ["'2024-03-31 02:30:00.123'"], None),
    (
        "timestamptz",
        "timestamp",
        ["'2024-02-29 23:59:59.123456+05'", "'0001-01-01 00:00:00+00'", "'infinity'"],
        ["2024-02-29 18:59:59.123456", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"],
    ),
    ("time", "string", ["'24:00:00'", "'12:34:56.789'"], None),
    ("timetz", "string", ["'12:34:56.789+02'"], None),
    ("uuid", "string", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"], None),
    ("json", "string", ['\'{"a" : 1.10,  "a":2}\''], None),
    ("jsonb", "string", ['\'{"b": 1.10, "a": [1e3]}\''], None),
    ("xml", "string", ["'<a>1</a>'"], None),
    ("oid", "bigint", ["4294967295"], None),
    ("inet", "string", ["'192.168.1.5'", "'10.1.0.0/16'", "'::1'"], None),
    ("cidr", "string", ["'10.0.0.0/8'"], None),
    ("macaddr", "string", ["'08:00:2b:01:02:03'"], None),
    ("bit(5)", "string", ["B'10101'"], None),
    ("varbit", "string", ["B'1'"], None),
    ("tsvector", "string", ["'a fat cat'"], None),
    ("int4range", "string", ["'[1,10)'", "'empty'"], None),
    ("int4multirange", "string", ["'{[1,3),[5,7)}'"], None),
    ("mood", "string", ["'happy'"], None),
    ("pair", "string", ["(1, 'x y')"], None),
    ("hstore", "string", ["'a=>1,b=>NULL'"], None),
    ("point", "string", ["'(1,2)'"], None),
    ("pg_lsn", "string", ["'16/B374D848'"], None),
    ("int[]", "array<int>", ["'{1,NULL,3}'", "'{}'"], ["[1, null, 3]", "[]"]),
    ("int[][]", "array<array<int>>", ["'{{1,2},{3,4}}'"], ["[[1, 2], [3, 4]]"]),
    ("text[]", "array<string>", ['\'{"a b",NULL,"q\\"x"}\''], ['[a b, null, q"x]']),
    ("text[]", "array<string>", ["'{{a,b},{c,d}}'"], ['[["a","b"], ["c","d"]]']),
    ("numeric(10,2)[]", "array<decimal(10,2)>", ["'{1.1,99999999.99}'"], ["[1.10, 99999999.99]"]),
    (
        "numeric[]",
        "array<string>",
        ["'{1.000000000000000000000001,NaN}'"],
        ["[1.000000000000000000000001, NaN]"],
    ),
    ("float8[]", "array<double>", ["'{0.1,NaN,Infinity}'"], ["[0.1, NaN, Infinity]"]),
    ("bool[]", "array<boolean>", ["'{t,f}'"], ["[true, false]"]),
    ("date[]", "array<date>", ["'{2024-02-29}'"], ["[2024-02-29]"]),
    (
        "timestamptz[]",
        "array<timestamp>",
        ["'{\"2024-01-01 00:00:00.123456+02\"}'"],
        ["[2023-12-31 22:00:00.123456]"],
    ),
    (
        "timestamp[]",
        "array<timestamp_ntz>",
        ["'{\"2024-03-31 02:30:00.123456\"}'"],
        ["[2024-03-31 02:30:00.123456]"],
    ),
    (
        "uuid[]",
        "array<string>",
        ["'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"],
        ["[a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11]"],
    ),
    ("mood[]", "array<string>", ["'{sad}'"], ["[sad]"]),
    ("inet[]", "array<string>", ["'{192.168.1.5}'"], ["[192.168.1.5]"]),
    (
        "date[]",
        "array<date>",
        ['\'{"0044-03-15 BC","0001-12-31 BC",10000-01-01,infinity,-infinity,NULL}\''],
        ["[-0043-03-15, 0000-12-31, +10000-01-01, 9999-12-31, 0001-01-01, null]"],
    ),
    (
        "timestamp[][]",
        "array<array<timestamp_ntz>>",
        ['\'{{"0044-03-15 12:00:00.5 BC"},{"10000-01-01"}}\''],
        ["[[-0043-03-15 12:00:00.5], [+10000-01-01 00:00:00]]"],
    ),
    (
        "timestamptz[]",
        "array<timestamp>",
        ['\'{"0044-03-15 12:00:00+02 BC",-infinity,infinity,"20000-01-01 00:00:00+00"}\''],
        [
            "[-0043-03-15 10:00:00, 0001-01-01 00:00:00, 9999-12-31 23:59:59.999999, "
            "+20000-01-01 00:00:00]"
        ],
    ),
    # Elements that are read as text: PostgreSQL's own text of each.
    (
        "jsonb[]",
        "array<string>",
        [
            "array['\"x\"','null',null,'1.10',"
            '\'{"b": 12345678901234567890.123, "a": [1e3]}\']::jsonb[]'
        ],
        ['["x", null, null, 1.10, {"a": [1000], "b": 12345678901234567890.123}]'],
    ),
    (
        "json[]",
        "array<string>",
        ['array[\'{"a" : 1.10,  "a":2}\']::json[]'],
        ['[{"a" : 1.10,  "a":2}]'],
    ),
    (
        "pair[]",
        "array<string>",
        ["array[(1, 'x y')::pair, (null, 'q\"')::pair]"],
        ['[(1,"x y"), (,"q""")]'],
    ),
    (
        "exact[]",
        "array<string>",
        ["'{1.000000000000000000000000001,NaN,Infinity}'"],
        ["[1.000000000000000000000000001, NaN, Infinity]"],
    ),
    ("price[]", "array<string>", ["'{1.100}'"], ["[1.100]"]),
    ("grid", "array<int>", ["'{1,NULL}'"], ["[1, null]"]),
    ("tags", "array<string>", ["'{a,NULL,\"NULL\"}'"], ["[a, null, NULL]"]),
    ("hstore[]", "array<string>", ["array['a=>1,b=>NULL'::hstore]"], ['["a"=>"1", "b"=>NULL]']),
    ("char(4)[]", "array<string>", ["'{ab}'"], ["[ab  ]"]),
    ("box[]", "array<string>", ["'{(1,1),(0,0);(2,2),(1,1)}'"], ["[(1,1),(0,0), (2,2),(1,1)]"]),
    ("point[]", "array<string>", ["array['(1,2)'::point]"], ["[(1,2)]"]),
    ("int4range[]", "array<string>", ["array['[1,10)'::int4range]"], ["[[1,10)]"]),
    (
        "int4multirange[]",
        "array<string>",
        ["array['{[1,3),[5,7)}'::int4multirange]"],
        ["[{[1,3),[5,7)}]"],
    ),
    ("xml[]", "array<string>", ["array['<a>\"1\"</a>'::xml]"], ['[<a>"1"</a>]']),
    ("bit(3)[]", "array<string>", ["'{101}'"], ["[101]"]),
    ("money[]", "array<string>", ["array['-1234.5'::money]"], ["[-$1,234.50]"]),
    ("interval[]", "array<string>", ["array['1 day'::interval]"], ["[1 day]"]),
    ("inet[]", "array<string>", ["'{10.1.0.0/16}'"], ["[10.1.0.0/16]"]),
    ("bytea[]", "array<string>", ["array['\\xde00'::bytea]"], ["[\\xde00]"]),
    ("text[]", "array<string>", ["'[0:1]={a,b}'"], ["[a, b]"]),
    ("int[]", "array<int>", ["'[-1:0]={1,2}'"], ["[1, 2]"]),
    ("numeric(10,2)[]", "array<decimal(10,2)>", ["'{NaN,1.5}'"], ["[null, 1.50]"]),
    ("jsonb[]", "array<string>", ['\'{"{\\"a\\": 1}"}\''], ['[{"a": 1}]']),
]


@pytest.fixture(scope="module")
def table(lake_spark: Any, postgres: Database) -> TableInfo:
    """A column per case: the first row is empty, the others hold the cases' values."""
    postgres.run(SETUP)
    columns = ", ".join(f"c{n} {case[0]}" for n, case in enumerate(CASES))
    postgres.run(
        f"create table every (id bigint generated always as identity primary key,"
        f" last numeric(5,1) not null default 1, dom needed default 2, {columns})"
    )
    inserts = [
        f"insert into every (c{n}) values ({value})"
        for n, (_, _, values, _) in enumerate(CASES)
        for value in values
    ]
    postgres.run(";".join([*inserts, "insert into every default values", "analyze every"]))
    return table_info(lake_spark, postgres.connection(), ("public", "every"))


@pytest.fixture(scope="module", params=["jdbc", "copy"])
def rows(
    request: Any, lake_spark: Any, postgres: Database, table: TableInfo
) -> list[dict[str, str | None]]:
    connection = postgres.connection()
    if request.param == "jdbc":
        return texts(read(lake_spark, connection, table, "ORDER BY id"))
    login = CopyRule().login(connection, spark=lake_spark)
    assert login is not None
    dialect = dialect_for(str(connection.url))
    source = dialect.table(table.parts)
    copy = CopySource(login, ("SET TRANSACTION READ ONLY", "SET TIME ZONE 'UTC'"))
    query = JdbcQuery(dialect, source, table.columns, {}, copy=copy)
    actual = query.in_one_part(lake_spark).frame
    assert [f.dataType for f in actual.schema] == [f.dataType for f in struct_of(table.columns)]
    return sorted(texts(actual), key=lambda row: int(str(row["id"])))


def test_types(postgres: Database, table: TableInfo) -> None:
    actual = {column.name: column for column in table.columns}
    said = postgres.run(
        "select format_type(atttypid, atttypmod) from pg_attribute"
        " where attrelid = 'every'::regclass and attname ~ '^c[0-9]' order by attnum"
    )
    for n, (words, (_, spark_type, _, _)) in enumerate(zip(said.splitlines(), CASES, strict=True)):
        column = actual[f"c{n}"]
        assert (column.spark_type, column.nullable) == (spark_type, True), column
        assert column.sql_type == words
    assert not actual["last"].nullable
    assert not actual["dom"].nullable
    assert (actual["dom"].sql_type, actual["dom"].spark_type) == ("needed", "decimal(12,3)")
    assert table.primary_key == ("id",)
    assert custom_schema(table.columns) is None


def test_values(postgres: Database, rows: list[dict[str, str | None]]) -> None:
    printed = csv_rows(postgres.copy("select * from every order by id"))
    assert len(printed) == len(rows)
    for n, (words, spark_type, values, wanted) in enumerate(CASES):
        name = f"c{n}"
        said = [row[name] for row in printed if row[name] is not None]
        places = [place for place, row in enumerate(printed) if row[name] is not None]
        assert len(said) == len(values)
        actual = [rows[place][name] for place in places]
        others = [row[name] for place, row in enumerate(rows) if place not in places]
        assert others == [None] * len(others), words
        if wanted is None and spark_type in ("float", "double"):
            assert [float(str(v)) for v in actual if v != "NaN"] == [
                float(str(v)) for v in said if v != "NaN"
            ]
        elif wanted is None and spark_type.startswith("decimal"):
            assert [Decimal(str(v)) for v in actual] == [Decimal(str(v)) for v in said]
        else:
            assert actual == (wanted or said), words


def test_keys(table: TableInfo) -> None:
    kinds = {c.spark_type.split("(")[0] for c in table.columns if c.name in table.replication_keys}
    assert kinds == {
        *("smallint", "int", "bigint", "float", "double", "decimal"),
        *("date", "timestamp", "timestamp_ntz"),
    }


def test_nan_in_a_column_without_nulls_is_an_error(lake_spark: Any, postgres: Database) -> None:
    postgres.run("create table strict (n numeric(5,2) not null); insert into strict values ('NaN')")
    actual = table_info(lake_spark, postgres.connection(), ("public", "strict"))
    with pytest.raises(Exception, match="NaN") as caught:
        texts(read(lake_spark, postgres.connection(), actual))
    error = str(source_error("s", caught.value))
    assert "column n" in error and "deselect" in error


def test_an_array_of_other_dimensions_fails_loudly(lake_spark: Any, postgres: Database) -> None:
    postgres.run("create table deep (a int[]); insert into deep values ('{{1,2},{3,4}}')")
    actual = table_info(lake_spark, postgres.connection(), ("public", "deep"))
    with pytest.raises(Exception, match=r"'a'.*other dimensions") as caught:
        texts(read(lake_spark, postgres.connection(), actual))
    error = str(source_error("s", caught.value))
    assert "column 'a'" in error and "[1:2][1:2]" in error and "'query'" in error


def test_intervals_and_ranges_of_time(lake_spark: Any, postgres: Database) -> None:
    postgres.run("""create table spans (i interval, r tstzrange);
        insert into spans values ('1 year -3 days 04:05:06.789', '[2024-01-01 00:00+00,)')""")
    actual = table_info(lake_spark, postgres.connection(), ("public", "spans"))
    assert [column.spark_type for column in actual.columns] == ["string", "string"]
    (row,) = texts(read(lake_spark, postgres.connection(), actual))
    assert row["i"] in ("1 year -3 days +04:05:06.789", "P1Y-3DT4H5M6.789S")
    assert row["r"] is not None


def test_servers_before_14_lack_an_exact_epoch(lake_spark: Any, postgres: Database) -> None:
    old = {"element": None, "builtin": True, "version": 130000, "nullable": True}
    postgres.run("""create table moments as
        select timestamptz '1000-02-03 04:05:06.654321+00' + i * interval '97 days 1.000001 second'
          as tz from generate_series(1, 3000) i;
        alter table moments add ts timestamp; update moments set ts = tz at time zone 'UTC'""")
    actual = table_info(lake_spark, postgres.connection(), ("public", "moments"))
    columns = []
    for column, base in zip(actual.columns, ("timestamptz", "timestamp"), strict=True):
        spark_type, expression = column_type({**old, "base": base}, f'"{column.name}"')
        assert (spark_type, expression != column.expression) == (column.spark_type, True)
        columns.append(replace(column, expression=expression))
    connection = postgres.connection()
    reported = texts(read(lake_spark, connection, actual, "ORDER BY tz"))
    old_way = replace(actual, columns=tuple(columns))
    assert texts(read(lake_spark, connection, old_way, "ORDER BY tz")) == reported
