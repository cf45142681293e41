"""Changes of rows of Delta tables without Spark: the rows are those that Spark makes."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from hypothesis import given, settings
from hypothesis import strategies as st
from lake_loads import DeltaLoad, Load, lake_config, struct
from pyarrow import parquet
from pyspark.sql.types import StringType, StructField, StructType

from shared.engine.engine import Report, Threads, Work
from shared.errors import DestinationError
from target_spark.core.load_plans import Layout, Part, SchemaContract
from target_spark.destinations.destination import RefusedByStoreError
from target_spark.destinations.lakes.delta import delta_files, delta_merge, delta_package
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.lake_sql import KeyRange, MergePlan
from target_spark.destinations.lakes.lake_table import LakeTable, LostCommit, OpenTable, read_mark
from target_spark.destinations.lakes.lake_work import LakeWork
from target_spark.destinations.lakes.small_flush import newest_of_keys

Make = Callable[..., Load]
KEYED: dict[str, Any] = {"keys": ("id",), "method": "upsert"}
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc)


def engines(load: Load) -> list[str]:
    """Return the programs of the table's commits, newest first."""
    return [entry["engineInfo"].partition(":")[0].partition("/")[0] for entry in load.history()]


@pytest.mark.spark
@pytest.mark.server
def test_a_merge_reads_only_files_of_its_keys(delta_load: Make) -> None:
    load = delta_load("id long, v long", **KEYED)
    for first in (0, 100, 200):
        load.load([{"id": first + n, "v": 0} for n in range(10)])
    load.load([{"id": 105, "v": 1}, {"id": 105, "v": 2}, {"id": 106, "v": 3}], state="s")
    metrics = load.history()[0]["operationMetrics"]
    assert (metrics["numTargetFilesRemoved"], metrics["numTargetRowsUpdated"]) == ("1", "2")
    assert [row for row in load.rows() if row[1]] == [(105, 2), (106, 3)]
    assert load.marks()[0].state == "s"


@pytest.mark.spark
@pytest.mark.server
def test_decimal_keys_beyond_exact_bounds_are_found(delta_load: Make) -> None:
    load = delta_load("id decimal(38,0), v long", **KEYED)
    one, two, three = (Decimal(f"1{n:037}") for n in (1, 2, 3))
    load.load([{"id": one, "v": 0}], [{"id": two, "v": 0}])
    load.load([{"id": one, "v": 1}, {"id": three, "v": 1}])
    assert load.rows() == [(one, 1), (two, 0), (three, 1)]
    assert engines(load)[0] == "target-spark"


@pytest.mark.spark
@pytest.mark.server
def test_files_have_no_bounds_that_hide_rows(delta_load: Make) -> None:
    """The package writes bounds of decimals as doubles, and without NaN."""
    wide_kind = "decimal(38,2)"
    load = delta_load(
        f"id decimal(18,4), wide {wide_kind}, x double, n struct<d: {wide_kind}>, v decimal(9,2)",
        **KEYED,
    )
    key, wide, nan = Decimal("12345678901234.5678"), Decimal(f"{'9' * 36}.99"), float("nan")
    row = {"wide": wide, "n": {"d": wide}, "v": Decimal("1.25")}
    load.load([{"id": key, "x": 0.5}])
    load.load([{**row, "id": key, "x": 0.5}, {**row, "id": Decimal(1), "x": nan}])
    assert engines(load)[0] == "target-spark"
    for condition in ("x > 5", f"wide = {wide}", f"n.d = {wide}", "v = 1.25"):
        assert load.sql(f"SELECT id FROM {{t}} WHERE {condition} AND id = 1") == [(Decimal(1),)]
    sparks = load.other(config=replace(load.config, engine="spark"))
    sparks.load([{**row, "id": key, "x": nan}])
    assert engines(load)[0] == "Apache-Spark"
    assert load.sql("SELECT count(*) FROM {t}") == [(2,)]


@pytest.mark.spark
@pytest.mark.server
def test_spark_merges_what_is_too_large(delta_load: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    load = delta_load("id long, v string", **KEYED)
    load.load([{"id": n, "v": "x" * n} for n in range(1000)])
    for name in ("MOST_REWRITTEN", "MOST_BYTES"):
        monkeypatch.setattr(delta_merge, name, 10)
        load.load([{"id": 0, "v": name}, {"id": 1000, "v": name}])
        monkeypatch.undo()
        assert engines(load)[0] == "Apache-Spark"
        assert [row for row in load.rows() if row[1] == name] == [(0, name), (1000, name)]
    assert len(load.rows()) == 1001


@pytest.mark.spark
@pytest.mark.server
def test_tasks_of_spark_merge_what_is_large(
    delta_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = delta_load("id long, v string", engine="spark", **KEYED)
    load.load([{"id": n, "v": "x"} for n in range(10)])
    for name, limit in (("ONE_TASK_BYTES", 0), ("LINKED_BYTES", 0)):
        monkeypatch.setattr(delta_merge if name[0] == "L" else delta_package, name, limit)
        load.load([{"id": 0, "v": name}], [{"id": len(load.rows()), "v": name}])
        assert engines(load)[0] == "target-spark"
        assert load.history()[0]["operationMetrics"]["numTargetRowsUpdated"] == "1"
    rows = [(0, "LINKED_BYTES"), *((n, "x") for n in range(1, 10))]
    assert sorted(load.rows()) == [*rows, (10, "ONE_TASK_BYTES"), (11, "LINKED_BYTES")]
    sparks = load.other(config=replace(load.config, adopt_files=False))
    sparks.load([{"id": 1, "v": "y"}])
    assert engines(load)[0] == "Apache-Spark"


@pytest.mark.spark
@pytest.mark.server
def test_a_flush_is_merged_once(delta_load: Make) -> None:
    load = delta_load("id long, v string", **KEYED)
    load.load([{"id": 1, "v": "a"}])
    token = load.load([{"id": 1, "v": "b"}]).token
    before = len(load.history())
    load.destination.commit(load.flush([{"id": 1, "v": "b"}], token=token))
    again = load.other()
    again.destination.commit(again.flush([{"id": 1, "v": "b"}], token=token))
    assert (load.rows(), len(load.history())) == ([(1, "b")], before)


def test_an_error_of_a_task_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, part = tmp_path / "t", tmp_path / "part.parquet"
    for key in "ab":
        write_deltalake(folder, pa.table({"id": [key], "v": ["x"]}), mode="append")
    (rotten,) = [path for path in folder.glob("*.parquet") if "a" in rows_of_file(path)]
    before = sorted(tmp_path.rglob("*"))
    rotten.write_bytes(b"no Parquet")
    monkeypatch.setattr(delta_merge, "_TASKS_PER_CORE", 1)
    parquet.write_table(pa.table({"id": ["a", "b"], "v": ["y", "y"]}), part)
    now = delta_files.look_up(str(folder))
    assert now is not None
    plan = MergePlan([KeyRange("id", nulls=False)], ["id", "v"], ["v"])
    parts = [Part(str(part), 2, part.stat().st_size)]
    with pytest.raises(NeedsSparkError):
        delta_merge.merge_rows(str(folder), parts, now, plan, 2, "m", {}, PickledTasks(1))
    assert sorted(path for path in tmp_path.rglob("*") if path != part) == before


def rows_of_file(path: Path) -> list[Any]:
    keys: list[Any] = parquet.read_table(path)["id"].to_pylist()
    return keys


@pytest.mark.spark
@pytest.mark.server
def test_rules_that_only_spark_keeps_are_left_to_it(delta_load: Make) -> None:
    load = delta_load("id long, v string", **KEYED)
    load.sql("CREATE TABLE {t} (id BIGINT, v VARCHAR(3)) USING delta")
    load.load([{"id": 1, "v": "abc"}])
    with pytest.raises(RefusedByStoreError, match=r"(?i)length|varchar"):
        load.load([{"id": 1, "v": "long"}])
    inside = delta_load("id long, n struct<a: long>", table="inside", method="append-only")
    inside.sql("CREATE TABLE {t} (id BIGINT, n STRUCT<a: BIGINT NOT NULL>) USING delta")
    with pytest.raises(RefusedByStoreError, match=r"(?i)not null"):
        inside.load([{"id": 1, "n": {"a": None}}])
    inside.load([{"id": 2, "n": {"a": 1}}])
    assert [row[0] for row in inside.rows("id")] == [2]
    frozen = delta_load("id long, v string", table="frozen", **KEYED,
                        layout=Layout(properties={"delta.appendOnly": "true"}))  # fmt: skip
    frozen.load([{"id": 1, "v": "a"}])
    with pytest.raises(DestinationError, match=r"(?i)append"):
        frozen.load([{"id": 1, "v": "b"}])
    assert frozen.rows() == [(1, "a")]


@pytest.mark.spark
@pytest.mark.server
def test_columns_are_added_without_spark(delta_load: Make) -> None:
    about = {"properties": {"more": {"description": "It's more"}}}
    load = delta_load("id long not null, v string", schema=about, **KEYED)
    load.sql("CREATE TABLE {t} (id BIGINT NOT NULL, v STRING) USING delta")
    load.load([{"id": 1, "v": "a"}])
    load.struct = struct("id long not null, v string, more struct<a: int, d: date>")
    load.load([{"id": 1, "more": {"a": 1, "d": dt.date(2024, 2, 29)}}, {"id": 2}])
    assert [entry["operation"] for entry in load.history()] == [
        "MERGE", "ADD COLUMN", "WRITE", "CREATE TABLE",
    ]  # fmt: skip
    assert engines(load) == ["target-spark", "delta-rs", "delta-rs", "Apache-Spark"]
    assert load.columns()[2] == ("more", "struct<a:int,d:date>")
    assert load.reader().table(load.name).schema["more"].metadata == {"comment": "It's more"}
    assert load.required() == ["id"]
    load.struct = struct("id long not null, at timestamp_ntz")
    load.contract = SchemaContract(rules="evolve")
    load.load([{"id": 2, "at": NOON.replace(tzinfo=None)}])
    assert "Apache-Spark" in engines(load)[:3], "it needs a feature of the table"
    assert [row[0] for row in load.rows("id")] == [1, 2]


rows_of = delta_merge._stored_rows


def keys_alone(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Lose the rows that are to be written anew."""
    return rows_of(path, schema) if len(schema) == 1 else iter(())


@pytest.mark.spark
@pytest.mark.server
def test_a_merge_that_loses_rows_is_left_to_spark(
    delta_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader sees it: it is checked before it is committed."""
    load = delta_load("id long, v string", **KEYED)
    load.load([{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
    monkeypatch.setattr(delta_merge, "_stored_rows", keys_alone)
    load.load([{"id": 1, "v": "b"}])
    assert load.rows() == [(1, "b"), (2, "a")]
    assert engines(load)[0] == "Apache-Spark"
    assert [entry["operation"] for entry in load.history()][:2] == ["MERGE", "WRITE"]


@pytest.mark.parametrize(
    "stats", [{}, {"numRecords": 2}, {"numRecords": 2, "minValues": {}, "maxValues": {}}]
)
def test_files_without_bounds_are_merged(tmp_path: Path, stats: dict[str, Any]) -> None:
    def rows(value: str, *keys: str) -> pa.Table:
        return pa.table({"id": keys, "v": [value] * len(keys)})

    folder, part = tmp_path / "t", tmp_path / "part.parquet"
    write_deltalake(folder, rows("a", "m"))
    parquet.write_table(rows("a", "p", "q"), folder / "x.parquet")
    table = DeltaTable(folder)
    size = (folder / "x.parquet").stat().st_size
    action = AddAction("x.parquet", size, {}, 1, True, json.dumps(stats))
    table.create_write_transaction([action], "append", table.schema(), [])
    parquet.write_table(rows("b", "q", "z"), part)
    now = delta_files.look_up(str(folder))
    assert now is not None
    plan = MergePlan([KeyRange("id", nulls=False)], ["id", "v"], ["v"])
    changed = delta_merge.merge_rows(
        str(folder), [Part(str(part), 2, part.stat().st_size)], now, plan, 2, "mark", {"app": 1}
    )
    actual = DeltaTable(folder).to_pyarrow_table().sort_by("id").to_pylist()
    assert changed == 2
    assert [(row["id"], row["v"]) for row in actual] == [
        ("m", "a"), ("p", "a"), ("q", "b"), ("z", "b"),
    ]  # fmt: skip


@pytest.mark.parametrize("year", [1, 1600, 9999])
def test_instants_that_spark_wrote_are_kept(tmp_path: Path, year: int) -> None:
    """Spark writes them as INT96, whose nanoseconds Arrow has for few years alone."""
    at = dt.datetime(year, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone.utc)
    kind = pa.timestamp("us", "UTC")
    rows = pa.table({"id": ["a", "b"], "v": pa.array([at, at], kind)})
    folder, part = tmp_path / "t", tmp_path / "part.parquet"
    write_deltalake(folder, rows)
    spark_kind = {"use_deprecated_int96_timestamps": True}
    parquet.write_table(rows, next(folder.glob("*.parquet")), **spark_kind)
    parquet.write_table(rows.slice(0, 1), part)
    now = delta_files.look_up(str(folder))
    assert now is not None
    plan = MergePlan([KeyRange("id", nulls=False)], ["id", "v"], ["v"])
    parts = [Part(str(part), 1, part.stat().st_size)]
    assert delta_merge.merge_rows(str(folder), parts, now, plan, 1, "mark", {}) == 1
    assert DeltaTable(folder).to_pyarrow_table().sort_by("id").to_pydict() == rows.to_pydict()


def test_large_parts_become_files_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory are their keys alone."""
    monkeypatch.setattr(delta_merge, "LINKED_BYTES", 0)
    folder, part = tmp_path / "t", tmp_path / "part.parquet"
    write_deltalake(folder, pa.table({"id": ["a", "b"], "v": ["x", "x"]}))
    assert merge_row(folder, part, "b", 1) == 1
    (added,) = [path for path in folder.glob("*.parquet") if path.stat().st_nlink > 1]
    assert added.samefile(part)
    assert sorted(DeltaTable(folder).to_pyarrow_table().to_pydict()["v"]) == ["b", "x"]


def test_large_parts_on_another_disk_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `staging.root` on a disk that the table is not on."""
    shared_memory = Path("/dev/shm")
    if not shared_memory.is_dir() or shared_memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("not offered: another disk")
    monkeypatch.setattr(delta_merge, "LINKED_BYTES", 0)
    folder = tmp_path / "t"
    write_deltalake(folder, pa.table({"id": ["a", "b"], "v": ["x", "x"]}))
    with tempfile.TemporaryDirectory(dir=shared_memory) as other:
        assert merge_row(folder, Path(other) / "part.parquet", "b", 1) == 1
    assert sorted(DeltaTable(folder).to_pyarrow_table().to_pydict()["v"]) == ["b", "x"]
    assert len(list(folder.glob("*.parquet"))) == 2


def test_a_signal_after_the_commit_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t"
    write_deltalake(folder, pa.table({"id": ["a", "b"], "v": ["x", "x"]}))
    commit = delta_merge._commit

    def interrupted(*arguments: Any) -> None:
        commit(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(delta_merge, "_commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        merge_row(folder, tmp_path / "part.parquet", "b", 1)
    assert sorted(DeltaTable(folder).to_pyarrow_table().to_pydict()["v"]) == ["b", "x"]


def merge_row(
    folder: Path, part: Path, key: str, version: int, now: LakeTable | None = None
) -> int | None:
    parquet.write_table(pa.table({"id": [key], "v": ["b"]}), part)
    now = now or delta_files.look_up(str(folder))
    assert now is not None
    plan = MergePlan([KeyRange("id", nulls=False)], ["id", "v"], ["v"])
    parts = [Part(str(part), 1, part.stat().st_size)]
    return delta_merge.merge_rows(str(folder), parts, now, plan, 1, "mark", {"app": version})


def test_a_merge_is_checked_before_anybody_can_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, part = tmp_path / "t", tmp_path / "part.parquet"
    write_deltalake(folder, pa.table({"id": ["a", "b"], "v": ["a", "a"]}))
    before = sorted(path for path in tmp_path.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(delta_merge, "_stored_rows", keys_alone)
        with pytest.raises(NeedsSparkError):
            merge_row(folder, part, "a", 1)
    assert sorted(path for path in tmp_path.rglob("*") if path != part) == before
    with monkeypatch.context() as patch:
        commit = delta_merge._commit

        def overtaken(*arguments: Any) -> None:
            write_deltalake(folder, pa.table({"id": ["c"], "v": ["a"]}), mode="append")
            commit(*arguments)

        patch.setattr(delta_merge, "_commit", overtaken)
        with pytest.raises(CommitFailedError):
            merge_row(folder, part, "a", 1)
    assert "b" not in DeltaTable(folder).to_pyarrow_table()["v"].to_pylist()
    assert len(list(folder.glob("*.parquet"))) == len(DeltaTable(folder).file_uris())


@pytest.mark.parametrize("linked_bytes", [0, delta_merge.LINKED_BYTES])
def test_a_column_that_comes_meanwhile_keeps_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked_bytes: int
) -> None:
    monkeypatch.setattr(delta_merge, "LINKED_BYTES", linked_bytes)
    folder, part = tmp_path / "t", tmp_path / "part.parquet"
    write_deltalake(folder, pa.table({"id": ["a", "b"], "v": ["a", "a"]}))
    now = delta_files.look_up(str(folder))
    rows = pa.table({"id": ["c"], "v": ["a"], "w": ["theirs"]})
    write_deltalake(folder, rows, mode="append", schema_mode="merge")
    with pytest.raises(LostCommit):
        merge_row(folder, part, "c", 1, now)
    assert len(list(folder.glob("*.parquet"))) == 2
    assert merge_row(folder, part, "c", 1) == 1
    actual = DeltaTable(folder).to_pyarrow_table().sort_by("id").to_pylist()
    assert actual[-1] == {"id": "c", "v": "b", "w": "theirs"}


@contextmanager
def without_spark(folder: Path, method: str) -> Iterator[DeltaLoad]:
    columns = StructType([StructField(name, StringType()) for name in ("id", "v")])
    config = lake_config("delta", folder, in_catalog=False)
    load = DeltaLoad(cast("Any", None), config, columns, ("id",), method)
    with closing(SimpleNamespace(close=load.destination._close)):
        yield load


@pytest.mark.parametrize("number", [1, 2])
def test_a_load_goes_on_with_the_columns_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """They add a column between the look at the table and an append (1) or a MERGE (2)."""
    shape, calls = LakeWork.shape, iter(range(9))

    def overtaken(work: LakeWork, table: OpenTable, *arguments: Any) -> Any:
        result = shape(work, table, *arguments)
        if next(calls) == number:
            rows = pa.table({"id": ["a"], "v": ["x"], "w": ["theirs"]})
            how: Any = {"mode": "overwrite", "schema_mode": "merge", "predicate": "id = 'a'"}
            write_deltalake(f"{load.config.path}/{load.table}", rows, **how)
        return result

    monkeypatch.setattr(LakeWork, "shape", overtaken)
    with without_spark(tmp_path, "upsert") as load:
        for value in "xyz":
            load.load([{"id": "a" if value != "y" else "c", "v": value}])
        assert load.rows() == [("a", "z", "theirs"), ("c", "y", None)]
    assert engines(load).count("target-spark") == 1


def test_a_table_is_emptied_without_spark(tmp_path: Path) -> None:
    with without_spark(tmp_path, "overwrite") as load:
        for rows in ([], [{"id": "a", "v": "x"}], []):
            run = load.other()
            run.load(*([rows] if rows else []), state="s")
            run.end()
            assert load.rows() == [tuple(row.values()) for row in rows]
            mark = read_mark(load.history()[0]["userMetadata"])
            assert mark is not None
            assert (mark.run, mark.state, mark.rows) == (run.run, "s", len(rows) or None)
            run.destination._close()


def test_files_are_divided_at_once() -> None:
    files = [(Path(str(n)), n) for n in range(100_000)]
    shares = delta_merge._shares(iter(files), 8)
    assert sorted(file for share in shares for file in share) == sorted(files)
    sizes = [sum(size for _, size in share) for share in shares]
    assert max(sizes) - min(sizes) < 100_000


def test_rows_that_threads_cannot_number_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_merge, "_MOST_NUMBERED", 2)
    folder, part = tmp_path / "t", tmp_path / "part.parquet"
    for keys in (["a"], ["b", "c"]):
        rows = pa.table({"id": keys, "v": ["x"] * len(keys)})
        write_deltalake(folder, rows, mode="append")
    with pytest.raises(NeedsSparkError):
        merge_row(folder, part, "a", 1)
    monkeypatch.setattr(delta_merge, "_MOST_NUMBERED", 3)
    assert merge_row(folder, part, "a", 1) == 1


@pytest.mark.parametrize("interval", ["5", "0", "often"])
def test_checkpoints_follow_merges_that_were_checked(tmp_path: Path, interval: str) -> None:
    folder, part = tmp_path / "t", tmp_path / "part.parquet"
    table = pa.table({"id": ["a"], "v": ["a"]})
    write_deltalake(folder, table, configuration={"delta.checkpointInterval": interval})
    for version in range(1, 13):
        assert merge_row(folder, part, f"k{version % 4}", version) == 1
    assert merge_row(folder, part, "k1", 12) is None
    log = folder / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 10
    opened = DeltaTable(folder)
    assert opened.version() == 12
    assert sorted(opened.to_pyarrow_table()["id"].to_pylist()) == ["a", "k0", "k1", "k2", "k3"]
    assert [path.name for path in log.iterdir() if path.name.startswith(".")] == []


ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "a", "b"]),
        "g": st.sampled_from([None, 1]),
        "o": st.none() | st.integers(-2, 2),
        "p": st.none() | st.sampled_from(["", "x"]),
    }
)


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12), st.sampled_from([(), ("o",), ("o", "p")]))
def test_the_newest_row_of_each_key(rows: list[dict[str, Any]], order_by: tuple[str, ...]) -> None:
    def rank(row: dict[str, Any]) -> list[Any]:
        return [
            (row[name] is not None, row[name] or (0 if name == "o" else "")) for name in order_by
        ]

    wanted: dict[Any, dict[str, Any]] = {}
    for row in rows:
        key = row["k"], row["g"]
        if key not in wanted or rank(row) >= rank(wanted[key]):
            wanted[key] = row
    schema = pa.schema([("k", "string"), ("g", "int64"), ("o", "int64"), ("p", "string")])
    actual = newest_of_keys(pa.Table.from_pylist(rows, schema), ["k", "g"], order_by)
    created = pa.Table.from_pylist(list(wanted.values()), schema)
    assert sorted(map(repr, actual.to_pylist())) == sorted(map(repr, created.to_pylist()))


KEY = st.none() | st.integers(0, 3)
RECORD = st.fixed_dictionaries(
    {
        "a": KEY,
        "b": st.none() | st.sampled_from(["", "x", "y"]),
        "c": KEY.map(lambda n: None if n is None else n == 1),
        "v": st.integers(),
        "o": st.none() | st.integers(0, 2),
        "gone": st.sampled_from([None, None, dt.date(2024, 1, 1)]),
    }
)
RECORDS = pa.schema(
    [("a", "int64"), ("b", "string"), ("c", "bool"), ("v", "string"), ("o", "int64"),
     ("gone", "date32")]
)  # fmt: skip


class PickledTasks(Threads):
    """Runs tasks as Spark does: each has a copy of the work."""

    def run(self, task: Any, count: int, work: Work) -> list[Report]:
        return super().run(pickle.loads(pickle.dumps(task)), count, work)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(RECORD, max_size=9), min_size=1, max_size=4),
    st.lists(RECORD, min_size=1, max_size=9),
    st.sampled_from([("a",), ("b", "a"), ("c", "b", "a")]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, delta_merge.LINKED_BYTES]),
    st.booleans(),
)
def test_a_merge_is_that_of_a_table_in_memory(
    before: list[list[dict[str, Any]]],
    flush: list[dict[str, Any]],
    keys: tuple[str, ...],
    ordered: bool,
    hard: bool,
    linked_bytes: int,
    in_tasks: bool,
) -> None:
    def table(rows: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist([{**row, "v": str(row["v"])} for row in rows], RECORDS)

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in keys)

    def rank(row: dict[str, Any]) -> int:
        return -1 if row["o"] is None else row["o"]

    with tempfile.TemporaryDirectory() as name:
        folder, part = Path(name) / "t", Path(name) / "part.parquet"
        for rows in before:
            write_deltalake(folder, table(rows), mode="append")
        parquet.write_table(table(flush), part)
        newest: dict[Any, dict[str, Any]] = {}
        for row in flush:
            if key(row) not in newest or not ordered or rank(row) >= rank(newest[key(row)]):
                newest[key(row)] = row
        wanted, changed = [], 0
        stored = [row for rows in before for row in rows]
        for old in stored:
            row = newest.get(key(old))
            if row is None or (ordered and rank(row) < rank(old)):
                wanted.append(old)
                continue
            changed += 1
            if not (hard and row["gone"]):
                wanted.append({**row, "gone": row["gone"]})
        present = {key(old) for old in stored}
        added = [r for k, r in newest.items() if k not in present and not (hard and r["gone"])]
        now = delta_files.look_up(str(folder))
        assert now is not None
        plan = MergePlan(
            [KeyRange(one) for one in keys],
            RECORDS.names,
            [one for one in RECORDS.names if one not in keys],
            "gone" if hard else None,
            ("o",) if ordered else (),
        )
        parts = [Part(str(part), len(flush), part.stat().st_size)]
        with mock.patch.object(delta_merge, "LINKED_BYTES", linked_bytes):
            supplied = now, plan, len(newest), "m", {}, PickledTasks(2) if in_tasks else None
            reported = delta_merge.merge_rows(str(folder), parts, *supplied)
        actual = DeltaTable(folder).to_pyarrow_table()
        assert reported == changed + len(added)
        assert sorted(map(repr, actual.to_pylist())) == sorted(
            map(repr, table([*wanted, *added]).to_pylist())
        )
