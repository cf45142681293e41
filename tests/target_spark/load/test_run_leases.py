"""The leases of a run: when they are taken, and what their loss means. No Spark."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from shared.errors import AlreadyRunningError, DestinationError
from target_spark.destinations import leases
from target_spark.destinations.leases import Holder, NoLeasesError, RunLeases
from target_spark.run_settings import OverlapSettings


class FakeLease:
    expires = True

    def __init__(self, holder: Holder | None = None, error: Exception | None = None) -> None:
        self.holder = holder
        self.error = error
        self.calls: list[str] = []

    def take(self) -> Holder | None:
        self.calls.append("take")
        if self.error is not None:
            raise self.error
        return self.holder

    def renew(self) -> bool:
        self.calls.append("renew")
        return self.holder is None

    def release(self) -> None:
        self.calls.append("release")
        if self.error is not None:
            raise self.error


class Runs:
    """The leases of a run, with one stream."""

    def __init__(self, lease: FakeLease | None, **settings: Any) -> None:
        self.now = 0.0
        self._lease = lease
        self.leases = RunLeases(OverlapSettings(**settings), lambda: self.now)

    def take(self) -> None:
        self.leases.take("orders", "'/t'", lambda: self._lease)

    def check(self, stream: str = "orders") -> None:
        self.leases.check(stream, "'/t'")


def test_a_lease_is_taken_once_and_released_at_the_end() -> None:
    lease = FakeLease()
    own = Runs(lease)
    own.take()
    own.take()
    own.check()
    own.check("customers")
    own.leases.close()
    assert lease.calls == ["take", "release"]


def test_a_run_may_end_while_it_takes_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a signal: the main thread closes what another thread is opening."""
    begins = threading.Event()

    class SlowThread(threading.Thread):
        def start(self) -> None:
            begins.set()
            time.sleep(0.1)
            super().start()

    lease = FakeLease()
    own = Runs(lease)
    taking = threading.Thread(target=own.take)
    monkeypatch.setattr(leases.threading, "Thread", SlowThread)
    taking.start()
    begins.wait()
    own.leases.close()
    taking.join()
    assert lease.calls == ["take", "release"]


def test_allow_takes_none() -> None:
    lease = FakeLease(Holder("r"))
    own = Runs(lease, policy="allow")
    own.take()
    own.check()
    own.leases.close()
    assert lease.calls == []


def test_another_run_ends_this_one() -> None:
    own = Runs(FakeLease(Holder("r", "far", 7)))
    with pytest.raises(
        AlreadyRunningError, match=r"stream 'orders': another run.*process 7 on far"
    ):
        own.take()
    own.leases.close()


def test_a_lease_is_renewed_before_a_commit_if_it_may_be_old() -> None:
    lease = FakeLease()
    own = Runs(lease, expiry_seconds=100)
    own.take()
    own.now = 51
    own.check()
    own.check()
    assert lease.calls == ["take", "renew"]
    own.leases.close()


def test_a_run_that_was_taken_for_dead_commits_nothing() -> None:
    lease = FakeLease()
    own = Runs(lease, expiry_seconds=100)
    own.take()
    own.now, lease.holder = 51, Holder("r")
    for _ in range(2):
        with pytest.raises(AlreadyRunningError):
            own.check()
    own.leases.close()


def test_a_sign_of_life_is_given_all_the_time() -> None:
    import time

    lease = FakeLease()
    own = Runs(lease, expiry_seconds=0.04)
    own.take()
    for _ in range(500):
        if lease.calls.count("renew") >= 2:
            break
        time.sleep(0.01)
    own.leases.close()
    assert lease.calls.count("renew") >= 2


def test_a_storage_without_leases_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    own = Runs(FakeLease(error=NoLeasesError("the file system has no locks")))
    own.take()
    own.take()
    own.check()
    own.leases.close()
    assert [record.message for record in caplog.records] == [
        "other runs that load into '/t' are not detected: the file system has no locks"
    ]
    plain = Runs(None)
    plain.take()
    plain.leases.close()


def test_the_end_of_a_run_does_not_fail(caplog: pytest.LogCaptureFixture) -> None:
    lease = FakeLease()
    own = Runs(lease)
    own.take()
    lease.error = DestinationError("the bucket is gone")
    own.leases.close()
    assert "the lease on '/t' was not released: the bucket is gone" in caplog.text


def test_a_lease_that_cannot_be_released_keeps_no_other() -> None:
    kept, other = FakeLease(), FakeLease()
    leases_of_run = RunLeases(OverlapSettings())
    leases_of_run.take("a", "'/a'", lambda: other)
    leases_of_run.take("b", "'/b'", lambda: kept)
    kept.error = DestinationError("access denied")
    leases_of_run.close()
    assert [lease.calls for lease in (kept, other)] == [["take", "release"]] * 2


def test_a_storage_that_does_not_answer_is_asked_once_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each request would wait for its retries: hours for a thousand tables."""
    asked: list[str] = []
    renewing, ended = threading.Event(), threading.Event()

    class DeadLease(FakeLease):
        def renew(self) -> bool:
            asked.append("renew")
            renewing.set()
            ended.wait()
            raise DestinationError("no answer")

        def release(self) -> None:
            asked.append("release")
            raise DestinationError("no answer") from ConnectionRefusedError()

    expiry: Any = 0.04
    leases_of_run = RunLeases(OverlapSettings(expiry_seconds=expiry))
    for number in range(100):
        leases_of_run.take(f"s{number}", f"'/t{number}'", DeadLease)
    renewing.wait()
    closing = threading.Thread(target=leases_of_run.close)
    closing.start()
    while not leases_of_run._over.is_set():
        time.sleep(0.001)
    ended.set()
    closing.join()
    assert asked == ["renew", "release"]
    assert "the lease on '/t99' and 99 others was not released: no answer" in caplog.text
