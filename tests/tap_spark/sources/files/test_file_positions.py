"""Positions in growing files against a model: every line read exactly once, unless rewritten."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.storage import limits
from tap_spark.sources.files import file_positions, line_reader
from tap_spark.sources.files.csv_files import CsvSource
from tap_spark.sources.files.file_positions import (
    FORGET_DAYS,
    FileChange,
    FilePosition,
    complete_end,
    cut_at_line,
    fingerprint,
    kept_positions,
    plan_range,
    refreshed,
    waves,
)
from tap_spark.sources.files.line_reader import (
    LineRange,
    LineRules,
    cut_ranges,
    has_line,
    read_range,
    split_lines,
)
from tap_spark.sources.files.paths import ListedFile
from tap_spark.sources.files.resumable_files import new_files, pack
from tap_spark.state.stream_plans import StreamPlan
from tap_spark.stream_config import StreamConfig

ENDS = ["\n", "\r\n", "\r"]
words = st.text('abc," é', max_size=6)
contents = st.lists(st.tuples(words, st.sampled_from(ENDS)), max_size=12).map(
    lambda lines: "".join(word + end for word, end in lines)
)


def spark_lines(data: bytes) -> list[bytes]:
    """Return lines as Hadoop's reader splits them."""
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def now(path: Path, tick: int) -> ListedFile:
    return ListedFile(str(path), path.stat().st_size, str(tick))


def read(line_range: LineRange) -> list[bytes]:
    return [line for batch in read_range(line_range) for line in batch.column(0).to_pylist()]


def run(
    path: Path,
    mark: FilePosition | None,
    tick: int,
    wave: int = 7,
    range_bytes: int = 3,
    *,
    wait: bool = False,
):
    """Read one file, in tiny waves and ranges; return lines, mark and what was found."""
    file = now(path, tick)
    reading = plan_range(file, mark)
    lines: list[bytes] = []
    if reading is None:
        return lines, mark, None
    end = complete_end(str(path), reading.start, reading.end, lambda _url, _start, _end: not wait)
    if not end:
        return lines, None, reading.change
    if end == reading.start:
        return lines, refreshed(file, mark), reading.change
    reading = replace(reading, end=end)
    for parts in waves([reading], wave, cut_at_line):
        for _, start, end in parts:
            for part in cut_ranges(str(path), 0, start, end, range_bytes=range_bytes):
                lines += read(part)
            mark = FilePosition(
                end,
                file.size,
                file.mtime,
                fingerprint(str(path), end),
            )
            mark = FilePosition.from_json(json.loads(json.dumps(mark.to_json())))
    return lines, mark, reading.change


@settings(max_examples=150, deadline=None)
@given(text=contents, wave=st.integers(1, 30), range_bytes=st.integers(1, 30), tail=words)
def test_any_ranges_read_the_whole_file(tmp_path_factory, text, wave, range_bytes, tail):
    path = tmp_path_factory.mktemp("p") / "f"
    path.write_bytes((text + tail).encode())
    lines, mark, _ = run(path, None, 0, wave, range_bytes)
    assert lines == spark_lines((text + tail).encode())
    assert mark is None or mark.offset == path.stat().st_size


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(contents, min_size=1, max_size=5))
def test_appended_lines_are_read_once(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("p") / "f"
    path.write_bytes(b"")
    seen: list[bytes] = []
    mark = None
    for tick, part in enumerate(parts):
        with path.open("ab") as file:
            file.write(part.encode())
        lines, mark, actual = run(path, mark, tick)
        assert actual in (None, FileChange.NEW, FileChange.GROWN)
        seen += lines
        again, same, _ = run(path, mark, tick)
        assert (again, same) == ([], mark)
    assert seen == spark_lines("".join(parts).encode())


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "truncate", "rewrite"]), contents, words), max_size=6
    )
)
def test_any_history_against_a_model(tmp_path_factory, steps):
    """After each run the lines read last for each place are exactly the file's lines."""
    path = tmp_path_factory.mktemp("p") / "f"
    path.write_bytes(b"")
    existing: list[bytes] = []
    mark = None
    for tick, (step, text, tail) in enumerate(steps):
        old = path.read_bytes()
        new = (text + tail).encode()
        path.write_bytes({"append": old + new, "truncate": old[: len(old) // 2]}.get(step, new))
        before = mark
        lines, mark, actual = run(path, mark, tick)
        if actual in (FileChange.TRUNCATED, FileChange.REWRITTEN, FileChange.NEW):
            existing = lines
        elif actual is FileChange.UNFINISHED:
            existing = existing[:-1] + lines
        else:
            existing += lines
        current = path.read_bytes()
        unchanged = before is not None and len(old) >= before.offset
        unchanged = unchanged and current[: before.offset] == old[: before.offset]
        if step == "append" and unchanged:
            assert actual in (None, FileChange.NEW, FileChange.GROWN, FileChange.UNFINISHED)
        if mark is not None and len(current) >= mark.offset and actual is not None:
            assert existing == spark_lines(current)


@settings(max_examples=300, deadline=None)
@given(
    data=contents,
    tail=words,
    encoding=st.sampled_from(["utf-8", "latin-1", "shift_jis"]),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_a_waiting_line_is_read_exactly_once(tmp_path_factory, data, tail, encoding, cuts):
    """A run may find the file cut at any byte: inside a character, or between CR and LF."""
    text = (data + tail).encode(encoding, errors="replace")
    path = tmp_path_factory.mktemp("p") / "f"
    mark, seen = None, []
    for tick, cut in enumerate(sorted([*cuts, len(text)])):
        path.write_bytes(text[:cut])
        lines, mark, actual = run(path, mark, tick, wait=True)
        assert actual in (None, FileChange.NEW, FileChange.GROWN)
        seen += lines
        assert run(path, mark, tick, wait=True)[0] == []
    assert seen == spark_lines(data.encode(encoding, errors="replace"))
    path.write_bytes(text + b"\n")
    lines, _, _ = run(path, mark, 99, wait=True)
    end = [] if not tail and text.endswith(b"\r") else [tail.encode(encoding, "replace")]
    assert lines == end


def test_what_waits_may_be_rewritten(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a\nb,1")
    lines, mark, _ = run(path, None, 0, wait=True)
    assert (lines, mark.offset) == ([b"a"], 2)
    path.write_bytes(b"a\nc")
    assert run(path, mark, 1, wait=True)[::2] == ([], FileChange.GROWN)
    path.write_bytes(b"a\nc,2\n")
    assert run(path, mark, 2, wait=True)[::2] == ([b"c,2"], FileChange.GROWN)


def test_a_line_that_was_read_unfinished_waits_when_it_continues(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a\nb")
    _, mark, _ = run(path, None, 0)
    path.write_bytes(b"a\nbc")
    lines, mark, _ = run(path, mark, 1, wait=True)
    assert lines == []
    path.write_bytes(b"a\nbcd\n")
    assert run(path, mark, 2, wait=True)[0] == [b"bcd"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", False),
        (b" \n\n", False),
        (b"#c\n", False),
        (b"\xef\xbb\xbfh\n", True),
        (b"\n#c\nh", True),
    ],
)
def test_a_header_is_a_line_that_is_neither_blank_nor_a_comment(tmp_path, text, expected):
    path = tmp_path / "f"
    path.write_bytes(text)
    assert has_line(str(path), len(text), b"#") is expected


def test_an_unfinished_last_line_is_read_again_when_it_continues(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a\nb")
    lines, mark, _ = run(path, None, 0)
    assert lines == [b"a", b"b"]
    assert run(path, mark, 1)[0] == [], "a static file without final line end is read once"
    path.write_bytes(b"a\nbc\nd\n")
    lines, mark, actual = run(path, mark, 2)
    assert (lines, actual) == ([b"bc", b"d"], FileChange.UNFINISHED)


@pytest.mark.parametrize("end", ENDS)
def test_a_line_that_only_gets_its_end_is_not_read_again(tmp_path, end):
    path = tmp_path / "f"
    path.write_bytes(b"a\nb")
    _, mark, _ = run(path, None, 0)
    path.write_bytes(b"a\nb" + end.encode())
    assert run(path, mark, 1)[0] == []
    path.write_bytes(b"a\nb" + end.encode() + b"c\n")
    assert run(path, mark, 2)[0] == [b"c"]


def test_the_second_half_of_a_crlf_is_not_a_line(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a\r")
    _, mark, _ = run(path, None, 0)
    path.write_bytes(b"a\r\nb\r\n")
    assert run(path, mark, 1)[0] == [b"b"]


def test_rewriting_with_equal_size_is_noticed(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a\nb\n")
    _, mark, _ = run(path, None, 0)
    path.write_bytes(b"a\nc\n")
    lines, _, actual = run(path, mark, 1)
    assert (lines, actual) == ([b"a", b"c"], FileChange.REWRITTEN)


def test_positions_of_missing_files_are_kept_for_a_while():
    day = date(2026, 1, 1)
    marks = {url: FilePosition(1, 1, "0", "x") for url in "ab"}
    gone = kept_positions(marks, {"b"}, day)
    assert (gone["a"].gone, gone["b"].gone) == ("2026-01-01", None)
    assert FilePosition.from_json(gone["a"].to_json()) == gone["a"]
    assert kept_positions(gone, {"a", "b"}, day + timedelta(days=99)) == marks
    almost = kept_positions(gone, {"b"}, day + timedelta(days=FORGET_DAYS - 1))
    assert almost == gone
    assert set(kept_positions(almost, {"b"}, day + timedelta(days=FORGET_DAYS))) == {"b"}


def test_a_folder_that_is_not_mounted_keeps_all_positions():
    marks = {
        "a": FilePosition(1, 1, "0", "x", gone="2020-01-01"),
        "b": FilePosition(1, 1, "0", "x"),
    }
    assert kept_positions(marks, (), date(2026, 1, 1)) == marks


def test_positions_are_bounded_by_the_files_of_a_month():
    marks: dict[str, FilePosition] = {}
    for number in range(200):
        listed = {f"f{number}", f"f{number + 1}"}
        marks = kept_positions(marks, listed, date(2026, 1, 1) + timedelta(days=number))
        marks |= {url: FilePosition(1, 1, "0", "x") for url in listed}
    assert len(marks) == FORGET_DAYS + 2


def test_a_run_that_stopped_inside_a_file_resumes_there(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a\nb\nc\n")
    size, digest = path.stat().st_size, fingerprint(str(path), 2)
    lines, mark, actual = run(path, FilePosition(2, size, "0", digest), 0)
    assert (lines, actual, mark.offset) == ([b"b", b"c"], FileChange.GROWN, size)


def test_files_that_grow_while_they_are_read_are_read_to_the_planned_end(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a\nb\nlater\n")
    assert read(LineRange(str(path), 0, 0, 4, 4, aligned=True)) == [b"a", b"b"]


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a\n")
    with pytest.raises(RuntimeError, match="was truncated while it was read"):
        read(LineRange(str(path), 0, 0, 9, 9, aligned=True))


def test_no_line_start_is_looked_for_behind_the_end_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\nb\n")
    with pytest.raises(OSError, match="was truncated while it was read"):
        cut_at_line(str(path), 10, 20)


def test_fingerprints_of_large_files_see_changes_at_the_edges(tmp_path, monkeypatch):
    for name, value in {"WHOLE": 400, "EDGE": 100, "BLOCK": 20, "BLOCKS": 4}.items():
        monkeypatch.setattr(file_positions, name, value)
    path = tmp_path / "f"
    data = bytearray(os.urandom(1000))
    path.write_bytes(data)
    first = fingerprint(str(path), 1000)
    for place in (0, 99, 100, 900, 999):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert fingerprint(str(path), 1000) != first
    path.write_bytes(data + b"more")
    assert fingerprint(str(path), 1000) == first


@pytest.mark.parametrize(
    "value",
    [
        *(None, 3, {}, {"offset": 1}),
        {"offset": "x", "size": 1, "mtime": "", "fingerprint": ""},
        {"offset": 1, "size": 1, "mtime": "", "fingerprint": "", "gone": "long ago"},
        {"offset": 1, "size": 1, "mtime": "", "fingerprint": "", "gone": 3},
        {"offset": -1, "size": 1, "mtime": "", "fingerprint": ""},
        {"offset": 1, "size": 1, "mtime": "", "fingerprint": "", "lines": -1},
    ],
)
def test_invalid_positions_are_rejected(value):
    with pytest.raises(ValueError):
        FilePosition.from_json(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"\xef\xbb\xbfh\nx\n", [b"x"]),
        (b"\n  \nh\nx\n\ny", [b"x", b"", b"y"]),
        (b"#c\nh\n#d\nx\n", [b"#d", b"x"]),
        (b"h", []),
    ],
)
def test_headers_are_skipped(tmp_path, text, expected):
    path = tmp_path / "f"
    path.write_bytes(text)
    rules = LineRules(header=True, comment=b"#")
    (line_range,) = cut_ranges(str(path), 0, 0, len(text), range_bytes=99, rules=rules)
    assert read(line_range) == expected


def test_a_file_that_was_emptied_has_no_first_record(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"")
    assert CsvSource(StreamConfig("s", "csv", str(path))).first_record(str(path), 0) is None


def test_only_the_first_range_has_the_header(tmp_path):
    path, rules = tmp_path / "f", LineRules(header=True)
    path.write_bytes(b"h\na\nb\nc\nd\n")
    ranges = cut_ranges(str(path), 0, 0, 10, range_bytes=4, rules=rules)
    assert [read(line_range) for line_range in ranges] == [[b"a"], [b"b", b"c"], [b"d"]]
    (later,) = cut_ranges(str(path), 0, 4, 10, range_bytes=9, rules=rules)
    assert read(later) == [b"b", b"c", b"d"]


@given(st.binary(max_size=40))
def test_split_lines_as_hadoop_does(data):
    assert split_lines(data).to_pylist() == spark_lines(data)


@given(st.lists(st.integers(0, 50), max_size=20))
def test_tasks_hold_every_range_once(sizes):
    ranges = [LineRange("f", n, 0, size, size, aligned=True) for n, size in enumerate(sizes)]
    tasks = pack(ranges, 50)
    assert [line_range for task in tasks for line_range in task] == ranges
    assert all(sum(line_range.stop for line_range in task) <= 50 for task in tasks)


def test_a_line_without_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "x"
    path.write_bytes(b"a\n" + b"x" * (9 << 20) + b"\nb\n")
    line_range = LineRange(str(path), 0, 0, path.stat().st_size, path.stat().st_size, aligned=True)
    with pytest.raises(RuntimeError, match="a line is longer than 1 MiB"):
        list(read_range(line_range))


def test_a_last_line_that_waits_is_not_covered_by_a_position(tmp_path):
    """Of a file that is read as a whole: it is then sent even if the file never changes."""
    path = tmp_path / "a.csv"
    path.write_text("id\n1\n2")
    plan = StreamPlan("s", "s", StreamConfig("s", "csv"), {}, ("id",))
    files = [now(path, 1)]

    def after(bookmark, ends):
        new = new_files(replace(plan, bookmark=bookmark), files, ends)
        return new, new.last_bookmark(replace(plan, bookmark=bookmark))

    assert after({}, {str(path): 0})[1]["files"] == {}
    new, bookmark = after({}, {str(path): 5})
    assert [(part.start, part.end) for part in new.file_ranges] == [(0, 5)]
    assert not after(bookmark, {str(path): 5})[0].file_ranges
    new, bookmark = after(bookmark, {})
    assert [(part.start, part.end) for part in new.file_ranges] == [(0, 6)]
    assert not after(bookmark, {})[0].file_ranges


@pytest.mark.parametrize("encoding", ["cp037", "cp500", "cp1140", "cp273"])
def test_lines_of_ebcdic_end_with_either_line_feed(tmp_path, monkeypatch, encoding):
    monkeypatch.setattr(line_reader, "CHUNK", 4)
    path = tmp_path / "a.txt"
    path.write_bytes("0001 É\x850002\n0003\r\x85\x85x".encode(encoding))
    whole = LineRange(str(path), 0, 0, 99, 99, aligned=True, is_stream=True)
    lines = read(replace(whole, rules=LineRules(encoding=encoding)))
    assert lines == ["0001 É".encode(), b"0002", b"0003", b"", b"x"]
    by_next_lines = LineRules(encoding=encoding, line_end="\x85".encode())
    assert read(replace(whole, rules=by_next_lines))[1] == b"0002\n0003\r"
