"""The warning of flushes that are too small for what a commit was measured to cost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from target_world import World, pipeline

from shared.settings.batch_settings import FixedSize, LowLatency, MemoryBased, Strategy, TimeWindow
from target_spark.config import target_config
from target_spark.core import events as ev
from target_spark.core.policies import LEAST_SAMPLES, BatchSize, CommitCost, flush_rule
from target_spark.receive.run import _advice

MIB = 1024 * 1024
SMALL = BatchSize(rows=100, size=10_000)


def advice(seconds: float) -> Iterator[str]:
    yield f"use more than {seconds}"


def watched(
    flushes: int,
    *,
    seconds: float = 0.4,
    pause: float = 0.0,
    size: BatchSize = SMALL,
    cost: CommitCost | None = None,
) -> list[str]:
    """Return the warnings for consecutive flushes: conversion, commit, pause."""
    cost = cost or CommitCost(advice)
    now, reported = 1000.0, []
    for _ in range(flushes):
        began_at = now + seconds * 3 / 4
        now += seconds
        reported.append(cost.committed(size, seconds * 3 / 4, began_at, now))
        now += pause
    return [text for text in reported if text is not None]


def test_what_it_says() -> None:
    assert watched(30) == [
        "commits take 100% of the time since the first one, 0.4 s each (median of 5): "
        "use more than 0.4"
    ]


def test_it_waits_for_a_few_commits_after_the_first() -> None:
    assert watched(LEAST_SAMPLES) == []
    assert watched(LEAST_SAMPLES + 1) != []


def test_the_first_one_says_nothing_of_the_others() -> None:
    cost = CommitCost(advice)
    assert cost.committed(SMALL, 12.0, 1012.0, 1013.0) is None
    # These began while Spark started.
    assert all(cost.committed(SMALL, 11.0, 1013.0, 1014.0) is None for _ in range(20))
    assert all(cost.committed(SMALL, 5.0, 1014.0, 1014.0) is None for _ in range(20))
    reported = [cost.committed(SMALL, 0.1, n + 0.2, n + 0.3) for n in map(float, range(1014, 1034))]
    assert reported == [None] * 20, "0.2 s of every second"


@pytest.mark.parametrize(("pause", "warned"), [(0.3, True), (0.5, False), (30.0, False)])
def test_a_run_that_mostly_waits_for_its_input_is_not_warned_of(pause: float, warned: bool) -> None:
    assert bool(watched(50, pause=pause)) is warned


@pytest.mark.parametrize(
    "size", [BatchSize(rows=4000, size=1), BatchSize(rows=1, size=4 * MIB), BatchSize(9**9, 9**12)]
)
def test_flushes_whose_rows_take_the_time_are_not_warned_of(size: BatchSize) -> None:
    assert watched(50, size=size) == []


def test_nothing_is_said_without_advice() -> None:
    assert watched(50, cost=CommitCost(lambda _: ())) == []


def test_a_slow_commit_among_others_is_not_the_cost() -> None:
    cost, now, reported = CommitCost(advice), 0.0, []
    for seconds in (1.0, 0.5, 0.5, 60.0, 0.5, 0.5):
        reported.append(cost.committed(SMALL, 0.1, now + 0.1, now + seconds))
        now += seconds
    assert reported[:5] == [None] * 5
    assert "0.5 s each (median of 5)" in str(reported[5])


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5), st.floats(0, 5)), max_size=30),
    st.booleans(),
)
def test_times_that_overlap_count_once(steps: list[tuple[float, float, float]], big: bool) -> None:
    cost, now, reported = CommitCost(advice), 1000.0, []
    for convert, commit, step in steps:
        now += step
        size = BatchSize(10**9, 10**12) if big else SMALL
        reported.append(cost.committed(size, convert, max(1000.0, now - commit), now))
    actual = [text for text in reported if text is not None]
    assert len(actual) <= (0 if big else 1)
    for text in actual:
        share = int(text.removeprefix("commits take ").split("%")[0])
        assert 50 <= share <= 100


STRATEGIES = [
    (FixedSize(10, 60.0), "config['batch']['size']: 10 rows a flush load at most 20 rows/s"),
    (LowLatency(10, 60.0, True), "config['batch']['max_size']: 10 rows a flush"),
    (MemoryBased(50), "config['batch']['memory_size']: flushes this small load at most 1 KiB/s"),
]


def drive(world: World, flushes: int, seconds: float, pause: float = 0.0) -> None:
    """Send records that fill a flush, then convert and commit it."""
    world.line = 1000
    world.schema("s")
    for _ in range(flushes):
        world.records("s", 10)
        while world.works:
            world.now += seconds / 2
            world.finish_work()
        world.now += pause


def settings(**more: object) -> CommitCost:
    return CommitCost(partial(_advice, target_config({"path": "out", **more})))


@pytest.mark.parametrize(("strategy", "text"), STRATEGIES)
def test_strategies_in_the_pipeline(strategy: Strategy, text: str) -> None:
    block = {FixedSize: {"strategy": "fixed_size", "size": 10, "timeout": "60s"},
             LowLatency: {"strategy": "low_latency", "max_size": 10, "max_wait": "60s"},
             MemoryBased: {"strategy": "memory_based", "memory_size": "50 B"}}  # fmt: skip
    cost = settings(batch=block[type(strategy)])
    world = World(pipeline(flush_rule(strategy, 60.0), cost=cost))
    drive(world, 20, 0.5)
    [warning] = world.warnings
    assert warning.startswith("commits take 100% of the time since the first one, 0.5 s each")
    assert text in warning
    assert "as a commit takes about 0.5 s; use 5" in warning
    world.end()
    world.finish_all()
    world.check_complete()


def test_a_warning_names_the_key_as_the_settings_have_it() -> None:
    cost = settings(**{"batch.strategy": "fixed_size", "sink.batch.size": "10"})
    world = World(pipeline(flush_rule(FixedSize(10, 60.0), 60.0), cost=cost))
    drive(world, 20, 0.5)
    assert "config['sink.batch.size']: 10 rows" in world.warnings[0]


def test_a_time_window_in_the_pipeline() -> None:
    cost = settings(batch={"strategy": "time_window", "window": "100ms"})
    world = World(pipeline(flush_rule(TimeWindow(0.1), 60.0), cost=cost))
    world.schema("s")
    for _ in range(10):
        world.records("s", 3)
        world.tick(0.1)
        while world.works:
            world.now += 0.2
            world.finish_work()
    [warning] = world.warnings
    assert "config['batch']['window']: 0.1 s is shorter than needed" in warning


def test_the_bounds_without_a_strategy() -> None:
    world = World(
        pipeline(flush_rule(FixedSize(10, 60.0), 60.0), cost=settings(batch_size_rows=10))
    )
    drive(world, 20, 0.5)
    [warning] = world.warnings
    assert "config['batch_size_rows']: 10 rows a flush" in warning


def test_a_slow_input_that_is_kept_up_with_is_not_warned_of() -> None:
    world = World(pipeline(flush_rule(FixedSize(10, 60.0), 60.0), cost=CommitCost(advice)))
    drive(world, 20, 0.5, pause=1.0)
    assert world.warnings == []


def test_flushes_that_others_than_the_rule_close_do_not_count() -> None:
    world = World(pipeline(flush_rule(FixedSize(1000, 60.0), 60.0), cost=CommitCost(advice)))
    for number in range(20):
        world.schema("s", f"kind {number}")
        world.records("s", 10)
        world.state()
        while world.works:
            world.now += 0.5
            world.finish_work()
    assert len([action for action in world.log if isinstance(action, ev.Forget)]) == 19
    assert world.warnings == []
