"""Standard output by a separate thread: whole lines, errors passed on, a prompt end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.engine.engine import Engine
from shared.errors import ClosedPipeError, StalledRunError
from shared.singer.stdout import MessageOutput
from tap_spark.send import line_output
from tap_spark.send.line_output import LineOutput, OutputClosedError, StateWriter, segment_end
from tap_spark.send.run import Run
from tap_spark.send.sync import _flush_state

LINE = b"x" * 999 + b"\n"


@given(
    st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"") + b"\n")),
    st.integers(1, 20),
)
def test_segments_end_with_lines(lines: list[bytes], limit: int) -> None:
    data = b"".join(lines)
    start, segments = 0, []
    while start < len(data):
        stop = segment_end(memoryview(data), start, limit)
        segments.append(data[start:stop])
        start = stop
    assert b"".join(segments) == data
    for segment in segments:
        assert segment.endswith(b"\n")
        assert len(segment) <= limit or segment.count(b"\n") == 1


def test_a_last_line_without_newline_is_a_segment() -> None:
    assert segment_end(memoryview(b"a\nbbbbbb"), 2, 3) == 8
    assert segment_end(memoryview(b"a\nb"), 0, 99) == 3


class Pipe:
    """A pipe with our end as message stream, and a reader that continues on request."""

    def __init__(self) -> None:
        self.source, sink = os.pipe()
        self.output = LineOutput(MessageOutput(sink))
        self.sink = sink

    def read_all(self) -> bytes:
        os.close(self.sink)
        parts = []
        while part := os.read(self.source, 1 << 20):
            parts.append(part)
        return b"".join(parts)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    created = Pipe()
    yield created
    created.output.close()


def test_bytes_and_files_are_written_in_order(pipe: Pipe, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"2\n3\n")
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    pipe.output.write(b"1\n")
    pipe.output.copy_file(path)
    pipe.output.copy_file(empty)
    pipe.output.write(memoryview(b"4\n"))
    pipe.output.close()
    assert pipe.read_all() == b"1\n2\n3\n4\n"


def test_a_large_file_passes_a_slow_reader(pipe: Pipe, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    data = b"".join(b"%0998d\n" % number for number in range(5000))
    path.write_bytes(data)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_all()), daemon=True)
    writer = threading.Thread(target=pipe.output.copy_file, args=(path,), daemon=True)
    writer.start()
    time.sleep(0.1)
    assert writer.is_alive()
    parts = []
    while sum(map(len, parts)) < len(data):
        parts.append(os.read(pipe.source, 1 << 16))
    writer.join(5)
    reader.start()
    reader.join(5)
    assert b"".join(parts) + got[0] == data


def test_a_closed_pipe_is_raised_to_the_caller_of_write(pipe: Pipe) -> None:
    os.close(pipe.source)
    with pytest.raises(ClosedPipeError):
        pipe.output.write(LINE)


def test_a_closed_pipe_is_raised_for_a_file_too(pipe: Pipe, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(LINE * 10)
    os.close(pipe.source)
    with pytest.raises(ClosedPipeError):
        pipe.output.copy_file(path)


def test_a_missing_file_is_raised(pipe: Pipe, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pipe.output.copy_file(tmp_path / "none")
    pipe.output.write(b"still\n")
    pipe.output.close()
    assert pipe.read_all() == b"still\n"


def test_close_lets_the_line_finish(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_output, "SEGMENT_BYTES", 3000)
    data = LINE * 20_000
    failures: list[BaseException] = []

    def write() -> None:
        try:
            pipe.output.write(data)
        except OutputClosedError as error:
            failures.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    time.sleep(0.1)
    got: list[bytes] = []
    # Reading continues slowly while the output is being closed in the middle of the write.
    closer = threading.Thread(target=pipe.output.close, daemon=True)
    closer.start()
    while closer.is_alive():
        got.append(os.read(pipe.source, 1 << 16))
        closer.join(0.001)
    read = b"".join(got) + pipe.read_all()
    assert 0 < len(read) < len(data)
    assert read.endswith(b"\n")
    thread.join(5)
    assert len(failures) == 1  # the writer must not assume that all of it is out


def test_close_does_not_wait_for_a_reader_that_has_stopped(pipe: Pipe) -> None:
    thread = threading.Thread(target=lambda: pipe.output.write(LINE * 20_000), daemon=True)
    thread.start()
    time.sleep(0.1)
    started = time.monotonic()
    pipe.output.close()
    assert time.monotonic() - started < 2


def test_nothing_is_written_after_close(pipe: Pipe, tmp_path: Path) -> None:
    pipe.output.close()
    with pytest.raises(OutputClosedError):
        pipe.output.write(LINE)
    with pytest.raises(OutputClosedError):
        pipe.output.copy_file(tmp_path / "lines")
    assert pipe.read_all() == b""


def test_lines_of_several_threads_stay_whole(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(line_output, "SEGMENT_BYTES", 100)
    path = tmp_path / "lines"
    path.write_bytes(b"file" * 50 + b"\n")

    def write(text: bytes) -> None:
        for _ in range(50):
            pipe.output.write(text * 60 + b"\n")
            pipe.output.copy_file(path)

    threads = [threading.Thread(target=write, args=(text,)) for text in (b"a", b"b", b"c")]
    reading: list[bytes] = []
    reader = threading.Thread(target=lambda: reading.append(pipe.read_all()))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.output.close()
    reader.start()
    reader.join()
    lines = reading[0].splitlines()
    assert sorted(lines) == sorted(
        [text * 60 for text in (b"a", b"b", b"c")] * 50 + [b"file" * 50] * 150
    )


def test_a_stalled_reader_gets_no_state() -> None:
    read_end, write_end = os.pipe()
    stalled = LineOutput(MessageOutput(write_end))
    states = StateWriter({}, stalled.write, 60)
    states.update(lambda _: {"bookmarks": {}})

    def write() -> None:
        with suppress(ClosedPipeError):
            stalled.write(b"x" * 10_000_000 + b"\n")

    def flush() -> None:
        _flush_state(Run(Engine.of(Mock()), stalled), states, StalledRunError("x"))

    waiting, flushing = (threading.Thread(target=one, daemon=True) for one in (write, flush))
    waiting.start()
    until = time.monotonic() + 10
    while not stalled.is_writing and time.monotonic() < until:
        time.sleep(0.01)
    flushing.start()
    flushing.join(10)
    assert not flushing.is_alive()
    os.close(read_end)
    waiting.join(10)
