"""The settings of the engine in both programs, and what they refuse before anything is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from whole_runs import Output

from shared.errors import InvalidSettingsError, SettingsError
from tap_spark.config import tap_config
from tap_spark.plan.catalog import build_entry
from tap_spark.send import sync
from target_spark.config import target_config
from target_spark.receive.run import run


@pytest.mark.parametrize(
    "read", [tap_config, lambda supplied: target_config({"path": "x", **supplied})]
)
@pytest.mark.parametrize("value", [True, False])
def test_the_former_setting_names_its_heir(read: Any, value: bool) -> None:
    with pytest.raises(InvalidSettingsError, match="unknown setting; did you mean 'engine'"):
        read({"load_without_spark": value})


@pytest.mark.parametrize("engine", ["auto", "spark", "threads"])
def test_values_are_those_of_both_programs(engine: str) -> None:
    stream = {"name": "s", "format": "rows", "row_count": 1}
    settings = {"engine": engine, "spark_above": 0}
    for config in (
        tap_config({**settings, "streams": [stream]}),
        target_config({**settings, "path": "x"}),
    ):
        assert (config.engine, config.spark_above) == (engine, 0)
    with pytest.raises(InvalidSettingsError, match="is not one of"):
        tap_config({"engine": "threads?"})


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Java was started")

    monkeypatch.setattr("shared.spark.session.spawn_jvm", refuse)


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"format": "json"}, "Spark makes the text of JSON tables"),
        ({"format": "delta", "load_method": "history"}, "load_method history"),
        ({"format": "delta", "write_audit_publish": True}, "write_audit_publish"),
        ({"stream_maps": {"s": {"x": {"sql": "id + 1"}}}}, "SQL in stream maps"),
        ({"stream_maps": {"s": {"x": "[id, id]"}}}, "a stream map that is not computed over Arrow"),
    ],
)
def test_the_target_refuses_what_needs_spark_before_the_first_record(
    tmp_path: Path, settings: dict[str, Any], why: str
) -> None:
    lines = '{"type":"SCHEMA","stream":"s","schema":{"properties":{"id":{"type":"integer"}}},'
    (tmp_path / "input").write_text(lines + '"key_properties":[]}\nno message\n')
    config = target_config({"path": str(tmp_path / "out"), "engine": "threads", **settings})
    fd = os.open(tmp_path / "input", os.O_RDONLY)
    try:
        with pytest.raises(SettingsError, match=f"never starts: {why}") as caught:
            run(config, fd, Output())  # type: ignore[arg-type]
    finally:
        os.close(fd)
    assert "set `engine` to auto" in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize(
    ("stream", "settings", "why"),
    [
        ({"format": "parquet"}, {}, "format parquet"),
        ({"replication_key": "id"}, {}, "a replication key"),
        ({}, {"stream_maps": {"s": {"x": "id"}}}, "stream maps or flattening of RECORD messages"),
        ({}, {"batch_config": {"storage": {"root": "x"}}}, "batch files of jsonl"),
        ({}, {"spark": {"conf": {"spark.sql.caseSensitive": "true"}}}, "a Spark that reads by"),
    ],
)
def test_the_tap_refuses_what_needs_spark_before_it_reads(
    tmp_path: Path, stream: dict[str, Any], settings: dict[str, Any], why: str
) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    (tmp_path / "s.csv").write_text("id\n1\n")
    item = {"name": "s", "format": "csv", "path": str(tmp_path / "s.csv"), **stream}
    entry = build_entry(
        "s",
        StructType([StructField("id", LongType())]),
        replication_key=stream.get("replication_key"),
    )
    output = Output()
    with pytest.raises(SettingsError, match=f"never starts: {why}"):
        sync.run_sync(
            tap_config({"streams": [item], "engine": "threads", **settings}),
            {"streams": [entry]},
            None,
            output,  # type: ignore[arg-type]
        )
    assert output.written == []
