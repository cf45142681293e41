"""The STATE that each commit carries."""

from __future__ import annotations

import pytest
from target_world import World, pipeline

from target_spark.core import events as ev
from target_spark.core.load_plans import Reached
from target_spark.core.policies import SizeAndAge


def reached(world: World) -> list[tuple[str, int | None, bool]]:
    """Return stream, line of the STATE and whether it is exact, of each commit."""
    actual = [
        (action.header.stream.stream, action.header.reached)
        for action in world.log
        if isinstance(action, ev.Commit)
    ]
    return [(name, at and at.line, at is not None and at.is_exact) for name, at in actual]


def test_a_commit_carries_the_newest_state_before_its_end():
    w = World(pipeline(SizeAndAge(rows=4)))
    w.schema("a")
    w.records("a", 2)
    w.state()
    w.state()
    w.records("a", 2)
    w.finish_all()
    w.records("a", 4)
    w.state()
    w.end()
    w.finish_all()
    assert reached(w) == [("a", 5, False), ("a", 5, False)]


def test_at_the_end_of_the_input_the_state_is_exact():
    w = World()
    w.schema("a")
    w.records("a", 2)
    w.state()
    w.schema("b")
    w.records("b", 2)
    w.batch("b")
    w.state()
    w.end()
    w.finish_all()
    assert sorted(reached(w)) == [("a", 9, True), ("b", 9, True)]


def test_before_the_first_state_there_is_none():
    w = World()
    w.schema("a")
    w.records("a", 2)
    w.end()
    w.finish_all()
    assert reached(w) == [("a", None, False)]


@pytest.mark.parametrize(("bad", "line"), [(6, 4), (8, 7)])
def test_a_flush_that_is_cut_carries_the_state_before_the_cut(bad: int, line: int | None):
    w = World(pipeline(file_bytes=2))
    w.schema("a")
    w.records("a", 2)
    w.state()
    w.records("a", 2)
    w.state()
    w.records("a", 2)
    w.bad = {bad}
    w.end()
    w.finish_all()
    assert reached(w) == [("a", line, True)]


def test_after_a_state_has_gone_out_later_flushes_carry_it():
    w = World(pipeline(SizeAndAge(rows=1)))
    w.schema("a")
    w.records("a")
    w.state()
    w.finish_all()
    assert w.emitted == [b'{"line":3}']
    w.records("a")
    w.finish_all()
    commits = [action for action in w.log if isinstance(action, ev.Commit)]
    assert commits[-1].header.reached == Reached(b'{"line":3}', 3, is_exact=False)
