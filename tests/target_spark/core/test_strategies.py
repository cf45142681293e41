"""The six strategies: as rules by themselves, as they steer, and in the pipeline."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from target_world import World, pipeline

from shared.settings.batch_settings import (
    AdaptiveSize,
    FixedSize,
    LowLatency,
    MegaBatch,
    MemoryBased,
    TimeWindow,
)
from target_spark.core import events as ev
from target_spark.core.policies import BatchSize, FlushRule, LatencySteered, Room, flush_rule

WAIT = 60.0
MIB = 1024 * 1024


def sizes(world: World) -> list[int]:
    """Return rows of each flush, in order."""
    return [sum(map(len, world.flush_keys[n].values())) for n in sorted(world.flush_keys)]


def commits(actions: list[ev.Action]) -> int:
    return sum(isinstance(action, ev.CloseFile) for action in actions)


class TestFixedSize:
    rule = flush_rule(FixedSize(100, 2.0), WAIT)

    def test_rows_are_exact(self):
        assert self.rule.room("s", BatchSize(rows=30)) == Room(70)
        assert not self.rule.is_full("s", BatchSize(rows=99, size=10**12, files=10**6))
        assert self.rule.is_full("s", BatchSize(rows=100))

    def test_its_own_time_counts_and_not_the_general_one(self):
        assert self.rule.deadline("s", BatchSize(opened_at=10.0)) == 12.0

    def test_in_the_pipeline(self):
        world = World(pipeline(self.rule))
        world.schema("s")
        world.records("s", 250)
        world.end()
        world.finish_all()
        assert sizes(world) == [100, 100, 50]
        world.check_complete()


class TestTimeWindow:
    rule = flush_rule(TimeWindow(5.0), WAIT)

    def test_only_time_counts(self):
        assert self.rule.room("s", BatchSize(rows=10**9)) == Room()
        assert not self.rule.is_full("s", BatchSize(10**9, 10**12, 10**6))

    def test_the_window_begins_with_the_first_message_and_ends_in_silence(self):
        world = World(pipeline(self.rule))
        world.schema("s")
        assert math.isinf(world.core.deadline())
        world.records("s", 3)
        first = world.now
        world.tick(4.0)
        world.records("s", 2)
        assert world.core.deadline() == first + 5.0
        assert commits(world.tick(1.0)) == 1
        world.finish_all()
        assert sizes(world) == [5]
        assert math.isinf(world.core.deadline())


class TestMemoryBased:
    rule = flush_rule(MemoryBased(MIB), WAIT)

    def test_bytes_count_and_rows_do_not(self):
        assert self.rule.room("s", BatchSize(size=100)) == Room(None, MIB - 100)
        assert not self.rule.is_full("s", BatchSize(rows=10**9, size=MIB - 1))
        assert self.rule.is_full("s", BatchSize(size=MIB))

    def test_the_general_time_counts(self):
        assert self.rule.deadline("s", BatchSize(opened_at=10.0)) == 10.0 + WAIT

    def test_a_block_is_cut_at_the_row_that_reaches_the_size(self):
        world = World(pipeline(flush_rule(MemoryBased(100), WAIT), waiting=1000))
        world.schema("s")
        world.line = 1000
        world.records("s", 100)  # lines of 5 bytes
        world.end()
        world.finish_all()
        assert sizes(world) == [20] * 5
        world.check_complete()

    @given(st.integers(1, 300), st.integers(1, 400))
    def test_every_flush_but_the_last_reaches_the_size_with_its_last_row(self, size, count):
        world = World(pipeline(flush_rule(MemoryBased(size), WAIT), waiting=10**6))
        world.schema("s")
        world.records("s", count)
        world.end()
        world.finish_all()
        flushes = [world.flush_keys[n][0] for n in sorted(world.flush_keys)]
        for flush in flushes[:-1]:
            widths = [len(f"{line}\n") for line in flush]
            assert sum(widths) >= size > sum(widths[:-1])

    def test_converted_bytes_of_batch_files_count(self):
        world = World(pipeline(flush_rule(MemoryBased(30), WAIT), probe=True))
        world.schema("s")
        world.batch("s", 7)  # 10 bytes each
        world.finish_work()
        world.end()
        world.finish_all()
        assert sizes(world) == [3, 3, 1]
        world.check_complete()


class TestLowLatency:
    def test_rows_and_wait(self):
        rule = flush_rule(LowLatency(10, 0.5, eager=False), WAIT)
        assert rule.room("s", BatchSize(rows=4)) == Room(6)
        assert rule.deadline("s", BatchSize(opened_at=1.0)) == 1.5
        assert not rule.is_full("s", BatchSize(rows=1, idle=True))

    def test_eager_flushes_when_nothing_waits_on_the_input(self):
        world = World(pipeline(flush_rule(LowLatency(10, 0.5, eager=True), WAIT)))
        world.schema("s")
        assert commits(world.records("s", 3)) == 0
        assert commits(world.idle()) == 1
        assert world.idle() == []
        assert commits(world.records("s", 1)) == 0
        world.end()
        world.finish_all()
        assert sizes(world) == [3, 1]

    def test_no_other_strategy_cares_for_silence(self):
        for strategy in (FixedSize(10, 1.0), TimeWindow(1.0), MegaBatch(10, True, True)):
            world = World(pipeline(flush_rule(strategy, WAIT)))
            world.schema("s")
            world.records("s", 3)
            assert world.idle() == []


class TestMegaBatch:
    def test_rows_are_exact_and_disk_does_not_limit_them(self):
        rule = flush_rule(MegaBatch(500, True, True), WAIT)
        world = World(pipeline(rule, file_bytes=100, staged_bytes=200))
        world.schema("s")
        while world.line < 1300:
            while not world.core.wants_input:
                world.finish_work()
            world.records("s", 10)
        world.end()
        world.finish_all()
        assert sizes(world)[:2] == [500, 500]
        world.check_complete()

    @pytest.mark.parametrize("parallel", [True, False])
    def test_conversions_at_a_time(self, parallel):
        rule = flush_rule(MegaBatch(10, parallel, True), WAIT)
        converts = None if parallel else 1
        world = World(pipeline(rule, parallel=3, converts=converts))
        world.schema("s")
        world.records("s", 50)
        running = sum(isinstance(work, ev.Convert) for work in world.works.values())
        assert running == (3 if parallel else 1)
        world.end()
        world.finish_all()
        world.check_complete()


class TestBatchFiles:
    """How many files of BATCH messages go into one commit (files of one row here)."""

    def files(self, messages: list[int], size: int, probe: bool = True) -> list[int]:
        world = World(pipeline(flush_rule(FixedSize(size, WAIT), WAIT), probe=probe, waiting=99))
        world.schema("s")
        for count in messages:
            world.batch("s", count)
            while not world.core.wants_input:
                world.finish_work()
            world.state()
        world.end()
        world.finish_all()
        world.check_complete()
        return sizes(world)

    def test_several_messages_go_into_one_commit(self):
        assert self.files([1] * 10, 5) == [5, 5]

    def test_one_message_goes_into_several_commits(self):
        assert self.files([10], 4) == [4, 4, 2]

    def test_both(self):
        assert self.files([3, 3, 3], 2) == [2, 2, 2, 2, 1]

    def test_without_a_probe_all_that_came_is_taken(self):
        assert self.files([10], 4, probe=False) == [10]

    def test_input_waits_until_the_first_file_is_known(self):
        world = World(pipeline(flush_rule(FixedSize(4, WAIT), WAIT), probe=True))
        world.schema("s")
        world.batch("s", 9)
        assert [len(work.piece.files) for work in world.works.values()] == [1]
        assert not world.core.wants_input
        world.finish_work()
        assert [len(work.piece.files) for work in world.works.values()] == [3, 4]
        assert world.core.wants_input
        world.end()
        world.finish_all()
        assert sizes(world) == [4, 4, 1]

    def test_files_that_wait_are_not_lost_at_bad_input(self):
        world = World(pipeline(flush_rule(FixedSize(4, WAIT), WAIT), probe=True))
        world.schema("s")
        world.batch("s", 9)
        world.state()
        error = ValueError("x")
        world.bad_input(error)
        world.finish_all()
        world.check_complete(error)


Latency = Callable[[int], float]


def steer(
    rule: LatencySteered, latency: Latency, flushes: int, under_way: int = 1
) -> list[tuple[int, float]]:
    """Run flushes of a busy stream; each ends when `under_way` newer ones have begun."""
    waiting: list[tuple[int, float]] = []
    reported = []
    for _ in range(flushes):
        rows = rule.rows("s")
        waiting.append((rows, latency(rows)))
        if len(waiting) >= under_way:
            reported.append(waiting.pop(0))
            rule.flushed("s", BatchSize(rows=reported[-1][0]), reported[-1][1])
    return reported


def linear(fixed: float, per_row: float, noise: float = 0.0, seed: int = 0) -> Latency:
    chance = random.Random(seed)
    return lambda rows: (fixed + per_row * rows) * math.exp(chance.gauss(0, noise))


class TestAdaptiveSize:
    def test_what_the_settings_say(self):
        rule = flush_rule(AdaptiveSize(10, 1000, 5.0), WAIT)
        assert isinstance(rule, LatencySteered)
        assert rule.rows("s") == 10
        assert rule.room("s", BatchSize(rows=4)) == Room(6)
        assert rule.is_full("s", BatchSize(rows=10))
        assert rule.deadline("s", BatchSize(opened_at=1.0)) == 1.0 + WAIT

    @pytest.mark.parametrize("under_way", [1, 3, 8])
    @pytest.mark.parametrize(
        ("fixed", "per_row", "target"),
        [(0.4, 2e-5, 5.0), (0.4, 1e-3, 2.0), (0.0, 1e-4, 1.0), (1.9, 1e-4, 2.5), (0.3, 1e-6, 3.0)],
    )
    def test_it_comes_close_to_the_target_and_stays(self, fixed, per_row, target, under_way):
        rule = LatencySteered(10, 100_000_000, target, WAIT)
        reported = steer(rule, linear(fixed, per_row), 60 * under_way, under_way)
        for _, seconds in reported[-10:]:
            assert abs(seconds / target - 1) < 0.15
        most = max(seconds for _, seconds in reported)
        assert most < 1.5 * target, "it overshoots"

    @pytest.mark.parametrize("chance", range(5))
    def test_noise_does_not_drive_it_away(self, chance):
        rule = LatencySteered(10, 10**8, 5.0, WAIT)
        reported = steer(rule, linear(0.4, 1e-4, noise=0.3, seed=chance), 300)
        late = [fixed_rows * 1e-4 + 0.4 for fixed_rows, _ in reported[-200:]]
        assert 0.75 < sum(late) / len(late) / 5.0 < 1.3

    def test_it_follows_a_change(self):
        rule = LatencySteered(10, 10**8, 5.0, WAIT)
        steer(rule, linear(0.4, 1e-4), 60)
        assert abs(rule.rows("s") / 46_000 - 1) < 0.2
        steer(rule, linear(0.4, 1e-3), 30)
        assert abs(rule.rows("s") / 4_600 - 1) < 0.2
        steer(rule, linear(0.4, 1e-4), 30)
        assert abs(rule.rows("s") / 46_000 - 1) < 0.2

    def test_it_grows_fast(self):
        rule = LatencySteered(10, 10**8, 5.0, WAIT)
        reported = steer(rule, linear(0.4, 1e-4), 40)
        reached = next(n for n, (_, seconds) in enumerate(reported) if seconds > 4.0)
        assert reached <= 16

    def test_bounds_hold(self):
        slow = LatencySteered(10, 1000, 0.1, WAIT)
        steer(slow, linear(0.4, 1e-4), 20)
        assert slow.rows("s") == 10
        quick = LatencySteered(10, 1000, 100.0, WAIT)
        steer(quick, linear(0.4, 1e-4), 40)
        assert quick.rows("s") == 1000

    def test_a_small_quick_flush_says_nothing_of_large_ones(self):
        rule = LatencySteered(10, 10**8, 5.0, WAIT)
        steer(rule, linear(0.4, 1e-4), 60)
        rows = rule.rows("s")
        for few in (1, 10, 100):
            rule.flushed("s", BatchSize(rows=few), 0.4)
        assert rule.rows("s") == rows

    def test_a_small_slow_flush_does(self):
        rule = LatencySteered(10, 10**8, 5.0, WAIT)
        steer(rule, linear(0.4, 1e-4), 60)
        rows = rule.rows("s")
        rule.flushed("s", BatchSize(rows=rows // 2), 20.0)
        assert rule.rows("s") < rows

    def test_streams_are_steered_by_themselves(self):
        rule = LatencySteered(10, 10**6, 5.0, WAIT)
        steer(rule, linear(0.4, 1e-4), 60)
        assert rule.rows("other") == 10

    @given(
        st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 1e6)), max_size=50),
        st.integers(1, 1000),
        st.integers(1000, 10**6),
    )
    def test_it_never_leaves_its_bounds(self, reported, least, most):
        rule = LatencySteered(least, most, 1.0, WAIT)
        for rows, seconds in reported:
            rule.flushed("s", BatchSize(rows=rows), seconds)
            assert least <= rule.rows("s") <= most

    def test_in_the_pipeline_with_a_simulated_clock(self):
        rule = LatencySteered(10, 10**6, 2.0, WAIT)
        world = World(pipeline(rule, parallel=1))
        world.schema("s")
        for _ in range(60):
            world.records("s", rule.rows("s"))
            while world.works:
                work = next(iter(world.works.values()))
                if isinstance(work, ev.Convert):
                    world.now += 0.2 + 1e-3 * len(world.files[work.piece.file].stream_rows)
                else:
                    world.now += 0.3
                world.finish_work()
        assert abs(rule.rows("s") / 1500 - 1) < 0.15


rules = st.sampled_from(
    [
        FixedSize(7, 3.0),
        TimeWindow(2.0),
        MemoryBased(50),
        AdaptiveSize(2, 20, 0.5),
        LowLatency(3, 0.2, True),
        LowLatency(3, 0.2, False),
        MegaBatch(40, True, True),
    ]
)
steps = st.one_of(
    st.tuples(st.just("records"), st.sampled_from("ab"), st.integers(1, 30)),
    st.tuples(st.just("batch"), st.sampled_from("ab"), st.integers(1, 6)),
    st.tuples(st.just("state")),
    st.tuples(st.just("idle")),
    st.tuples(st.just("tick"), st.sampled_from([0.1, 1.0, 5.0])),
)


@given(rules, st.lists(steps, max_size=40), st.booleans())
def test_no_strategy_loses_or_doubles_anything(strategy, script, probe):
    rule: FlushRule = flush_rule(strategy, WAIT)
    world = World(pipeline(rule, probe=probe, file_bytes=40, staged_bytes=200, waiting=3))
    for name in "ab":
        world.schema(name)
    for name, *args in script:
        while not world.core.wants_input:
            world.finish_work()
        getattr(world, name)(*args)
    world.end()
    world.finish_all()
    world.check_complete()
