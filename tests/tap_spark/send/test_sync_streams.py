"""The order of messages in a run, without Spark, with fake sources and a fake writer."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from shared.engine.engine import Engine
from shared.errors import (
    ClosedPipeError,
    DestinationError,
    PartialRunError,
    RecordError,
    SourceError,
    SparkStartError,
    TerminatedRunError,
)
from shared.singer.run_summary import RunSummary
from shared.singer.signals import raise_on_sigterm
from tap_spark.config import SpoolSettings, TapConfig
from tap_spark.plan.run_options import RunOptions, StreamRange
from tap_spark.send import spark_slices, sync, trials
from tap_spark.send.line_output import ChunkInfo, StateWriter
from tap_spark.send.run import Run
from tap_spark.send.spool_files import KeyMax
from tap_spark.send.sync import run_sync, sync_stream
from tap_spark.send.trials import run_test
from tap_spark.state.stream_plans import Method, Resume, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig


class Output:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.lines += bytes(data).splitlines()

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def types(self) -> list[str]:
        return [message["type"] for message in self.messages]

    @property
    def states(self) -> list[Any]:
        return [message["value"] for message in self.messages if message["type"] == "STATE"]


@dataclass
class Frame:
    """Stands for a DataFrame: the keys of its rows, in chunks."""

    chunks: list[list[Any]]

    def limit(self, count: int) -> Frame:
        return Frame([chunk[:count] for chunk in self.chunks if chunk][:1])

    def persist(self) -> Frame:
        return self

    def count(self) -> int:
        return sum(map(len, self.chunks))


@dataclass
class Bench:
    """A run over stand-ins."""

    slices: dict[str, list[Slice]]
    output: Output = field(default_factory=Output)
    now: float = 0.0
    step: float = 0.0
    fails_after: int | None = None
    error: Exception = field(default_factory=lambda: RuntimeError("[X_FAILED] It broke."))
    stopped: bool = False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Bench:
        for module in (sync, trials):
            monkeypatch.setattr(module, "source_for", self.source_for)
        monkeypatch.setattr(sync, "driver_source_for", self.source_for)
        monkeypatch.setattr(spark_slices, "whole_source", lambda source, _: source)
        for module in (spark_slices, trials):
            monkeypatch.setattr(module, "write_records", self.write_records)
        monkeypatch.setattr(sync, "engine_of", lambda *_, **__: Engine(self))
        return self

    def source_for(self, config: StreamConfig) -> Any:
        bench = self

        class Source:
            def slices(self, spark: Any, plan: StreamPlan) -> Iterator[Slice]:
                yield from bench.slices[config.name]

        return Source()

    def write_records(self, spark, plan, piece, output, *, spool, on_chunk) -> int:
        rows = 0
        for keys in piece.frame.chunks:
            if self.fails_after is not None:
                self.fails_after -= 1
                if self.fails_after < 0:
                    raise self.error
            for key in keys:
                output.write(json.dumps({"type": "RECORD", "record": {"k": key}}).encode() + b"\n")
            self.now += self.step
            existing = [key for key in keys if key is not None and plan.replication_key]
            best = KeyMax(max(existing), max(existing)) if existing else None
            chunk = ChunkInfo(len(keys), 1, best)
            rows += chunk.rows
            on_chunk(chunk)
        return rows

    def start(self) -> None:
        pass

    def get(self) -> Any:
        return self

    def context(self) -> None:
        pass

    def running(self) -> Any:
        return self

    def interruptAll(self) -> None:  # noqa: N802
        pass

    def stop(self) -> None:
        self.stopped = True

    def sync(self, plan: StreamPlan, state: Any = None, interval: float = 10) -> StateWriter:
        pace = StateWriter(state or {}, self.output.write, interval, lambda: self.now)
        sync_stream(Run(Engine.of(self.get), self.output), plan, pace)  # type: ignore[arg-type]
        return pace


def plan_of(name: str, **more: Any) -> StreamPlan:
    return StreamPlan(
        stream=name,
        tap_stream_id=name,
        config=StreamConfig(name=name, format="rows"),
        schema={"type": "object", "properties": {"k": {"type": "integer"}}},
        columns=("k",),
        key_properties=("k",),
        **more,
    )


FULL = {"method": Method.FULL_TABLE, "version": 5}
BY_KEY = {
    "method": Method.INCREMENTAL,
    "resume": Resume.REPLICATION_KEY,
    "replication_key": "k",
    "key_type": "long",
}
BY_FILE = {"method": Method.INCREMENTAL, "resume": Resume.FILE_POSITION}


def piece(*chunks: list[Any], **more: Any) -> Slice:
    return Slice(Frame(list(chunks)), **more)  # type: ignore[arg-type]


def bench_of(monkeypatch: pytest.MonkeyPatch, *slices: Slice, **more: Any) -> Bench:
    return Bench({"s": list(slices)}, **more).install(monkeypatch)


def test_a_first_full_table_run(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, piece([1], [2]))
    bench.sync(plan_of("s", **FULL))
    assert bench.output.types == [
        "SCHEMA",
        "ACTIVATE_VERSION",
        "RECORD",
        "RECORD",
        "ACTIVATE_VERSION",
        "STATE",
    ]
    assert bench.output.messages[1] == {"type": "ACTIVATE_VERSION", "stream": "s", "version": 5}
    assert bench.output.states == [{"bookmarks": {"s": {}}}]


def test_a_later_full_table_run_activates_only_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of(monkeypatch, piece([1]))
    state = {"bookmarks": {"s": {}, "other": {"x": 1}}, "more": 2}
    bench.sync(plan_of("s", **FULL), state)
    assert bench.output.types == ["SCHEMA", "RECORD", "ACTIVATE_VERSION", "STATE"]
    assert bench.output.states == [state]


def test_schema_names_keys_and_bookmark(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch)
    bench.sync(plan_of("s", **BY_KEY))
    schema = bench.output.messages[0]
    assert (schema["key_properties"], schema["bookmark_properties"]) == (["k"], ["k"])


def test_ordered_rows_advance_the_bookmark_inside_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, piece([None, 1], [2], [3], [4], ordered=True), step=6)
    bench.sync(plan_of("s", **BY_KEY))
    values = [state["bookmarks"]["s"]["replication_key_value"] for state in bench.output.states]
    assert values == [2, 4, 4]
    messages = bench.output.messages
    for number, message in enumerate(messages):
        if message["type"] == "STATE":
            before = [m["record"]["k"] for m in messages[:number] if m["type"] == "RECORD"]
            assert message["value"]["bookmarks"]["s"]["replication_key_value"] == before[-1]


def test_unordered_rows_only_write_markers_inside_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, piece([3], [1], [2]), step=11)
    state = {"bookmarks": {"s": {"replication_key": "k", "replication_key_value": 0}}}
    plan = plan_of("s", **BY_KEY, bookmark=state["bookmarks"]["s"], start_value=0)
    bench.sync(plan, state)
    interim, final = bench.output.states[0], bench.output.states[-1]
    assert interim["bookmarks"]["s"]["replication_key_value"] == 0
    assert interim["bookmarks"]["s"]["progress_markers"]["replication_key_value"] == 3
    assert final["bookmarks"]["s"] == {"replication_key": "k", "replication_key_value": 3}


def test_file_positions_follow_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(
        monkeypatch, piece([1], bookmark={"files": 1}), piece([2], bookmark={"files": 2}), step=11
    )
    bench.sync(plan_of("s", **BY_FILE))
    assert bench.output.types == ["SCHEMA", "RECORD", "STATE", "RECORD", "STATE", "STATE"]
    assert [state["bookmarks"]["s"] for state in bench.output.states] == [
        {"files": 1},
        {"files": 2},
        {"files": 2},
    ]


def test_a_failed_stream_writes_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, piece([1], [2]), fails_after=1)
    with pytest.raises(RuntimeError):
        bench.sync(plan_of("s", **FULL))
    assert bench.output.types == ["SCHEMA", "ACTIVATE_VERSION", "RECORD"]


@pytest.fixture
def run_bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench({"a": [piece([1, 2])], "b": [piece([]), piece([3, 4])]}).install(monkeypatch)
    plans = (plan_of("a", **FULL), plan_of("b", **FULL))
    monkeypatch.setattr(sync, "plan_streams", lambda *_: plans)
    monkeypatch.setattr(sync, "LineOutput", Closable)
    return bench


class Closable:
    """Stands for the thread that writes."""

    def __init__(self, output: Output) -> None:
        self.write = output.write

    def close(self) -> None:
        pass


@pytest.fixture
def config(tmp_path: Any) -> TapConfig:
    return TapConfig(streams=(), spool=SpoolSettings(root=str(tmp_path)))


def test_a_run_writes_stream_after_stream(run_bench: Bench, config: TapConfig) -> None:
    run_sync(config, {}, None, run_bench.output)  # type: ignore[arg-type]
    assert run_bench.output.states == [
        {"bookmarks": {"a": {}}},
        {"bookmarks": {"a": {}, "b": {}}},
    ]
    assert run_bench.stopped


@pytest.mark.parametrize(
    ("error", "kind", "shown"),
    [
        (RuntimeError("[X_FAILED] It broke."), SourceError, "stream 'b'"),
        (RuntimeError("java.lang.OutOfMemoryError"), SparkStartError, "stream 'b'"),
        (SourceError("no"), SourceError, "stream 'b'"),
        (ClosedPipeError("gone"), ClosedPipeError, "gone"),
        (KeyError("x"), SourceError, "stream 'b'"),
        (OSError(28, "full"), OSError, "full"),
    ],
)
def test_an_error_names_its_stream_and_earlier_state_stays(
    run_bench: Bench,
    config: TapConfig,
    error: Exception,
    kind: type[Exception],
    shown: str,
) -> None:
    run_bench.fails_after, run_bench.error = 2, error
    with pytest.raises(kind) as raised:
        run_sync(config, {}, None, run_bench.output)  # type: ignore[arg-type]
    assert shown in str(raised.value)
    assert run_bench.output.states == [{"bookmarks": {"a": {}}}]
    assert run_bench.stopped
    assert list(Path(config.spool.root or "").iterdir()) == []


def test_a_limited_run_writes_neither_state_nor_versions(
    run_bench: Bench, config: TapConfig
) -> None:
    supplied = {"bookmarks": {"a": {"x": 1}}}
    run_sync(config, {}, supplied, run_bench.output, RunOptions(limit=1))  # type: ignore[arg-type]
    assert run_bench.output.types == ["SCHEMA", "RECORD", "SCHEMA", "RECORD"]


@pytest.mark.parametrize(
    "supplied", [None, {"bookmarks": {"a": {"replication_key_value": 3}}, "x": 1}]
)
def test_a_backfill_ends_with_the_state_that_was_given(
    run_bench: Bench, config: TapConfig, monkeypatch: pytest.MonkeyPatch, supplied: Any
) -> None:
    monkeypatch.setattr(sync, "plan_streams", lambda *_: (plan_of("a", **BY_KEY),))
    options = RunOptions(backfill=StreamRange("a", "1", "3"))
    catalog = {"streams": [{"tap_stream_id": "a"}]}
    config = replace(config, state_interval_seconds=0.0)
    run_bench.slices["a"] = [piece([1], [2], ordered=True)]
    run_sync(config, catalog, supplied, run_bench.output, options)  # type: ignore[arg-type]
    assert run_bench.output.types == [
        "SCHEMA",
        "RECORD",
        "RECORD",
        *(["STATE"] if supplied else []),
    ]
    assert run_bench.output.states == ([supplied] if supplied else [])


def test_a_backfill_that_fails_writes_no_state(
    run_bench: Bench, config: TapConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "plan_streams", lambda *_: (plan_of("a", **BY_KEY),))
    options = RunOptions(backfill=StreamRange("a", "1", "3"))
    catalog = {"streams": [{"tap_stream_id": "a"}]}
    run_bench.slices["a"] = broken(SourceError("no"), piece([1], ordered=True))  # type: ignore[assignment]
    with pytest.raises(SourceError):
        run_sync(config, catalog, {"bookmarks": {}}, run_bench.output, options)  # type: ignore[arg-type]
    assert run_bench.output.types == ["SCHEMA", "RECORD"]


@pytest.fixture
def sigterm() -> Iterator[Callable[[], None]]:
    """Handle SIGTERM as the program does, and return what sends it and waits for the handler."""
    before = signal.getsignal(signal.SIGTERM)
    raise_on_sigterm()

    def send() -> None:
        handler, until = signal.getsignal(signal.SIGTERM), time.monotonic() + 10
        os.kill(os.getpid(), signal.SIGTERM)
        while signal.getsignal(signal.SIGTERM) == handler and time.monotonic() < until:
            time.sleep(0.01)

    yield send
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    signal.signal(signal.SIGTERM, before)


def with_break(pause: Callable[[], object], *slices: Slice) -> Iterator[Slice]:
    yield slices[0]
    pause()
    yield from slices[1:]


SORTED = [piece([1], ordered=True), piece([2], ordered=True), piece([3], ordered=True)]


@pytest.mark.parametrize("parallel", [1, 2])
def test_sigterm_ends_the_run_after_the_next_state(
    run_bench: Bench,
    config: TapConfig,
    monkeypatch: pytest.MonkeyPatch,
    sigterm: Callable[[], None],
    parallel: int,
) -> None:
    plans = (plan_of("a", **BY_KEY), *([plan_of("b", **BY_KEY)] if parallel > 1 else []))
    monkeypatch.setattr(sync, "plan_streams", lambda *_: plans)
    run_bench.slices["a"] = with_break(sigterm, *SORTED)  # type: ignore[assignment]
    run_bench.slices["b"] = []
    config = replace(config, parallel_streams=parallel)
    with pytest.raises(TerminatedRunError, match="SIGTERM, after a STATE"):
        run_sync(config, {}, None, run_bench.output)  # type: ignore[arg-type]
    reached = run_bench.output.states[-1]["bookmarks"]["a"]["replication_key_value"]
    records = [m["record"]["k"] for m in run_bench.output.messages if m["type"] == "RECORD"]
    assert reached == records[-1]
    assert parallel > 1 or records == [1, 2]
    assert run_bench.stopped


@pytest.mark.parametrize("twice", [True, False])
def test_a_second_sigterm_or_some_seconds_end_the_run_at_once(
    run_bench: Bench,
    config: TapConfig,
    monkeypatch: pytest.MonkeyPatch,
    sigterm: Callable[[], None],
    twice: bool,
) -> None:
    def pause() -> None:
        sigterm()
        if twice:
            sigterm()
        time.sleep(30)

    monkeypatch.setattr("shared.singer.signals.GRACE_SECONDS", 60 if twice else 0.1)
    monkeypatch.setattr(sync, "plan_streams", lambda *_: (plan_of("a", **BY_KEY),))
    run_bench.slices["a"] = with_break(pause, *SORTED)  # type: ignore[assignment]
    began = time.monotonic()
    with pytest.raises(TerminatedRunError):
        run_sync(config, {}, None, run_bench.output)  # type: ignore[arg-type]
    assert time.monotonic() - began < 20
    assert run_bench.output.types == ["SCHEMA", "RECORD"]


def test_without_bookmarks_sigterm_ends_the_run_at_once(
    run_bench: Bench, config: TapConfig, sigterm: Callable[[], None]
) -> None:
    run_bench.slices["a"] = with_break(sigterm, *SORTED)  # type: ignore[assignment]
    with pytest.raises(TerminatedRunError):
        run_sync(config, {}, None, run_bench.output)  # type: ignore[arg-type]
    assert run_bench.output.types == ["SCHEMA", "ACTIVATE_VERSION", "RECORD"]


def broken(error: Exception, *slices: Slice) -> Iterator[Slice]:
    yield from slices
    raise error


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("error", [SourceError("no"), RecordError("no"), PermissionError(13, "no")])
def test_with_continue_the_other_streams_are_read(
    run_bench: Bench, config: TapConfig, error: Exception, parallel: int
) -> None:
    run_bench.slices["a"] = broken(error, piece([1]))  # type: ignore[assignment]
    config = replace(config, on_stream_failure="continue", parallel_streams=parallel)
    supplied = {"bookmarks": {"c": {"x": 1}}}
    summary = RunSummary("tap-spark")
    with pytest.raises(PartialRunError) as raised:
        run_sync(config, {}, supplied, run_bench.output, summary=summary)  # type: ignore[arg-type]
    assert str(raised.value).startswith("1 of 2 streams failed: stream 'a': ")
    assert "no" in str(raised.value)
    streams = summary.as_dict()["streams"]
    assert "no" in streams["a"]["error"]
    assert "error" not in streams["b"]
    messages = run_bench.output.messages
    assert [m["stream"] for m in messages if m["type"] == "ACTIVATE_VERSION"] == ["b"]
    assert [m["record"]["k"] for m in messages if m["type"] == "RECORD" and m["record"]["k"] > 1]
    assert run_bench.output.states == [{"bookmarks": {"c": {"x": 1}, "b": {}}}]
    assert run_bench.stopped


@pytest.mark.parametrize("ordered", [True, False])
def test_the_bookmark_of_a_failed_stream_is_what_state_may_cover(
    run_bench: Bench, config: TapConfig, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    plans = (plan_of("a", **BY_KEY), plan_of("b", **FULL))
    monkeypatch.setattr(sync, "plan_streams", lambda *_: plans)
    run_bench.slices["a"] = broken(SourceError("no"), piece([5], ordered=ordered))  # type: ignore[assignment]
    supplied = {"bookmarks": {"a": {"replication_key": "k", "replication_key_value": 3}}}
    with pytest.raises(PartialRunError):
        run_sync(replace(config, on_stream_failure="continue"), {}, supplied, run_bench.output)  # type: ignore[arg-type]
    reached = {"replication_key": "k", "replication_key_value": 5 if ordered else 3}
    assert run_bench.output.states[-1] == {"bookmarks": {"a": reached, "b": {}}}


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("java.lang.OutOfMemoryError"), SparkStartError),
        (ClosedPipeError("gone"), ClosedPipeError),
        (DestinationError("full"), DestinationError),
        (OSError(28, "full"), OSError),
    ],
)
def test_what_concerns_the_whole_run_ends_it_also_with_continue(
    run_bench: Bench, config: TapConfig, error: Exception, kind: type[Exception], parallel: int
) -> None:
    config = replace(config, on_stream_failure="continue", parallel_streams=parallel)
    run_bench.fails_after, run_bench.error = 0, error
    with pytest.raises(kind):
        run_sync(config, {}, None, run_bench.output)  # type: ignore[arg-type]
    assert run_bench.output.states == []


def test_an_unreadable_file_is_an_error_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch)
    bench.slices["s"] = broken(PermissionError(13, "Permission denied", "x.csv"))  # type: ignore[assignment]
    with pytest.raises(SourceError, match=r"stream 's', file 'x.csv': cannot be read: Permission"):
        bench.sync(plan_of("s", **FULL))


def test_nothing_selected_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, config: TapConfig
) -> None:
    bench = bench_of(monkeypatch)
    monkeypatch.setattr(sync, "plan_streams", lambda *_: ())
    monkeypatch.setattr(bench, "start", lambda: pytest.fail("Spark was started"))
    monkeypatch.setattr(bench, "get", lambda: pytest.fail("Spark was asked for"))
    monkeypatch.setattr(sync, "LineOutput", Closable)
    run_sync(config, {}, None, bench.output)  # type: ignore[arg-type]
    assert bench.output.lines == []


def test_the_catalog_is_discovered_if_none_is_given(
    run_bench: Bench, config: TapConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(sync, "discovered_catalog", lambda *supplied: asked.append(supplied) or {})
    run_sync(config, None, None, run_bench.output)  # type: ignore[arg-type]
    assert len(asked) == 1
    assert len(run_bench.output.states) == 2


def test_test_mode_reads_one_record_of_every_stream(run_bench: Bench, config: TapConfig) -> None:
    run_test(config, "all", {}, run_bench.output)  # type: ignore[arg-type]
    assert run_bench.output.types == ["SCHEMA", "RECORD", "SCHEMA", "RECORD"]


def test_schema_mode_reads_none(run_bench: Bench, config: TapConfig) -> None:
    run_test(config, "schema", {}, run_bench.output)  # type: ignore[arg-type]
    assert run_bench.output.types == ["SCHEMA", "SCHEMA"]


def test_test_mode_continues_and_names_what_failed(run_bench: Bench, config: TapConfig) -> None:
    run_bench.fails_after = 0
    with pytest.raises(SourceError, match="'a', 'b'"):
        run_test(config, "all", {}, run_bench.output)  # type: ignore[arg-type]
    assert run_bench.output.types == ["SCHEMA", "SCHEMA"]


def test_cleaning_happens_when_planning_fails(
    run_bench: Bench, config: TapConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise SourceError("wrong catalog")

    monkeypatch.setattr(sync, "discovered_catalog", fail)
    with pytest.raises(SourceError), ExitStack() as cleaning:
        sync.prepared(config, None, {}, run_bench.output, cleaning)  # type: ignore[arg-type]
    assert run_bench.stopped
