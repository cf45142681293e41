"""What a failed commit of adopted files leaves in the table's folder. No Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.types import LongType, StructField, StructType

from target_spark.core.load_plans import Part
from target_spark.destinations.lakes.delta import delta_files
from target_spark.destinations.lakes.delta.delta_files import register
from target_spark.destinations.lakes.lake_format import LakeTable

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


def registered(folder: Path, *parts: Part) -> bool:
    return register(str(folder / "t"), parts, LakeTable(COLUMNS), "mark", None)


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


def test_a_commit_whose_checkpoint_fails_keeps_its_files(table: DeltaTable, tmp_path: Path) -> None:
    log = Path(table.table_uri.removeprefix("file://")) / "_delta_log"
    (log / f"{1:020d}.checkpoint.parquet" / "x").mkdir(parents=True)
    assert registered(tmp_path, part(tmp_path, 1, 2), part(tmp_path, 3))
    assert len(files(tmp_path)) == 2
