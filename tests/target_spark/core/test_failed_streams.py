"""Streams that fail while the others go on: what is durable, and what their STATE says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from target_world import Item, Overwrite, World, overwrites, pipeline
from test_pipeline_model import limits, message, play, rule

from shared.errors import (
    DestinationError,
    MessageError,
    PartialRunError,
    RecordError,
    SettingsError,
    SparkStartError,
    Where,
)
from target_spark.core import events as ev
from target_spark.core.load_plans import LoadPlan
from target_spark.core.policies import SizeAndAge
from target_spark.core.states import StateTracker


class PartialWorld(World):
    """A STATE's bookmark of a stream is the number of its rows, files and versions before it."""

    def __init__(self, overwrite: Overwrite = False, **options: Any) -> None:
        core = pipeline(overwrite=overwrite, goes_on=True, **options)
        super().__init__(core, overwrite=overwrite)

    def items(self, stream: str) -> list[Any]:
        every = [item for item in self.received if isinstance(item, Item)]
        return [i.key for i in every if i.stream == stream and i.key != ("swap", stream)]

    def state(self) -> list[ev.Action]:
        self.line += 1
        bookmarks = {name: len(self.items(name)) for name in self.schemas}
        value = json.dumps({"bookmarks": bookmarks, "line": self.line}).encode()
        self.received.append(value)
        return self.hear(ev.StateSeen(value, self.line))

    def bookmarks(self, value: bytes) -> dict[str, int]:
        actual: dict[str, int] = json.loads(value)["bookmarks"]
        return actual

    def _covered(self, value: bytes) -> bool:
        return all(self._is_covered(*each) for each in self.bookmarks(value).items())

    def _is_covered(self, stream: str, count: int) -> bool:
        if overwrites(self.overwrite, stream) and count and stream not in self.finished:
            return False
        return set(self.items(stream)[:count]) <= set(self.durable[stream])

    def _check_newest_state(self) -> None:
        pass

    def _all_state_is_out(self) -> bool:
        return True

    def _check_reached(self, action: ev.Convert | ev.Commit) -> None:
        reached = action.header.reached
        if reached is not None and isinstance(action, ev.Commit):
            stream = action.header.stream.stream
            own = {key for keys in self.flush_keys[action.flush].values() for key in keys}
            count = self.bookmarks(reached.value).get(stream, 0)
            assert set(self.items(stream)[:count]) <= own | set(self.durable[stream])

    def _delete(self, flushes: tuple[int, ...]) -> None:
        for flush in flushes:
            is_pass = flush in self.passes
            assert is_pass or flush in self.forgotten
            stream = self.passes[flush].stream if is_pass else self.headers[flush].stream.stream
            assert stream not in self.failures or stream in self.ended
            self.deleted.append(flush)

    def fail_work(self, error: BaseException, work: int | None = None) -> list[ev.Action]:
        action = self.works[next(iter(self.works)) if work is None else work]
        if isinstance(action, ev.Finish):
            self.ended.append(action.stream)
        return super().fail_work(error, work)

    def check(self) -> None:
        """Check the end of a run: what failed is cut, all else is durable, and so says STATE."""
        assert self.core.done
        states = [item for item in self.received if isinstance(item, bytes)]
        newest = self.bookmarks(states[-1]) if states else {}
        said = self.bookmarks(self.emitted[-1]) if self.emitted else {}
        withheld = self.emitted != states[-1:] and (not said or said != newest)
        for stream in self.schemas:
            wanted, durable = self.items(stream), list(self.durable[stream])
            if overwrites(self.overwrite, stream):
                assert (durable[-1:] == [("swap", stream)]) == (stream not in self.failures)
                durable = [key for key in durable if key != ("swap", stream)]
            if stream not in self.failures:
                assert durable == wanted
                if not (withheld and self.failures):
                    assert said.get(stream) == newest.get(stream)
            elif not overwrites(self.overwrite, stream):
                assert durable == wanted[: len(durable)]
        assert all(file.removed for file in self.files.values())
        error = self.clean_up.error
        assert isinstance(error, PartialRunError) == bool(self.failures)
        assert len(set(self.failures)) == len(self.failures)


many = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(
    rule,
    limits,
    st.lists(message, min_size=5, max_size=60),
    st.sampled_from([False, frozenset("a")]),
    st.data(),
)
def test_what_fails_ends_its_stream_alone(rule, limits, script, overwrite, data):
    """Bad records and files, and failed work, in any order and number."""
    world = PartialWorld(overwrite, rule=rule, **limits)
    trial = PartialWorld()
    play(trial, script)
    keys = [
        key for name in trial.schemas for key in trial.items(name) if not isinstance(key, tuple)
    ]
    world.bad = data.draw(st.sets(st.sampled_from(keys), max_size=3)) if keys else set()
    play(world, script)
    if not world.core.done:
        world.end()
    fails = data.draw(st.integers(0, 3))
    for _ in range(1000):
        if world.core.done:
            break
        work = data.draw(st.sampled_from(list(world.works)))
        if fails and data.draw(st.booleans()):
            fails -= 1
            world.fail_work(DestinationError("x"), work)
        else:
            world.finish_work(work)
    world.check()
    late = {w.header.stream.stream for w in world.log if isinstance(w, ev.Commit)}
    assert late <= set(world.schemas)


def world(**options: Any) -> PartialWorld:
    return PartialWorld(**options)


def test_the_bookmark_of_a_failed_stream_stays_and_that_of_the_others_goes_on():
    w = world(rule=SizeAndAge(rows=1))
    w.schema("a")
    w.schema("b")
    w.state()
    w.records("a")
    w.state()
    w.finish_all()
    w.records("a")
    w.state()
    w.bad = {w.line - 1}
    w.finish_work()
    w.records("b")
    w.state()
    w.records("a")
    w.end()
    w.finish_all()
    w.check()
    assert w.failures == ["a"]
    assert [w.bookmarks(value) for value in w.emitted] == [
        {"a": 0, "b": 0},
        {"a": 1, "b": 0},
        {"a": 1, "b": 0},
        {"a": 1, "b": 1},
    ]
    assert str(w.clean_up.error).startswith("1 of 2 streams failed: stream 'a'")


def test_without_a_state_before_the_failure_none_goes_out():
    w = world(rule=SizeAndAge(rows=1))
    w.schema("a")
    w.schema("b")
    w.bad = {w.records("a") and w.line}
    w.records("b")
    w.state()
    w.end()
    w.finish_all()
    w.check()
    assert w.emitted == []
    assert w.durable["b"] == w.items("b")
    assert w.ended == []


def test_a_stream_ends_at_the_state_before_a_bad_row_and_is_not_read_on():
    w = world()
    w.schema("a")
    w.state()
    w.records("a", 5)
    w.state()
    w.bad = {w.line - 2}
    w.end()
    w.finish_all()
    w.check()
    assert w.durable["a"] == [], "a STATE with the bookmark behind them never goes out"
    assert [w.bookmarks(value) for value in w.emitted] == [{"a": 0}, {"a": 0}]


def test_a_schema_that_is_refused_ends_its_stream_alone():
    def plan(schema):
        if schema.schema["kind"] == "bad":
            raise SettingsError("no", where=Where(setting="stream_maps"))
        return LoadPlan()

    w = world()
    w.core.plan = plan
    w.state()
    w.schema("a", "bad")
    w.schema("b")
    w.records("a")
    w.batch("a")
    w.version("a", 1)
    w.records("b", 2)
    w.state()
    w.schema("b", "bad")
    w.records("b")
    w.end()
    w.finish_all()
    assert w.failures == ["a", "b"]
    assert len(w.durable["b"]) == 2
    assert w.durable["a"] == []


@pytest.mark.parametrize("error", [SparkStartError("gone"), RuntimeError("bug")])
def test_other_failures_end_the_run(error):
    w = world(rule=SizeAndAge(rows=1))
    w.schema("a")
    w.records("a")
    w.fail_work(error)
    assert w.clean_up.error is error
    assert w.failures == []


def test_input_that_belongs_to_no_stream_ends_the_run():
    w = world()
    w.schema("a")
    w.records("a")
    w.state()
    w.records("a")
    error = MessageError("no JSON")
    w.bad_input(error)
    w.finish_all()
    assert w.clean_up.error is error
    assert len(w.durable["a"]) == 1


def test_a_failed_end_of_a_stream_is_reported_and_cuts_nothing():
    w = world()
    w.schema("a")
    w.records("a")
    w.state()
    w.end()
    w.finish_work()
    w.finish_work()
    w.fail_work(DestinationError("compaction"))
    assert isinstance(w.clean_up.error, PartialRunError)
    assert w.durable["a"] == w.items("a")


def test_the_state_of_a_commit_has_the_bookmark_too():
    w = world()
    w.schema("a")
    w.schema("b")
    w.state()
    w.records("a")
    w.records("b")
    w.state()
    w.bad = {w.line - 2}
    w.end()
    w.finish_all()
    w.check()
    (commit,) = [action for action in w.log if isinstance(action, ev.Commit)]
    assert w.bookmarks(commit.header.reached.value) == {"a": 0, "b": 1}


@pytest.mark.parametrize("value", [b'{"line":1}', b"[]", b'{"bookmarks":[]}'])
def test_states_without_bookmarks_are_withheld_from_the_failure_on(value):
    tracker = StateTracker()
    tracker.seen(value, 1)
    tracker.seen(b"{}", 3)
    tracker.hold("a", 2)
    assert tracker.release() == value
    assert tracker.withholds
    tracker.seen(b'{"bookmarks":{}}', 4)
    assert tracker.release() is None


@pytest.mark.parametrize(
    ("has_own", "later", "goes_out"),
    [
        (False, {"orders": 3, "cust": 0}, False),
        (False, {"orders": 0, "cust": 5}, True),
        (True, {"orders": 0, "cust": 5}, False),
        (False, {"cust": 0}, False),
        (True, {"orders": 0, "cust": 0, "x": 1}, False),
        (True, {"orders": 3, "cust": 5, "sales": 9}, True),
        (True, {"orders": 0, "cust": 0}, True),
    ],
)
def test_a_bookmark_that_may_be_that_of_a_failed_stream_does_not_move(has_own, later, goes_out):
    """A SCHEMA may have another name than the bookmark of its stream."""
    tracker = StateTracker({"sales": 0, "cust": 0})
    base = {"bookmarks": {"orders": 0, "cust": 0}}
    tracker.seen(json.dumps(base).encode(), 1)
    tracker.seen(json.dumps({"bookmarks": later}).encode(), 3)
    tracker.hold("sales", 2, has_own=has_own)
    assert tracker.withholds == (not goes_out)
    wanted = {name: value for name, value in later.items() if name != "sales"}
    assert json.loads(tracker.release()) == ({"bookmarks": wanted} if goes_out else base)
    tracker.seen(json.dumps({"bookmarks": {**later, "sales": 1}}).encode(), 4)
    assert json.loads(tracker.release()) == {"bookmarks": wanted}
    assert not tracker.withholds


def test_an_earlier_failure_of_the_same_stream_takes_an_earlier_bookmark():
    tracker = StateTracker()
    position = tracker.begin()
    exact = b'{"replication_key_value":12345678901234568.890123456789,"f":1e400,"n":[1E5,-0,null]}'
    for line in (1, 3, 5):
        tracker.seen(b'{"bookmarks":{"b":%b,"a":%d},"x":"\\ud800"}' % (exact, line), line)
    tracker.hold("a", 4)
    assert tracker.held == {"a": 3}
    tracker.hold("a", 2)
    assert tracker.held == {"a": 2}
    tracker.durable(position)
    assert tracker.release() == b'{"bookmarks":{"b":%b,"a":1},"x":"\\ud800"}' % exact


def test_errors_name_their_stream():
    w = world(rule=SizeAndAge(rows=1))
    w.schema("a")
    w.records("a")
    error = RecordError("bad")
    w.fail_work(error)
    assert error.where.stream == "a"


def test_a_waiting_commit_names_no_state_behind_the_rest_of_its_message():
    w = world(rule=SizeAndAge(files=1), parallel=2)
    w.schema("a")
    w.schema("b")
    w.state()
    w.records("a")
    w.state()
    w.batch("b", files=2)
    w.state()
    w.end()
    [conversion] = [n for n, work in w.works.items() if work.header.stream.stream == "a"]
    w.fail_work(DestinationError("x"), conversion)
    w.finish_all()
    w.check()


def test_a_state_that_was_kept_back_stays_so_after_the_next_failure():
    tracker = StateTracker({"sales": 0, "cust": 0})
    tracker.begin()
    for line, orders in ((1, 0), (3, 0), (4, 1)):
        tracker.seen(b'{"bookmarks":{"orders":%d,"cust":%d}}' % (orders, line), line)
        if line == 1:
            tracker.hold("sales", 2)
    assert tracker.withholds
    tracker.hold("cust", 5)
    assert tracker.withholds
