"""Parts that become files of Delta tables without Spark."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lake_loads import Load, struct
from pyarrow import parquet

from shared.errors import DestinationError
from target_spark.core.load_plans import Layout
from target_spark.destinations.destination import RefusedByStoreError
from target_spark.destinations.lakes.delta.delta_files import file_stats
from target_spark.destinations.lakes.delta.delta_package import DeltaPackage
from target_spark.destinations.lakes.lake_format import NeedsSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("deltalake")
Make = Callable[..., Load]
NOON = dt.datetime(2024, 1, 1, 12, 0, 0, 5, tzinfo=dt.timezone.utc)
DDL = (
    "id long, name string, day date, at timestamp, n timestamp_ntz, x double, d decimal(9,2), "
    "b binary, f boolean, s struct<a: int, l: array<string>>, m map<string, long>"
)


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [
        {
            "id": n, "name": f"n{n}", "day": dt.date(2024, 1, n), "at": NOON, "x": n / 2,
            "n": NOON.replace(tzinfo=None), "d": Decimal("1.50"), "b": b"\0", "f": True,
            "s": {"a": n, "l": ["x", None]}, "m": [("k", n)],
        }
        for n in numbers
    ]  # fmt: skip


def engines(load: Load) -> list[str]:
    return [entry["engineInfo"].partition(":")[0].partition("/")[0] for entry in load.history()]


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_appended_parts_are_files_of_the_table(
    delta_load: Make, lake_spark: SparkSession, tmp_path: Path
) -> None:
    load = delta_load(DDL)
    load.load(rows(1, 2), rows(3))
    load.load(rows(4), noted=True)
    assert engines(load)[:2] == ["delta-rs", "delta-rs"]
    frame = lake_spark.newSession().table(load.name)
    assert sorted(row["id"] for row in frame.collect()) == [1, 2, 3, 4]
    actual = frame.where("id = 2").first()
    assert actual is not None
    wanted = {**rows(2)[0], "at": NOON.replace(tzinfo=None), "m": {"k": 2}, "b": bytearray(b"\0")}
    got = actual.asDict(recursive=True)
    got["at"] = got["at"].astimezone(dt.timezone.utc).replace(tzinfo=None)
    assert got == wanted
    at = "timestamp'2024-01-01 12:00:00.000005Z'"
    wheres = {"day >= '2024-01-03'": 2, f"at <= {at}": 4, f"at < {at}": 0, "name = 'n4'": 1}
    for where, count in wheres.items():
        assert frame.where(where).count() == count
    assert not list((tmp_path / "lake").glob(".orders.run-*/pending/*.parquet"))
    left = frozenset(load.noted)
    load.begin()
    assert load.recall() == left


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_a_table_made_without_spark_is_that_of_spark(
    delta_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {"description": "It's one", "properties": {"id": {"description": "The 'key'"}}}
    created = {}
    for table in ("spark", "driver"):
        load = delta_load(
            "id long not null, `Na me` string, at timestamp, d decimal(9,2), b binary, y tinyint, "
            "s struct<a: int, l: array<string>>, m map<string, long>",
            table=table,
            schema=about,
        )
        if table == "spark":
            monkeypatch.setattr(DeltaPackage, "create", refused)
        load.load([{"id": 1, "Na me": "x"}])
        monkeypatch.undo()
        form, opened = load.destination._form, load.handle()
        by_log, by_spark = form.packages[0].describe(opened), form.describe(opened)
        assert (by_log.struct, by_log.names) == (by_spark.struct, by_spark.names)
        assert (by_log.partitions, load.rows("id")) == (by_spark.partitions, [(1,)])
        assert by_log.properties.items() <= by_spark.properties.items()
        assert by_log.size == by_spark.size
        comment = load.sql("DESCRIBE DETAIL {t}")[0]["description"]
        created[table] = (by_spark.struct.json(), by_spark.properties, comment)
    assert created["driver"] == created["spark"]
    assert created["driver"][2] == "It's one"


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_local_times_need_a_feature_that_the_package_adds(delta_load: Make) -> None:
    """Spark changes rows and columns of such a table, as of one that it has created."""
    load = delta_load("id long, n timestamp_ntz", keys=("id",), method="upsert")
    noon = NOON.replace(tzinfo=None)
    load.load([{"id": 1, "n": noon}, {"id": 2, "n": None}])
    assert set(engines(load)) == {"delta-rs"}
    form, opened = load.destination._form, load.handle()
    by_log, by_spark = form.packages[0].describe(opened), form.describe(opened)
    assert (by_log.struct, by_log.size) == (by_spark.struct, by_spark.size)
    load.struct = struct("id long, n timestamp_ntz, more int")
    load.load([{"id": 2, "n": noon, "more": 5}, {"id": 3, "n": noon}])
    assert load.rows() == [(1, noon, None), (2, noon, 5), (3, noon, None)]
    strict = delta_load("id long not null, n timestamp_ntz", table="strict")
    strict.load([{"id": 1, "n": noon}])
    assert (strict.required(), strict.rows()) == (["id"], [(1, noon)])


def refused(*_: Any) -> None:
    raise NeedsSparkError


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_versions_below_are_found_by_statistics(
    delta_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = delta_load("id long, _sdc_table_version long, _sdc_deleted_at timestamp")
    load.activate(5)
    load.load([{"id": 1, "_sdc_table_version": 5}], [{"id": 2, "_sdc_table_version": 7}])
    before = len(load.history())
    load.activate(5)
    assert len(load.history()) == before
    assert load.rows("_sdc_deleted_at") == [(None,), (None,)]
    load.activate(7, at=86400.0)
    assert [row[1] is None for row in load.rows("id", "_sdc_deleted_at")] == [False, True]
    load.load([{"id": 3, "_sdc_table_version": None}])
    load.activate(7)
    assert len(load.rows()) == 3, "without bounds Spark looks"


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_a_flush_is_registered_once(delta_load: Make) -> None:
    load = delta_load("id long")
    flush = load.flush([{"id": 1}], token="r-000001")
    load.destination.commit(flush)
    load.destination.commit(flush)
    again = load.other()
    again.destination.commit(again.flush([{"id": 1}], token="r-000001"))
    assert load.rows() == [(1,)]
    assert engines(load)[0] == "delta-rs"


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_an_overwrite_exchanges_the_files(delta_load: Make, lake_spark: SparkSession) -> None:
    """In one commit, for a new table and for one that has the columns; readers see either."""
    load = delta_load(DDL, method="overwrite", keys=("id",))
    for batches in (([1, 2], [3]), ([2], [4, 5], [6])):
        load.begin()
        *_, last = [load.load(rows(*numbers)) for numbers in batches]
        before = None if batches[0] == [1, 2] else load.history()
        load.end()
    assert engines(load) == ["delta-rs"] * len(load.history())
    assert before is not None
    assert len(load.history()) == len(before) + 1
    frame = lake_spark.newSession().table(load.name)
    assert sorted(row["id"] for row in frame.collect()) == [2, 4, 5, 6]
    old = lake_spark.sql(f"SELECT id FROM {load.name} VERSION AS OF {len(before) - 1}")
    assert sorted(row["id"] for row in old.collect()) == [1, 2, 3]
    assert load.marks()[0].token == last.token


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
@pytest.mark.parametrize("why", ["a key twice", "other columns", "append only", "a new column"])
def test_other_overwrites_are_spark_s(delta_load: Make, why: str) -> None:
    load = delta_load("id long, name string", method="overwrite", keys=("id",))
    load.load([{"id": 1, "name": "a"}])
    load.end()
    load.begin()
    if why == "append only":
        load.spark.sql(f"ALTER TABLE {load.name} SET TBLPROPERTIES ('delta.appendOnly'='true')")
    if why == "other columns":
        load.struct = struct("id long, name double")
    load.load([{"id": 2, "name": None}])
    if why == "a new column":
        load.struct = struct("id long, name string, more string")
    load.load([{"id": 2 if why == "a key twice" else 3, "name": None}])
    if why == "append only":
        with pytest.raises(DestinationError, match="append"):
            load.end()
        assert load.rows("id") == [(1,)]
        return
    load.end()
    assert engines(load)[0] == "Apache-Spark"
    assert load.rows("id") == ([(2,)] if why == "a key twice" else [(2,), (3,)])


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_spark_and_the_package_write_by_turns(delta_load: Make) -> None:
    load = delta_load("id long, name string")
    load.load([{"id": 1, "name": "a"}])
    load.method, load.keys = "upsert", ("id",)
    load.load([{"id": 1, "name": "b"}, {"id": 2, "name": "c"}])
    load.method = "append-only"
    load.struct = struct("more int, id long")
    load.load([{"id": 3, "more": 5}])
    assert load.rows() == [(1, "b", None), (2, "c", None), (3, None, 5)]
    assert engines(load)[0] == "delta-rs"


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_what_needs_a_change_goes_through_spark(delta_load: Make) -> None:
    for table, ddl, changes in (
        ("renamed", "`a b` long", {}),
        ("partitioned", "id long, v long", {"layout": Layout(partition_by=("id",))}),
        ("clustered", "id long", {"layout": Layout(cluster_by=("id",))}),
        ("variant", "id variant", {}),
        ("feed", "id long", {"layout": Layout(properties={"delta.enableRowTracking": "true"})}),
    ):
        load = delta_load(ddl, table=table, **changes)
        load.load([{load.struct.names[0]: "1" if table == "variant" else 1}])
        assert len(load.rows()) == 1
        assert set(engines(load)) == {"Apache-Spark"}
    widened = delta_load("id int", table="widened")
    widened.load([{"id": 1}])
    widened.struct = struct("id long")
    widened.load([{"id": 1 << 40}])
    widened.struct = struct("id int")
    widened.load([{"id": 2}])
    assert widened.rows() == [(1,), (1 << 40,), (2,)]


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_a_folder_whose_name_is_escaped_is_left_to_spark(delta_load: Make) -> None:
    load = delta_load("id long", table="a:b?c")
    load.load([{"id": 1}])
    load.load([{"id": 2}])
    assert "%3A" in load.name
    assert sorted(load.rows()) == [(1,), (2,)]
    assert "delta-rs" not in engines(load)


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_a_null_for_not_null_is_refused_still(delta_load: Make) -> None:
    load = delta_load("id long not null, v long")
    load.load([{"id": 1, "v": 1}])
    with pytest.raises(RefusedByStoreError):
        load.load([{"id": None, "v": 2}])
    assert load.rows() == [(1, 1)]


def test_statistics_of_a_file_are_exact_or_left_out(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([3, None, -1], pa.int64()),
            "s": ["b", "a", None],
            "long": ["x" * 100, "y", "z"],
            "x": [1.0, float("nan"), 2.0],
            "none": pa.nulls(3, pa.int32()),
            "at": pa.array([NOON, None, NOON], pa.timestamp("us", "UTC")),
            "f": [True, False, None],
            "deep": [{"a": 1}, None, {"a": 2}],
            # 10000-01-01T04:59:59Z and 0000-12-31T23:00:00Z: in Parquet, and not in Python.
            "late": pa.array([253402318799000000, 0, None], pa.timestamp("us", "UTC")),
            "early": pa.array([0, None, -62135600400000000], pa.timestamp("us")),
            "year0": pa.array([-719528, 0, 0], pa.date32()),
        }
    )
    path = str(tmp_path / "x.parquet")
    parquet.write_table(table, path, row_group_size=2)
    stats = json.loads(json.dumps(file_stats(path)))
    assert stats["numRecords"] == 3
    nulls = {"i": 1, "s": 1, "long": 0, "x": 0, "none": 3, "at": 1, "f": 1}
    assert stats["nullCount"] == {**nulls, "late": 1, "early": 1, "year0": 0}
    assert stats["minValues"] == {"i": -1, "s": "a", "at": "2024-01-01T12:00:00.000005Z"}
    assert stats["maxValues"] == {"i": 3, "s": "b", "at": "2024-01-01T12:00:00.000005Z"}
