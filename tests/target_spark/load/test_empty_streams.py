"""A stream that was read and has no rows gets its table, whatever the destination."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import threads
from whole_runs import run_target

from shared.engine.engine import Engine
from target_spark.config import REGISTRY, stream_settings, target_config
from target_spark.core.differences import DryRun
from target_spark.core.load_plans import StreamSchema
from target_spark.load.loader import Loader

FORMATS = [
    pytest.param(name, marks=[pytest.mark.spark, pytest.mark.server] * (name == "iceberg"))
    for name in REGISTRY.declarations
    if name != "jdbc"
]
"""Databases have the same test beside their servers; only Spark changes Iceberg tables."""
STATE = {"type": "STATE", "value": {"bookmarks": {}}}
VERSION = {"type": "ACTIVATE_VERSION", "stream": "t", "version": 1}


def schema(*names: str) -> dict[str, Any]:
    properties = {name: {"type": ["null", "integer"]} for name in names}
    return {"type": "SCHEMA", "stream": "t", "schema": {"properties": properties}}


class Runs:
    """Runs of the target into one folder."""

    def __init__(self, form: str, folder: Path, engine: Engine) -> None:
        self.form, self.folder, self.engine = form, folder, engine

    def loader(self, **more: Any) -> Loader:
        place = {"format": self.form, "path": str(self.folder / "out")}
        config = target_config({**place, "add_record_metadata": False, **more})
        return Loader(config, self.engine)

    def run(self, messages: Sequence[dict[str, Any]], **more: Any) -> list[Any]:
        loader = self.loader(**more)
        with closing(loader):
            lines = run_target(loader._config, loader, self.folder, messages)
        return [json.loads(line) for line in lines]

    def needs(self, *names: str) -> bool:
        """Return whether a load of these columns would create or change the table."""
        loader = self.loader()
        with closing(loader):
            return loader._changes_table(StreamSchema("t", schema(*names)["schema"]))

    def exists(self) -> bool:
        loader = self.loader()
        with closing(loader):
            request = loader._tables.request(StreamSchema("t", schema("id")["schema"]))
            assert request.name == stream_settings(loader._config, "t").name
            return loader._destination.exists(request)


@pytest.fixture(params=FORMATS)
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    needs_spark = request.param == "iceberg"
    spark = request.getfixturevalue("lake_spark") if needs_spark else None
    return Runs(request.param, tmp_path, Engine.of(lambda: spark) if needs_spark else threads())


@pytest.mark.parametrize("messages", [[STATE], [VERSION, STATE]], ids=["STATE", "version"])
def test_a_stream_without_rows_gets_its_table(runs: Runs, messages: list[dict[str, Any]]) -> None:
    assert runs.run([schema("id"), *messages]) == [STATE["value"]]
    assert runs.exists()
    assert not runs.needs("id")
    before = sorted(path for path in runs.folder.rglob("*") if path.name != "input.jsonl")
    assert runs.run([schema("id"), *messages]) == [STATE["value"]]
    after = sorted(path for path in runs.folder.rglob("*") if path.name != "input.jsonl")
    assert after == before  # nothing was committed again


def test_a_stream_without_columns_is_no_error(runs: Runs) -> None:
    assert runs.run([schema(), STATE]) == [STATE["value"]]


def test_its_table_gets_new_columns(runs: Runs) -> None:
    first, later = schema("id"), schema("id", "more")
    for kind, message in (("integer", first), ("string", later)):
        # A file with its header alone has text in all columns: no value needs the other type.
        message["schema"]["properties"]["id"] = {"type": kind}
        message["key_properties"] = ["id"]
    runs.run([first, STATE])
    assert runs.needs("id", "more")
    assert runs.run([later, VERSION, STATE]) == [STATE["value"]]
    assert not runs.needs("id", "more")


@pytest.mark.parametrize(
    ("messages", "more"),
    [
        ([schema("id")], {}),
        ([STATE, schema("id")], {}),
        ([schema("id"), STATE], {"schema_contract": {"tables": "discard"}}),
        ([{**schema("id"), "stream_failed": True}, STATE], {}),
    ],
    ids=["no STATE", "STATE before", "contract", "failed"],
)
def test_other_streams_get_none(
    tmp_path: Path, messages: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    runs = Runs("parquet", tmp_path, threads())
    runs.run(messages, **more)
    assert not runs.exists()


def test_records_and_files_of_an_ignored_stream_create_none(runs: Runs) -> None:
    pq.write_table(pa.table({"id": [1]}), runs.folder / "b.parquet")
    files = [(runs.folder / "b.parquet").as_uri()]
    batch = {"type": "BATCH", "stream": "t", "encoding": {"format": "parquet"}, "manifest": files}
    record = {"type": "RECORD", "stream": "t", "record": {"id": 1}}
    messages = [schema("id"), record, batch, VERSION, STATE]
    contract = {"schema_contract": {"tables": "discard"}, "add_record_metadata": True}
    assert runs.run(messages, **contract) == [STATE["value"]]
    assert not any((runs.folder / "out").rglob("*"))
    assert not runs.exists()


def test_a_version_without_rows_reaches_the_end_of_its_stream(tmp_path: Path) -> None:
    runs, ended = Runs("parquet", tmp_path, threads()), list[Any]()
    runs.run([schema("id"), STATE], add_record_metadata=True)
    with closing(runs.loader(add_record_metadata=True)) as loader:
        loader._destination.finish = ended.append  # type: ignore[method-assign]
        stream = StreamSchema("t", schema("id")["schema"])
        loader.plan(stream)
        loader.activate(stream, 1)
        loader.finish("t")
    assert [request.stream for request in ended] == ["t"]


def test_a_dry_run_creates_none(tmp_path: Path) -> None:
    runs = Runs("parquet", tmp_path, threads())
    config = replace(runs.loader()._config, dry_run=DryRun())
    with closing(Loader(config, threads())) as loader:
        run_target(config, loader, tmp_path, [schema("id"), STATE])
    assert not runs.exists()
