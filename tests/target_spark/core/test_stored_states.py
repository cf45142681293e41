"""What is stored of a STATE, and one STATE for several tables. No Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from target_spark.core.load_plans import Reached
from target_spark.core.states import (
    MOST_STORED_BYTES,
    StateConflict,
    TableState,
    bookmark_text,
    joint_state,
    stored_state,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
bookmark_values = st.integers() | words | st.dictionaries(words, words, max_size=2)


def seen(value: Any, *, is_exact: bool = True) -> Reached:
    return Reached(json.dumps(value).encode(), 1, is_exact)


def of(stream: str, value: Any, at: float = 1.0, table: str = "") -> TableState:
    return TableState(table or stream, stream, json.dumps(value), at)


def test_only_the_own_bookmark_is_stored_and_every_digit_of_it() -> None:
    text = b'{"bookmarks": {"b": 1, "a": {"n": 1.10, "m": 12345678901234567890.5}}, "v": 1e400}'
    assert stored_state(Reached(text, 1, is_exact=True), "a", by_key=False) == (
        '{"bookmarks":{"a":{"n":1.10,"m":12345678901234567890.5}},"v":1e400}'
    )


@pytest.mark.parametrize("text", ['{"bookmarks":{"x":1}}', '{"seen":7}', "7", '"x"', "[1]"])
def test_a_state_without_the_own_bookmark_is_stored_whole(text: str) -> None:
    assert stored_state(Reached(text.encode(), 1, is_exact=True), "a", by_key=False) == text


def test_rows_that_would_come_twice_have_no_state() -> None:
    value = {"bookmarks": {"a": {"n": 1}}}
    assert stored_state(seen(value, is_exact=False), "a", by_key=False) is None
    assert stored_state(seen(value, is_exact=False), "a", by_key=True) is not None
    unsorted = {"bookmarks": {"a": {"n": 1, "progress_markers": {"n": 5}}}}
    assert stored_state(seen(unsorted), "a", by_key=False) is None
    assert stored_state(seen(unsorted), "a", by_key=True) is not None
    assert stored_state(None, "a", by_key=True) is None


def test_a_state_that_is_too_long_is_not_stored() -> None:
    others = {"bookmarks": {"a": 1, "b": "x" * MOST_STORED_BYTES}}
    assert stored_state(seen(others), "a", by_key=True) == '{"bookmarks":{"a":1}}'
    assert stored_state(seen(others), "b", by_key=True) is None
    assert stored_state(seen(others), "c", by_key=True) is None


def test_each_stream_has_the_bookmark_of_its_own_table() -> None:
    actual = joint_state(
        [
            of("a", {"bookmarks": {"a": 1}, "page": "old"}, 1.0),
            of("b", {"bookmarks": {"b": 2}, "page": "new"}, 2.0),
        ]
    )
    assert json.loads(actual.state) == {"bookmarks": {"a": 1, "b": 2}, "page": "new"}
    assert actual.notes == ()


@given(st.dictionaries(words, bookmark_values, min_size=1, max_size=4), st.data())
def test_bookmarks_that_were_taken_apart_come_together(
    bookmarks: dict[str, Any], data: st.DataObject
) -> None:
    states = [
        TableState(name, name, text, data.draw(st.floats(0, 9)))
        for name in bookmarks
        if (text := stored_state(seen({"bookmarks": bookmarks}), name, by_key=True)) is not None
    ]
    assert json.loads(joint_state(states).state) == {"bookmarks": bookmarks}
    assert all(json.loads(bookmark_text(s.state, s.stream)) == bookmarks[s.stream] for s in states)


def test_a_bookmark_of_another_stream_is_never_taken() -> None:
    """Its records may not be durable: its first flush may never have been committed."""
    actual = joint_state([of("a", {"bookmarks": {"a": 1}}), of("f", {"bookmarks": {"z": 9}}, 2.0)])
    assert json.loads(actual.state) == {"bookmarks": {"a": 1}}
    assert actual.notes == ("stream 'f' has no bookmark: the tap sends it from its beginning",)


def test_of_several_tables_of_a_stream_the_oldest_bookmark_counts() -> None:
    states = [of("a", {"bookmarks": {"a": n}}, float(n), f"t{n}") for n in (2, 1)]
    actual = joint_state(states)
    assert json.loads(actual.state) == {"bookmarks": {"a": 1}}
    assert len(actual.notes) == 1
    assert "'t2'" in actual.notes[0]


@pytest.mark.parametrize("value", [7, {"seen": 7}, {"bookmarks": {"db-a": 1, "db-b": 2}}])
def test_states_without_own_bookmarks_must_be_the_same(value: Any) -> None:
    assert json.loads(joint_state([of("a", value), of("b", value, 2.0)]).state) == value
    with pytest.raises(StateConflict, match="'a' and 'b' differ"):
        joint_state([of("a", {"seen": 8}), of("b", value, 2.0)])


def test_bookmarks_and_states_without_do_not_go_together() -> None:
    with pytest.raises(StateConflict, match="'b' has no `bookmarks`"):
        joint_state([of("a", {"bookmarks": {"a": 1}}), of("b", {"seen": 7}, 2.0)])
