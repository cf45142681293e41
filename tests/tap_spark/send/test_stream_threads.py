"""Streams in parallel."""

from __future__ import annotations

import threading

import pytest

from tap_spark.send.sync import run_parallel


def no_stop(_: BaseException) -> None:
    raise AssertionError("nothing failed")


@pytest.mark.parametrize("at_once", [1, 2, 3, 9])
def test_everything_is_done_once(at_once: int) -> None:
    done: list[int] = []
    run_parallel([lambda n=n: done.append(n) for n in range(7)], at_once, no_stop)  # type: ignore[misc]
    assert sorted(done) == list(range(7))


def test_one_at_a_time_keeps_the_order_and_the_thread() -> None:
    seen: list[tuple[int, threading.Thread]] = []

    def work(number: int) -> None:
        seen.append((number, threading.current_thread()))

    run_parallel([lambda n=n: work(n) for n in range(4)], 1, no_stop)  # type: ignore[misc]
    assert seen == [(n, threading.current_thread()) for n in range(4)]


def test_the_number_of_parallel_functions_is_limited() -> None:
    barrier = threading.Barrier(3, timeout=20)
    running: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        with lock:
            running.append(1)
            most.append(len(running))
        barrier.wait()  # passes only if three are here at the same time
        with lock:
            running.pop()

    run_parallel([work] * 6, 3, no_stop)
    assert max(most) == 3


def test_the_first_failure_stops_the_others_and_is_raised() -> None:
    stopped, began = threading.Event(), threading.Event()
    ended: list[str] = []
    never: list[str] = []

    def runs_on() -> None:
        began.set()
        assert stopped.wait(20)
        ended.append("told")
        raise RuntimeError("cancelled")

    def fails() -> None:
        assert began.wait(20)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        run_parallel([runs_on, fails, lambda: never.append("begun")], 2, lambda _: stopped.set())
    assert ended == ["told"]
    assert never == []


def test_nothing_to_do() -> None:
    run_parallel([], 3, no_stop)


def test_an_interruption_of_the_caller_stops_everything() -> None:
    import os
    import signal

    stopped, began = threading.Event(), threading.Event()

    def runs_on() -> None:
        began.set()
        assert stopped.wait(20)

    def interrupts() -> None:
        assert began.wait(20)
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped.wait(20)

    with pytest.raises(KeyboardInterrupt):
        run_parallel([runs_on, interrupts], 2, lambda _: stopped.set())
    assert stopped.is_set()
