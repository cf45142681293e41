"""Keys of tables that other programs made are compared as their columns store and compare them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from database_loads import PG, Loads, MariaDb, request

pytestmark = [pytest.mark.server, pytest.mark.costly]
NewLoads = Callable[..., Loads]
Db = PG | MariaDb

UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
PLACES = """
drop extension if exists citext; drop schema if exists ext cascade; create schema ext;
create extension citext schema ext;
create collation nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false)
"""


@pytest.mark.parametrize("kind", ["ext.citext", "text collate nd", "char(3)"])
@pytest.mark.parametrize("order_by", [(), ("v",)])
@pytest.mark.parametrize("key", ["primary key", "not null"])
def test_keys_that_are_equal_for_the_table_alone(
    pg: PG, new_loads: NewLoads, kind: str, key: str, order_by: tuple[str, ...]
) -> None:
    pg.run(f"{PLACES}; create table t (k {kind} {key}, v int)")
    asked = request("k string, v int", "k", "upsert", order_by=order_by)
    same = "a " if kind == "char(3)" else "A"
    new_loads(pg).load(asked, [("a", 1), (same, 2), ("b", 3)])
    assert pg.table("select lower(k), v from t order by v") == [("a", "2"), ("b", "3")]


CI = "collate utf8mb4_general_ci"
MARKED = "id {}, v int, _sdc_deleted_at timestamp"
KEYS: list[tuple[str, str, str, object, str, str]] = [
    # Server, types of the column and the stream, a key, what is stored for it, keys beside it.
    ("maria", "varchar(20)", "long", 1, "1", "'1abc', '01', '2'"),
    ("maria", "varchar(20)", "double", 1.5, "1.5", "'1.50', '1.5x'"),
    ("maria", "varchar(20)", "date", 20454, "2026-01-01", "'2026-1-1', '20260101'"),
    ("maria", f"varchar(20) {CI}", "string", "a", "A", "'b'"),
    ("maria", "varchar(20) collate utf8mb4_bin", "string", "a", "a", "'A', 'b'"),
    ("maria", "varchar(20) character set latin1", "string", "é", "É", "'?', 'x'"),
    ("maria", "varchar(20) character set utf8mb3", "long", 1, "1", "'01'"),
    ("maria", "char(3) collate utf8mb4_nopad_bin", "string", "a ", "a", "'A', 'b'"),
    ("maria", "varbinary(20)", "long", 1, "1", "'1abc', '01'"),
    ("maria", "enum('a', 'b', '1')", "long", 1, "1", "'a', 'b'"),
    ("maria", "float", "double", 0.1, "0.1", "0.2, 1"),
    ("maria", "bigint unsigned", "long", 5, "5", str(2**64 - 5)),
    ("maria", "decimal(20,2)", "double", 1.5, "1.50", "1, 2"),
    ("maria", "datetime", "date", 20454, "2026-01-01 00:00:00", "'2026-01-01 00:00:01'"),
    ("maria", "year", "long", 2020, "2020", "'2021'"),
    ("maria", "bit(8)", "long", 53, "5", "'6'"),
    ("maria", "uuid", "string", UUID.upper(), UUID, f"'{UUID[:-1]}2'"),
    ("mysql", "varchar(20)", "long", 1, "1", "'1abc', '01', '2'"),
    ("mysql", f"varchar(20) {CI}", "string", "a", "A", "'b'"),
    ("mysql", "float", "double", 0.1, "0.1", "0.2, 1"),
    ("pg", "varchar(20)", "long", 1, "1", "'1abc', '01', '2'"),
    ("pg", "character(20)", "date", 20454, "2026-01-01".ljust(20), "'2026-1-1'"),
    ("pg", "character varying", "double", 1.5, "1.5", "'1.50'"),
    ("pg", "ext.citext", "string", "a", "A", "'b'"),
    ("pg", "text collate nd", "string", "a", "A", "'b'"),
    ("pg", "real", "double", 0.1, "0.1", "0.2, 1"),
]


@pytest.mark.parametrize(("case", "db"), [(case[1:], case[0]) for case in KEYS], indirect=["db"])
def test_keys_are_compared_as_their_column_compares_them(
    db: Db, new_loads: NewLoads, case: tuple[str, str, object, str, str]
) -> None:
    kind, staged, key, stored, others = case
    if db.kind == "postgresql":
        db.run(PLACES)
    rows = ", ".join(f"({one}, 0)" for one in (f"'{stored}'", *others.split(", ")))
    for table, unique in (("t", "primary key"), ("u", "not null")):
        db.run(f"create table {table} (id {kind} {unique}, v int)")
        db.run(f"insert into {table} (id, v) values {rows}")
        query = f"select id, v from {table} order by id"
        before = db.table(query)
        asked = request(MARKED.format(staged), "id", "upsert", hard_delete=True, stream=table)
        loads = new_loads(db)
        loads.load(asked, [(key, 1, None), (key, 2, None)])
        after = [(one, "2" if one == stored else v) for one, v in before]
        assert db.table(query) == after
        loads.load(asked, [(key, 3, None), (key, None, 0)])
        assert db.table(query) == [row for row in after if row[0] != stored]
