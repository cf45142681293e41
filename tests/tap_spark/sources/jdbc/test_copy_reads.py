"""PostgreSQL read by threads, by COPY on Spark and by JDBC: the same messages from each."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jdbc_runs
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from case_matrix import matrix
from postgres_server import PASSWORD, Database

from shared.errors import SourceError
from shared.singer.stdout import MessageOutput
from tap_spark.config import tap_config
from tap_spark.send import sync
from tap_spark.sources.jdbc import copy_driver, jdbc_query, metadata

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
BY_JDBC = {"options": {"queryTimeout": "600"}}
ROWS = 1000
MIDDLE = {
    "id": 500,
    "i8": 10**17,
    "d": "1700-01-01",
    "ts": "2200-01-01T00:00:00.123456",
    "tz": "1910-01-01T00:00:00.000001+00:00",
}
"""Bookmarks, by replication key; a table of their own, as other columns take most of the time."""
# Each with some nulls, and the values that databases and Arrow hold differently.
EXPRESSIONS = {
    "b": "r < 0.5",
    "i2": "(r * 65535 - 32768)::int::int2",
    "i4": "(r * 4294967295 - 2147483648)::int8::int4",
    "i8": "(array[-9223372036854775808, 9223372036854775807, (r * 1e18)::int8])[1 + i % 3]",
    "f4": "(array['NaN', '-Infinity', 1.1, r * 1e38])[1 + i % 4]::float4",
    "f8": "(array['NaN', 'Infinity', 5e-324, 1e7, 0.1, -0.0, r * 10.0 ^ (i % 300)])[1 + i % 7]"
    "::float8",
    "n5": "(array['NaN', r * 999, -r])[1 + i % 3]::numeric(5,2)",
    "n18": "(r * 10 ^ (i % 14) - 5)::numeric(18,4)",
    "n38": "((1 - 2 * (i % 2)) * r::numeric * 10::numeric ^ (i % 27))::numeric(38,10)",
    "n_big": "(r::numeric * 10::numeric ^ (i % 60))::numeric(70,9)",
    "n_any": "(array['NaN', r::numeric / 3, 1e40::numeric])[1 + i % 3]::numeric",
    "cash": "((r - 0.5) * 1e6)::numeric::money",
    "t": "repeat(chr(1 + (r * 200)::int), i % 5) || '\"\\é𝄞' || chr(10)",
    "e": "''",
    "c": "left('ab c', i % 5)::char(6)",
    "by": "decode(md5(i::text), 'hex') || '\\x00'::bytea",
    "d": "(array['infinity', '-infinity', '0044-03-15 BC', '1582-10-10', '12345-01-02',"
    " current_date - (r * 900000)::int])[1 + i % 6]::date",
    "ts": "(array['infinity', '294246-12-31', '0044-03-15 12:00 BC',"
    " timestamp '2024-03-31 02:30:00.123456' + i * interval '97 days 1.000001 s'])[1 + i % 4]",
    "tz": "(array['-infinity', '20000-01-01 00:00:00.5+02',"
    " timestamptz '1900-01-01 00:00+01' + i * interval '7 days 1.000001 s'])[1 + i % 3]",
    "tm": "(r * interval '1 day')::time",
    "iv": "i * interval '1 month -1 day 0.5 s'",
    "u": "md5(i::text)::uuid",
    "j": "('{\"b\" : 1.10, \"a\":[' || i || ']}')::json",
    "jb": "('{\"b\" : 1.10, \"a\":[' || i || ']}')::jsonb",
    "x": "('<a>' || i || '</a>')::xml",
    "ip": "('10.0.0.' || i % 256)::inet",
    "bits": "(i % 32)::bit(5)",
    "m": "(array['sad', 'happy'])[1 + i % 2]::mood",
    "dm": "(1 + r)::price",
    "p": "row(i, 'x y')::pair",
    "rg": "int4range(i, i + 5)",
}
ARRAYS = {
    "a4": "array[i, null, -i]",
    "an": "array[r::numeric(10,2), 'NaN']",
    "at": "array['a \"b', null, repeat('é', i % 3)]",
    "ad": "array['infinity', current_date]::date[]",
}


def _digits(text: str) -> str:
    """Return a number as written, or as read if it has an exponent, which Java writes otherwise."""
    return repr(float(text)) if "E" in text else text


def _precision(text: str) -> str:
    """Return the cast of a numeric, whose precision a CASE forgets."""
    actual = re.search(r"::numeric\(\d+,\d+\)$", text)
    return actual[0] if actual else ""


@pytest.fixture(scope="module", autouse=True)
def tables(postgres: Database) -> None:
    postgres.run(
        "create type mood as enum ('sad', 'happy'); create type pair as (a int, b text);"
        "create domain price as numeric(12,3) check (value > 0);"
    )
    for table, columns in (("every", EXPRESSIONS), ("nested", ARRAYS)):
        listed = ", ".join(
            f"(case when (i + {n}) % 11 > 0 then {text} end){_precision(text)} as {name}"
            for n, (name, text) in enumerate(columns.items())
        )
        postgres.run(
            f"create table {table} as with seed as (select setseed(0.{len(table)})) select i as id,"
            f" {listed} from seed, lateral (select i, random() as r from generate_series(1, {ROWS})"
            f" i) g; alter table {table} add primary key (id); analyze {table};"
        )
    postgres.run(
        f"create table keys as select {', '.join(MIDDLE)} from every; alter table keys add primary "
        "key (id); analyze keys"
    )
    postgres.run(
        "create table missing (id int); create table wide as select i as id,"
        " repeat(md5(i::text), 300) as v from generate_series(1, 3000) i; analyze wide"
    )


def settings_of(postgres: Database, table: str, **stream: Any) -> dict[str, Any]:
    login = {"name": "pg", "url": postgres.url, "user": "postgres", "password": PASSWORD}
    own = {"name": "s", "format": "jdbc", "connection": "pg", "table": table, **stream}
    return {"connections": [{**login, "exclude": ["*"], "retries": 0}], "streams": [own]}


def by_threads(folder: Path, settings: dict[str, Any], state: Any = None) -> list[dict[str, Any]]:
    path = folder / "out.jsonl"
    with path.open("wb") as file:
        output = MessageOutput(os.dup(file.fileno()))
        try:
            sync.run_sync(tap_config({**settings, "engine": "threads"}), None, state, output)
        finally:
            output.close()
    return [json.loads(line, parse_float=_digits) for line in path.read_text().split("\n")[:-1]]


def by_spark(spark: Any, settings: dict[str, Any], state: Any = None) -> list[dict[str, Any]]:
    return jdbc_runs.run_tap(spark, settings, state, parse_float=_digits)


def sent(messages: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(m["record"]) for m in messages if m["type"] == "RECORD")


def others(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return SCHEMA and the last STATE."""
    states = [m for m in messages if m["type"] == "STATE"]
    return [*(m for m in messages if m["type"] == "SCHEMA"), *states[-1:]]


def test_every_type_alike(lake_spark: Any, postgres: Database, tmp_path: Path) -> None:
    settings = settings_of(postgres, "every")
    threads, copied = by_threads(tmp_path, settings), by_spark(lake_spark, settings)
    jdbc = by_spark(lake_spark, settings_of(postgres, "every", **BY_JDBC))
    assert sum(sent(jdbc).values()) == ROWS
    assert sent(copied) == sent(jdbc)
    assert sent(threads) == sent(jdbc)
    assert others(threads) == others(copied) == others(jdbc)


def test_arrays_alike(lake_spark: Any, postgres: Database) -> None:
    copied = by_spark(lake_spark, settings_of(postgres, "nested"))
    jdbc = by_spark(lake_spark, settings_of(postgres, "nested", **BY_JDBC))
    assert sum(sent(jdbc).values()) == ROWS
    assert sent(copied) == sent(jdbc)


@pytest.mark.parametrize(("table", "direct"), [("every", True), ("nested", False)])
def test_rows_without_arrays_do_not_pass_through_java(
    lake_spark: Any, postgres: Database, table: str, direct: bool
) -> None:
    (slice_,) = jdbc_runs.slices_of(lake_spark, jdbc_runs.table_stream(postgres, table))
    assert (slice_.own_tasks is not None) == direct


def test_copy_by_spark_needs_no_session_of_jdbc(
    lake_spark: Any, postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for metadata and sizes nor for the snapshot of several parts."""
    settings = settings_of(postgres, "wide", options={"numPartitions": "3"})
    expected = by_spark(lake_spark, settings_of(postgres, "wide", **BY_JDBC))

    def fail(*_: Any, **__: Any) -> None:
        pytest.fail("JDBC is used")

    monkeypatch.setattr(metadata.JdbcQueryRunner, "_frame", fail)
    monkeypatch.setattr(jdbc_query, "hold_connection", fail)
    copied = by_spark(lake_spark, settings)
    assert sum(sent(copied).values()) == 3000
    assert (sent(copied), others(copied)) == (sent(expected), others(expected))


# `i8` is an integer, too.
@pytest.mark.parametrize(
    "key", [pytest.param("id", marks=pytest.mark.slow), *(key for key in MIDDLE if key != "id")]
)
def test_bookmarks_alike(lake_spark: Any, postgres: Database, tmp_path: Path, key: str) -> None:
    settings = settings_of(postgres, "keys", replication_key=key)
    first, copied = by_threads(tmp_path, settings), by_spark(lake_spark, settings)
    jdbc = by_spark(lake_spark, settings_of(postgres, "keys", replication_key=key, **BY_JDBC))
    assert others(first) == others(copied) == others(jdbc)
    assert sent(copied) == sent(jdbc)
    mark = {"replication_key": key, "replication_key_value": MIDDLE[key]}
    state = {"bookmarks": {"s": mark}}
    again = by_threads(tmp_path, settings, state)
    assert 0 < sum(sent(again).values()) < ROWS
    assert sent(again) == sent(
        by_spark(lake_spark, settings_of(postgres, "keys", replication_key=key, **BY_JDBC), state)
    )


def test_batch_files_of_several_parts(postgres: Database, tmp_path: Path) -> None:
    settings = settings_of(postgres, "wide", options={"numPartitions": "3"})
    encoding = {"format": "parquet", "compression": "none"}
    settings["batch_config"] = {"encoding": encoding, "storage": {"root": str(tmp_path / "b")}}
    (tmp_path / "b").mkdir()
    by_threads(tmp_path, settings)
    rows = ds.dataset(str(tmp_path / "b"), format="parquet").to_table().to_pydict()
    assert sorted(rows["id"]) == [*range(1, 3001)]
    assert len(set(rows["v"])) == 3000


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return moments as numbers, as Python does not have all of them."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


@pytest.mark.parametrize(
    ("key", "size"),
    matrix(
        [
            {"replication_key": "d"},
            {"replication_key": "f8"},
            pytest.param({}, marks=pytest.mark.slow),
        ],
        [None, 700],
    ),
)
def test_batch_files_by_spark_are_those_of_jdbc(
    lake_spark: Any, postgres: Database, tmp_path: Path, key: dict[str, str], size: int | None
) -> None:
    files = []
    for name, own in (("copy", {}), ("jdbc", BY_JDBC)):
        settings = settings_of(postgres, "every", **own, **key)
        encoding = {"format": "parquet", "compression": "none"}
        storage = {"root": str(tmp_path / name)}
        settings["batch_config"] = {"encoding": encoding, "storage": storage}
        settings["batch_config"] |= {} if size is None else {"batch_size": size}
        (tmp_path / name).mkdir()
        messages = by_spark(lake_spark, settings)
        table = ds.dataset(str(tmp_path / name), format="parquet").to_table().sort_by("id")
        values = [repr(_numbers(column).to_pylist()) for column in table.columns]
        urls = [m for m in messages if m["type"] == "BATCH"]
        files.append((others(messages), table.schema, values, size and len(urls)))
        assert table.num_rows == ROWS
    assert files[0] == files[1]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_times_beyond_those_of_arrow_end_the_stream(
    lake_spark: Any, postgres: Database, tmp_path: Path, kind: str
) -> None:
    postgres.run(f"create table late_{kind} as select {kind} '294276-12-30 01:02:03' as at")
    settings = settings_of(postgres, f"late_{kind}")
    jdbc = settings_of(postgres, f"late_{kind}", **BY_JDBC)
    for run in (
        lambda: by_threads(tmp_path, settings),
        lambda: by_spark(lake_spark, settings),
        lambda: by_spark(lake_spark, jdbc),
    ):
        with pytest.raises(SourceError, match=r"294276-12-.* is beyond the year 294246"):
            run()


def test_failures_are_errors_of_the_database(postgres: Database, tmp_path: Path) -> None:
    settings = settings_of(postgres, "missing")
    settings["connections"][0]["password"] = "wrong one"
    with pytest.raises(SourceError, match=r"password authentication failed.*28P01"):
        by_threads(tmp_path, settings)
    with pytest.raises(SourceError, match="table or view 'nope' does not exist"):
        by_threads(tmp_path, settings_of(postgres, "nope"))


def test_another_kind_of_server_is_left_to_jdbc(
    postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "SELECT 'PostgreSQL 8.0.2 on x, Redshift 1.0.77' AS version"
    monkeypatch.setattr(copy_driver, "_PROBE", said)
    assert copy_driver.CopyRule().login(postgres.connection()) is None
    monkeypatch.setattr(copy_driver, "_PROBE", "SELECT nope()")
    assert copy_driver.CopyRule().login(postgres.connection()) is None
