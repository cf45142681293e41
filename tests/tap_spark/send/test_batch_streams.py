"""Which streams are written as BATCH, and STATE between the messages, without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shared.engine.engine import Engine
from shared.errors import SettingsError
from shared.settings.batch_settings import BatchConfig
from shared.singer.messages import batch_line
from tap_spark.config import tap_config
from tap_spark.send import batch_writer, spark_slices, sync
from tap_spark.send.line_output import ChunkInfo, StateWriter
from tap_spark.send.run import Run
from tap_spark.send.spool_files import KeyMax
from tap_spark.send.sync import sync_stream
from tap_spark.state.stream_plans import Method, Resume, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

BY_KEY = {
    "method": Method.INCREMENTAL,
    "resume": Resume.REPLICATION_KEY,
    "replication_key": "k",
    "key_type": "long",
}
BY_FILE = {"method": Method.INCREMENTAL, "resume": Resume.FILE_POSITION}


class FakeFiles:
    """Writes a file of ten rows for each number of a slice."""

    HOLDS = False

    def __init__(self, _: Any, plan: StreamPlan, output: Any, **more: Any) -> None:
        batch: BatchConfig = more["batch"]
        self.encoding = {"format": batch.format, "compression": batch.compression}
        self.plan = plan
        self.output = output
        self.held: Any = None

    def write(self, piece: Slice, on_chunk: Any) -> Any:
        for number in piece.frame:  # type: ignore[attr-defined]
            if number < 0:
                raise ValueError("the source is broken")
            line = batch_line(self.plan.stream, self.encoding, [f"f{number}"], self.plan.version)
            self.output.write(line)
            on_chunk(
                ChunkInfo(10, 100, KeyMax(number, number) if self.plan.replication_key else None)
            )
        if self.HOLDS:
            self.held, settled = piece.bookmark, self.held
            return settled
        return piece.bookmark

    def finish(self) -> Any:
        return self.held

    def __enter__(self) -> FakeFiles:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@dataclass
class Bench:
    """A run whose frames are the greatest keys of their files."""

    slices: list[Slice]
    lines: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        self.lines += bytes(data).splitlines()

    def slices_of(self, *_: Any) -> Any:
        return iter(self.slices)

    def get(self) -> None:
        return None

    def write_records(self, *_: Any, **__: Any) -> int:
        self.write(b'{"type":"RECORD"}\n')
        return 1

    def sync(self, plan: StreamPlan, batch: BatchConfig | None, interval: float = 1e9) -> list[str]:
        pace = StateWriter({}, self.write, interval)
        sync_stream(Run(Engine.of(self.get), self, batch=batch), plan, pace)  # type: ignore[arg-type]
        return [self.short(json.loads(line)) for line in self.lines]

    @staticmethod
    def short(message: dict[str, Any]) -> str:
        if message["type"] == "BATCH":
            version = message.get("version")
            return f"BATCH {message['manifest'][0]}" + (f" v{version}" if version else "")
        if message["type"] == "STATE":
            return "STATE " + json.dumps(message["value"]["bookmarks"]["s"])
        return str(message["type"])


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench([])
    source = type("Source", (), {"slices": bench.slices_of})()
    for name in ("source_for", "driver_source_for"):
        monkeypatch.setattr(sync, name, lambda _: source)
    monkeypatch.setattr(spark_slices, "whole_source", lambda source, _: source)
    monkeypatch.setattr(spark_slices, "write_records", bench.write_records)
    monkeypatch.setattr(batch_writer, "BatchWriter", FakeFiles)
    return bench


def plan_of(**more: Any) -> StreamPlan:
    return StreamPlan(
        stream="s",
        tap_stream_id="s",
        config=StreamConfig(name="s", format="rows"),
        schema={"type": "object"},
        columns=("k",),
        **more,
    )


def piece(*files: int, **more: Any) -> Slice:
    return Slice(list(files), **more)  # type: ignore[arg-type]


def bookmark(value: int) -> str:
    return json.dumps({"replication_key": "k", "replication_key_value": value})


def test_full_table_sends_its_version(bench: Bench) -> None:
    bench.slices = [piece(1, 2)]
    assert bench.sync(plan_of(version=5), BatchConfig(root="/x")) == [
        "SCHEMA",
        "ACTIVATE_VERSION",
        "BATCH f1 v5",
        "BATCH f2 v5",
        "ACTIVATE_VERSION",
        "STATE {}",
    ]


def test_each_batch_of_an_ordered_stream_is_followed_by_its_state(bench: Bench) -> None:
    bench.slices = [piece(4, 9, ordered=True)]
    assert bench.sync(plan_of(**BY_KEY), BatchConfig(root="/x")) == [
        "SCHEMA",
        "BATCH f4",
        "STATE " + bookmark(4),
        "BATCH f9",
        "STATE " + bookmark(9),
        "STATE " + bookmark(9),
    ]


def test_an_unordered_stream_has_its_state_at_the_end(bench: Bench) -> None:
    bench.slices = [piece(9, 4)]
    assert bench.sync(plan_of(**BY_KEY), BatchConfig(root="/x")) == [
        "SCHEMA",
        "BATCH f9",
        "BATCH f4",
        "STATE " + bookmark(9),
    ]


def test_positions_follow_the_files_of_their_slice(bench: Bench) -> None:
    bench.slices = [piece(1, bookmark={"files": "a"}), piece(2, bookmark={"files": "b"})]
    assert bench.sync(plan_of(**BY_FILE), BatchConfig(root="/x"), 1e9) == [
        "SCHEMA",
        "BATCH f1",
        'STATE {"files": "a"}',
        "BATCH f2",
        'STATE {"files": "b"}',
        'STATE {"files": "b"}',
    ]


def test_state_waits_for_rows_that_are_left_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeFiles, "HOLDS", True)
    bench.slices = [piece(n, bookmark={"files": str(n)}) for n in (1, 2)]
    assert bench.sync(plan_of(**BY_FILE), BatchConfig(root="/x"), 1e9) == [
        "SCHEMA",
        "BATCH f1",
        "BATCH f2",
        'STATE {"files": "1"}',
        'STATE {"files": "2"}',
        'STATE {"files": "2"}',
    ]


def test_a_failure_does_not_hold_back_what_is_sound(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeFiles, "HOLDS", True)
    bench.slices = [piece(n, bookmark={"files": str(n)}) for n in (1, 2, -1)]
    with pytest.raises(ValueError, match="broken"):
        bench.sync(plan_of(**BY_FILE), BatchConfig(root="/x"), 1e9)
    assert [bench.short(json.loads(line)) for line in bench.lines][2:] == [
        "BATCH f2",
        'STATE {"files": "1"}',
        'STATE {"files": "2"}',
    ]


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        (None, "RECORD"),
        (BatchConfig(root="/x", exclude_streams=("s*",)), "RECORD"),
        (BatchConfig(root="/x", include_streams=("t",)), "RECORD"),
        (BatchConfig(root="/x", include_streams=("?",)), "BATCH f1"),
    ],
)
def test_patterns_choose_the_streams(bench: Bench, batch: BatchConfig | None, kind: str) -> None:
    bench.slices = [piece(1)]
    assert bench.sync(plan_of(), batch)[1] == kind


STREAMS = [{"name": "s", "format": "rows", "row_count": 1}]


def test_the_block_is_read_from_the_settings(tmp_path: Path) -> None:
    block = {
        "encoding": {"format": "parquet"},
        "storage": {"root": str(tmp_path)},
        "batch_size": 10,
        "exclude_streams": ["x*"],
    }
    config = tap_config({"streams": STREAMS, "batch_config": block})
    assert config.batch is not None
    assert (config.batch.format, config.batch.compression) == ("parquet", "snappy")
    assert (config.batch.batch_size, config.batch.root) == (10, str(tmp_path))
    assert config.batch.covers("s")
    assert not config.batch.covers("xy")


@pytest.mark.parametrize("settings", [{}, {"batch_config": {}}])
def test_without_a_batch_block_records_are_written(settings: dict[str, Any]) -> None:
    assert tap_config({"streams": STREAMS, **settings}).batch is None


def test_a_wrong_block_is_named() -> None:
    with pytest.raises(SettingsError) as caught:
        tap_config({"streams": STREAMS, "batch_config": {"encoding": {"format": "parket"}}})
    assert "parquet" in str(caught.value)
