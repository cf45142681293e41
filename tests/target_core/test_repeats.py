"""Records that come again after a crash are told from new ones."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.encodings import Encoding
from shared.errors import DestinationError
from shared.storage import NO_OPTIONS
from target_spark.manifests import STAGED
from target_spark.plans import Batch, InputFile, Segment, StreamSchema
from target_spark.repeats import (
    MOST_SEGMENTS,
    Repeats,
    Replay,
    file_segment,
    line_segments,
    note_segments,
    note_text,
)


def line(value: Any, at: str = "2026-01-01T00:00:00Z") -> bytes:
    record = {"type": "RECORD", "stream": "s", "record": {"a": value}, "time_extracted": at}
    return json.dumps(record).encode() + b"\n"


def segments(data: bytes, *marks: int, start: int = 0) -> list[Segment]:
    return list(line_segments(io.BytesIO(data), start, marks))


def lines(values: Any) -> bytes:
    return b"".join(map(line, values))


class TestSegments:
    def test_cut_at_marks(self) -> None:
        data, one = lines(range(5)), len(line(0))
        found = segments(data, one, 3 * one)
        assert [segment.lines for segment in found] == [1, 2, 2]
        assert found[0] == segments(lines([0]))[0]
        assert found[1] == segments(lines([1, 2]))[0]

    def test_from_a_byte_on(self) -> None:
        data, one = lines(range(5)), len(line(0))
        assert segments(data, one, 3 * one, start=2 * one) == segments(lines([2, 3, 4]), one)

    def test_a_mark_at_the_end_makes_no_empty_segment(self) -> None:
        assert len(segments(lines([1]), len(line(1)))) == 1
        assert segments(b"") == []

    def test_the_time_of_extraction_does_not_count(self) -> None:
        assert segments(line(1)) == segments(line(1, at="2027-02-02T11:11:11.123456+00:00"))
        assert segments(line(1)) != segments(line(2))

    def test_larger_than_a_block(self) -> None:
        data = lines("x" * 1000 for _ in range(3000))
        half = len(data) // 3000 * 1500
        assert [segment.lines for segment in segments(data, half)] == [1500, 1500]
        assert segments(data, half)[0] == segments(data[:half])[0]

    def test_notes(self) -> None:
        many = [Segment(n, f"d{n}") for n in range(MOST_SEGMENTS + 5)]
        assert note_segments(note_text(many)) == tuple(many[5:])
        assert len(note_text([Segment(10**9, "f" * 16)] * 3000)) < 64 * 1024
        for text in (None, "", "{}", "[1]", "nothing", '[["a", 1]]'):
            assert note_segments(text) == ()


class TestReplay:
    def test_nothing_to_compare_with(self) -> None:
        replay = Replay(())
        assert replay.is_over
        assert replay.lines(io.BytesIO(lines([1]))) == (0, ())
        assert not replay.file(Segment(0, "x"))

    def test_all_that_was_committed_comes_again_and_more(self) -> None:
        data, one = lines(range(9)), len(line(0))
        before = segments(data[: 7 * one], 2 * one, 4 * one)
        replay = Replay(before)
        assert replay.lines(io.BytesIO(data)) == (7 * one, tuple(before))
        assert replay.is_over

    def test_it_begins_at_a_later_state(self) -> None:
        data, one = lines(range(9)), len(line(0))
        before = segments(data[: 7 * one], 2 * one, 4 * one)
        replay = Replay(before)
        assert replay.lines(io.BytesIO(data[2 * one :])) == (5 * one, tuple(before[1:]))

    def test_over_several_files(self) -> None:
        data, one = lines(range(9)), len(line(0))
        replay = Replay(segments(data[: 7 * one], 2 * one, 4 * one))
        assert replay.lines(io.BytesIO(data[: 4 * one]))[0] == 4 * one
        assert not replay.is_over
        assert replay.lines(io.BytesIO(data[4 * one :]))[0] == 3 * one
        assert replay.is_over

    def test_a_file_that_ends_within_a_segment_is_loaded_from_there(self) -> None:
        data, one = lines(range(9)), len(line(0))
        replay = Replay(segments(data[: 7 * one], 2 * one, 4 * one))
        assert replay.lines(io.BytesIO(data[: 3 * one]))[0] == 2 * one
        assert replay.is_over

    def test_lines_and_files_in_turn(self) -> None:
        before, after = lines([1, 2]), lines([3, 4])
        between = Segment(0, "digest")
        known = [*segments(before, len(line(1))), between, *segments(after)]
        replay = Replay(known)
        assert replay.lines(io.BytesIO(before)) == (len(before), tuple(known[:2]))
        assert replay.rest == tuple(known[2:])
        assert replay.file(between)
        assert replay.lines(io.BytesIO(after)) == (len(after), tuple(known[3:]))
        assert replay.is_over

    def test_a_file_does_not_come_behind_more_lines(self) -> None:
        between = Segment(0, "digest")
        replay = Replay([*segments(lines([1])), between])
        assert replay.lines(io.BytesIO(lines([1, 2])))[0] == len(line(1))
        assert replay.is_over
        assert not replay.file(between)

    def test_what_differs_is_new(self) -> None:
        data, one = lines(range(9)), len(line(0))
        replay = Replay(segments(data[: 7 * one], 2 * one, 4 * one))
        changed = data[: 3 * one] + line("other") + data[4 * one :]
        assert replay.lines(io.BytesIO(changed))[0] == 2 * one
        assert replay.is_over
        assert Replay(segments(lines([1]))).lines(io.BytesIO(lines([2]))) == (0, ())

    def test_files(self) -> None:
        found = [file_segment(io.BytesIO(data)) for data in (b"a", b"b", b"c", b"d")]
        replay = Replay(found[:3])
        assert [replay.file(segment) for segment in found[1:]] == [True, True, False]

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(st.integers(0, 2), min_size=1, max_size=30),
        st.sets(st.integers(1, 29)),
        st.data(),
    )
    def test_what_is_passed_over_was_committed(
        self, values: list[int], cuts: set[int], data: st.DataObject
    ) -> None:
        rows = [line(value) for value in values]
        marks = sorted(cut for cut in cuts if cut < len(rows))
        committed = data.draw(st.integers(0, len(rows)), label="committed")
        ends = [sum(map(len, rows[:mark])) for mark in marks if mark < committed]
        before = segments(b"".join(rows[:committed]), *ends)
        begin = data.draw(st.sampled_from([0, *[mark for mark in marks if mark <= committed]]))
        changes = data.draw(st.booleans(), label="changes")
        again = [*rows[begin:], line(9)]
        if changes:
            again[data.draw(st.integers(0, len(again) - 1))] = line("new")
        size, found = Replay(before).lines(io.BytesIO(b"".join(again)))
        passed = b"".join(again)[:size].count(b"\n")
        assert passed == sum(segment.lines for segment in found)
        place = b"".join(again)[:size]
        assert place in b"".join(rows[:committed]), "nothing new is passed over"
        if not changes and len(set(rows)) == len(rows):
            assert passed == committed - begin, "all that comes again is"


def batch(serial: int, *files: InputFile) -> Batch:
    return Batch(StreamSchema("s", {}), files, "t", serial=serial)


def staged(path: Path, data: bytes, *marks: int) -> InputFile:
    path.write_bytes(data)
    return InputFile(str(path), Encoding(STAGED), marks=marks)


class TestPieces:
    def test_a_staged_file_is_loaded_from_where_it_is_new(self, tmp_path: Path) -> None:
        data, one = lines(range(5)), len(line(0))
        note = note_text(segments(data[: 3 * one]))
        repeats = Repeats(NO_OPTIONS)
        first = staged(tmp_path / "1", data, 3 * one, 4 * one)
        found = repeats.compare(batch(0, first), lambda: note)
        assert [file.start for file in found.files] == [3 * one]
        assert [segment.lines for segment in found.segments] == [3, 1, 1]
        again = repeats.compare(batch(0, first), lambda: pytest.fail("asked twice"))
        assert again == found
        later = repeats.compare(batch(1, staged(tmp_path / "2", data)), lambda: note)
        assert [file.start for file in later.files] == [0]

    def test_nothing_is_left_of_what_came_whole(self, tmp_path: Path) -> None:
        data = lines(range(5))
        found = Repeats(NO_OPTIONS).compare(
            batch(0, staged(tmp_path / "1", data)), lambda: note_text(segments(data))
        )
        assert found.files == ()
        assert found.segments == tuple(segments(data))

    def test_batch_files_are_told_by_their_bytes(self, tmp_path: Path) -> None:
        old, new, same = (
            InputFile(str(tmp_path / name), Encoding("jsonl")) for name in ("old", "new", "same")
        )
        for file, text in ((old, "a"), (new, "b"), (same, "a")):
            Path(file.url).write_text(text)
        before = Repeats(NO_OPTIONS).compare(batch(0, old), lambda: None)
        assert before.files == (old,)
        note = note_text(before.segments)
        assert Repeats(NO_OPTIONS).compare(batch(0, same, new), lambda: note).files == (new,)

    def test_pieces_are_compared_in_their_order(self, tmp_path: Path) -> None:
        data, one = lines(range(6)), len(line(0))
        files = [staged(tmp_path / str(n), data[n * 2 * one : (n + 1) * 2 * one]) for n in range(3)]
        note = note_text([s for n in (0, 1) for s in segments(lines([2 * n, 2 * n + 1]))])
        repeats, found = Repeats(NO_OPTIONS), {}

        def work(serial: int) -> None:
            found[serial] = repeats.compare(batch(serial, files[serial]), lambda: note)

        threads = [threading.Thread(target=work, args=(n,)) for n in (2, 1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert [len(found[n].files) for n in range(3)] == [0, 0, 1]

    def test_a_note_that_cannot_be_read_fails_all_who_wait_and_may_be_asked_again(
        self, tmp_path: Path
    ) -> None:
        file = staged(tmp_path / "1", lines([1]))
        repeats, errors = Repeats(NO_OPTIONS), []

        def fail() -> str:
            raise DestinationError("no table today")

        def work(serial: int) -> None:
            with pytest.raises(DestinationError) as caught:
                repeats.compare(batch(serial, file), fail)
            errors.append(str(caught.value))

        threads = [threading.Thread(target=work, args=(n,)) for n in (1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert errors == ["no table today"] * 2
        assert repeats.compare(batch(0, file), lambda: None).files == (file,)
        assert repeats.compare(batch(1, file), lambda: None).files == (file,)
