"""Tables of a real PostgreSQL, read in one part or many: every row once, every value as it is."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any

import pytest
from case_matrix import matrix
from jdbc_runs import bookmark, catalog_of, rows_of, slices_of, table_stream

from tap_spark.config import TapConfig
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.plan.run_options import RunOptions, StreamRange, as_asked
from tap_spark.sources.jdbc import part_plan
from tap_spark.sources.source import source_for

pytestmark = [pytest.mark.spark, pytest.mark.server]

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


TABLE_NAMES = [
    ("many", "id, v, k"),
    ("empty", "*"),
    ("one", "*"),
    ("keyless", "*"),
    ("pairs", "*"),
    ("texts", "*"),
    ("skewed", "*"),
    ("nullable", "*"),
    ("parted", "*"),
    ("parent", "*"),
    ("viewed", "*"),
    ("kept", "*"),
]


@pytest.mark.parametrize(("place", "parts"), matrix(TABLE_NAMES, [None, 1, 5], rounds=2))
def test_every_row_once_in_any_number_of_parts(lake_spark, postgres, place, parts):
    table, columns = place
    stream = table_stream(postgres, f"public.{table}", partitions=parts)
    rows = rows_of(lake_spark, stream, deselect=["u"])
    assert printed(rows) == copied(postgres, f"select {columns} from {table}")


@pytest.mark.parametrize(
    "table", ["many", "pairs", "texts", "skewed", "nullable", "parted", "one", "empty"]
)
def test_without_a_snapshot_parts_are_ranges_of_the_key(lake_spark, postgres, table):
    stream = table_stream(postgres, table, partitions=4, snapshot=False)
    rows = rows_of(lake_spark, stream, deselect=["u"])
    columns = "id, v, k" if table == "many" else "*"
    assert printed(rows) == copied(postgres, f"select {columns} from {table}")


@pytest.mark.parametrize(
    ("table", "snapshot", "parts"),
    [
        ("many", True, 4),
        ("many", False, 4),
        ("keyless", True, 4),
        ("keyless", False, 1),
        ("parted", True, 4),
        ("kept", True, 4),
        ("viewed", True, 1),
        ("empty", True, 1),
        ("pairs", False, 1),
        ("skewed", False, 4),
    ],
)
def test_how_many_parts_a_table_has(lake_spark, postgres, table, snapshot, parts):
    stream = table_stream(postgres, table, partitions=4, snapshot=snapshot)
    assert parts_of(lake_spark, stream) == [parts]


def parts_of(spark, stream, **run: Any) -> list[int]:
    """Count the parts of each slice, while the slice's snapshot is held."""
    return [piece.frame.rdd.getNumPartitions() for piece in slices_of(spark, stream, **run)]


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        ("many", {}),
        ("many", {"partitions": 4}),
        ("many", {"partitions": 4, "snapshot": False}),
        ("empty", {}),
        ("parted", {"partitions": 4}),
        ("parent", {}),
        (None, {"query": "select * from many where k = 3;"}),
        ("many", {"replication_key": "u", "partitions": 4}),
        ("many", {"replication_key": "u", "sort_by_replication_key": True}),
        ("nullable", {"replication_key": "k", "partitions": 3}),
    ],
)
def test_the_database_counts_what_is_read(lake_spark, postgres, table, settings):
    settings = {**settings, "count_rows": True}
    state = None
    if settings.get("replication_key") == "u":
        state = bookmark("2026-01-08T00:00:00Z", "u")
    if "replication_key" in settings:
        settings["replication_method"] = "INCREMENTAL"
    reported, read = [], 0
    for piece in slices_of(lake_spark, table_stream(postgres, table, **settings), state=state):
        reported.append(piece.told_rows)
        read += len(piece.frame.collect())
    assert sum(reported) == read
    assert read or table == "empty"


def test_the_database_counts_only_if_asked(lake_spark, postgres):
    [piece] = slices_of(lake_spark, table_stream(postgres, "one"))
    assert piece.told_rows is None


def test_small_tables_are_read_in_one_part(lake_spark, postgres):
    assert parts_of(lake_spark, table_stream(postgres, "many")) == [1]


def test_hostile_names(lake_spark, postgres):
    table = '"Od""d .sch`ma"."T\'a""b; drop table x --"'
    for parts in (1, 3):
        stream = table_stream(postgres, table, partitions=parts)
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
    ("many", "k", 6, "k >= 6 or k is null"),
    ("nullable", "k", 4, "k >= 4 or k is null"),
    ("nullable", "k", 99, "k is null"),
    ("skewed", "id", 1999, "id >= 1999"),
    ("skewed", "id", -(2**63), "true"),
    ("texts", "id", "Z", "id collate \"C\" >= 'Z'"),
    ("texts", "id", "a", "id collate \"C\" >= 'a'"),
    ("parted", "d", "2026-03-15", "d >= '2026-03-15'"),
    ("pairs", "a", -3, "a >= -3"),
]


@pytest.mark.parametrize(("bookmarked", "parts"), matrix(STARTS, [1, 3]))
def test_incremental_reads_from_the_bookmark_on(lake_spark, postgres, bookmarked, parts):
    table, key, start, condition = bookmarked
    stream = table_stream(postgres, table, replication_key=key, partitions=parts)
    rows = rows_of(lake_spark, stream, state=bookmark(start, key), deselect=["u"])
    columns = "id, v, k" if table == "many" else "*"
    assert printed(rows) == copied(postgres, f"select {columns} from {table} where {condition}")


def test_a_timestamp_bookmark_means_the_same_moment(lake_spark, postgres):
    stream = table_stream(postgres, "many", replication_key="u")
    moment = "2026-01-14T19:10:00.000000+00:00"
    rows = rows_of(lake_spark, stream, state=bookmark(moment, "u"))
    wanted = postgres.value(f"select count(*) from many where u >= '{moment}'")
    assert len(rows) == int(wanted) > 0


YEARS = """drop table if exists years; create table years (i int primary key, k {0});
insert into years values (1, '-infinity'), (2, '4713-02-01 BC'), (3, '0044-03-17 BC'),
  (4, '2026-01-03'), (5, '9999-12-29'), (6, '20000-03-02'), (7, 'infinity'), (8, null)"""


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_keys_of_all_years(lake_spark, postgres, kind):
    postgres.run(YEARS.format(kind))
    stream = table_stream(postgres, "years", replication_key="k")
    catalog = catalog_of(lake_spark, stream)

    def actual(start, stream=stream):
        state = {"bookmarks": {"s": {"replication_key_value": start}}}
        pieces = slices_of(lake_spark, stream, state=state, catalog=catalog)
        return sorted(row[0] for piece in pieces for row in piece.frame.select("i").collect())

    assert actual("-4712-01-01") == [2, 3, 4, 5, 6, 7, 8]
    assert actual("-0043-03-15T12:00:00+00:00") == [3, 4, 5, 6, 7, 8]
    assert actual("+20000-02-29") == [6, 7, 8]
    # Without a snapshot the greatest key bounds a run, unless it is infinite.
    parts = table_stream(postgres, "years", replication_key="k", snapshot=False, partitions=3)
    assert actual("2026-01-01", parts) == [4, 5, 6, 7, 8]


def test_sorted_by_the_replication_key(lake_spark, postgres):
    stream = table_stream(
        postgres, "nullable", replication_key="k", sort_by_replication_key=True, partitions=3
    )
    for piece in slices_of(lake_spark, stream):
        assert piece.ordered
        keys = [row[0] for row in piece.frame.collect()]
        assert keys == sorted(keys, key=lambda key: (key is not None, key))
        assert len(keys) == 3000


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(part_plan, "SLICE_ROWS", 3000)


@pytest.mark.parametrize("key", ["id", "u"])
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
    assert len(marks) == 6
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
    assert parts_of(lake_spark, stream) == [3]
    rows = rows_of(lake_spark, stream, deselect=["u", "k"])
    assert printed(rows) == copied(postgres, "select id, v from many")


def test_a_query(lake_spark, postgres):
    query = "select k, count(*) as n, array_agg(id) ids from many group by k; -- x"
    stream = table_stream(postgres, "", query=query)
    rows = rows_of(lake_spark, stream, deselect=["ids"])
    assert printed(rows) == copied(postgres, "select k, count(*) from many group by k")
    stream = table_stream(
        postgres, "", query="select id, k from many where k > 2", replication_key="id"
    )
    rows = rows_of(lake_spark, stream, state=bookmark(19_995, "id"))
    assert printed(rows) == copied(postgres, "select id, k from many where k > 2 and id >= 19995")


INTEGERS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("smallint", "int")]


@pytest.mark.parametrize("column", ["date", "timestamp", "timestamptz", "bigint", *INTEGERS])
def test_ranges_of_every_kind_of_key(lake_spark, postgres, column):
    start = {"date": "'2020-01-01'", "timestamp": "'2020-01-01 00:00:00.5'"}
    start["timestamptz"] = "'2020-01-01 00:00:00.5+03'"
    step = "i * '1 day'::interval" if column in start else "i"
    first = f"{start[column]}::{column}" if column in start else "-50"
    postgres.run(
        f"""create table spans (k {column} primary key, i int);
        insert into spans select ({first} + {step})::{column}, i from generate_series(1, 300) i"""
    )
    stream = table_stream(postgres, "spans", partitions=4, snapshot=False)
    assert parts_of(lake_spark, stream) == [4]
    assert sorted(row[1] for row in rows_of(lake_spark, stream)) == list(range(1, 301))
    stream = table_stream(postgres, "spans", partitions=4, snapshot=False, replication_key="k")
    assert sorted(row[1] for row in rows_of(lake_spark, stream)) == list(range(1, 301))
    postgres.run("drop table spans")
