"""INCREMENTAL by keys of every type: a bookmark loses no row that the database orders above it."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jdbc_runs import engine_with, run_tap
from mysql_servers import PASSWORD, MySqlLikeServer, server_program
from postgres_server import PASSWORD as SECRET
from postgres_server import Database

from shared.engine.engine import AUTO
from shared.errors import SettingsError, SourceError
from tap_spark.config import tap_config
from tap_spark.plan.discovery import discovered_catalog

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Execute = Callable[[str], object]
Types = Mapping[str, list[str]]

# The values of each type, in the order of the database: not that of their texts or bytes.
NUMBERS = ["-10", "-9", "2", "9", "10", "11", "100", "1e3"]
POSTGRESQL = {
    "smallint": NUMBERS,
    "bigint": [*NUMBERS, "9007199254740993"],
    "numeric": [*NUMBERS[:7], "100.000000000000000000000000000001", "12345678901234567890123"],
    "numeric(50,3)": NUMBERS,
    "numeric(12,3)": NUMBERS,
    "real": ["-1.5", "0.1", "1.1", "1.2345678", "16777216", "3e38"],
    "double precision": ["-1.5", "0.1", "1.1", "1e300"],
    # Texts are compared by their bytes.
    'text collate "en-x-icu"': ["'B'", "'B '", "'Z'", "'a'", "'c'", "'é'"],
    "text collate ci": ["'B'", "'Z'", "'a'", "'b'", "'c'", "'é'"],
    "text": ["'B'", "'Z'", "'a'", "'c'", "'é'"],
    'varchar(9) collate "C"': ["'B'", "'B '", "'Z'", "'a'", "'é'"],
    "char(4)": ["'B'", "'Z'", "'a'", "'a b'"],
    "ext.citext": ["'a'", "'B'", "'c'", "'D'"],
    "mood": ["'sad'", "'ok'", "'happy'"],
    "uuid": [f"'{c}0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'" for c in "19aAf"],
    "inet": ["'9.0.0.0/8'", "'9.0.0.1'", "'10.0.0.1'", "'192.168.1.5'", "'::1'"],
    "macaddr": ["'08:00:2b:01:02:03'", "'f8:00:2b:01:02:03'"],
    "date": ["'0044-03-15 BC'", "'0001-01-02'", "'2024-02-29'", "'10000-01-01'"],
    "timestamp": ["'0044-03-15 BC'", "'2024-10-27 01:30:00'", "'2024-10-27 02:30:00.5'"],
    "timestamptz": [
        *("'2024-10-27 02:15:00+02'", "'2024-10-27 02:45:00+02'", "'2024-10-27 02:15:00+01'"),
        *("'2024-10-27 02:30:00+01'", "'2024-10-27 03:00:00+01'"),
    ],
    "time": ["'00:00'", "'09:00:00.5'", "'10:00'", "'24:00'"],
    "timetz": ["'12:00+05'", "'10:00+02'", "'09:00+00'", "'08:00-02'"],
    "interval": ["'-1 day'", "'9 hours'", "'10 hours'", "'2 days'", "'1 mon'", "'10 years'"],
    "bit varying(5)": ["B'01'", "B'1'", "B'10'"],
    "pg_lsn": ["'9/0'", "'16/B374D848'"],
    "price": NUMBERS,
    "money": ["-10", "2", "9.5", "100"],
}
MYSQL = {
    "bigint unsigned": ["2", "9", "10", "18446744073709551614", "18446744073709551615"],
    "decimal(65,5)": [*NUMBERS, "12345678901234567890123456789012345678901.5"],
    "float": ["-1.5", "0.1", "1.1", "1.2345678", "16777216"],
    "varchar(9) collate utf8mb4_general_ci": ["'a'", "'B'", "'c'", "'D'", "'é'", "'Z'"],
    "varchar(9) character set latin1 collate latin1_swedish_ci": [
        "'a'",
        "'B'",
        "'c'",
        "'D'",
        "'z'",
    ],
    "char(5)": ["'a'", "'B'", "'c c'", "'D'"],
    "date": ["'1000-01-01'", "'2024-02-29'", "'9999-01-01'"],
    "datetime(6)": ["'1000-01-01'", "'2024-10-27 02:30:00.5'", "'2024-10-27 02:30:00.6'"],
    # Seconds since 1970: the hour that Berlin's clocks show twice, from 1729987200 on.
    "timestamp(6) null": [
        f"from_unixtime({n})" for n in ("1729987800", "1729989000", "1729990800.5", "1729992600")
    ],
    "time(6)": ["'-10:00:00'", "'-9:00:00'", "'9:00:00'", "'10:00:00'", "'100:00:00.5'"],
}
# Read and compared by the same SQL as one of the types above.
MYSQL_ALIKE = {
    "int": NUMBERS,
    "decimal(12,3)": NUMBERS,
    "double": ["-1.5", "0.1", "1.1", "1e300"],
    "varchar(9) collate utf8mb4_unicode_ci": ["'a'", "'B'", "'c'", "'D'", "'é'", "'Z'"],
    "varchar(9) collate utf8mb4_bin": ["'B'", "'B!'", "'Z'", "'a'", "'é'"],
    "text": ["'a'", "'B'", "'c'", "'D'"],
    "year": ["1999", "2024"],
}
SQLITE = {
    "integer": NUMBERS,
    "numeric": [*NUMBERS[:7], "100.5", "'a'"],
    "datetime": ["'2024-01-01'", "'2024-01-01 00:00:01'"],
    "text collate nocase": ["'a'", "'B'", "'c'", "'D'"],
    "decimal(12,3)": NUMBERS,
}
SQLITE_ALIKE = {"text": ["'B'", "'Z'", "'a'"], "real": ["-1.5", "0.1", "1e300"]}
DUCKDB = {
    "hugeint": [*NUMBERS, "170141183460469231731687303715884105727"],
    "ubigint": ["2", "9", "10", "18446744073709551615"],
    "float": ["-1.5", "0.1", "1.1", "16777216"],
    "varchar collate nocase": ["'a'", "'B'", "'c'", "'D'"],
    "enum('sad', 'ok', 'happy')": ["'sad'", "'ok'", "'happy'"],
    "interval": ["'9 hours'", "'10 hours'", "'2 days'", "'1 month'"],
    "timestamptz": ["'2024-10-27 02:15:00+02'", "'2024-10-27 02:15:00+01'"],
    "date": ["'0044-03-15 (BC)'", "'2024-02-29'", "'10000-01-01'"],
}
DUCKDB_ALIKE = {
    "varchar": ["'B'", "'Z'", "'a'"],
    "uuid": [f"'{c}0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'" for c in "19aAf"],
    "time": ["'00:00'", "'09:00:00.5'", "'10:00'"],
    "timestamp_ns": ["'2024-01-01 00:00:00.000000001'", "'2024-01-01 00:00:00.000000002'"],
}


def others_slow(types: Types, alike: Types) -> pytest.MarkDecorator:
    """Let a test take types, and only in `make soak` those that are alike."""
    slow = pytest.param(alike, marks=pytest.mark.slow, id="alike")
    return pytest.mark.parametrize("types", [pytest.param(types, id="types"), slow])


def walked(
    spark: Any, connection: Mapping[str, Any], execute: Execute, types: Types
) -> dict[str, list[tuple[set[int], set[int]]]]:
    """Fill a table for each type in two steps, with a run after each.

    Returns:
        By type, for each run: the numbers of the rows that it sent, and of those it had to send. In
        the second run they begin with the greatest key of the first.
    """
    halves, script = [], []
    for number, (kind, values) in enumerate(types.items()):
        halves.append((len(values) + 1) // 2)
        script.append(f"create table k{number} (i int, k {kind})")
        script.append(inserted(number, values, range(halves[-1])))
    execute("; ".join(script))
    catalog = by_key(spark, connection)
    assert len(catalog["streams"]) == len(types)
    settings = {"streams": [], "connections": [connection], "parallel_streams": 3}
    first = run_tap(spark, settings, catalog=catalog, engine=AUTO)
    later = (
        inserted(number, values, range(halves[number], len(values)))
        for number, values in enumerate(types.values())
    )
    execute("; ".join(later))
    second = run_tap(spark, settings, first[-1]["value"], catalog=catalog, engine=AUTO)
    return {
        kind: [
            (sent(first, f"k{number}"), set(range(half))),
            (sent(second, f"k{number}"), set(range(half - 1, len(values)))),
        ]
        for number, (half, (kind, values)) in enumerate(zip(halves, types.items(), strict=True))
    }


def by_key(spark: Any, connection: Mapping[str, Any]) -> dict[str, Any]:
    """Return the catalog of all tables, with INCREMENTAL by the column `k`."""
    config = tap_config({"streams": [], "connections": [connection]})
    catalog = discovered_catalog(engine_with(spark, AUTO), config)
    for entry in catalog["streams"]:
        entry["tap_stream_id"] = entry["stream"] = entry["table_name"]
        entry["metadata"][0]["metadata"] |= {
            "replication-method": "INCREMENTAL",
            "replication-key": "k",
        }
        entry.pop("replication_method", None)
    return catalog


def sent(messages: list[dict[str, Any]], stream: str) -> set[int]:
    rows = (m for m in messages if m["type"] == "RECORD" and m["stream"] == stream)
    return {row["record"]["i"] for row in rows}


def inserted(number: int, values: list[str], rows: range) -> str:
    listed = ", ".join(f"({row}, {values[row]})" for row in rows)
    return f"insert into k{number} values {listed}"


def check(runs: Mapping[str, list[tuple[set[int], set[int]]]]) -> None:
    wrong = {kind: rows for kind, rows in runs.items() if any(a != b for a, b in rows)}
    assert not wrong


@pytest.fixture
def postgresql(postgres: Database) -> Iterator[Database]:
    postgres.run("""create schema ext; create extension citext schema ext;
        create domain price as numeric;
        create type mood as enum ('sad', 'ok', 'happy');
        create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)""")
    postgres.run(f"alter database {postgres.name} set timezone to 'Europe/Berlin'")
    yield postgres


# Threads read what Spark orders as the server does: many types in the time of one.
def test_postgresql(lake_spark: Any, postgresql: Database) -> None:
    connection = {"name": "pg", "url": postgresql.url, "user": "postgres", "password": SECRET}
    check(walked(lake_spark, connection, postgresql.run, POSTGRESQL))
    plain = [number for number, kind in enumerate(POSTGRESQL) if " collate " not in kind]
    script = (f"select string_agg(i::text, ',' order by k) from k{number}" for number in plain)
    counts = [*map(len, POSTGRESQL.values())]
    wanted = [",".join(map(str, range(counts[number]))) for number in plain]
    assert postgresql.run("; ".join(script)).split() == wanted


# MySQL orders by the statements and collations of MariaDB.
@others_slow(MYSQL, MYSQL_ALIKE)
@pytest.mark.parametrize("kind", ["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def test_mysql_like(
    lake_spark: Any, request: pytest.FixtureRequest, kind: str, types: Types
) -> None:
    server: MySqlLikeServer = request.getfixturevalue(f"{kind}_server")
    client = server_program("mariadb-tzinfo-to-sql") or pytest.skip("MariaDB lacks its zones")
    zone = subprocess.run(
        [client, "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"], capture_output=True
    )
    script = re.findall(
        r"^(?:INSERT INTO|SET @time_zone_id).*?;$", zone.stdout.decode(), re.M | re.S
    )
    connection = {
        **{"name": "my", "url": server.url("keys_"), "user": "tester", "password": PASSWORD},
        "properties": {"sessionVariables": "time_zone='Europe/Berlin'"},
    }
    server.run("create database keys_; grant all on keys_.* to tester@'127.0.0.1'", "mysql")

    def execute(sql: str) -> None:
        server.run(f"set time_zone = '+00:00'; {sql}", "keys_")

    try:
        if not server.run("select 1 from time_zone_name where name = 'Europe/Berlin'", "mysql"):
            server.run("\n".join(script), "mysql")
        check(walked(lake_spark, connection, execute, types))
    finally:
        server.run("drop database keys_", "mysql")


@others_slow(SQLITE, SQLITE_ALIKE)
def test_sqlite(lake_spark: Any, tmp_path: Path, types: Types) -> None:
    base = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    connection = {"name": "lite", "url": f"jdbc:sqlite:{tmp_path / 'a.db'}"}
    check(walked(lake_spark, connection, base.executescript, types))
    base.close()


@others_slow(DUCKDB, DUCKDB_ALIKE)
def test_duckdb(lake_spark: Any, tmp_path: Path, types: Types) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "a.duckdb"

    def execute(sql: str) -> None:
        with duckdb.connect() as base:
            base.execute(f"attach '{path}' as x (storage_version 'v1.0.0'); use x; {sql}")

    connection = {"name": "duck", "url": f"jdbc:duckdb:{path}"}
    check(walked(lake_spark, connection, execute, types))


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("boolean", {}, "or FULL_TABLE"),
        ("bytea", {}, "or FULL_TABLE"),
        ("json", {}, "has the type json, whose values have no order"),
        ("int4range", {}, "use one of the keys 'i', or FULL_TABLE"),
        ("numeric", {"sort_by_replication_key": True}, "setting 'sort_by_replication_key'"),
    ],
)
def test_keys_without_an_order_are_refused(
    lake_spark: Any, postgres: Database, kind: str, settings: Mapping[str, Any], message: str
) -> None:
    postgres.run(f"drop table if exists odd; create table odd (i int, k {kind})")
    connection = {"name": "pg", "url": postgres.url, "user": "postgres", "password": SECRET}
    place = {"table": "odd", "connection": "pg", "replication_key": "k"}
    stream = {"name": "odd", "format": "jdbc", **place, **settings}
    with pytest.raises((SourceError, SettingsError), match=message):
        run_tap(lake_spark, {"streams": [stream], "connections": [connection]})
