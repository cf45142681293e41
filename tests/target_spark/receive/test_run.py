"""The run loop with real pipes, files and threads, and a loader without Spark."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from open_files import open_links
from target_fakes import FakeLoader, FakeSpark, config, fake_engine

from shared.errors import (
    AuditError,
    BalanceError,
    ClosedPipeError,
    DestinationError,
    ExpectationError,
    MessageError,
    RecordError,
    SettingsError,
    StalledRunError,
)
from shared.singer.run_summary import RunSummary
from shared.singer.stdout import MessageOutput
from shared.spark.conf import SparkSettings
from target_spark.core.balance import Loaded
from target_spark.core.load_plans import Batch, LoadPlan, LoadResult, StreamSchema
from target_spark.receive.run import run, run_with

SCHEMA = {"type": "SCHEMA", "stream": "s", "schema": {"properties": {}}, "key_properties": []}


def lines(*messages: dict | str) -> bytes:
    texts = [m if isinstance(m, str) else json.dumps(m, separators=(",", ":")) for m in messages]
    return "".join(f"{text}\n" for text in texts).encode()


def record(number: int, stream: str = "s") -> dict:
    return {"type": "RECORD", "stream": stream, "record": {"id": number}}


def state(number: int) -> dict:
    return {"type": "STATE", "value": {"n": number}}


class Output:
    def __init__(self, error: BaseException | None = None) -> None:
        self.written: list[bytes] = []
        self.error = error

    def write(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.written.append(bytes(data))

    @property
    def states(self) -> list[int]:
        return [json.loads(line)["n"] for line in self.written]


@contextlib.contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        for fd in (reader, writer):
            with contextlib.suppress(OSError):
                os.close(fd)


class Result:
    def __init__(self, tmp_path: Path, **settings) -> None:
        self.tmp_path = tmp_path
        self.config = config(tmp_path, **settings)
        self.loader = FakeLoader(load_method=self.config.load_method, config=self.config)
        self.spark, self.output = FakeSpark(), Output()

    def load(self, data: bytes, summary: RunSummary | None = None) -> Result:
        path = self.tmp_path / "input.jsonl"
        path.write_bytes(data)
        fd = os.open(path, os.O_RDONLY)
        try:
            self.load_fd(fd, summary)
        finally:
            os.close(fd)
        return self

    def load_fd(self, fd: int, summary: RunSummary | None = None) -> None:
        run_with(self.config, fd, self.output, self.loader, fake_engine(self.spark), summary)

    def ids(self, stream: str = "s") -> list[int]:
        return [row["id"] for row in self.loader.tables[stream]]

    def check_nothing_left(self) -> None:
        assert list((self.tmp_path / "staging").iterdir()) == []


def test_records_are_committed_and_state_goes_out_as_received(tmp_path):
    result = Result(tmp_path).load(
        lines(SCHEMA, record(1), record(2), '{"type":"STATE","value":{"n": 1.50,"é":[]}}')
    )
    assert result.ids() == [1, 2]
    assert result.output.written == ['{"n": 1.50,"é":[]}\n'.encode()]
    assert set(result.spark.calls) == {"start"}
    result.check_nothing_left()


def test_state_alone_never_starts_spark(tmp_path):
    result = Result(tmp_path).load(lines(state(1), state(2)))
    assert result.output.states == [1, 2]
    assert result.spark.calls == []


def test_schemas_and_state_alone_never_start_spark(tmp_path):
    messages = lines(SCHEMA, state(1), {**SCHEMA, "stream": "t"}, state(2))
    result = Result(tmp_path).load(messages)
    assert result.output.states == [1, 2]
    assert result.spark.calls == []


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_tables_without_rows_need_no_java(tmp_path, monkeypatch, form):
    def refuse(*_: object) -> None:
        raise AssertionError("Java was started")

    monkeypatch.setattr("shared.spark.session.spawn_jvm", refuse)
    (tmp_path / "input").write_bytes(lines(SCHEMA, state(1)))
    fd, output = os.open(tmp_path / "input", os.O_RDONLY), Output()
    try:
        run(config(tmp_path, format=form), fd, output)
    finally:
        os.close(fd)
    assert output.states == [1]


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_an_empty_input_is_fine(tmp_path, data):
    assert Result(tmp_path).load(data).output.written == []


def test_many_batches_keep_order_and_leave_nothing_behind(tmp_path):
    messages = [SCHEMA]
    for number in range(200):
        messages += [record(number), state(number)]
    result = Result(tmp_path, batch_size_rows=3, staging={"file_bytes": 64}).load(lines(*messages))
    assert result.ids() == list(range(200))
    assert result.output.states == sorted(result.output.states)
    assert result.output.states[-1] == 199
    assert all(len(batch.files) >= 1 for batch in result.loader.committed)
    result.check_nothing_left()


def test_a_batch_of_several_files_is_one_commit(tmp_path):
    messages = [SCHEMA, *(record(n) for n in range(100)), state(1)]
    result = Result(tmp_path, staging={"file_bytes": 1})
    with pipe() as (reader, writer):
        feeder = threading.Thread(target=feed, args=(writer, [lines(m) for m in messages]))
        feeder.start()
        result.load_fd(reader)
        feeder.join()
    (batch,) = result.loader.committed
    assert len(batch.files) > 1
    assert result.ids() == list(range(100))
    assert result.output.states == [1]


def feed(fd: int, pieces: list[bytes], pause: float = 0.001) -> None:
    for piece in pieces:
        os.write(fd, piece)
        time.sleep(pause)
    os.close(fd)


def test_a_silent_input_is_flushed_and_state_goes_out_before_its_end(tmp_path):
    result = Result(tmp_path, batch_wait_limit_seconds=0.2)
    with pipe() as (reader, writer):
        runner = threading.Thread(target=result.load_fd, args=(reader,))
        runner.start()
        os.write(writer, lines(SCHEMA, record(1), state(1)))
        wait_for(lambda: result.output.written)
        assert result.ids() == [1]
        os.write(writer, lines(record(2), state(2)))
        os.close(writer)
        runner.join(10)
    assert result.output.states == [1, 2]


def test_spark_starts_in_a_silence_after_a_schema_but_not_before(tmp_path, monkeypatch):
    monkeypatch.setattr("target_spark.receive.run.SILENCE_SECONDS", 0.0)
    result = Result(tmp_path)
    with pipe() as (reader, writer):
        runner = threading.Thread(target=result.load_fd, args=(reader,))
        runner.start()
        os.write(writer, lines(state(1)))
        wait_for(lambda: result.output.written)
        assert result.spark.calls == []
        os.write(writer, lines(SCHEMA))
        wait_for(lambda: result.spark.calls)
        os.close(writer)
        runner.join(10)
    assert set(result.spark.calls) == {"start"}


def wait_for(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_input_waits_for_slow_commits(tmp_path):
    result = Result(tmp_path, batch_size_rows=1)
    release = threading.Event()
    commit = result.loader.commit

    def slow(batch, results):
        release.wait(10)
        return commit(batch, results)

    result.loader.commit = slow
    record_line = lines({"type": "RECORD", "stream": "s", "record": {"id": 1, "t": "x" * 4000}})
    with pipe() as (reader, writer):
        os.set_blocking(writer, False)
        runner = threading.Thread(target=result.load_fd, args=(reader,))
        runner.start()
        os.write(writer, lines(SCHEMA))
        sent, quiet = 0, 0
        while quiet < 20:
            try:
                os.write(writer, record_line)
                sent, quiet = sent + 1, 0
            except BlockingIOError:
                quiet += 1
                time.sleep(0.02)
        assert sent < 1000
        release.set()
        os.close(writer)
        runner.join(60)
    assert len(result.ids()) in {sent, sent - 1}


def test_versions_and_overwrite_reach_the_loader(tmp_path):
    version = {"type": "ACTIVATE_VERSION", "stream": "s", "version": 5}
    data = lines(SCHEMA, record(1), version, record(2), state(1))
    result = Result(tmp_path).load(data)
    commit = ("commit", "s")
    assert result.loader.acts == [commit, ("activate", ("s", 5)), commit, ("finish", "s")]
    result = Result(tmp_path, load_method="overwrite").load(data)
    assert result.loader.acts == [commit, ("activate", ("s", 5)), commit, ("finish", "s")]
    assert result.output.states == [1]


def test_keys_reach_the_loader_and_their_files_are_consumed_once_state_is_out(tmp_path):
    files = {"encoding": {"format": "parquet"}, "manifest": ["k1", "k2"]}
    announced = {"type": "KEYS", "stream": "s"}
    data = lines(SCHEMA, announced, record(1), {**announced, **files}, state(1))
    summary = RunSummary("target-spark")
    result = Result(tmp_path).load(data, summary)
    assert result.loader.acts == [("commit", "s"), ("delete", ["k1", "k2"]), ("finish", "s")]
    assert (result.output.states, result.loader.deleted) == ([1], ["k1", "k2"])
    actual = summary.as_dict(None)["streams"]["s"]
    assert (actual["deleted"], actual["received"]) == (1, 1)


def test_a_bad_line_keeps_what_was_committed_with_its_state(tmp_path):
    result = Result(tmp_path, batch_size_rows=1)
    with pipe() as (reader, writer):
        caught = []

        def target():
            with pytest.raises(MessageError) as error:
                result.load_fd(reader)
            caught.append(error.value)

        runner = threading.Thread(target=target)
        runner.start()
        os.write(writer, lines(SCHEMA, record(1), state(1)))
        wait_for(lambda: result.output.written)
        os.write(writer, lines(record(2), "not json"))
        runner.join(10)
    assert caught[0].where.line == 5
    assert result.ids()[:1] == [1]
    assert result.output.states == [1]
    result.check_nothing_left()


@pytest.mark.parametrize(
    "last", ["not json", '{"type":"RECORD","stream":"t","record":{}}', '{"type":"RECORD","str']
)
def test_what_came_before_a_bad_line_is_loaded_and_its_state_goes_out(tmp_path, last):
    result = Result(tmp_path)
    data = lines(SCHEMA, record(1), state(1), record(2), state(2), record(3))
    with pytest.raises(MessageError) as caught:
        result.load(data + last.encode())
    assert caught.value.where.line == 7
    assert result.ids() == [1, 2]
    assert result.output.states == [2]
    assert result.loader.aborted == []
    assert set(result.spark.calls) == {"start"}
    result.check_nothing_left()


def test_a_table_is_replaced_once_however_many_schemas_come(tmp_path):
    wider = {**SCHEMA, "schema": {"properties": {"id": {}}}}
    data = [SCHEMA, record(1), SCHEMA, record(2), state(1), wider, record(3), wider, SCHEMA]
    data += [record(4), state(2)]
    result = Result(tmp_path, load_method="overwrite").load(lines(*data))
    commits = [("commit", "s")] * 3
    assert result.loader.acts == [*commits, ("finish", "s")]
    assert [batch.stream.serial for batch in result.loader.committed] == [0, 1, 2]
    assert result.ids() == [1, 2, 3, 4]
    assert result.output.states == [2]


@pytest.mark.parametrize("ending", ["", "\n"])
def test_batches_that_are_not_full_at_the_end_of_the_input_are_loaded(tmp_path, ending):
    other = {**SCHEMA, "stream": "t"}
    data = lines(SCHEMA, other, *(record(n) for n in range(8)), record(8, "t"), state(8))
    last = json.dumps(record(9))
    result = Result(tmp_path, batch_size_rows=3).load(data + (last + ending).encode())
    flushes = [batch for batch in result.loader.committed if batch.stream.stream == "s"]
    assert [batch.files[0].rows for batch in flushes[:2]] == [3, 3]
    assert result.ids() == [*range(8), 9]
    assert result.loader.tables["t"] == [{"id": 8}]
    assert result.output.states[-1] == 8


def test_bad_input_never_replaces_a_table(tmp_path):
    result = Result(tmp_path, load_method="overwrite")
    with pytest.raises(MessageError):
        result.load(lines(SCHEMA, record(1), state(1), "not json"))
    assert ("finish", "s") not in result.loader.acts
    assert result.output.written == []


def test_thousands_of_tiny_batches_in_one_block(tmp_path):
    messages = [SCHEMA, *(record(n) for n in range(2000)), state(1)]
    result = Result(tmp_path, batch_size_rows=1).load(lines(*messages))
    assert result.ids() == list(range(2000))
    assert result.output.states == [1]


def test_a_bad_record_is_named_by_its_line_of_stdin(tmp_path):
    bad = '{"type":"RECORD","stream":"s","record":{"id":}}'
    result = Result(tmp_path)
    with pytest.raises(RecordError) as caught:
        result.load(lines(SCHEMA, record(1), state(1), record(2), bad, record(3)))
    assert caught.value.where.line == 5
    assert result.ids() == [1]
    assert result.output.states == [1]
    assert result.loader.aborted == []
    assert set(result.spark.calls) == {"start"}
    result.check_nothing_left()


def test_a_record_before_its_schema(tmp_path):
    with pytest.raises(MessageError, match="stream 's', line 2"):
        Result(tmp_path).load(lines(state(1), record(1)))


def test_a_failed_commit_ends_the_run_without_its_state(tmp_path):
    result = Result(tmp_path)
    result.loader.fail_commit = DestinationError("no space")
    with pytest.raises(DestinationError, match="no space"):
        result.load(lines(SCHEMA, record(1), state(1)))
    assert result.output.written == []
    assert [b.files[0].rows for b in result.loader.aborted] == [1]
    result.check_nothing_left()


def test_a_bug_in_the_loader_is_raised_as_it_is(tmp_path):
    result = Result(tmp_path)
    result.loader.fail_commit = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        result.load(lines(SCHEMA, record(1), state(1)))
    result.check_nothing_left()


def test_a_closed_stdout_is_told_after_the_commit(tmp_path):
    result = Result(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    result.output = MessageOutput(writer)
    with pytest.raises(ClosedPipeError):
        result.load(lines(SCHEMA, record(1), state(1)))
    result.output.close()
    assert result.ids() == [1]


def test_a_full_staging_disk_ends_the_run(tmp_path, monkeypatch):
    def full(self, number, data, lines, first_line):
        raise DestinationError("no space left")

    monkeypatch.setattr("target_spark.receive.staging.Staging.append", full)
    result = Result(tmp_path, batch_size_rows=1)
    with pytest.raises(DestinationError, match="no space left"):
        result.load(lines(SCHEMA, record(1), record(2), state(1)))
    assert result.loader.committed == []
    result.check_nothing_left()


def test_an_input_that_cannot_be_read(tmp_path):
    with pytest.raises(MessageError, match="cannot be read"):
        fd = os.open(tmp_path, os.O_RDONLY)
        try:
            Result(tmp_path).load_fd(fd)
        finally:
            os.close(fd)


def test_counters_and_times_are_logged(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    other = {**SCHEMA, "stream": "t"}
    Result(tmp_path, batch_size_rows=2).load(
        lines(SCHEMA, other, *(record(n) for n in range(5)), record(1, "t"), state(1))
    )
    points = [r.metric_info for r in caplog.records if hasattr(r, "metric_info")]
    counts = {
        (p["metric"], p["tags"]["stream"]): p["value"] for p in points if p["type"] == "counter"
    }
    assert counts == {
        ("record_count", "s"): 5,
        ("record_count", "t"): 1,
        ("batch_count", "s"): 3,
        ("batch_count", "t"): 1,
    }
    timers = [p for p in points if p["metric"] == "batch_processing_time"]
    assert len(timers) == 4


@pytest.mark.parametrize("setting", ["streams", "stream_maps"])
def test_a_mistyped_name_of_a_stream_is_told(tmp_path, caplog, setting):
    """It would choose no load method, and hide no column."""
    entries = {"ordes": {"load_method": "overwrite"} if setting == "streams" else {"email": None}}
    settings = config(tmp_path, **{setting: {**entries, "tmp_*": {}}})
    caplog.set_level(logging.INFO)
    for name, is_near in (("orders", True), ("users", False)):
        caplog.clear()
        data = lines({**SCHEMA, "stream": name}, record(1, name), state(1))
        with pipe() as (reader, writer):
            os.write(writer, data)
            os.close(writer)
            run(settings, reader, Output())
        [line] = [line for line in caplog.records if "no stream of this run" in line.message]
        match = " (did you mean 'orders'?)" if is_near else ""
        assert line.message == (f"{setting}: no stream of this run matches 'ordes'{match}, 'tmp_*'")
        assert line.levelname == ("WARNING" if is_near else "INFO")


@pytest.mark.parametrize(("rule", "level"), [("load", "INFO"), ("discard", "WARNING")])
def test_rows_without_any_state_are_logged(tmp_path, caplog, rule, level):
    """A tap that never writes STATE does not send discarded rows again."""
    caplog.set_level(logging.INFO)
    with pipe() as (reader, writer):
        os.write(writer, lines({**SCHEMA, "stream": "s"}, record(1), record(2)))
        os.close(writer)
        run(config(tmp_path, rows_without_state=rule), reader, Output())
    [line] = [one for one in caplog.records if "2 rows after its last STATE" in one.message]
    assert line.levelname == level
    assert f"{rule}ed, and the tap will send them again if it writes STATE" in line.message


def test_a_mistyped_name_is_told_also_if_it_fails_the_run(tmp_path, caplog):
    settings = config(tmp_path, streams={"ordes": {"expect": {"min_rows": 1}}})
    with pipe() as (reader, writer):
        os.write(writer, lines({**SCHEMA, "stream": "orders"}, record(1, "orders"), state(1)))
        os.close(writer)
        with pytest.raises(ExpectationError):
            run(settings, reader, Output())
    assert "matches 'ordes' (did you mean 'orders'?)" in caplog.text


def test_no_threads_and_descriptors_stay_behind(tmp_path):
    before = open_links()
    Result(tmp_path).load(lines(SCHEMA, record(1), state(1)))
    wait_for(lambda: open_links() == before)
    wait_for(lambda: not [t for t in threading.enumerate() if t.name.startswith("work-")])


def test_a_cluster_needs_a_shared_staging_root(tmp_path, monkeypatch):
    supplied = config(tmp_path)
    supplied = replace(
        supplied,
        spark=SparkSettings(master="spark://somewhere:7077"),
        staging=replace(supplied.staging, root=None),
    )
    with pytest.raises(SettingsError, match=r"staging\.root"):
        run(supplied, 0, Output())


def test_flushes_too_small_for_a_commit_are_warned_of_once(tmp_path, caplog):
    result = Result(tmp_path, batch={"strategy": "fixed_size", "size": 2, "timeout": "1m"})
    result.loader.delay = 0.02
    result.load(lines(SCHEMA, *map(record, range(40))))
    assert result.ids() == list(range(40))
    [warning] = [text for text in caplog.messages if text.startswith("commits take")]
    assert "of the time since the first one, 0.0" in warning
    assert "config['batch']['size']: 2 rows a flush load at most" in warning


class EachStepFailsOnce(FakeLoader):
    """Everything that is asked of it fails the first time, as if a network had been away."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[object] = set()
        self.compared: dict[str, list[int]] = defaultdict(list)

    def _fail(self, *key: object) -> None:
        with self._lock:
            is_first = key not in self.failed
            self.failed.add(key)
        if is_first:
            raise DestinationError("away") from ConnectionResetError(104, "reset")

    def plan(self, stream: StreamSchema) -> LoadPlan:
        return LoadPlan(recalls=True)

    def recall(self, stream: StreamSchema) -> tuple[int, ...]:
        self._fail("recall", stream.stream)
        return (2, 2, 2)

    def convert(self, batch: Batch) -> LoadResult:
        self._fail("convert", batch.files[0].url)
        if batch.replay in {0, 1}:
            self.compared[batch.source].append(batch.replay)
            lines = sum(file.rows or 0 for file in batch.files)
            return LoadResult(received=lines, replayed=lines)
        return super().convert(batch)

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> dict[str, Loaded]:
        self._fail("commit", batch.token)
        return super().commit(batch, results)

    def finish(self, stream: str, *, awaits_state: bool = False) -> dict[str, Loaded]:
        self._fail("finish", stream)
        return super().finish(stream)


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_run_in_which_each_step_fails_once_ends_well(tmp_path, rows):
    result = Result(
        tmp_path,
        batch_size_rows=rows,
        failure={"policy": "RetryWithBackoff", "max_retries": 3, "retry_backoff": "1ms"},
    )
    result.loader = EachStepFailsOnce()
    other = {**SCHEMA, "stream": "t"}
    sent = [(record(n), record(n, "t"), state(n)) for n in range(12)]
    data = lines(SCHEMA, other, *(message for messages in sent for message in messages))
    thread = threading.Thread(target=result.load, args=(data,), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "something waits for work that has no slot"
    assert result.ids() == result.ids("t") == list(range(4, 12)), "the first four are replays"
    assert result.loader.compared == {"s": [0, 1], "t": [0, 1]}, "in their order"
    assert result.output.states[-1] == 11
    assert {key[0] for key in result.loader.failed} == {"recall", "convert", "commit", "finish"}


def test_the_summary_has_what_became_durable(tmp_path: Path) -> None:
    summary = RunSummary("target-spark")
    created = Result(tmp_path, failure={"policy": "LogAndContinue"}, batch_size_rows=2)
    created.loader.policy = "LogAndContinue"
    input_ = lines(SCHEMA, record(1), record(2), record(3), state(3))
    broken = input_.replace(b'{"id":3}', b'{"id":3')
    created.load(broken, summary)
    actual = summary.as_dict(None)
    assert actual["streams"]["s"]["received"] == 3
    assert actual["streams"]["s"]["rejected"] == 1
    table = actual["streams"]["s"]["tables"]["s"]
    assert (table["received"], table["committed"], table["rejected"]) == (3, 2, 1)
    assert (actual["state_messages"], sum(actual["timeline"]["rows"])) == (1, 2)
    assert actual["columns"]["s"]["id"] == {"null_share": 0.0, "min": 0, "max": 2}


def test_a_lost_line_keeps_its_state_back(tmp_path: Path) -> None:
    """A staging file that has lost a line on its way to the executors."""

    class Loses(FakeLoader):
        def convert(self, batch: Batch) -> LoadResult:
            [file] = batch.files
            whole = Path(file.url).read_bytes().splitlines(keepends=True)
            if len(whole) > 1:
                Path(file.url).write_bytes(b"".join(whole[:-1]))
            return super().convert(batch)

    created = Result(tmp_path)
    created.loader = Loses()
    with pytest.raises(BalanceError, match="3 records were staged, 2 were read"):
        created.load(lines(SCHEMA, record(1), record(2), record(3), state(3)))
    assert (created.output.states, created.loader.tables) == ([], {})


@pytest.mark.parametrize(("least", "states"), [(2, [2]), (3, [])])
def test_withheld_state(tmp_path: Path, least: int, states: list[int]) -> None:
    """STATE waits for the end of the run, and goes out only if the expectations hold."""
    expect = {"min_rows": least, "withhold_state": True}
    created = Result(tmp_path, streams={"s": {"expect": expect}}, batch_size_rows=1)
    input_ = lines(SCHEMA, record(1), state(1), record(2), state(2))
    if states:
        created.load(input_)
    else:
        with pytest.raises(ExpectationError, match="2 rows, at least 3"):
            created.load(input_)
    assert created.output.states == states
    assert [row["id"] for row in created.loader.tables["s"]] == [1, 2]


def test_an_expectation_without_withholding(tmp_path: Path) -> None:
    """STATE goes out as usual; a stream that never came is missing."""
    created = Result(tmp_path, streams={"other": {"expect": {"min_rows": 1}}})
    with pytest.raises(ExpectationError, match="stream 'other': 0 rows"):
        created.load(lines(SCHEMA, record(1), state(1)))
    assert created.output.states == [1]


def test_rows_are_published_at_the_end_and_state_follows(tmp_path: Path) -> None:
    audited = {"format": "iceberg", "write_audit_publish": True, "batch_size_rows": 1}
    created = Result(tmp_path, **audited)
    created.load(lines(SCHEMA, record(1), state(1), record(2), state(2)))
    assert [act for act, _ in created.loader.acts] == ["commit", "commit", "publish", "finish"]
    assert created.output.states == [2]
    expect = {"streams": {"s": {"expect": {"min_rows": 3}}}}
    failed = Result(tmp_path, **audited, **expect)
    with pytest.raises(AuditError, match="stream 's': 2 rows, at least 3 are expected"):
        failed.load(lines(SCHEMA, record(1), state(1), record(2), state(2)))
    assert [act for act, _ in failed.loader.acts] == ["commit", "commit"]
    assert failed.output.states == []


def test_rows_that_are_held_back_are_ended_twice(tmp_path: Path) -> None:
    """Before the audit, to be looked at, and after STATE, as only then nothing is needed again."""
    created = Result(tmp_path, format="delta", write_audit_publish=True)
    created.loader.load_method = "overwrite"
    created.load(lines(SCHEMA, record(1), state(1)))
    assert [act for act, _ in created.loader.acts] == ["commit", "finish", "publish", "finish"]
    assert created.output.states == [1]


def test_a_run_that_fails_publishes_nothing(tmp_path: Path) -> None:
    created = Result(tmp_path, format="iceberg", write_audit_publish=True)
    with pytest.raises(MessageError):
        created.load(lines(SCHEMA, record(1), state(1), "not json"))
    assert [act for act, _ in created.loader.acts] == ["commit"]
    assert created.output.states == []


def test_a_stalled_run_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    created = Result(tmp_path, stall_limit_seconds=0.4, batch_size_rows=1)
    with pipe() as (reader, writer):
        os.write(writer, lines(SCHEMA, record(1), state(1)))
        with pytest.raises(StalledRunError, match="stall_limit_seconds"):
            run_with(
                created.config, reader, created.output, created.loader, fake_engine(created.spark)
            )
    assert created.output.states == [1]
    assert "the run ends after" in caplog.text


def test_a_run_that_waits_says_for_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    created = Result(tmp_path, heartbeat_seconds=1, stall_limit_seconds=1.5, batch_size_rows=1)
    with pipe() as (reader, writer):
        os.write(writer, lines(SCHEMA, record(1), state(1)))
        with pytest.raises(StalledRunError):
            run_with(
                created.config, reader, created.output, created.loader, fake_engine(created.spark)
            )
    assert "no progress for 1 s: waiting for input" in caplog.text


def test_a_commit_that_lasts_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Slow(FakeLoader):
        def commit(self, batch: Batch, results: Sequence[LoadResult]) -> dict[str, Loaded]:
            time.sleep(1.3)
            return super().commit(batch, results)

    caplog.set_level(logging.INFO)
    created = Result(tmp_path, heartbeat_seconds=1)
    created.loader = Slow()
    created.load(lines(SCHEMA, record(1), state(1)))
    assert "no progress for 1 s: waiting for the commit of stream 's'" in caplog.text


VERSION = {"type": "ACTIVATE_VERSION", "stream": "s", "version": 1}
BATCH_MESSAGE = {"type": "BATCH", "stream": "s", "encoding": {"format": "jsonl"}, "manifest": ["a"]}


@pytest.mark.parametrize(
    ("messages", "has_work"),
    [
        ((), False),
        ((SCHEMA,), False),
        ((SCHEMA, state(1)), False),
        ((SCHEMA, record(1)), True),
        ((SCHEMA, BATCH_MESSAGE), True),
        ((SCHEMA, VERSION), True),
    ],
)
def test_what_is_something_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: tuple, has_work: bool
) -> None:
    (tmp_path / "a").touch()
    monkeypatch.chdir(tmp_path)
    summary = RunSummary("target-spark")
    created = Result(tmp_path)
    created.load(lines(*messages), summary)
    assert summary.has_work is has_work
    summary.choose_exit_code(99)
    assert summary.as_dict(None)["exit_code"] == (0 if has_work else 99)
    assert created.output.states == [1] * (messages[-1:] == (state(1),))
