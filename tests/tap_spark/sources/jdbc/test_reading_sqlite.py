"""A database that cannot share snapshots: one part, unless the user asks for more."""

from __future__ import annotations

import sqlite3

import pytest
from jdbc_runs import bookmark, rows_of, slices_of

from tap_spark.sources.source_failures import source_error
from tap_spark.stream_config import ConnectionConfig, StreamConfig

pytestmark = [pytest.mark.spark, pytest.mark.server]
ROWS = [(i, f"row {i}", None if i % 9 == 0 else i / 4) for i in range(-500, 1500)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sqlite") / "shop.db"
    with sqlite3.connect(path) as base:
        base.execute('create table "t""x" (id integer primary key, name text, rate real)')
        base.executemany('insert into "t""x" values (?, ?, ?)', ROWS)
    base.close()
    return path


def stream(file, partitions=None, **settings) -> StreamConfig:
    database = ConnectionConfig("lite", url=f"jdbc:sqlite:{file}", partitions=partitions)
    place = {} if "query" in settings else {"table": '"t""x"'}
    return StreamConfig("s", "jdbc", database=database, **place, **settings)


@pytest.mark.parametrize(
    ("partitions", "parts"),
    [(None, 1), pytest.param(1, 1, marks=pytest.mark.slow), (4, 4)],
)
def test_parts(lake_spark, file, partitions, parts):
    (piece,) = slices_of(lake_spark, stream(file, partitions))
    assert piece.frame.rdd.getNumPartitions() == parts
    assert sorted(tuple(row) for row in piece.frame.collect()) == ROWS


@pytest.mark.parametrize("partitions", [pytest.param(None, marks=pytest.mark.slow), 3])
def test_incremental(lake_spark, file, partitions):
    config = stream(file, partitions, replication_key="id")
    rows = rows_of(lake_spark, config, state=bookmark(1000, "id"))
    assert sorted(rows) == [row for row in ROWS if row[0] >= 1000]


@pytest.mark.parametrize("partitions", [pytest.param(None, marks=pytest.mark.slow), 3])
def test_the_end_date(lake_spark, file, partitions):
    config = stream(file, partitions, replication_key="id", end_date=1200)
    rows = rows_of(lake_spark, config, state=bookmark(1000, "id"))
    assert sorted(rows) == [row for row in ROWS if 1000 <= row[0] < 1200]


def test_the_end_date_of_a_key_with_nulls(lake_spark, file):
    (nulls, *others) = rows_of(lake_spark, stream(file, replication_key="rate", end_date=-124.5))
    assert len([nulls, *others]) == 2 + len([row for row in ROWS if row[2] is None])


def test_sessions_read_only(lake_spark, file):
    assert rows_of(lake_spark, stream(file, query='select count(*) n from "t""x";')) == [(2000,)]


@pytest.mark.parametrize("folder", ["no/such", ""])
def test_a_missing_file(lake_spark, tmp_path, folder):
    url = f"jdbc:sqlite:{tmp_path / folder / 'x.db'}"
    database = ConnectionConfig("lite", url=url, retries=0)
    with pytest.raises(Exception) as caught:
        rows_of(lake_spark, StreamConfig("s", "jdbc", table="x", database=database))
    assert "\n" not in str(source_error("s", caught.value))
    assert list(tmp_path.iterdir()) == [], "the driver makes no file"
