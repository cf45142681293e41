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
from tap_spark.planning.discovery import found_catalog
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


@pytest.fixture
def orders(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "orders"
    folder.mkdir()
    (folder / "a.csv").write_text('id,name,at\n1,"a ""b""",2024-01-01T00:00:00Z\n')
    (folder / "b.csv").write_text("id,name,at\n2,,2024-01-02T00:00:00+01:00\n3,")
    return {"name": "s", "format": "csv", "path": str(folder), "replication_method": "INCREMENTAL"}


@pytest.mark.parametrize("schema", [None, "id BIGINT, name STRING, at TIMESTAMP"])
def test_small_csv_files_are_discovered_and_read(
    tmp_path: Path, orders: dict[str, Any], schema: str | None
) -> None:
    settings = {"streams": [{**orders, **({"schema": schema} if schema else {})}]}
    first = run(tmp_path, settings)
    assert [message["type"] for message in first] == ["SCHEMA", "RECORD", "RECORD", "STATE"]
    assert [message["record"] for message in of_type("RECORD", first)] == [
        {"id": 1, "name": 'a "b"', "at": "2024-01-01T00:00:00.000000+00:00"},
        {"id": 2, "name": None, "at": "2024-01-01T23:00:00.000000+00:00"},
    ]
    with Path(orders["path"], "b.csv").open("a") as file:
        file.write("c,2024-01-03T00:00:00Z\n")
    second = run(tmp_path, settings, state=first[-1]["value"])
    (record,) = of_type("RECORD", second)
    assert record["record"] == {"id": 3, "name": "c", "at": "2024-01-03T00:00:00.000000+00:00"}
    assert "RECORD" not in {m["type"] for m in run(tmp_path, settings, state=second[-1]["value"])}


def test_a_large_file_with_a_schema_is_looked_at_only_at_its_start(
    tmp_path: Path, orders: dict[str, Any]
) -> None:
    path = Path(orders["path"], "large.csv")
    path.write_bytes(b"id,name,at\r\n" + b"1,a,2024-01-01\r\n" * 8000 + b"\xff\n")
    config = tap_config({"streams": [{**orders, "schema": "id INT, at DATE"}]})
    (entry,) = found_catalog(NoSpark(), config)["streams"]  # type: ignore[arg-type]
    assert list(entry["schema"]["properties"]) == ["id", "at"]


def test_selected_columns_of_whole_files(tmp_path: Path, orders: dict[str, Any]) -> None:
    stream = {**orders, "replication_method": "FULL_TABLE", "path": orders["path"] + "/a.csv"}
    config = {"streams": [stream]}
    catalog = found_catalog(NoSpark(), tap_config(config))  # type: ignore[arg-type]
    for item in catalog["streams"][0]["metadata"]:
        if item["breadcrumb"] == ["properties", "name"]:
            item["metadata"]["selected"] = False
    messages = run(tmp_path, config, catalog)
    (record,) = of_type("RECORD", messages)
    assert record["record"] == {"id": 1, "at": "2024-01-01T00:00:00.000000+00:00"}
    assert record["version"] == messages[1]["version"]


def test_names_by_position_are_left_to_spark_if_there_is_a_header(
    tmp_path: Path, orders: dict[str, Any]
) -> None:
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, {"streams": [{**orders, "schema": "a BIGINT, b STRING, c TIMESTAMP"}]})


@pytest.mark.parametrize(
    "change",
    [
        {"spark": {"remote": "sc://localhost"}},
        {"spark": {"conf": {"spark.sql.caseSensitive": "true"}}},
    ],
)
def test_another_configuration_is_left_to_spark(
    tmp_path: Path, orders: dict[str, Any], change: dict[str, Any]
) -> None:
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, {"streams": [orders], **change})
