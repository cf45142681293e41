"""Which files a Delta table adopts, and what a failed commit of them leaves. No Spark."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from pyspark.sql.types import LongType, StructField, StructType

from target_spark.core.load_plans import Part
from target_spark.destinations.lakes.delta import delta_files
from target_spark.destinations.lakes.delta.delta_files import register
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.lake_sql import KeyRange
from target_spark.destinations.lakes.lake_table import LakeTable, LostCommit
from target_spark.destinations.lakes.small_flush import part_keys
from target_spark.tables.table_changes import Projected

if TYPE_CHECKING:
    from deltalake import DeltaTable

deltalake = pytest.importorskip("deltalake")
COLUMNS = StructType([StructField("id", LongType())])
EVERY_COMMIT = {"delta.checkpointInterval": "1"}


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """A table with one column and no rows."""
    schema = deltalake.Schema([deltalake.Field("id", deltalake.schema.PrimitiveType("long"))])
    return deltalake.DeltaTable.create(tmp_path / "t", schema, configuration=EVERY_COMMIT)


def part(folder: Path, *numbers: int) -> Part:
    path = folder / f"{numbers[0]}.part"
    parquet.write_table(pa.table({"id": pa.array(numbers, pa.int64())}), path)
    return Part(str(path), len(numbers), path.stat().st_size)


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "t").glob("*.parquet")}


def registered(folder: Path, *parts: Part, keys: Sequence[KeyRange] = ()) -> bool:
    now = LakeTable(COLUMNS, properties=EVERY_COMMIT)
    return register(str(folder / "t"), parts, now, "mark", {}, keys)


def meanwhile(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> None:
    """Do work once the files are in the table's folder, and before the commit."""
    durable = delta_files.make_durable

    def made_durable(path: str) -> None:
        durable(path)
        work()

    monkeypatch.setattr(delta_files, "make_durable", made_durable)


def test_a_commit_that_loses_leaves_no_file(
    table: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: table.alter.set_table_properties({"delta.appendOnly": "true"}))
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        registered(tmp_path, part(tmp_path, 1, 2))
    assert files(tmp_path) == set()


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.alter.add_columns([deltalake.Field("v", "string")]),
        lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
    ],
)
def test_a_table_that_others_have_changed_is_looked_up_again(
    table: DeltaTable, tmp_path: Path, change: Callable[[DeltaTable], None]
) -> None:
    change(table)
    with pytest.raises(LostCommit):
        registered(tmp_path, part(tmp_path, 1, 2))
    assert files(tmp_path) == set()


def test_keys_that_come_by_another_commit_meanwhile_are_not_added_again(
    table: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [KeyRange("id", 1, 2, nulls=False)]
    rows = pa.table({"id": pa.array([2], pa.int64())})
    meanwhile(monkeypatch, lambda: deltalake.write_deltalake(table.table_uri, rows, mode="append"))
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        registered(tmp_path, part(tmp_path, 1, 2), keys=keys)
    monkeypatch.undo()
    assert not registered(tmp_path, part(tmp_path, 1, 2), keys=keys)
    assert len(files(tmp_path)) == 1


def test_a_commit_whose_checkpoint_fails_keeps_its_files(table: DeltaTable, tmp_path: Path) -> None:
    log = Path(table.table_uri.removeprefix("file://")) / "_delta_log"
    (log / f"{1:020d}.checkpoint.parquet" / "x").mkdir(parents=True)
    assert registered(tmp_path, part(tmp_path, 1, 2), part(tmp_path, 3))
    assert len(files(tmp_path)) == 2


KEYS = {
    pa.int64(): st.integers(-3, 3),
    pa.string(): st.sampled_from(["", "a", "b", "é", "\U0001f600", "x" * 40, "x" * 70]),
    pa.date32(): st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 5)),
    pa.timestamp("us", "UTC"): st.datetimes(
        dt.datetime(2024, 1, 1),
        dt.datetime(2024, 1, 1, 0, 0, 1),
        timezones=st.just(dt.timezone.utc),
    ),
    pa.bool_(): st.booleans(),
}


@settings(deadline=None)
@given(data=st.data())
def test_parts_are_added_to_files_without_their_keys_only(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KEYS, key=str)))
    values = st.lists(st.none() | KEYS[kind], min_size=1, max_size=3)
    files, keys = data.draw(st.lists(values, max_size=3)), data.draw(values)
    with tempfile.TemporaryDirectory() as folder:
        empty = pa.schema([("id", kind)]).empty_table()
        deltalake.write_deltalake(folder, empty)
        for file in files:
            rows = pa.table({"id": pa.array(file, kind)})
            deltalake.write_deltalake(folder, rows, mode="append")
        parquet.write_table(pa.table({"id": pa.array(keys, kind)}), f"{folder}/_part")
        part = Part(f"{folder}/_part", len(keys), 1)
        key = Projected("id", "id", LongType(), "as is")
        actual = part_keys([part], [key], ())
        assert actual is not None
        now = delta_files.look_up(folder)
        assert now is not None
        is_new = register(folder, [part], now, "mark", {}, actual[0])
        held = {value for file in files for value in file}
    assert not (is_new and held & set(keys))
    assert is_new or files


def test_keys_above_all_others_are_added_without_a_merge(table: DeltaTable, tmp_path: Path) -> None:
    adds = partial(registered, tmp_path)
    assert adds(part(tmp_path, 1, 3), keys=[KeyRange("id", 1, 3, nulls=False)])
    assert not adds(part(tmp_path, 3, 4), keys=[KeyRange("id", 3, 4, nulls=False)])
    assert not adds(part(tmp_path, 4, 5), keys=[KeyRange("id", 4, 5, nulls=True)])
    assert not adds(part(tmp_path, 4, 5), keys=[KeyRange("id", None, None, nulls=False)])
    assert not adds(part(tmp_path, 4, 5), keys=[KeyRange("other", 4, 5, nulls=False)])
    apart = [KeyRange("other", 1, 1, nulls=False), KeyRange("id", 4, 5, nulls=False)]
    assert adds(part(tmp_path, 4, 5), keys=apart)
    assert len(files(tmp_path)) == 2


def test_a_folder_whose_name_the_package_changes_is_left_to_spark(tmp_path: Path) -> None:
    for name in ("a%3Ab", "a\\b"):
        with pytest.raises(NeedsSparkError):
            delta_files.look_up(str(tmp_path / name))
    assert delta_files.look_up(str(tmp_path / "a b")) is None
