"""Which failures pass, how long the pauses are, and work that is done again."""

from __future__ import annotations

import errno
import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from target_world import World, pipeline

from shared.errors import (
    DestinationError,
    MessageError,
    RecordError,
    SettingsError,
    SparkStartError,
    TerminatedRunError,
    may_pass,
)
from target_spark.core import events as ev
from target_spark.core.batches import GATHER_SECONDS
from target_spark.core.failures import LONGEST_PAUSE, with_backoff
from target_spark.core.policies import SizeAndAge
from target_spark.core.schedule import Schedule


def caused(cause: BaseException) -> DestinationError:
    """Return an error as the loader raises it."""
    try:
        raise DestinationError("cannot write") from cause
    except DestinationError as error:
        return error


class Py4JJavaError(Exception):
    """Named as the real one."""


class ClientError(Exception):
    """Named as botocore's."""


PASSING = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    OSError(errno.EIO, "Input/output error"),
    OSError(errno.ECONNRESET, "Connection reset by peer"),
    OSError(errno.EBUSY, "Please reduce your request rate"),
    OSError(errno.ESTALE, "Stale file handle"),
    ConnectionResetError("gone"),
    TimeoutError("timed out"),
    ClientError("An error occurred (SlowDown) when calling the PutObject operation"),
    ClientError("An error occurred (503) ...: ServiceUnavailable"),
    Py4JJavaError("io.delta.exceptions.ConcurrentAppendException: Files were added"),
    Py4JJavaError("org.apache.iceberg.exceptions.CommitFailedException: branch has changed"),
    Py4JJavaError("java.net.SocketTimeoutException: Read timed out"),
    Py4JJavaError("java.io.IOException: No space left on device"),
    Py4JJavaError("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
]
LASTING = [
    OSError(errno.EACCES, "Permission denied"),
    OSError(errno.EROFS, "Read-only file system"),
    OSError(errno.ENOTDIR, "Not a directory"),
    OSError(errno.EEXIST, "File exists"),
    OSError(errno.ENOENT, "No such file or directory"),
    PermissionError("Forbidden"),
    ClientError("An error occurred (AccessDenied) when calling the PutObject operation"),
    ClientError("An error occurred (NoSuchBucket)"),
    Py4JJavaError("org.apache.spark.sql.AnalysisException: [CANNOT_MERGE_SCHEMAS]"),
    Py4JJavaError("org.apache.hadoop.security.AccessControlException: Permission denied"),
    Py4JJavaError("org.apache.iceberg.exceptions.CommitStateUnknownException: timed out"),
    ValueError("of whatever kind"),
    KeyError("x"),
]


class TestMayPass:
    @pytest.mark.parametrize("cause", PASSING, ids=lambda e: str(e)[:30])
    def test_passing(self, cause):
        assert may_pass(caused(cause))

    @pytest.mark.parametrize("cause", LASTING, ids=lambda e: str(e)[:30])
    def test_lasting(self, cause):
        assert not may_pass(caused(cause))

    @pytest.mark.parametrize(
        "error",
        [
            RecordError("line 5"),
            MessageError("no JSON"),
            SettingsError("timed out"),
            DestinationError("a column cannot change its type"),
            SparkStartError("Spark has gone away"),
            ZeroDivisionError(),
        ],
    )
    def test_what_never_passes(self, error):
        assert not may_pass(error)

    def test_a_batch_file_that_could_not_be_reached_may_be_reached_later(self):
        place = "the file 's3://b/f' cannot be read"
        assert may_pass(MessageError(f"{place}: Connection reset by peer"))
        assert not may_pass(MessageError(f"{place}: No such file or directory"))

    def test_the_innermost_cause_decides(self):
        inner = OSError(errno.EACCES, "Permission denied")
        try:
            try:
                raise ConnectionError("x") from inner
            except ConnectionError as error:
                raise DestinationError("timed out") from error
        except DestinationError as error:
            assert not may_pass(error)

    def test_a_cause_that_tells_nothing_leaves_it_to_the_one_above(self):
        assert may_pass(caused_by_text("timed out", ValueError("x")))

    def test_causes_in_a_ring_end(self):
        one, other = DestinationError("x"), ValueError("y")
        one.__cause__, other.__cause__ = other, one
        assert not may_pass(one)


def caused_by_text(text: str, cause: BaseException) -> DestinationError:
    error = DestinationError(text)
    error.__cause__ = cause
    return error


PASSES = caused(ConnectionResetError("gone"))
LASTS = caused(PermissionError("no"))


class TestBackoff:
    def test_pauses_double_and_are_bounded(self):
        backoff = with_backoff(100, 2.0, chance=lambda: 1.0)
        pauses = [backoff(PASSES, n) for n in range(1, 12)]
        assert pauses[:5] == [2.0, 4.0, 8.0, 16.0, 32.0]
        assert pauses[-1] == LONGEST_PAUSE
        assert backoff(PASSES, 100) == LONGEST_PAUSE

    def test_full_jitter(self):
        backoff = with_backoff(3, 8.0, chance=random.Random(1).random)
        pauses = [backoff(PASSES, 2) for _ in range(2000)]
        assert 0 <= min(pauses) < 0.5
        assert 15.5 < max(pauses) <= 16
        assert abs(sum(pauses) / len(pauses) - 8) < 0.5

    def test_a_bound(self):
        backoff = with_backoff(2, 1.0)
        assert backoff(PASSES, 2) is not None
        assert backoff(PASSES, 3) is None

    def test_what_lasts_is_not_tried_again(self):
        assert with_backoff(5, 1.0)(LASTS, 1) is None

    def test_none_at_all(self):
        assert with_backoff(0, 0.0)(PASSES, 1) is None
        assert Schedule(1).retries(PASSES, 1) is None


def world(retries: int = 3, rows: int = 2, **limits) -> World:
    backoff = with_backoff(retries, 4.0, chance=lambda: 0.5)
    return World(pipeline(SizeAndAge(rows=rows), retries=backoff, **limits))


def names(actions: list[ev.Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


class TestInThePipeline:
    def test_a_commit_is_tried_again_after_its_pause(self):
        w = world()
        w.schema("a")
        w.records("a", 2)
        w.state()
        w.finish_work()
        (later,) = w.fail_work(PASSES)
        assert (later.what, later.stream, later.failures, later.seconds) == ("commit", "a", 1, 2.0)
        assert w.core.wants_input
        assert w.core.deadline() == w.now + 2.0
        assert w.tick(1.9) == []
        assert names(w.tick(0.2)) == ["Commit"]
        assert names(w.fail_work(PASSES)) == ["RetryLater"]
        assert w.core.deadline() == w.now + 4.0
        assert names(w.tick(4.0)) == ["Commit"]
        assert names(w.finish_work()) == ["Forget", "EmitState"]
        w.end()
        w.finish_all()
        w.check_complete()

    def test_a_conversion_too(self):
        w = world()
        w.schema("a")
        w.records("a", 2)
        (later,) = w.fail_work(PASSES)
        assert later.what == "conversion"
        assert names(w.tick(2.0)) == ["Convert"]
        w.end()
        w.finish_all()
        w.check_complete()

    def test_files_that_are_converted_together_stay_so(self):
        w = world(rows=100, parallel=1)
        w.schema("a")
        for _ in range(3):
            w.batch("a")
        w.finish_work()
        (together,) = w.works.values()
        w.fail_work(PASSES)
        w.batch("a")
        w.tick(GATHER_SECONDS)
        (later,) = w.works.values()
        w.finish_work()
        (again,) = (a for a in w.tick(2.0) if isinstance(a, ev.Convert))
        assert again.piece == together.piece
        assert (len(again.piece.files), later.piece.index) == (2, 3)
        w.end()
        w.finish_all()
        w.check_complete()

    def test_an_activation_too(self):
        w = world()
        w.schema("a")
        w.version("a", 3)
        w.state()
        assert names(w.fail_work(PASSES)) == ["RetryLater"]
        assert names(w.tick(2.0)) == ["Activate"]
        w.finish_all()
        w.end()
        w.check_complete()

    def test_later_flushes_of_the_stream_wait_and_other_streams_do_not(self):
        w = world(rows=1)
        for name in "ab":
            w.schema(name)
        w.records("a", 2)
        w.finish_work()
        w.fail_work(PASSES, next(n for n, a in w.works.items() if isinstance(a, ev.Commit)))
        w.finish_work()
        assert w.works == {}
        w.records("b", 1)
        w.finish_all()
        assert (w.durable["a"], w.durable["b"]) == ([], [5])
        w.tick(10)
        w.finish_all()
        assert w.durable["a"] == [3, 4]

    def test_the_pause_takes_no_place_among_the_work(self):
        w = world(rows=1, parallel=1)
        for name in "ab":
            w.schema(name)
        w.records("a", 1)
        w.fail_work(PASSES)
        assert names(w.records("b", 1)) == ["Stage", "CloseFile", "Convert"]

    def test_after_the_last_failure_the_run_ends(self):
        w = world(retries=1)
        w.schema("a")
        w.records("a", 2)
        w.finish_work()
        w.fail_work(PASSES)
        w.tick(2)
        assert names(w.fail_work(PASSES)) == ["CleanUp"]
        assert w.clean_up.error is PASSES

    def test_what_lasts_ends_the_run_at_once(self):
        w = world()
        w.schema("a")
        w.records("a", 2)
        w.finish_work()
        assert names(w.fail_work(LASTS)) == ["CleanUp"]

    def test_a_signal_does_not_wait_for_a_retry(self):
        w = world()
        w.schema("a")
        w.records("a", 2)
        w.finish_work()
        w.fail_work(PASSES)
        assert names(w.stop(TerminatedRunError("x"))) == ["CleanUp"]

    def test_the_end_of_input_does(self):
        w = world()
        w.schema("a")
        w.records("a", 2)
        w.finish_work()
        w.fail_work(PASSES)
        assert w.end() == []
        assert not w.core.done
        w.tick(2)
        w.finish_all()
        w.check_complete()

    def test_so_does_bad_input(self):
        w = world()
        w.schema("a")
        w.records("a", 2)
        w.finish_work()
        w.fail_work(PASSES)
        error = MessageError("x")
        w.bad_input(error)
        w.tick(2)
        w.finish_all()
        w.check_complete(error)


steps = st.one_of(
    st.tuples(st.just("records"), st.sampled_from("ab"), st.integers(1, 5)),
    st.tuples(st.just("batch"), st.sampled_from("ab"), st.integers(1, 3)),
    st.tuples(st.just("version"), st.sampled_from("ab"), st.integers(1, 3)),
    st.tuples(st.just("schema"), st.sampled_from("ab"), st.sampled_from("xy")),
    st.tuples(st.just("bad_line")),
    st.tuples(st.just("state")),
    st.tuples(st.just("tick"), st.sampled_from([0.5, 3.0])),
)


fates = st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60)


def work_on(world: World, fates: list[tuple[int, bool]]) -> None:
    """End running work, well or badly; if none runs, let time pass."""
    if not world.works:
        wait = world.core.deadline() - world.now
        assert not math.isinf(wait), "nothing will ever happen"
        world.tick(max(0.0, wait))
        return
    place, ends_well = fates.pop() if fates else (0, True)
    work = list(world.works)[place % len(world.works)]
    if ends_well:
        world.finish_work(work)
    else:
        world.fail_work(PASSES, work)


def play(world: World, script: list[tuple], fates: list[tuple[int, bool]]) -> None:
    for name in "ab":
        world.schema(name, "x")
    for name, *args in script:
        while not world.core.wants_input and not world.core.stopping:
            work_on(world, fates)
        if not world.core.stopping:
            getattr(world, name)(*args)
    if not world.core.stopping:
        world.end()
    while not world.core.done:
        work_on(world, fates)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=30), fates, st.booleans(), st.booleans(), st.booleans())
def test_random_failures_lose_and_double_nothing(
    script, fates, overwrite, keep_dead_letters, probe
):
    backoff = with_backoff(10**9, 1.0, chance=lambda: 0.5)
    core = pipeline(
        SizeAndAge(rows=3),
        overwrite=overwrite,
        retries=backoff,
        keep_dead_letters=keep_dead_letters,
        waiting=2,
        probe=probe,
    )
    w = World(core, overwrite=overwrite, buries=keep_dead_letters)
    play(w, script, list(fates))
    w.check_complete()
    bad = [name for name, *_ in script].count("bad_line")
    assert len(w.reported) == len(set(w.reported)) == bad


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=30), fates, st.integers(0, 2))
def test_when_retries_run_out_state_stays_true_and_the_run_ends(script, fates, retries):
    backoff = with_backoff(retries, 1.0, chance=lambda: 0.5)
    w = World(pipeline(SizeAndAge(rows=3), retries=backoff, keep_dead_letters=True), buries=True)
    play(w, script, list(fates))
    committed = {(name, key) for name, keys in w.durable.items() for key in keys}
    for number, header in w.clean_up.flushes:
        name = header.stream.stream
        keys = {(name, key) for keys in w.flush_keys[number].values() for key in keys}
        assert not keys & committed
