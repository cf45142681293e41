from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from target_spark.core.states import MOST_WAITING_BYTES, OVERHEAD, StateTracker


def test_nothing_open_holds_nothing_back():
    tracker = StateTracker()
    assert tracker.release() is None
    tracker.seen(b"1", 1)
    assert tracker.release() == b"1"
    assert tracker.release() is None


def test_state_waits_for_every_act_begun_before_it():
    tracker = StateTracker()
    first, second = tracker.begin(), tracker.begin()
    tracker.seen(b"1", 1)
    third = tracker.begin()
    tracker.seen(b"2", 2)
    assert set(tracker.holders()) == {first, second, third}
    tracker.durable(second)
    assert tracker.release() is None
    tracker.durable(first)
    assert tracker.release() == b"1"
    assert list(tracker.holders()) == [third]
    tracker.durable(third)
    assert tracker.release() == b"2"
    assert list(tracker.holders()) == []


def test_only_the_newest_free_state_goes_out():
    tracker = StateTracker()
    act = tracker.begin()
    for value in (b"1", b"2", b"3"):
        tracker.seen(value, 1)
    tracker.durable(act)
    assert tracker.release() == b"3"
    assert tracker.release() is None


def test_memory_does_not_grow_with_states():
    tracker = StateTracker(most_bytes=10_000)
    held = tracker.begin()
    for number in range(1000):
        act = tracker.begin()
        tracker.seen(b"%d" % number, number)
        tracker.durable(act)
        assert sum(len(state.value) + OVERHEAD for state in tracker._states) <= 10_000
    tracker.durable(held)
    assert tracker.release() == b"999"


def test_of_states_that_are_too_many_the_newest_before_each_act_stays():
    tracker, acts = StateTracker(most_bytes=0), []
    for act in range(3):
        acts.append(tracker.begin())
        for number in range(5):
            tracker.seen(b"%d" % (10 * act + number), act)
    for value, act in zip((b"4", b"14", b"24"), acts, strict=True):
        tracker.durable(act)
        assert tracker.release() == value


@pytest.mark.parametrize("line", range(1, 6))
def test_where_the_input_ends_early_the_state_before_that_line_goes_out(line):
    tracker = StateTracker()
    act = tracker.begin()
    for number in range(1, 5):
        tracker.seen(b"%d" % number, number)
    tracker.discard_from(line)
    tracker.durable(act)
    assert tracker.release() == (b"%d" % (line - 1) if line > 1 else None)
    assert tracker.release() is None


@given(
    st.lists(st.one_of(st.just("begin"), st.just("state"), st.integers(0, 9)), max_size=80),
    st.sampled_from([0, 500, MOST_WAITING_BYTES]),
)
def test_agrees_with_the_plain_rule(script, most_bytes):
    tracker, history, open_acts, out = StateTracker(most_bytes), [], [], -1
    for step in script:
        if step == "begin":
            open_acts.append(tracker.begin())
            history.append(open_acts[-1])
        elif step == "state":
            history.append(b"%d" % len(history))
            tracker.seen(history[-1], len(history))
        elif open_acts:
            tracker.durable(open_acts.pop(step % len(open_acts)))
        oldest = next((i for i, h in enumerate(history) if h in open_acts), len(history))
        free = [i for i, h in enumerate(history[:oldest]) if isinstance(h, bytes) and i > out]
        assert tracker.release() == (history[free[-1]] if free else None)
        out = free[-1] if free else out
