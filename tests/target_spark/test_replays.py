"""Records that are replayed after a crash are detected: notes, digests and journals."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from shared.formats.file_formats import Encoding
from target_spark.core.load_plans import STAGED, InputFile, Segment
from target_spark.replays import (
    Bookmarks,
    Entry,
    Journal,
    Note,
    line_segments,
    read_note,
    segments_of,
    whole_segment,
)

AT = "2026-01-01T00:00:00Z"
LATER = "2027-02-02T11:11:11.123456+00:00"


def line(value: Any, at: str | None = AT, *, first: bool = False, **rest: Any) -> bytes:
    message: dict[str, Any] = {"type": "RECORD", "stream": "s"}
    if at is not None and first:
        message["time_extracted"] = at
    message["record"] = value
    if at is not None and not first:
        message["time_extracted"] = at
    return json.dumps({**message, **rest}).encode() + b"\n"


def segments(data: bytes, *marks: tuple[int, int]) -> list[Segment]:
    file = InputFile("", Encoding(STAGED), marks=marks, since=1, until=9)
    return list(line_segments(io.BytesIO(data), file))


def digest(data: bytes) -> str:
    (segment,) = segments(data)
    return segment.digest


def digest_of(data: bytes) -> str:
    return blake3(data).hexdigest(16)


def lines(values: Any) -> bytes:
    return b"".join(line({"a": value}) for value in values)


class TestDigests:
    def test_cut_where_a_state_came(self) -> None:
        data, one = lines(range(5)), len(line({"a": 0}))
        actual = segments(data, (one, 3), (3 * one, 7))
        assert [segment.lines for segment in actual] == [1, 2, 2]
        assert [(segment.since, segment.until) for segment in actual] == [(1, 2), (3, 6), (7, 9)]
        assert actual[0].digest == digest(lines([0]))
        assert actual[1].digest == digest(lines([1, 2]))

    def test_a_mark_at_an_end_makes_no_empty_segment(self) -> None:
        data = lines([1])
        assert [s.lines for s in segments(data, (len(data), 4))] == [1]
        assert [(s.since, s.until) for s in segments(data, (0, 4))] == [(4, 9)]
        assert segments(b"") == []

    @pytest.mark.parametrize("first", [False, True])
    def test_the_time_of_extraction_of_the_message_does_not_count(self, first: bool) -> None:
        record = {"a": [1, {"b": "}"}]}
        one, other = (line(record, at, first=first) for at in (AT, LATER))
        assert digest(one) == digest(other)
        assert digest(line(record, AT, version=3)) == digest(line(record, LATER, version=3))
        assert digest(line({"a": 1}, AT) + line({"a": 2}, AT)) == digest(
            line({"a": 1}, LATER) + line({"a": 2}, LATER)
        )

    @pytest.mark.parametrize(
        "record",
        [
            {"time_extracted": AT},
            {"a": 1, "time_extracted": AT},
            {"a": {"time_extracted": AT, "b": 1}},
            {"a": 1, "b": {"c": 2, "time_extracted": AT}},
            {"a": [{"time_extracted": AT}]},
        ],
    )
    @pytest.mark.parametrize("envelope", [{}, {"first": True}, {"at": None}])
    def test_what_is_in_the_record_counts(
        self, record: dict[str, Any], envelope: dict[str, Any]
    ) -> None:
        changed = json.loads(json.dumps(record).replace(AT, LATER))
        assert digest(line(record, **envelope)) != digest(line(changed, **envelope))

    @given(
        st.sampled_from(["", "x" * 3000]),
        st.lists(
            st.tuples(
                st.sampled_from([AT, LATER]),
                st.booleans(),
                st.dictionaries(st.sampled_from(["a", "time_extracted"]), st.just(AT)),
                st.dictionaries(st.just("version"), st.integers(0, 9)),
            ),
            min_size=1,
        ),
    )
    def test_short_and_long_lines(self, text: str, messages: list[Any]) -> None:
        data = left = b""
        for at, first, record, rest in messages:
            created = line({**record, "b": [record, text], "c": record}, at, first=first, **rest)
            time = f'"time_extracted": "{at}"'.encode()
            place = created.find(time) if first else created.rfind(time)
            data, left = data + created, left + created[:place] + created[place + len(time) :]
        assert digest(data) == digest_of(left)

    @pytest.mark.parametrize("rest", [{}, {"version": 3}])
    @pytest.mark.parametrize("text", ["", "x" * 3000])
    def test_lines_that_all_end_alike(self, rest: dict[str, Any], text: str) -> None:
        def lines_of(*times: str) -> bytes:
            # Each record has a time of its own, which counts.
            own = {"b": text, "time_extracted": AT}
            return b"".join(line({"a": n, **own}, at, **rest) for n, at in enumerate(times * 9))

        end = f'}}, "time_extracted": "{AT}"'.encode()
        left = digest_of(lines_of(AT, AT).replace(end, b"}, "))
        assert {digest(lines_of(*times)) for times in ((AT, AT), (AT, LATER))} == {left}

    def test_the_version_of_the_message_counts(self) -> None:
        assert digest(line({}, version=1)) != digest(line({}, version=2))

    @pytest.mark.parametrize("times", [(AT,), (AT, LATER)])
    @pytest.mark.parametrize("length", [20, 3000])
    def test_larger_than_a_block(self, times: tuple[str, ...], length: int) -> None:
        values = [{"a": f"{n:>{length}}"} for n in range(900_000 // length)]
        written = [line(value, times[n % len(times)]) for n, value in enumerate(values)]
        left = [line(value, None).replace(b"}}", b"}, }") for value in values]
        half = len(written) // 2
        actual = segments(b"".join(written), (len(b"".join(written[:half])), 5))
        assert [segment.lines for segment in actual] == [half, len(written) - half]
        assert actual[0].digest == digest_of(b"".join(left[:half]))
        assert actual[1].digest == digest_of(b"".join(left[half:]))

    def test_files(self, tmp_path: Path) -> None:
        data, one = lines(range(4)), len(line({"a": 0}))
        (tmp_path / "lines").write_bytes(data)
        (tmp_path / "batch").write_bytes(b"a")
        (tmp_path / "same").write_bytes(b"a")
        staged = InputFile(str(tmp_path / "lines"), Encoding(STAGED), marks=((one, 3),))
        batch, same = (InputFile(str(tmp_path / n), Encoding("jsonl")) for n in ("batch", "same"))
        actual = [*segments_of(staged), *segments_of(batch)]
        assert [segment.lines for segment in actual] == [1, 3, 0]
        assert whole_segment(staged).digest == digest(data)
        assert actual[2] == whole_segment(same)


def test_executors_need_no_package_for_digests() -> None:
    modules = ("convert.write_tasks", "convert.mapped_rows", "destinations.databases.sink")
    imports = ", ".join(f"target_spark.{name}" for name in ("replays", *modules))
    code = f"import sys; sys.modules['blake3'] = None; import {imports}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


class TestNotes:
    def test_text(self) -> None:
        note = Note((Entry("r-1", Segment(2, "x")), Entry("", Segment(0, "y"))), "anchor")
        assert read_note(note.to_text()) == note
        assert read_note(Note().to_text()) == Note()
        for text in (None, "", "{}", "[1]", "nothing", '[null,[["a", 1]]]'):
            assert read_note(text) == Note()

    def test_only_what_the_table_holds_from_the_start(self) -> None:
        one, two, none = (Entry(token, Segment(1, token)) for token in ("r-1", "r-2", ""))
        note = Note((one, none, two))
        assert note.held({"r-1", "r-2"}) == note
        assert note.held({"r-1"}) == Note((one, none))
        assert note.held({"r-2"}) == Note(), "its first rows are gone"
        assert note.held(set()) == Note()

    def test_bookmarks(self) -> None:
        own = Bookmarks(b'{"bookmarks":{"s":{"b":1,"a":2},"t":1}}').digest("s")
        assert own == Bookmarks(b'{"x":1,"bookmarks":{"t":2,"s":{"a":2,"b":1}}}').digest("s")
        assert own != Bookmarks(b'{"bookmarks":{"s":{"a":3,"b":1}}}').digest("s")
        one, other = (Bookmarks(b'{"bookmarks":{"t":%d}}' % n).digest("s") for n in (1, 2))
        assert one != other, "it may be listed under another name"
        for value in (b"3", b"{}", b'{"bookmarks":[]}', b"[1]"):
            assert Bookmarks(value).digest("s") is None


def segment(name: str, since: int = 1, until: int = 1) -> Segment:
    return Segment(len(name), name, since, until)


def flushed(journal: Journal, token: str, *segments: Segment) -> None:
    journal.begin(token, segments)
    journal.committed()


def digests(journal: Journal) -> list[str]:
    return [entry.segment.digest for entry in journal.note(None).entries]


class TestJournal:
    def test_what_a_state_covers_is_forgotten(self) -> None:
        journal = Journal(10)
        flushed(journal, "r-1", segment("a", 1, 1), segment("b", 2, 2))
        flushed(journal, "r-2", segment("c", 5, 7))
        assert journal.cover(2, None)
        assert digests(journal) == ["b", "c"]
        assert not journal.cover(2, None)
        assert journal.cover(8, None)
        assert journal.note(None) == Note()

    def test_a_flush_about_to_be_committed_stays_in_the_note(self) -> None:
        """A STATE goes out while the commit runs: the note may not forget what will be durable."""
        journal = Journal(10)
        flushed(journal, "r-1", segment("a", 1, 1))
        assert journal.begin("r-2", [segment("b", 2, 2)])
        assert journal.cover(2, None)
        assert digests(journal) == ["b"]
        journal.committed()
        assert digests(journal) == ["b"]

    def test_a_state_within_a_segment_ends_the_note(self) -> None:
        journal = Journal(10)
        flushed(journal, "r-1", segment("a", 1, 4), segment("b", 5, 5))
        assert journal.cover(3, None)
        assert journal.note(None) == Note()
        flushed(journal, "r-2", segment("c", 6, 6))
        assert journal.note(None) == Note(), "the next run begins before it"
        journal.cover(7, None)
        flushed(journal, "r-3", segment("d", 8, 8))
        assert digests(journal) == ["d"]

    def test_a_replay_in_order(self) -> None:
        left = [Entry("r-1", segment(name)) for name in "abc"]
        journal = Journal(10, list(left))
        assert journal.match(0, segment("a"), [segment("a", 3, 3)])
        assert journal.match(0, segment("a"), [segment("a", 3, 3)]), "a conversion done again"
        assert journal.note(None).entries == (
            Entry("r-1", segment("a", 3, 3)),
            *left[1:],
        )
        assert not journal.match(1, segment("x"), [segment("x", 4, 4)])
        assert not journal.match(2, segment("c"), [segment("c", 5, 5)]), "over for good"
        assert digests(journal) == ["a"]

    def test_a_piece_that_was_left_out_ends_the_replay(self) -> None:
        journal = Journal(10, [Entry("r-1", segment(name)) for name in "abc"])
        assert not journal.match(1, segment("b"), [])
        assert not journal.match(0, segment("a"), [])

    def test_new_records_end_the_replay(self) -> None:
        journal = Journal(10, [Entry("r-1", segment("a"))])
        assert journal.begin("r-2", [segment("z")])
        assert digests(journal) == ["z"]
        assert not journal.match(0, segment("a"), [])

    def test_a_flush_of_replays_alone_changes_nothing(self) -> None:
        journal = Journal(10, [Entry("r-1", segment(name)) for name in "ab"])
        assert journal.match(0, segment("a"), [segment("a", 3, 3)])
        assert not journal.begin("", [])
        journal.committed()
        assert journal.match(1, segment("b"), [segment("b", 4, 4)])
        assert digests(journal) == ["a", "b"]

    def test_the_stored_note_goes_before_a_state_once_the_replay_is_over(self) -> None:
        journal = Journal(10, [Entry("r-1", segment("a"))])
        assert not journal.match(0, segment("x"), [])
        assert journal.is_open
        assert journal.cover(1, None)
        assert not journal.cover(2, None)

    def test_a_note_that_could_not_be_stored_is_stored_by_the_next_attempt(self) -> None:
        journal = Journal(10, [Entry("r-1", segment("a"))])
        assert not journal.match(0, segment("x"), [])
        assert journal.begin("", [])
        journal.not_stored()
        assert journal.begin("", []), "the commit is tried again"
        assert not journal.begin("", [])

    def test_a_state_before_the_first_record(self) -> None:
        for bookmark, stays in ((None, False), ("other", False), ("same", True)):
            journal = Journal(10, [Entry("r-1", segment("a"))], "same")
            assert journal.cover(1, bookmark) is not stays
            assert journal.match(0, segment("a"), []) is stays

    def test_with_too_many_segments_nothing_is_kept_until_a_state_covers_all(self) -> None:
        journal = Journal(2)
        flushed(journal, "r-1", segment("a", 1, 1))
        assert journal.begin("r-2", [segment("b", 2, 2), segment("c", 3, 3)])
        assert journal.note(None) == Note(), "what is stored goes"
        journal.committed()
        flushed(journal, "r-3", segment("d", 4, 4))
        assert journal.note(None) == Note()
        journal.cover(4, None)
        flushed(journal, "r-4", segment("e", 5, 5))
        assert journal.note(None) == Note(), "the fourth is not covered"
        journal.cover(6, None)
        flushed(journal, "r-5", segment("f", 7, 7))
        assert digests(journal) == ["f"]
