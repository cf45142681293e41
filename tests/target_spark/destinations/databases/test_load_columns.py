"""Values of every type, names of every kind, and columns that change, on real databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pytest
from database_loads import PG, Loads, MariaDb, request, struct_of
from pyspark.sql import types as T  # noqa: N812

from shared.errors import RecordError, SettingsError
from target_spark.core.load_plans import TableName

pytestmark = [pytest.mark.server, pytest.mark.costly]
NewLoads = Callable[..., Loads]
Db = PG | MariaDb
MICROSECOND = 1
NASTY = ["", "NULL", "\\N", "\\.", "a,b", '"', '""', "a\nb\r\n", "\t\\", "é😀\u2028", "'", "%s",
         " x ",         "\x01\x1f", "\ufeff", "x" * 100_000]  # fmt: skip

VALUES: list[tuple[str, Any, str, str]] = [
    ("byte", -128, "smallint", "-128"),
    ("short", 32767, "smallint", "32767"),
    ("int", -(2**31), "integer", "-2147483648"),
    ("long", 2**63 - 1, "bigint", "9223372036854775807"),
    ("float", 1.1, "real", "1.1"),
    ("float", float("nan"), "real", "NaN"),
    ("double", 0.1, "double precision", "0.1"),
    ("double", 1.7976931348623157e308, "double precision", "1.7976931348623157e+308"),
    ("double", 5e-324, "double precision", "5e-324"),
    ("double", float("nan"), "double precision", "NaN"),
    ("double", float("inf"), "double precision", "Infinity"),
    ("double", float("-inf"), "double precision", "-Infinity"),
    ("double", -0.0, "double precision", "-0"),
    ("bool", True, "boolean", "true"),
    ("decimal(38.0)", Decimal("9" * 38), "numeric(38,0)", "9" * 38),
    ("decimal(38.18)", Decimal("0.000000000000000001"), "numeric(38,18)", "0.000000000000000001"),
    ("decimal(5.2)", Decimal("-1.50"), "numeric(5,2)", "-1.50"),
    ("date", date(1, 1, 1), "date", "0001-01-01"),
    ("date", date(9999, 12, 31), "date", "9999-12-31"),
    ("timestamp", datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=timezone.utc),
     "timestamp with time zone", "2026-03-29 01:30:00.000001+00"),
    ("timestamp", datetime(1, 1, 1, tzinfo=timezone.utc), "timestamp with time zone",
     "0001-01-01 00:00:00+00"),
    ("timestamp_ntz", datetime(9999, 12, 31, 23, 59, 59, 999999), "timestamp without time zone",
     "9999-12-31 23:59:59.999999"),
    ("time", time(23, 59, 59, 999999), "time without time zone", "23:59:59.999999"),
    ("days", -86_400_000_000 - 1, "interval day to second", "-24:00:00.000001"),
    ("months", 14, "interval year to month", "1 year 2 mons"),
    ("binary", b"\x00\xff\\", "bytea", "\\x00ff5c"),
    ("variant", '{"b":[1,2.50,null,"x"],"a":"\\u00e9"}', "jsonb",
     '{"a": "é", "b": [1, 2.50, null, "x"]}'),
    ("int[]", [1, None, 3], "jsonb", "[1, null, 3]"),
    ("string[]", ["a\"\n", "", None], "jsonb", '["a\\"\\n", "", null]'),
    ("data", {"a": 1, "b": "x\\y"}, "jsonb", '{"a": 1, "b": "x\\\\y"}'),
    ("map", {"k": 1.5, "l": float("inf")}, "jsonb", '{"k": 1.5, "l": "Infinity"}'),
    ("data[]", [{"a": None, "b": "é"}, None], "jsonb", '[{"a": null, "b": "é"}, null]'),
]  # fmt: skip


@pytest.fixture(scope="module")
def ids() -> list[str]:
    return [f"c{n}" for n in range(len(VALUES))]


def test_every_type_in_postgresql(pg: PG, new_loads: NewLoads, ids: list[str]):
    columns = ", ".join(f"{name} {kind}" for name, (kind, *_) in zip(ids, VALUES, strict=True))
    rows = [[value for _, value, *_ in VALUES], [None] * len(VALUES)]
    new_loads(pg).load(request(columns), rows)
    actual = pg.table(
        "select attname, format_type(atttypid, atttypmod) from pg_attribute "
        "where attrelid = 't'::regclass and attnum > 0 order by attnum"
    )
    assert actual == [(name, sql) for name, (_, _, sql, _) in zip(ids, VALUES, strict=True)]
    for name, (kind, _, _, text) in zip(ids, VALUES, strict=True):
        values = [
            line for (line,) in pg.table(f"select {name}::text from t where {name} is not null")
        ]
        assert values == [text], (kind, name)
        assert pg.table(f"select count(*) from t where {name} is null") == [("1",)]


MARIA: list[tuple[str, Any, str, str]] = [
    ("byte", -128, "tinyint(4)", "-128"),
    ("short", 32767, "smallint(6)", "32767"),
    ("int", -(2**31), "int(11)", "-2147483648"),
    ("long", 2**63 - 1, "bigint(20)", "9223372036854775807"),
    ("double", 0.1, "double", "0.1"),
    ("bool", True, "tinyint(1)", "1"),
    ("decimal(38.0)", Decimal("9" * 38), "decimal(38,0)", "9" * 38),
    ("decimal(38.18)", Decimal("0.000000000000000001"), "decimal(38,18)", "0.000000000000000001"),
    ("date", date(1, 1, 1), "date", "0001-01-01"),
    ("timestamp", datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=timezone.utc), "datetime(6)",
     "2026-03-29 01:30:00.000001"),
    ("timestamp_ntz", datetime(9999, 12, 31, 23, 59, 59, 999999), "datetime(6)",
     "9999-12-31 23:59:59.999999"),
    ("time", time(23, 59, 59, 999999), "time(6)", "23:59:59.999999"),
    ("days", -5, "bigint(20)", "-5"),
    ("variant", '{"b":[1,2.50,null]}', "longtext", '{"b":[1,2.50,null]}'),
    ("data", {"a": 1, "b": "é"}, "longtext", '{"a":1,"b":"é"}'),
]  # fmt: skip


def test_every_type_in_mariadb(maria: MariaDb, new_loads: NewLoads):
    names = [f"c{n}" for n in range(len(MARIA))]
    columns = ", ".join(f"{name} {kind}" for name, (kind, *_) in zip(names, MARIA, strict=True))
    new_loads(maria).load(request(columns), [[v for _, v, *_ in MARIA], [None] * len(MARIA)])
    actual = [row[:2] for row in maria.table("show columns from t")]
    assert actual == [(name, sql) for name, (_, _, sql, _) in zip(names, MARIA, strict=True)]
    for name, (kind, _, _, text) in zip(names, MARIA, strict=True):
        assert maria.table(f"select {name} from t where {name} is not null") == [(text,)], kind


def test_binary_in_mariadb(maria: MariaDb, new_loads: NewLoads):
    new_loads(maria).load(request("b binary"), [(bytes(range(256)),), (b"",), (None,)])
    actual = maria.table("select coalesce(hex(b), 'null') from t order by length(b) desc")
    assert actual == [(bytes(range(256)).hex().upper(),), ("",), ("null",)]


def test_text_stays_as_it_is(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(request("id int, x string"), [(n, text) for n, text in enumerate(NASTY)])
    loads.load(request("id int, x string"), [(99, None)])
    function = (
        "encode(convert_to(x, 'UTF8'), 'hex')" if db.kind == "postgresql" else "lower(hex(x))"
    )
    actual = dict(db.table(f"select id, {function} from t where x is not null"))
    assert {n: bytes.fromhex(text).decode() for n, text in actual.items()} == {
        str(n): text for n, text in enumerate(NASTY)
    }
    assert db.table("select id from t where x is null") == [("99",)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "a\0b"),
        ("data", {"a": 1, "b": "\0"}),
        ("variant", '{"a":"\\u0000"}'),
        ("string[]", ["\0"]),
    ],
)
def test_a_nul_character_is_told_of(pg: PG, new_loads: NewLoads, kind: str, value: Any):
    with pytest.raises(RecordError, match="the text contains a NUL character"):
        new_loads(pg).load(request(f"id int, x {kind}"), [(1, value)])


def test_what_only_looks_like_a_nul_character_is_loaded(pg: PG, new_loads: NewLoads):
    rows = [("\\u0000", {"a": 1, "b": "\\u0000"}, '{"a":"\\\\u0000"}')]
    new_loads(pg).load(request("x string, y data, z variant"), rows)
    assert pg.table("select x, y->>'b', z->>'a' from t") == [("\\u0000",) * 3]


def test_variants_inside_of_nested_values_are_no_text(pg: PG, new_loads: NewLoads):
    kind = T.StructType([T.StructField("v", T.VariantType())])
    new_loads(pg).load(request(T.StructType([T.StructField("x", kind)])), [({"v": '{"a":[1]}'},)])
    assert pg.table("select x from t") == [('{"v": {"a": [1]}}',)]


HOSTILE = [
    "select",
    "a b",
    'q"uote',
    "back`tick",
    "per%cent %s",
    "a.b",
    "ü" * 60,
    "ctid",
    "x'; drop table t; --",
    "A",
    "a",
    "$$",
    "\\",
    "n",
    "c0",
    "o",
]


def test_names_of_every_kind(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    struct = T.StructType(
        [T.StructField(name, T.IntegerType(), n > 0) for n, name in enumerate(HOSTILE)]
    )
    hostile = request(struct, method="upsert", stream="s%'\"`; drop", table="t'\"%s`; \\")
    hostile = replace(
        hostile,
        keys=(HOSTILE[0],),
        schema={
            "description": "it's \\ %s $$",
            "properties": {name: {"description": f"{name}'\\"} for name in HOSTILE},
        },
    )
    loads.load(hostile, [[*range(len(HOSTILE))]])
    loads.load(hostile, [[0, *range(10, 10 + len(HOSTILE) - 1)]])
    loads.destination.finish(hostile)
    if db.kind == "postgresql":
        (text,) = db.table('select row_to_json(x) from "t\'""%s`; \\" x')
        assert text[0].count(":") == len(HOSTILE)
    else:
        query = "select 1 from information_schema.columns where table_name like 't''%'"
        assert len(db.table(query)) == len(HOSTILE)
    names = dict(db.table("select source, column_name from _singer_columns"))
    assert "ü" * 60 in names
    assert len(names["ü" * 60].encode()) <= 64
    assert ("ctid" in names) == (db.kind == "postgresql")
    assert ("A" in names) == (db.kind != "postgresql")


def test_new_columns_come_last_and_old_rows_have_none(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(request("id int, x string"), [(1, "a")])
    loads.load(request("y data, id int"), [({"a": 1, "b": "z"}, 2)])
    assert db.table("select id, x, y is null from t order by id") in (
        [("1", "a", "t"), ("2", "", "f")],
        [("1", "a", "1"), ("2", "NULL", "0")],
    )


@pytest.mark.parametrize(
    ("old", "new", "value", "reported"),
    [("int", "long", 2**40, "1099511627776"), ("float", "double", 0.1, "0.1"),
     ("decimal(5.2)", "decimal(12.4)", Decimal("12345678.1234"), "12345678.1234"),
     ("int", "decimal(20.2)", Decimal("1.25"), "1.25"), ("long", "int", 7, "7"),
     ("int", "double", 1.5, "1.5")],
)  # fmt: skip
def test_types_are_widened(
    db: Db, new_loads: NewLoads, old: str, new: str, value: Any, reported: str
):
    loads = new_loads(db)
    loads.load(
        request(f"id int!, x {old}", "id", "upsert"), [(1, Decimal(1) if "dec" in old else 1)]
    )
    loads.load(request(f"id int!, x {new}", "id", "upsert"), [(2, value)])
    assert db.table("select x from t where id = 2") == [(reported,)]
    assert db.table("select count(*) from t where x = 1") == [("1",)]


def test_a_conflict_fails_before_anything_is_read(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(request("id int, x string"), [(1, "a")])
    with pytest.raises(SettingsError, match="column 'x' is string in the table"):
        loads.destination.prepare(request("id int, x long"))


@pytest.mark.parametrize("conflicts", ["suffix", "cast"])
def test_a_conflict_is_settled_as_asked(db: Db, new_loads: NewLoads, conflicts: str):
    loads = new_loads(db, conflicts=conflicts)
    loads.load(request("id int, x int"), [(1, 5)])
    loads.load(request("id int, x string"), [(2, "a")])
    loads.load(request("id int, x int"), [(3, 6)])
    loads.load(request("id int, x data"), [(4, {"a": 1, "b": "c"})])
    if conflicts == "cast":
        actual = [row[0].replace(" ", "") for row in db.table("select x from t order by id")]
        assert actual == ["5", "a", "6", '{"a":1,"b":"c"}']
    else:
        actual = db.table("select x, x__string from t where id < 4 order by id")
        assert actual == [("5", db.null), (db.null, "a"), ("6", db.null)]


def test_an_updated_row_keeps_no_value_of_the_type_it_had(db: Db, new_loads: NewLoads):
    loads = new_loads(db, conflicts="suffix")
    ints, texts = (request(f"id int!, x {kind}", "id", "upsert") for kind in ("int", "string"))
    loads.load(ints, [(1, 5), (2, 6)])
    loads.load(texts, [(1, "a"), (3, "b")])
    query = "select x, x__string from t order by id"
    assert db.table(query) == [(db.null, "a"), ("6", db.null), (db.null, "b")]
    loads.load(ints, [(1, 7), (3, None)])
    loads.load(request("id int!", "id", "upsert"), [(2,)])
    assert db.table(query) == [("7", db.null), ("6", db.null), (db.null, db.null)]


def test_keys_do_not_change_their_type(db: Db, new_loads: NewLoads):
    loads = new_loads(db, conflicts="cast")
    loads.load(request("id int!, x int", "id", "upsert"), [(1, 5)])
    with pytest.raises(SettingsError, match="the key 'id' is int"):
        loads.load(request("id string!, x int", "id", "upsert"), [("a", 5)])


def test_a_required_column_may_become_nullable(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(request("id int!, x string!"), [(1, "a")])
    loads.load(request("id int!, x string"), [(2, None)])
    loads.load(request("x string"), [("b",)])
    assert len(db.table("select * from t where x is null or id is null")) == 2


def test_a_key_stays_not_null(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    loads.load(request("id int!, x string", "id", "upsert"), [(1, "a")])
    loads.load(request("id int, x string", "id", "upsert"), [(1, "b"), (2, "c")])
    # MySQL cannot match null keys at all.
    error = RecordError if db.kind == "postgresql" else SettingsError
    with pytest.raises(error, match="null"):
        loads.load(request("id int, x string", "id", "upsert"), [(None, "d")])
    assert db.table("select id, x from t order by x") == [("1", "b"), ("2", "c")]


def test_keys_and_required_columns_are_constraints(db: Db, new_loads: NewLoads):
    new_loads(db).load(request("id int!, x string!, y int", "id", "upsert"))
    query = (
        "select column_name, is_nullable from information_schema.columns "
        "where table_name = 't' order by 1"
    )
    assert db.table(query) == [("id", "NO"), ("x", "NO"), ("y", "YES")]
    query = (
        "select constraint_type from information_schema.table_constraints "
        "where table_name = 't' and constraint_type like 'P%'"
    )
    assert db.table(query) == [("PRIMARY KEY",)]


def test_comments_and_an_index(pg: PG, new_loads: NewLoads):
    schema = {"description": "it's\na \\ table", "properties": {"x": {"description": "'x'"}}}
    plain = request(
        "id int, x string", layout={"cluster_by": ("x",), "properties": {"fillfactor": "70"}}
    )
    new_loads(pg).load(replace(plain, schema=schema))
    assert pg.run("select obj_description('t'::regclass)") == "it's\na \\ table\n"
    assert pg.run("select col_description('t'::regclass, 2)") == "'x'\n"
    assert (
        pg.run("select reloptions from pg_class where oid = 't'::regclass") == "{fillfactor=70}\n"
    )
    assert "(x)" in pg.run("select indexdef from pg_indexes where tablename = 't'")


def test_tables_made_by_hand_keep_their_types_and_defaults(pg: PG, new_loads: NewLoads):
    pg.run(
        "create type mood as enum ('sad', 'ok'); create table t (x varchar(5), u uuid, m mood, "
        "j json, a int[], n numeric, at timestamptz not null default now(), id int generated "
        "always as identity primary key, double int generated always as (id * 2) stored)"
    )
    loads = new_loads(pg)
    created = request("x string, u string, m string, j data, a string, n double")
    uuid = "c0ffee00-0000-4000-8000-000000000000"
    loads.load(created, [("abc", uuid, "ok", {"a": 1, "b": "z"}, "{1,2}", 1.5)])
    actual = pg.table("select x, u, m, j->>'b', a[2], n, at is null, id, double from t")
    assert actual == [("abc", uuid, "ok", "z", "2", "1.5", "f", "1", "2")]
    with pytest.raises(RecordError, match="the value is too long"):
        loads.load(created, [("abcdef", uuid, "ok", None, None, None)])
    with pytest.raises(RecordError, match="no value of its column's type"):
        loads.load(created, [("a", uuid, "glad", None, None, None)])
    assert pg.table("select count(*) from t") == [("1",)]


def test_names_by_a_style(db: Db, new_loads: NewLoads):
    loads = new_loads(db, style="snake")
    styled = request("firstName string, Last-Name string, _sdc_table_version long")
    loads.load(styled, [("a", "b", 1)])
    loads.load(styled, [("c", "d", 1)])
    assert db.table("select first_name, last_name from t order by 1") == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize("style", ["keep", "clean", "lower", "upper", "snake"])
def test_a_style_is_for_columns_alone(pg: PG, new_loads: NewLoads, style: str):
    pg.run('drop schema if exists "Raw data" cascade')
    loads = new_loads(pg, style=style)
    asked = replace(request("id int"), name=TableName("OrderLines", "Raw data"))
    assert loads.destination.table(asked.name).shown == "Raw data.OrderLines"
    lease = loads.destination.lease(asked)
    assert lease.take() is None
    lease.release()
    loads.load(asked, [(1,)])
    assert pg.table('select count(*) from "Raw data"."OrderLines"') == [("1",)]


def test_a_void_column_becomes_text(db: Db, new_loads: NewLoads):
    loads = new_loads(db)
    struct = struct_of("id int, x void")
    loads.load(request(struct), [(1, None)])
    loads.load(request("id int, x string"), [(2, "a")])
    assert db.table("select x from t order by id") == [(db.null,), ("a",)]
