"""Runs that end without Spark: nothing asks for a session."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from shared.singer.stdout import MessageOutput
from tap_spark.config import tap_config
from tap_spark.planning.catalog import build_entry
from tap_spark.sources.files.file_inspector import StorageFileInspector
from tap_spark.sync import sync

STRUCT = StructType([StructField("id", LongType()), StructField("name", StringType())])
FILES = {"csv": b"id,name\n1,a\n", "json": b'{"id": 1, "name": "a"}\n', "parquet": b"PAR1"}


class NoSpark:
    """Stands for the start of Spark, which must not happen."""

    def start(self) -> None:
        pytest.fail("Spark was started")

    get = start

    def running(self) -> None:
        return None

    def stop(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "SessionStarter", lambda _: NoSpark())


def run(
    folder: Path,
    settings: dict[str, Any],
    catalog: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return the messages of a run."""
    out = folder / "out.jsonl"
    config = tap_config(settings)
    with out.open("wb") as file:
        output = MessageOutput(os.dup(file.fileno()))
        try:
            sync.run_sync(config, catalog, state, output)
        finally:
            output.close()
    return [json.loads(line) for line in out.read_text().splitlines()]


def position(path: Path) -> dict[str, Any]:
    """Return the position of a file that was read to its end."""
    stat = path.stat()
    digest = StorageFileInspector().fingerprint(str(path), stat.st_size)
    mtime = str(stat.st_mtime_ns)
    size = stat.st_size
    return {"offset": size, "size": size, "mtime": mtime, "fingerprint": digest}


def of_type(kind: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if message["type"] == kind]


@pytest.mark.parametrize("more", [{}, {"stream_maps": {"*": {"new": "'x'"}}}, {"batch_config": {}}])
@pytest.mark.parametrize("kind", FILES)
def test_files_without_anything_new(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    file = tmp_path / f"data.{kind}"
    file.write_bytes(FILES[kind])
    stream = {"name": "s", "format": kind, "path": str(file), "replication_method": "INCREMENTAL"}
    catalog = {"streams": [build_entry("s", STRUCT, replication_method="INCREMENTAL")]}
    state = {"bookmarks": {"s": {"files": {str(file): position(file)}}}}
    messages = run(tmp_path, {"streams": [stream], **more}, catalog, state)
    assert [message["type"] for message in messages] == ["SCHEMA", "STATE"]
    assert messages[-1]["value"] == state


def test_a_file_that_was_touched_gets_a_new_bookmark(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_bytes(FILES["csv"])
    stream = {"name": "s", "format": "csv", "path": str(file), "replication_method": "INCREMENTAL"}
    catalog = {"streams": [build_entry("s", STRUCT, replication_method="INCREMENTAL")]}
    before = position(file)
    os.utime(file, ns=(1, 1))
    messages = run(
        tmp_path,
        {"streams": [stream]},
        catalog,
        {"bookmarks": {"s": {"files": {str(file): before}}}},
    )
    after = of_type("STATE", messages)[-1]["value"]["bookmarks"]["s"]["files"][str(file)]
    assert after == {**before, "mtime": "1"}
