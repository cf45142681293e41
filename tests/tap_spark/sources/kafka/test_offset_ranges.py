"""Which offsets a run reads, and the bookmark after each slice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark.sources.kafka.kafka_source import spark_words
from tap_spark.sources.kafka.topic_offsets import (
    KafkaMark,
    OffsetRange,
    TopicFacts,
    after_bookmark,
    from_start,
    mark_after,
    read_offsets,
    slices,
)

FACTS = TopicFacts({0: 2, 1: 0, 2: 0}, {0: 9, 1: 5, 2: 3}, "x")
OFFSETS = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)))


def test_after_a_bookmark_new_partitions_come_from_their_beginning() -> None:
    actual, losses = after_bookmark(FACTS, KafkaMark({0: 4, 1: 5}, {}, "x"))
    assert (actual, losses) == (OffsetRange({0: 4, 1: 5, 2: 0}, FACTS.end), [])
    assert actual.count == 8


def test_an_interrupted_run_is_finished_first() -> None:
    mark = KafkaMark({0: 4, 1: 2}, {0: 6, 1: 2}, "x")
    assert after_bookmark(FACTS, mark) == (OffsetRange({0: 4, 1: 2}, {0: 6, 1: 2}), [])


@pytest.mark.parametrize(
    ("mark", "start", "text"),
    [
        (KafkaMark({0: 1, 1: 5, 2: 3}, {}), {0: 2, 1: 5, 2: 3}, "begins at offset 2, after 1"),
        (KafkaMark({0: 2, 1: 6, 2: 3}, {}), {0: 2, 1: 0, 2: 3}, "ends at offset 5, before 6"),
        (KafkaMark({0: 2, 1: 5}, {0: 12, 1: 5}), {0: 2, 1: 5}, "ends at offset 9, before 12"),
        (KafkaMark({0: 2, 1: 5, 2: 3}, {}, "y"), FACTS.first, "deleted and created again"),
        (
            KafkaMark({0: 2, 1: 5, 2: 3, 7: 1}, {}),
            {0: 2, 1: 5, 2: 3},
            "partition 7 does not exist any more",
        ),
    ],
)
def test_what_is_gone_is_told(mark: KafkaMark, start: dict[int, int], text: str) -> None:
    actual, (loss,) = after_bookmark(FACTS, mark)
    assert text in loss.text
    assert actual.start == start


def test_a_partition_whose_first_messages_expired_before_it_was_ever_read() -> None:
    _, (loss,) = after_bookmark(FACTS, KafkaMark({1: 5, 2: 3}, {}))
    assert (loss.count, "begins at offset 2, after 0" in loss.text) == (2, True)


def test_the_start_of_a_stream() -> None:
    assert from_start(FACTS, {}) == OffsetRange(FACTS.first, FACTS.end)
    assert from_start(FACTS, {0: None, 1: 3}).start == {0: 9, 1: 3, 2: 0}
    with pytest.raises(ValueError, match="has the offsets 2 to 9, not 1"):
        from_start(FACTS, {0: 1})
    with pytest.raises(ValueError, match="partition 9 does not exist"):
        from_start(FACTS, {9: 0})


@given(OFFSETS, st.integers(1, 20))
def test_slices_cover_every_offset_once_and_go_on_alike(
    bounds: dict[int, tuple[int, int]], most: int
) -> None:
    start = {part: min(pair) for part, pair in bounds.items()}
    end = {part: max(pair) for part, pair in bounds.items()}
    mark, marks, seen = KafkaMark(start, end), [], set()
    for piece in slices(OffsetRange(start, end), most):
        assert 0 < piece.count <= max(most, len(piece.start))
        for part, at in piece.start.items():
            assert at == mark.offsets[part]
            seen |= {(part, offset) for offset in range(at, piece.end[part])}
        mark = mark_after(mark, piece)
        marks.append(mark)
    assert seen == {(part, n) for part in bounds for n in range(start[part], end[part])}
    assert [bool(mark.until) for mark in marks] == [True] * (len(marks) - 1) + [False] * bool(marks)
    facts = TopicFacts(dict.fromkeys(end, 0), {part: offset + 9 for part, offset in end.items()})
    for number, mark in enumerate(marks[:-1]):
        kept = read_offsets(mark.to_json())
        assert kept is not None
        whole, losses = after_bookmark(facts, kept)
        assert losses == []
        again = KafkaMark({**kept.offsets, **whole.start}, whole.end)
        for piece, wanted in zip(slices(whole, most), marks[number + 1 :], strict=True):
            again = mark_after(again, piece)
            assert again == wanted


@pytest.mark.parametrize("offsets", [[], {"a": 1}, {"0": -1}, {"0": True}, {"0": "1"}, {"0": 1.5}])
def test_damaged_bookmarks(offsets: object) -> None:
    with pytest.raises(ValueError, match="offset"):
        read_offsets({"offsets": offsets})
    assert read_offsets({}) is None


def test_types_of_variants_as_ddl() -> None:
    text = "OBJECT<`OBJECT<VARIANT`: ARRAY<VARIANT>, b: OBJECT<c: VOID>>"
    wanted = "STRUCT<`OBJECT<VARIANT`: ARRAY<STRING>, b: STRUCT<c: VOID>>"
    assert spark_words(text) == wanted
