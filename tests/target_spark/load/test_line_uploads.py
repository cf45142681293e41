"""Copies of staged lines for executors of other machines."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from shared.errors import DestinationError
from shared.formats.file_formats import Encoding
from shared.spark.conf import SparkSettings
from target_spark.convert import batch_files
from target_spark.convert.batch_files import BatchFiles
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.core.load_plans import InputFile
from target_spark.run_settings import StagingSettings, TargetConfig

CLUSTER = SparkSettings(master="spark://somewhere:7077")
MEMORY = fsspec.filesystem("memory")


@pytest.fixture
def root() -> Iterator[str]:
    name = f"/{uuid.uuid4().hex}"
    yield f"memory:/{name}"
    if MEMORY.exists(name):
        MEMORY.rm(name, recursive=True)


def plan(folder: Path) -> ReadPlan:
    """Return a plan of two pieces of one staged file, and one of a batch file."""
    (folder / "1.jsonl").write_text("one\n")
    staged = InputFile(str(folder / "1.jsonl"), Encoding("singer"))
    batch = InputFile("s3://bucket/b.jsonl", Encoding("jsonl"))
    tasks = ((Piece(staged, 0, 2), Piece(staged, 2, 2)), (Piece(batch),))
    return ReadPlan(tasks, {}, pa.schema([]))


def uploads(root: str, spark: SparkSettings = CLUSTER) -> BatchFiles:
    return BatchFiles(TargetConfig(path="x", spark=spark, staging=StagingSettings(root=root)))


def test_copies_exist_while_a_job_runs(root: str, tmp_path: Path) -> None:
    read = plan(tmp_path)
    with uploads(root).reachable(read) as present:
        (one, two), (other,) = present.tasks
        assert one.url == two.url != one.file.url
        assert one.url.startswith(f"{root}/lines/")
        assert MEMORY.cat(one.url) == b"one\n"
        assert (one.file, one.start, two.start) == (read.tasks[0][0].file, 0, 2)
        assert other.url == "s3://bucket/b.jsonl"
    assert MEMORY.find(root) == []


def test_copies_go_if_the_job_fails(root: str, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), uploads(root).reachable(plan(tmp_path)):
        raise ZeroDivisionError
    assert MEMORY.find(root) == []


@pytest.mark.parametrize("block", [SparkSettings(), CLUSTER])
def test_a_shared_disk_needs_no_copies(block: SparkSettings, root: str, tmp_path: Path) -> None:
    read = plan(tmp_path)
    here = root if block is not CLUSTER else str(tmp_path)
    with uploads(here, block).reachable(read) as present:
        assert present is read


def test_copies_of_killed_runs_go_a_day_later(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MEMORY.pipe(f"{root}/lines/old.jsonl", b"x")
    with uploads(root).reachable(plan(tmp_path)):
        assert MEMORY.exists(f"{root}/lines/old.jsonl")
    monkeypatch.setattr(batch_files, "KEPT", timedelta(seconds=-9))
    with uploads(root).reachable(plan(tmp_path)) as present:
        assert MEMORY.find(root) == [MEMORY._strip_protocol(present.tasks[0][0].url)]


def test_a_storage_that_fails_is_named(tmp_path: Path) -> None:
    missing = uploads("nosuch://bucket/staging")
    failure = pytest.raises(DestinationError, match="nosuch://bucket/staging")
    with failure, missing.reachable(plan(tmp_path)):
        raise AssertionError
