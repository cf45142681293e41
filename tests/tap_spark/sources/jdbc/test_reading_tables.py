"""Tables of a real PostgreSQL, read in one part or many: every row once, every value as it is."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any

import pytest
from case_matrix import matrix
from jdbc_runs import bookmark, rows_of, slices_of, table_stream

from tap_spark.config import TapConfig
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.plan.run_options import RunOptions, StreamRange, as_asked
from tap_spark.sources.jdbc import part_plan
from tap_spark.sources.source import source_for

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]

TABLES = """
create table many (id bigserial primary key, v text, k int, u timestamptz);
insert into many (v, k, u)
  select 'row ' || i, i % 7, '2026-01-01'::timestamptz + i * '1 min'::interval
  from generate_series(1, 20000) i;
create index on many (u);
create table empty (id int primary key, v text);
create table one (id int primary key, v text); insert into one values (-5, null);
create table keyless (v text); insert into keyless select 'same' from generate_series(1, 3000);
create table pairs (a int, b text, primary key (a, b));
insert into pairs select i % 50 - 25, 'b' || i from generate_series(1, 4000) i;
create table texts (id text primary key, n int);
insert into texts select chr(64 + i % 60) || i, i from generate_series(1, 3000) i;
create table skewed (id bigint primary key, v text);
insert into skewed select i, repeat('x', 20) from generate_series(-2000, 2000) i;
insert into skewed values (9223372036854775807, 'max'), (-9223372036854775808, 'min');
create table nullable (k int, v text);
insert into nullable select nullif(i % 5, 0), 'v' || i from generate_series(1, 3000) i;
create table parted (d date, n int) partition by range (d);
create table parted_1 partition of parted for values from ('2026-01-01') to ('2026-02-01');
create table parted_2 partition of parted for values from ('2026-02-01') to ('2026-03-01')
  partition by list (n);
create table parted_2a partition of parted_2 for values in (0, 1);
create table parted_2b partition of parted_2 default;
create table parted_3 partition of parted default;
insert into parted select '2026-01-01'::date + i % 100, i % 4 from generate_series(1, 9000) i;
create table parent (a int, v text); create table child (w text) inherits (parent);
insert into parent select i, 'p' from generate_series(1, 2000) i;
insert into child select -i, 'c', 'w' from generate_series(1, 2000) i;
create view viewed as select id, v from many where id <= 2500;
create materialized view kept as select id, v from many where id <= 2500;
create schema "Od""d .sch`ma";
create table "Od""d .sch`ma"."T'a""b; drop table x --" (
  "a""b" int, "A" text, "a" text, "with space" int, "p.q" int, "数" text, "`t`" text,
  "c0" int, "k" int, "x'); drop table one; --" text);
insert into "Od""d .sch`ma"."T'a""b; drop table x --"
  select i, 'A' || i, 'a' || i, i, -i, '字' || i, 't', 7, i % 3, 'q'
  from generate_series(1, 3000) i;
analyze;
"""


@pytest.fixture(scope="module", autouse=True)
def tables(postgres):
    postgres.run(TABLES)


def copied(postgres, query: str) -> Counter:
    """Return the rows of a query as COPY prints them; null is None."""
    text = postgres.copy(query, "csv, null '\\N', force_quote *")
    actual = csv.reader(io.StringIO(text))
    return Counter(tuple(None if cell == "\\N" else cell for cell in row) for row in actual)


def printed(rows) -> Counter:
    return Counter(tuple(None if cell is None else str(cell) for cell in row) for row in rows)


def rows_as_counted(spark, stream, parts: int | None = None, **run: Any) -> list[tuple]:
    """Return the rows; the database has counted as many, and each slice has so many parts."""
    reported, rows = 0, []
    for piece in slices_of(spark, stream, **run):
        # While the slice's snapshot is held.
        assert parts in (None, piece.frame.rdd.getNumPartitions())
        reported += piece.told_rows
        rows += [tuple(row) for row in piece.frame.collect()]
    assert reported == len(rows)
    return rows


WHOLE = [
    ("many", {}, 1),
    ("one", {"partitions": 1}, 1),
    ("many", {"partitions": 5}, 5),
    ("keyless", {"partitions": 5}, 5),
    ("parted", {"partitions": 5}, 5),
    ("parent", {"partitions": 5}, 5),
    ("kept", {"partitions": 5}, 5),
    ("viewed", {"partitions": 5}, 1),
    ("empty", {"partitions": 5}, 1),
    # Without a snapshot parts are ranges of the key.
    ("many", {"partitions": 4, "snapshot": False}, 4),
    ("skewed", {"partitions": 4, "snapshot": False}, 4),
    ("pairs", {"partitions": 4, "snapshot": False}, 1),
    ("empty", {"partitions": 4, "snapshot": False}, 1),
]
# Kinds of tables and keys of which the cases above have another.
ALIKE = [
    *((table, {"partitions": 5}, 5) for table in ("pairs", "texts", "skewed", "nullable")),
    ("one", {"partitions": 5}, 1),
    *(
        (table, {"partitions": 1}, 1)
        for table, settings, _ in WHOLE
        if settings.get("partitions") == 5
    ),
    *(
        (table, {"partitions": 4, "snapshot": False}, 1)
        for table in ("keyless", "texts", "nullable", "parted", "one")
    ),
]


@pytest.mark.parametrize(
    ("table", "settings", "parts"),
    [*WHOLE, *(pytest.param(*case, marks=pytest.mark.slow) for case in ALIKE)],
)
def test_every_row_once_in_any_number_of_parts(lake_spark, postgres, table, settings, parts):
    stream = table_stream(postgres, f"public.{table}", count_rows=True, **settings)
    rows = rows_as_counted(lake_spark, stream, parts, deselect=["u"])
    columns = "id, v, k" if table == "many" else "*"
    assert printed(rows) == copied(postgres, f"select {columns} from {table}")


def test_the_database_counts_only_if_asked(lake_spark, postgres):
    [piece] = slices_of(lake_spark, table_stream(postgres, "one"))
    assert piece.told_rows is None


def test_hostile_names(lake_spark, postgres):
    table = '"Od""d .sch`ma"."T\'a""b; drop table x --"'
    stream = table_stream(postgres, table, partitions=3)
    assert printed(rows_of(lake_spark, stream)) == copied(postgres, f"select * from {table}")
    one = rows_of(
        lake_spark,
        table_stream(postgres, table, replication_key='a"b'),
        state=bookmark(2999, 'a"b'),
    )
    assert sorted(row[0] for row in one) == [2999, 3000]
    assert postgres.value("select count(*) from one") == "1"


def test_only_selected_columns_are_queried(lake_spark, postgres):
    (piece,) = slices_of(lake_spark, table_stream(postgres, "nullable"), deselect=["k"])
    assert piece.frame.columns == ["v"]
    plan = piece.frame._jdf.queryExecution().executedPlan().toString()
    assert '(SELECT "v" AS "c0" FROM "public"."nullable")' in plan


STARTS = [
    ("many", "id", 19_990, "id >= 19990"),
    ("nullable", "k", 4, "k >= 4 or k is null"),
    ("nullable", "k", 99, "k is null"),
    ("skewed", "id", -(2**63), "true"),
    ("texts", "id", "Z", "id collate \"C\" >= 'Z'"),
    ("parted", "d", "2026-03-15", "d >= '2026-03-15'"),
    ("pairs", "a", -3, "a >= -3"),
    *(
        pytest.param(start, marks=pytest.mark.slow)
        for start in (
            ("many", "k", 6, "k >= 6 or k is null"),
            ("skewed", "id", 1999, "id >= 1999"),
            ("texts", "id", "a", "id collate \"C\" >= 'a'"),
        )
    ),
]


@pytest.mark.parametrize(("bookmarked", "parts"), matrix(STARTS, [1, 3]))
def test_incremental_reads_from_the_bookmark_on(lake_spark, postgres, bookmarked, parts):
    table, key, start, condition = bookmarked
    stream = table_stream(postgres, table, replication_key=key, partitions=parts, count_rows=True)
    rows = rows_as_counted(lake_spark, stream, state=bookmark(start, key), deselect=["u"])
    columns = "id, v, k" if table == "many" else "*"
    assert printed(rows) == copied(postgres, f"select {columns} from {table} where {condition}")


def test_a_timestamp_bookmark_means_the_same_moment(lake_spark, postgres):
    stream = table_stream(postgres, "many", replication_key="u", count_rows=True)
    moment = "2026-01-14T19:10:00.000000+00:00"
    rows = rows_as_counted(lake_spark, stream, state=bookmark(moment, "u"))
    wanted = postgres.value(f"select count(*) from many where u >= '{moment}'")
    assert len(rows) == int(wanted) > 0


YEARS = """create table years (i int primary key, date date, timestamp timestamp,
  timestamptz timestamptz);
insert into years select i, t, t, t::timestamptz from (values (1, timestamp '-infinity'),
  (2, '4713-02-01 BC'), (3, '0044-03-17 BC'), (4, '2026-01-03'), (5, '9999-12-29'),
  (6, '20000-03-02'), (7, 'infinity'), (8, null)) rows (i, t)"""
YEARS_SINCE = [
    ("-4712-01-01", {}, [2, 3, 4, 5, 6, 7, 8]),
    ("-0043-03-15T12:00:00+00:00", {}, [3, 4, 5, 6, 7, 8]),
    ("+20000-02-29", {}, [6, 7, 8]),
    # Without a snapshot the greatest key bounds a run, unless it is infinite.
    ("2026-01-01", {"snapshot": False, "partitions": 3}, [4, 5, 6, 7, 8]),
]


@pytest.fixture(scope="module")
def years(postgres, tables):
    postgres.run(YEARS)


@pytest.mark.usefixtures("years")
@pytest.mark.parametrize(
    ("kind", "since"), matrix(["date", "timestamp", "timestamptz"], YEARS_SINCE, rounds=2)
)
def test_keys_of_all_years(lake_spark, postgres, kind, since):
    start, settings, wanted = since
    stream = table_stream(postgres, "years", replication_key=kind, **settings)
    state = {"bookmarks": {"s": {"replication_key_value": start}}}
    pieces = slices_of(lake_spark, stream, state=state)
    rows = [row for piece in pieces for row in piece.frame.select("i").collect()]
    assert sorted(row[0] for row in rows) == wanted


def test_sorted_by_the_replication_key(lake_spark, postgres):
    settings = {"sort_by_replication_key": True, "partitions": 3, "count_rows": True}
    stream = table_stream(postgres, "nullable", replication_key="k", **settings)
    for piece in slices_of(lake_spark, stream):
        assert piece.ordered
        assert piece.told_rows == 3000
        keys = [row[0] for row in piece.frame.collect()]
        assert keys == sorted(keys, key=lambda key: (key is not None, key))
        assert len(keys) == 3000


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(part_plan, "SLICE_ROWS", 6000)


@pytest.mark.parametrize("key", [pytest.param("id", marks=pytest.mark.slow), "u"])
def test_large_incremental_streams_come_in_slices_with_bookmarks(
    lake_spark, postgres, small_slices, key
):
    stream = table_stream(postgres, "many", replication_key=key, partitions=2)
    seen: list[Any] = []
    marks: list[Any] = []
    for piece in slices_of(lake_spark, stream):
        rows = piece.frame.select("id", key).collect()
        if piece.bookmark is not None:
            marks.append(piece.bookmark["replication_key_value"])
            text = postgres.value(f"select count(*) from many where {key} < '{marks[-1]}'")
            assert len(seen) + len(rows) == int(text)
        seen += [row[0] for row in rows]
        assert piece.frame.rdd.getNumPartitions() == 2
    assert len(marks) == 3
    assert marks == sorted(marks)
    assert sorted(seen) == list(range(1, 20_001))


def test_a_backfill_is_read_in_slices_and_parts(lake_spark, postgres, small_slices):
    stream = table_stream(postgres, "many", replication_key="id", partitions=2)
    tap = TapConfig(streams=(stream,))
    (plan,) = plan_streams(tap, catalog_for(lake_spark, tap), None, 1)
    plan = as_asked(plan, RunOptions(backfill=StreamRange("s", "2001", "16001")))
    actual: list[int] = []
    ends: list[Any] = []
    for piece in source_for(stream).slices(lake_spark, plan):
        actual += [row.id for row in piece.frame.select("id").collect()]
        ends.append((piece.bookmark or {}).get("replication_key_value"))
    assert sorted(actual) == list(range(2001, 16_001))
    assert len(ends) > 1
    assert ends[-1] is None
    assert all(2001 < end < 16_001 for end in ends[:-1])


def test_a_killed_run_resumes_after_the_last_slice(lake_spark, postgres, small_slices):
    stream = table_stream(postgres, "many", replication_key="id", partitions=1)
    before: list[int] = []
    mark: Any = None
    for piece in slices_of(lake_spark, stream):
        if len(before) > 9000:
            break
        before += [row.id for row in piece.frame.select("id").collect()]
        mark = piece.bookmark
    after = [row[0] for row in rows_of(lake_spark, stream, state={"bookmarks": {"s": dict(mark)}})]
    assert sorted({*before, *after}) == list(range(1, 20_001))
    assert len(before) + len(after) == 20_000


def test_slices_are_ordered_if_sorting_is_set(lake_spark, postgres, small_slices):
    stream = table_stream(
        postgres, "many", replication_key="u", sort_by_replication_key=True, partitions=2
    )
    pieces = list(slices_of(lake_spark, stream, deselect=["v", "k"]))
    assert len(pieces) > 3
    assert all(piece.ordered and piece.bookmark is None for piece in pieces)


def test_sparks_own_options_split_a_table(lake_spark, postgres):
    options = {
        "partitioncolumn": "k",
        "lowerBound": "0",
        "upperBound": "7",
        "numPartitions": "3",
        "fetchsize": "11",
        "sessionInitStatement": "SET work_mem = '1MB'",
        "queryTimeout": "60",
    }
    stream = table_stream(postgres, "many", options=options)
    rows: list[tuple] = []
    for piece in slices_of(lake_spark, stream, deselect=["u", "k"]):
        assert piece.frame.rdd.getNumPartitions() == 3
        rows += [tuple(row) for row in piece.frame.collect()]
    assert printed(rows) == copied(postgres, "select id, v from many")
    postgres.run("create table exact (k int, d float8, f real)")
    postgres.run("insert into exact values (1, 0.1::float8 + 0.2, 16777216)")
    postgres.run(f"alter database {postgres.name} set extra_float_digits = 0")
    stream = table_stream(postgres, "exact", options=options)
    assert rows_of(lake_spark, stream) == [(1, 0.1 + 0.2, 16777216.0)]


def test_a_query(lake_spark, postgres):
    query = "select k, count(*) as n, array_agg(id) ids from many group by k; -- x"
    stream = table_stream(postgres, "", query=query, count_rows=True)
    rows = rows_as_counted(lake_spark, stream, deselect=["ids"])
    assert printed(rows) == copied(postgres, "select k, count(*) from many group by k")
    stream = table_stream(
        postgres, "", query="select id, k from many where k > 2", replication_key="id"
    )
    rows = rows_of(lake_spark, stream, state=bookmark(19_995, "id"))
    assert printed(rows) == copied(postgres, "select id, k from many where k > 2 and id >= 19995")


INTEGERS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("smallint", "int")]


@pytest.mark.parametrize(
    ("column", "replication_key"),
    matrix(["date", "timestamp", "timestamptz", "bigint", *INTEGERS], [None, "k"]),
)
def test_ranges_of_every_kind_of_key(lake_spark, postgres, column, replication_key):
    start = {"date": "'2020-01-01'", "timestamp": "'2020-01-01 00:00:00.5'"}
    start["timestamptz"] = "'2020-01-01 00:00:00.5+03'"
    step = "i * '1 day'::interval" if column in start else "i"
    first = f"{start[column]}::{column}" if column in start else "-50"
    postgres.run(
        f"""create table spans (k {column} primary key, i int);
        insert into spans select ({first} + {step})::{column}, i from generate_series(1, 300) i"""
    )
    settings = {"partitions": 4, "snapshot": False, "replication_key": replication_key}
    (piece,) = slices_of(lake_spark, table_stream(postgres, "spans", **settings))
    assert piece.frame.rdd.getNumPartitions() == 4
    assert sorted(row[1] for row in piece.frame.collect()) == list(range(1, 301))
    postgres.run("drop table spans")
