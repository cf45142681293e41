"""A run without progress: a warning at half time, then the end."""

from __future__ import annotations

import math
import signal
import threading
import time
from itertools import count

import pytest

from shared.errors import StalledRunError
from shared.singer.signals import StallWatch, ends_if_stalled, heartbeats


def test_half_of_the_limit_warns_once_and_all_of_it_ends() -> None:
    watch = StallWatch(10, progress_at=100)
    assert (watch.deadline, watch.warning(104.9), watch.error(109.9)) == (105, None, None)
    assert "no progress for 6 s; the run ends after 10 s" in str(watch.warning(106))
    assert (watch.deadline, watch.warning(107)) == (110, None)
    error = watch.error(110)
    assert error is not None
    assert error.exit_code == 12
    assert "stall_limit_seconds" in str(error)


def test_progress_starts_it_again() -> None:
    watch = StallWatch(10, progress_at=100)
    assert watch.warning(106)
    watch.progress(109)
    assert (watch.error(118), watch.deadline) == (None, 114)
    assert watch.warning(115)


def test_without_a_limit_nothing_ends() -> None:
    watch = StallWatch(progress_at=0)
    assert watch.deadline == math.inf
    assert (watch.warning(1e12), watch.error(1e12)) == (None, None)


def test_a_heartbeat_comes_each_time_that_it_is_due() -> None:
    watch = StallWatch(progress_at=100, heartbeat=60)
    assert (watch.deadline, watch.beat(159, str)) == (160, None)
    assert watch.beat(160, lambda: "input") == "no progress for 60 s: waiting for input"
    assert (watch.deadline, watch.beat(219, str)) == (220, None)
    assert "no progress for 200 s" in str(watch.beat(300, str))
    assert watch.deadline == 340
    watch.progress(330)
    assert watch.deadline == 390
    assert StallWatch(progress_at=0).beat(1e12, str) is None


def test_a_heartbeat_and_a_limit_have_their_own_times() -> None:
    watch = StallWatch(10, progress_at=100, heartbeat=3)
    assert (watch.deadline, watch.warning(103)) == (103, None)
    assert watch.beat(103, str)
    assert watch.deadline == 105
    assert watch.warning(105)
    assert watch.deadline == 106


def test_a_silent_block_has_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with heartbeats(0.1, lambda: 7, lambda: "the source"):
        time.sleep(0.35)
    assert "no progress for 0 s: waiting for the source" in caplog.text
    caplog.clear()
    numbers = count()
    with heartbeats(0.2, lambda: next(numbers), lambda: ""), heartbeats(0, lambda: 7, lambda: ""):
        time.sleep(0.5)
    assert [record for record in caplog.records if record.name == "shared.singer.signals"] == []


def test_a_block_without_progress_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGUSR2)
    began = time.monotonic()
    with (
        pytest.raises(StalledRunError, match="no message was written for 0 s"),
        ends_if_stalled(0.2, lambda: 7, "no message was written"),
    ):
        threading.Event().wait(30)
    assert time.monotonic() - began < 10
    assert "no progress for" in caplog.text
    assert signal.getsignal(signal.SIGUSR2) is before


def test_a_block_with_progress_goes_on() -> None:
    numbers = count()
    with ends_if_stalled(0.2, lambda: next(numbers), "nothing"):
        time.sleep(0.6)
    with ends_if_stalled(None, lambda: 7, "nothing"):
        time.sleep(0.3)


def test_the_reason_why_a_block_fails_is_kept() -> None:
    with pytest.raises(ZeroDivisionError), ends_if_stalled(60, lambda: 7, "nothing"):
        raise ZeroDivisionError
