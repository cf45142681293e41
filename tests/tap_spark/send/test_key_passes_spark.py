"""Runs that also send the keys of all rows, with Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from shared.engine.engine import Engine
from shared.errors import RecordError, SettingsError
from shared.singer.stdout import MessageOutput
from tap_spark.config import tap_config
from tap_spark.send import sync

pytestmark = pytest.mark.spark
Run = Callable[..., list[dict[str, Any]]]
HEAD = "id,at,kind\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> Run:
    """Return a function that runs the tap, and returns its messages."""

    def run(
        state: Any = None, *, every: int = 1, excluded: Sequence[str] = (), **settings: Any
    ) -> list[dict[str, Any]]:
        monkeypatch.setattr(sync, "engine_of", lambda *_, **__: Engine.of(lambda: spark))
        stream = {
            "name": "s",
            "format": "csv",
            "path": str(tmp_path / "s.csv"),
            "schema": "id INT, at INT, kind STRING",
            "replication_key": "at",
            "key_properties": ["id"],
            "deletes": "keys",
            "deletes_every": every,
        }
        files = {"encoding": {"format": "parquet"}, "storage": {"root": str(tmp_path)}}
        batch_config = {**files, "exclude_streams": list(excluded)}
        supplied = {"streams": [stream], "state_interval_seconds": 999}
        config = tap_config({**supplied, "batch_config": batch_config, **settings})
        path = tmp_path / "out.jsonl"
        with path.open("wb") as file:
            output = MessageOutput(os.dup(file.fileno()))
            try:
                sync.run_sync(config, None, state, output)
            finally:
                output.close()
                actual[:] = [json.loads(line) for line in path.read_text().splitlines()]
        return actual

    actual: list[dict[str, Any]] = []
    run.messages = actual  # type: ignore[attr-defined]
    return run


def keys_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [row for url in message["manifest"] for row in parquet.read_table(url[7:]).to_pylist()]
    return sorted(rows, key=str)


def test_the_keys_of_all_rows_follow_the_rows_and_their_state(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "s.csv"
    source.write_text(HEAD + "1,1,a\n2,2,a\n3,3,b\n")
    first = run(every=2)
    assert [m["type"] for m in first] == ["SCHEMA", "KEYS", "BATCH", "STATE"]
    assert first[1] == {"type": "KEYS", "stream": "s"}, "an announcement"
    state = first[-1]["value"]
    assert state["bookmarks"]["s"]["runs_since_keys"] == 1
    source.write_text(HEAD + "1,1,a\n3,3,b\n4,4,a\n")
    second = run(state, every=2)
    assert [m["type"] for m in second][-3:] == ["STATE", "KEYS", "STATE"]
    before, keys, after = (m for m in second[-3:])
    assert before["value"]["bookmarks"]["s"] == {
        "replication_key": "at", "replication_key_value": 4, "runs_since_keys": 1,
    }  # fmt: skip
    assert after["value"]["bookmarks"]["s"]["runs_since_keys"] == 0
    assert (keys["stream"], keys["encoding"]["format"]) == ("s", "parquet")
    assert keys_in(keys) == [{"id": 1}, {"id": 3}, {"id": 4}]


def test_keys_are_mapped_and_half_a_key_set_is_not_sent(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(HEAD + "1,1,a\n2,2,b\n3,3,a\n")
    state = {"bookmarks": {"s": {"replication_key": "at", "replication_key_value": 3}}}
    own = {"key": "id * 10", "id": None, "__key_properties__": ["key"], "__alias__": "'t'"}
    keys = run(state, stream_maps={"s": {"__filter__": "kind == 'a'", **own}})[-2]
    assert (keys["type"], keys["stream"]) == ("KEYS", "t")
    assert keys_in(keys) == [{"key": 10}, {"key": 30}]
    left = {path.name for path in tmp_path.glob("*.parquet")}
    with pytest.raises(RecordError):
        run(state, stream_maps={"s": {**own, "key": "int('x') if id == 1 else id"}})
    messages: list[dict[str, Any]] = run.messages  # type: ignore[attr-defined]
    assert [m for m in messages if "manifest" in m and m["type"] == "KEYS"] == []
    sent = {url.rpartition("/")[2] for m in messages for url in m.get("manifest", ())}
    assert {path.name for path in tmp_path.glob("*.parquet")} == left | sent


def test_no_row_is_an_empty_key_set(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(HEAD)
    keys = run({"bookmarks": {"s": {"runs_since_keys": 0}}})[-2]
    assert (keys["type"], keys["manifest"]) == ("KEYS", [])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"excluded": ["s"]}, "keys are sent in batch files"),
        ({"stream_maps": {"s": {"__key_properties__": []}}}, "needs key properties"),
    ],
)
def test_streams_without_keys_or_files(run: Run, tmp_path: Path, settings: Any, text: str) -> None:
    (tmp_path / "s.csv").write_text(HEAD)
    with pytest.raises(SettingsError, match=f"stream 's', setting 'deletes': {text}"):
        run(**settings)
