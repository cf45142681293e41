from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from target_spark.state import StateTracker


def test_nothing_open_holds_nothing_back():
    tracker = StateTracker()
    assert tracker.release() is None
    tracker.seen(b"1")
    assert tracker.release() == b"1"
    assert tracker.release() is None


def test_state_waits_for_every_act_begun_before_it():
    tracker = StateTracker()
    first, second = tracker.begin(), tracker.begin()
    tracker.seen(b"1")
    third = tracker.begin()
    tracker.seen(b"2")
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
        tracker.seen(value)
    tracker.durable(act)
    assert tracker.release() == b"3"
    assert tracker.release() is None


def test_memory_does_not_grow_with_states():
    tracker = StateTracker()
    held = tracker.begin()
    for number in range(1000):
        act = tracker.begin()
        tracker.seen(b"%d" % number)
        tracker.durable(act)
    assert len(tracker._states) == 1
    tracker.durable(held)
    assert tracker.release() == b"999"


@given(st.lists(st.one_of(st.just("begin"), st.just("state"), st.integers(0, 9)), max_size=80))
def test_agrees_with_the_plain_rule(script):
    tracker, history, open_acts, out = StateTracker(), [], [], -1
    for step in script:
        if step == "begin":
            open_acts.append(tracker.begin())
            history.append(open_acts[-1])
        elif step == "state":
            history.append(b"%d" % len(history))
            tracker.seen(history[-1])
        elif open_acts:
            tracker.durable(open_acts.pop(step % len(open_acts)))
        oldest = next((i for i, h in enumerate(history) if h in open_acts), len(history))
        free = [i for i, h in enumerate(history[:oldest]) if isinstance(h, bytes) and i > out]
        assert tracker.release() == (history[free[-1]] if free else None)
        out = free[-1] if free else out
        assert len(tracker._states) <= len(open_acts) + 1
