"""The four policies in the run loop, with a loader without Spark."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from target_fakes import FakeLoader, config, fake_engine

from shared.errors import DestinationError, MessageError, PartialRunError, RecordError, Where
from target_spark.convert.read_lines import line_of
from target_spark.core.balance import Loaded
from target_spark.core.failures import with_backoff
from target_spark.core.load_plans import (
    Batch,
    ConvertAgainError,
    LoadPlan,
    LoadResult,
    Part,
    RefusedRecordError,
)
from target_spark.core.reader import Reader
from target_spark.receive.run import run_with

SCHEMA = {
    "type": "SCHEMA",
    "stream": "s",
    "schema": {"properties": {"id": {"type": "integer"}}},
    "key_properties": ["id"],
}
BROKEN = '{"type":"RECORD","stream":"s","record":{"id":oops}}'
DLQ = {"policy": "SendToDLQ"}


def record(number: int) -> str:
    return f'{{"type":"RECORD","stream":"s","record":{{"id":{number}}}}}'


def state(number: int) -> str:
    return f'{{"type":"STATE","value":{{"n":{number}}}}}'


class Output:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    @property
    def states(self) -> list[int]:
        return [json.loads(line)["n"] for line in self.written]


class Result:
    def __init__(self, tmp_path: Path, **settings) -> None:
        self.letters = tmp_path / "letters"
        failure = settings.pop("failure", {})
        if failure.get("policy") == "SendToDLQ":
            failure = {"dead_letter_path": str(self.letters), **failure}
        self.config = config(tmp_path, failure=failure, **settings)
        self.path = tmp_path / "input.jsonl"
        self.loader, self.output = FakeLoader(), Output()
        self.loader.policy = self.config.failure.policy
        self.loader.rejects_folder = tmp_path / "rejects"
        self.loader.rejects_folder.mkdir(parents=True, exist_ok=True)

    def load(self, *lines: dict | str | bytes) -> Result:
        self.path.write_bytes(b"".join(as_bytes(line) + b"\n" for line in lines))
        return self.load_file(self.path)

    def load_file(self, path: Path) -> Result:
        fd = os.open(path, os.O_RDONLY)
        try:
            run_with(self.config, fd, self.output, self.loader, fake_engine())
        finally:
            os.close(fd)
        return self

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in self.loader.tables["s"]]

    @property
    def files(self) -> list[Path]:
        return sorted(self.letters.iterdir()) if self.letters.exists() else []

    @property
    def dead(self) -> list[dict]:
        """Return all messages of all files of dead letters."""
        lines = [line for path in self.files for line in path.read_bytes().splitlines()]
        return [json.loads(line) for line in lines]


def as_bytes(line: dict | str | bytes) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()


GARBAGE = ("no JSON at all", "[1, 2]", '{"no": "type"}', '{"type":"RECORD","stream":"s"}')


DAMAGED = (
    '{"stream":"s","schema":{"type":"object","properties":{}},"key_properties":[],"type":"SCHEMA"',
    '{"stream":"s","schema":{"properties":{"type":{"type":"RECORD"}},"type":"SCHEMA"}',
    '{"key_properties":["a\\"],"schema":{"type":"object"},"type":"SCHEMA","stream":"s"}',
    '{"schema":{"type":"object","properties":{"id":{"type":"integer",}}},"type":"SCHEMA"}',
    '{"value":{"type":"RECORD","n":},"type":"STATE"}',
    '{"type":["RECORD"],"stream":"s",',
    '{"type":"REC',
    '{"type" "RECORD"}',
    "{broken",
    'INFO {"type":"RECORD"}{"type":"STATE","value":1}',
    '"type":"ACTIVATE_VERSION","stream":"s","version":1}',
)
"""Lines that are not JSON and may have been anything but a RECORD."""

DAMAGED_RECORDS = (
    '{"type":"RECORD", "stream":"s","record":{"type":"SCHEMA","id":}}',
    '{"time_extracted":{"type":"STATE"},"type":"RECORD","stream":"s","record":{"id":1}',
    '{"version":1,"\\u0074ype":"RECORD",nonsense',
    'INFO "type":"RECORD"',
)


class TestFailBatch:
    def test_it_is_the_default(self, tmp_path):
        with pytest.raises(RecordError) as caught:
            Result(tmp_path).load(SCHEMA, record(1), BROKEN)
        assert caught.value.where.line == 3

    def test_a_passing_failure_is_not_tried_again(self, tmp_path):
        result = Result(tmp_path)
        result.loader.passing_failures = [passing()]
        with pytest.raises(DestinationError):
            result.load(SCHEMA, record(1))


class TestLogAndContinue:
    failure = {"policy": "LogAndContinue"}  # noqa: RUF012

    def test_the_others_are_loaded_and_state_goes_out(self, tmp_path, caplog):
        result = Result(tmp_path, failure=self.failure).load(
            SCHEMA, record(1), BROKEN, record(2), state(1), *GARBAGE, record(3), state(2)
        )
        assert result.ids == [1, 2, 3]
        assert result.output.states[-1] == 2
        texts = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert "stream 's', line 3: rejected: not JSON" in texts
        assert any(text.startswith("line 6: rejected: not a valid JSON line") for text in texts)
        assert any("line 9: rejected: RECORD without a 'record'" in text for text in texts)
        assert "stream 's': records rejected: 2" in texts
        assert "lines rejected: 3" in texts

    def test_a_discarded_flush_shows_why(self, tmp_path):
        result = Result(tmp_path, failure=self.failure, max_errors=1)
        with pytest.raises(RecordError, match="`max_errors` is 1; line 3: not JSON"):
            result.load(SCHEMA, record(1), BROKEN, BROKEN, state(1))

    def test_the_log_is_bounded_and_the_count_is_not(self, tmp_path, caplog):
        caplog.set_level(logging.INFO)
        Result(tmp_path, failure=self.failure).load(SCHEMA, *[BROKEN] * 500, *["x"] * 500)
        texts = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert sum(": rejected: " in text for text in texts) == 20
        assert "stream 's': records rejected: 500" in texts
        assert "lines rejected: 500" in texts
        points = [r.metric_info for r in caplog.records if hasattr(r, "metric_info")]
        rejected = [p for p in points if p["metric"] == "record_rejected"]
        assert sorted(p["value"] for p in rejected) == [500, 500]
        counted = [p for p in points if p["metric"] == "record_count"]
        assert [p["value"] for p in counted] == [0]

    @pytest.mark.parametrize(
        "line",
        [
            '{"type":"STATE"}',
            '{"type":"STATE","value":{"n":',
            '{"type": "SCHEMA", "stream": "t", "schema": {',
            '{"type":"SCHEMA","stream":"t"}',
            *DAMAGED,
            '{"type":"BATCH","stream":"s"}',
            '{"type":"ACTIVATE_VERSION","stream":"s"}',
            '{"type":"SOMETHING","stream":"s"}',
            '{"type":"RECORD","stream":"unknown","record":{}}',
        ],
    )
    def test_what_others_depend_on_still_ends_the_run(self, tmp_path, line):
        result = Result(tmp_path, failure=self.failure)
        with pytest.raises(MessageError) as caught:
            result.load(SCHEMA, record(1), state(1), line, record(2))
        assert caught.value.where.line == 4
        assert result.ids == [1]
        assert result.output.states == [1]

    @pytest.mark.parametrize("line", DAMAGED_RECORDS)
    def test_a_damaged_line_that_says_it_is_a_record_is_left_out(self, tmp_path, line):
        result = Result(tmp_path, failure=self.failure)
        result.load(SCHEMA, record(1), state(1), line, record(2), state(2))
        assert result.ids == [1, 2]
        assert result.output.states[-1] == 2

    @pytest.mark.parametrize("cut", ['{"ty', '{"type":"SCH', '{"stream":"s","schema":{"ty', "{"])
    def test_a_last_line_that_may_have_been_anything_is_left_out(self, tmp_path, cut):
        result = Result(tmp_path, failure=self.failure)
        result.path.write_text("\n".join([json.dumps(SCHEMA), record(1), state(1), cut]))
        result.load_file(result.path)
        assert result.output.states == [1]

    def test_a_last_line_that_was_no_record_ends_the_run(self, tmp_path):
        result = Result(tmp_path, failure=self.failure)
        result.path.write_text("\n".join([json.dumps(SCHEMA), '{"type":"SCHEMA","stream":"s"']))
        with pytest.raises(MessageError, match="line 2"):
            result.load_file(result.path)

    def test_a_line_that_is_too_long_does_too(self):
        with pytest.raises(MessageError, match="longer than"):
            list(Reader(max_line_bytes=10, lenient=True).feed(b"x" * 11))

    def test_a_cut_last_line_is_left_out(self, tmp_path):
        result = Result(tmp_path, failure=self.failure)
        data = "\n".join([json.dumps(SCHEMA), record(1), state(1), record(2)[:-9]])
        result.path.write_text(data)
        result.load_file(result.path)
        assert result.ids == [1]
        assert result.output.states == [1]

    def replacing(self, tmp_path):
        result = Result(tmp_path, failure=self.failure, load_method="overwrite")
        result.loader.plan = lambda _: LoadPlan(overwrites=True, replaces=True)
        return result

    @pytest.mark.parametrize("states", [(), (state(1),)])
    @pytest.mark.parametrize("cut", [record(2)[:end] for end in (-9, 34, 30, 16, 9)])
    def test_a_cut_last_line_keeps_the_table_of_its_stream(self, tmp_path, states, cut):
        result = self.replacing(tmp_path)
        data = "\n".join([json.dumps(SCHEMA), record(1), *states, cut])
        result.path.write_text(data)
        with pytest.raises(PartialRunError, match="its last record is cut off"):
            result.load_file(result.path)
        assert ("finish", "s") not in result.loader.acts

    def test_a_malformed_record_after_the_last_state_keeps_the_table(self, tmp_path):
        result = self.replacing(tmp_path)
        with pytest.raises(PartialRunError, match="no STATE came after its last record"):
            result.load(SCHEMA, record(1), state(1), '{"type":"RECORD","stream":"s"}')
        done = self.replacing(tmp_path)
        done.load(SCHEMA, record(1), '{"type":"RECORD","stream":"s"}', state(1))
        assert ("finish", "s") in done.loader.acts


class TestSendToDLQ:
    def test_letters_hold_the_line_as_it_came_and_why(self, tmp_path):
        odd = '{"type":"RECORD","stream":"s","record":{"id":"é"} ,"time_extracted":"2026-01-01"}'
        result = Result(tmp_path, failure=DLQ)
        result.loader.convert = rejecting(result.loader, b'"\xc3\xa9"')
        began = time.time()
        result.load(SCHEMA, record(1), odd, record(2), state(1))
        assert result.ids == [1, 2]
        assert result.output.states == [1]
        schema, letter = result.dead
        assert schema == {**SCHEMA, "dead_letters": True}
        error = letter.pop("_sdc_error")
        assert letter == json.loads(odd)
        assert (error["line"], error["reason"]) == (3, "not wanted")
        assert "file" not in error
        assert error["time"].endswith("+00:00")
        assert error["time"][:4] == time.strftime("%Y", time.gmtime(began))
        (path,) = result.files
        assert odd[:-1].encode() in path.read_bytes()

    def test_what_is_no_record_goes_to_a_stream_of_its_own(self, tmp_path):
        binary = b"\xff\xfe"
        result = Result(tmp_path, failure=DLQ).load(SCHEMA, record(1), BROKEN, *GARBAGE, binary)
        assert result.ids == [1]
        records = [m["record"] for m in result.dead if m["type"] == "RECORD"]
        assert {m["stream"] for m in result.dead} == {"sdc_dead_letters"}
        kept = {r["line"]: r.get("original", r.get("original_base64")) for r in records}
        wanted = dict(enumerate((BROKEN, *GARBAGE, "//4="), 3))
        assert kept == wanted
        assert {r["line"]: r["stream"] for r in records if r["stream"]} == {3: "s", 7: "s"}

    def test_letters_load_again(self, tmp_path):
        first = Result(tmp_path, failure=DLQ)
        first.loader.convert = rejecting(first.loader, b":2}")
        first.load(SCHEMA, record(1), record(2), record(3), "garbage")
        second = Result(tmp_path / "again", failure=DLQ)
        (tmp_path / "again").mkdir(exist_ok=True)
        for path in first.files:
            second.load_file(path)
        assert second.ids == [2]
        assert [r["original"] for r in second.loader.tables["sdc_dead_letters"]] == ["garbage"]
        assert second.files == []

    def test_letters_that_fail_again_keep_one_error(self, tmp_path):
        first = Result(tmp_path, failure=DLQ)
        first.loader.convert = rejecting(first.loader, b":2}")
        first.load(SCHEMA, record(2))
        (path,) = first.files
        (tmp_path / "again").mkdir()
        second = Result(tmp_path / "again", failure=DLQ)
        second.loader.convert = rejecting(second.loader, b":2}", "again")
        second.load_file(path)
        (again,) = second.files
        assert again.read_bytes().count(b"_sdc_error") == 1
        assert second.dead[1]["_sdc_error"]["reason"] == "again"
        assert second.dead[1]["record"] == {"id": 2}

    def test_state_waits_for_the_letters(self, tmp_path):
        result = Result(tmp_path, failure=DLQ)
        seen = []
        write = result.output.write
        result.output.write = lambda data: (seen.append(len(result.files)), write(data))
        result.load(SCHEMA, "garbage", state(1))
        assert result.output.states == [1]
        assert seen == [1]

    def test_letters_that_cannot_be_written_end_the_run_without_state(self, tmp_path):
        blocked = tmp_path / "letters"
        blocked.write_text("a a file exists where a folder is needed")
        for bad in (BROKEN, "garbage"):
            result = Result(tmp_path, failure=DLQ)
            with pytest.raises(DestinationError, match="dead letters cannot be written"):
                result.load(SCHEMA, record(1), bad, state(1))
            assert result.output.written == []

    def test_the_log_says_where_they_are(self, tmp_path, caplog):
        result = Result(tmp_path, failure=DLQ).load(SCHEMA, "garbage")
        assert f"lines rejected: 1; they are kept in '{result.letters}'" in caplog.text

    def test_nothing_is_written_where_nothing_fails(self, tmp_path):
        assert Result(tmp_path, failure=DLQ).load(SCHEMA, record(1)).files == []

    def test_many_bad_lines_make_few_files(self, tmp_path):
        result = Result(tmp_path, failure=DLQ).load(SCHEMA, *["garbage"] * 1000, state(1))
        assert len(result.files) <= 3
        assert len(result.dead) == 1000 + len(result.files)


def rejecting(loader: FakeLoader, mark: bytes, reason: str = "not wanted"):
    """Return a convert function that also rejects valid lines with a text in them."""
    from target_spark.convert.task_reports import reject_line
    from target_spark.core.load_plans import LoadResult, Part, Reject

    def convert(batch):
        (file,) = batch.files
        rows, kept, rejects = [], b"", []
        for number, line in enumerate(Path(file.url).read_bytes().splitlines(keepends=True), 1):
            if mark in line:
                first, stdin = [run for run in file.line_map if run[0] <= number][-1]
                rejects.append(Reject(file.url, stdin + number - first, reason))
                kept += reject_line(rejects[-1], line)
            else:
                rows.append(json.loads(line)["record"])
        loader._rows[file.url] = rows
        path = loader.rejects_folder / Path(file.url).name
        path.write_bytes(kept)
        urls = (str(path),) if rejects else ()
        part = Part(file.url, len(rows), 1)
        count = len(rows) + len(rejects)
        return LoadResult((part,), len(rows), tuple(rejects), len(rejects), urls, received=count)

    return convert


def passing() -> DestinationError:
    error = DestinationError("cannot write")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    return error


class TestRetryWithBackoff:
    failure = {"policy": "RetryWithBackoff", "retry_backoff": "50ms"}  # noqa: RUF012

    def test_a_passing_failure_is_tried_again(self, tmp_path, caplog):
        result = Result(tmp_path, failure=self.failure, batch_size_rows=2)
        result.loader.passing_failures = [passing(), passing()]
        result.load(SCHEMA, *(record(n) for n in range(10)), state(1))
        assert result.ids == list(range(10))
        assert result.output.states == [1]
        assert caplog.text.count("failed; retrying in") == 2
        assert "No space" not in caplog.text or "cannot write" in caplog.text

    def test_after_the_last_retry_the_run_ends(self, tmp_path):
        failure = {**self.failure, "max_retries": 2}
        result = Result(tmp_path, failure=failure)
        result.loader.passing_failures = [passing() for _ in range(4)]
        with pytest.raises(DestinationError, match="cannot write"):
            result.load(SCHEMA, record(1), state(1))
        assert len(result.loader.passing_failures) == 1
        assert result.output.written == []
        assert len(result.loader.aborted) == 1

    def test_what_lasts_is_not(self, tmp_path):
        result = Result(tmp_path, failure=self.failure)
        error = DestinationError("no")
        error.__cause__ = PermissionError(errno.EACCES, "Permission denied")
        result.loader.passing_failures = [passing(), error]
        with pytest.raises(DestinationError, match="no"):
            result.load(SCHEMA, record(1))
        assert len(result.loader.passing_failures) == 1

    def test_a_bad_record_is_not(self, tmp_path):
        with pytest.raises(RecordError):
            Result(tmp_path, failure=self.failure).load(SCHEMA, BROKEN)

    def test_input_is_read_while_a_retry_waits(self, tmp_path, monkeypatch):
        always = partial(with_backoff, chance=lambda: 1.0)
        monkeypatch.setattr("target_spark.receive.run.with_backoff", always)
        failure = {**self.failure, "retry_backoff": "1s"}
        result = Result(tmp_path, failure=failure, batch_size_rows=1)
        lines = [json.dumps(SCHEMA), json.dumps({**SCHEMA, "stream": "t"}), record(1)]
        lines += [record(n).replace('"s"', '"t"') for n in range(5)]
        reader, writer = os.pipe()
        os.write(writer, ("\n".join(lines) + "\n").encode())
        os.close(writer)
        done, failures = [], [passing()]
        commit = result.loader.commit

        def watched(batch, results):
            if batch.stream.stream == "s" and failures:
                raise failures.pop()
            actual = commit(batch, results)
            done.append(batch.stream.stream)
            return actual

        result.loader.commit = watched
        try:
            run_with(result.config, reader, result.output, result.loader, fake_engine())
        finally:
            os.close(reader)
        assert done == [*["t"] * 5, "s"]


def test_consumed_files_are_told_to_the_loader_at_the_end(tmp_path):
    batch = {
        "type": "BATCH",
        "stream": "s",
        "encoding": {"format": "jsonl"},
        "manifest": [str(tmp_path / "b.jsonl")],
    }
    (tmp_path / "b.jsonl").write_text(record(1) + "\n")
    result = Result(tmp_path).load(SCHEMA, batch, state(1))
    assert result.loader.deleted == [str(tmp_path / "b.jsonl")]
    assert result.output.states == [1]


def test_eager_low_latency_commits_while_the_input_is_open(tmp_path):
    batch = {"strategy": "low_latency", "max_size": 1000, "max_wait": "1h", "eager": True}
    result = Result(tmp_path, batch=batch)
    reader, writer = os.pipe()
    import threading

    thread = threading.Thread(
        target=run_with, args=(result.config, reader, result.output, result.loader, fake_engine())
    )
    thread.start()
    try:
        for number in range(3):
            os.write(writer, as_bytes(SCHEMA) + b"\n" if not number else b"")
            os.write(writer, f"{record(number)}\n{state(number)}\n".encode())
            end = time.monotonic() + 10
            while number not in result.output.states:
                assert time.monotonic() < end
                time.sleep(0.005)
    finally:
        os.close(writer)
        thread.join(10)
        os.close(reader)
    assert result.ids == [0, 1, 2]


class RefusingLoader(FakeLoader):
    """Its store refuses rows with the id 7, and finds that out at the first commit."""

    existing = False

    def may_refuse(self, stream: str) -> bool:
        return True

    def convert(self, batch: Batch) -> LoadResult:
        actual = super().convert(batch)
        if not self.existing or self.policy == "FailBatch":
            return actual
        rows = self._rows[actual.parts[0].url]
        kept = [row for row in rows if row["id"] != 7]
        self._rows[actual.parts[0].url] = kept
        part = Part(actual.parts[0].url, len(kept), 1)
        return replace(actual, parts=(part,), rows=len(kept), rejected=len(rows) - len(kept))

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> dict[str, Loaded]:
        for number, file in enumerate(batch.files):
            ids = [row["id"] for row in self._rows[file.url]]
            if 7 in ids and self.policy == "FailBatch":
                where = Where(stream="s", line=line_of(file, ids.index(7) + 1))
                raise RefusedRecordError(RecordError("refused", where=where), number)
            if 7 in ids:
                self.existing = True
                raise ConvertAgainError
        return super().commit(batch, results)


class TestRefusedRows:
    LINES = (SCHEMA, record(1), state(1), record(2), state(2), record(7), state(3), record(4))

    @pytest.mark.parametrize("size", [1, 10_000])
    def test_what_came_before_a_refused_row_is_committed(self, tmp_path, size):
        result = Result(tmp_path, staging={"file_bytes": size})
        result.loader = RefusingLoader()
        with pytest.raises(RecordError, match="line 6: refused"):
            result.load(*self.LINES, state(4))
        assert result.ids == [1, 2]
        assert result.output.states == [2]

    @pytest.mark.parametrize("size", [1, 10_000])
    def test_others_are_committed_once(self, tmp_path, size):
        failure = {"policy": "LogAndContinue"}
        result = Result(tmp_path, failure=failure, staging={"file_bytes": size}, max_errors=1)
        result.loader = RefusingLoader()
        result.loader.policy = "LogAndContinue"
        result.load(*self.LINES, state(4))
        assert result.ids == [1, 2, 4]
        assert result.output.states == [4]
        assert not list((tmp_path / "staging").rglob("*.jsonl"))
