"""Leases on a local disk, and the wait for another run. No Spark."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from shared.errors import AlreadyRunningError
from shared.storage import owned_folders
from target_spark.destinations.leases import (
    PAUSE,
    Holder,
    LocalLease,
    NoLeasesError,
    RunLeases,
    holder_of,
    this_run,
)
from target_spark.run_settings import OverlapSettings

OTHER = Holder("r", "far", 42, "2026-01-01T00:00:00+00:00")
HOLD = """
import sys
from pathlib import Path
from target_spark.destinations.leases import this_run
from target_spark.destinations.leases import LocalLease
lease = LocalLease(Path(sys.argv[1]), this_run())
print(lease.take(), flush=True)
sys.stdin.read()
"""


class FakeLease:
    """Answers with one holder after the other, then is free."""

    expires: ClassVar[bool] = False

    def __init__(self, *holders: Holder) -> None:
        self._holders: Iterator[Holder] = iter(holders)
        self.asked = 0

    def take(self) -> Holder | None:
        self.asked += 1
        return next(self._holders, None)

    def renew(self) -> bool:
        return True

    def release(self) -> None:
        pass


def take(lease: FakeLease, policy: str, longest: float = 10, ends: bool = False) -> float:
    now = [0.0]

    def pause(seconds: float) -> bool:
        now[0] += seconds
        return ends

    settings = OverlapSettings(policy=policy, wait_limit_seconds=longest)
    leases = RunLeases(settings, clock=lambda: now[0])
    leases._over = SimpleNamespace(wait=pause, is_set=lambda: False)  # type: ignore[assignment]
    leases.take("orders", "'/t'", lambda: lease)
    return now[0]


class TestWait:
    def test_a_free_lease_is_taken_at_once(self) -> None:
        assert take(FakeLease(), "fail") == 0

    def test_fail_names_who_holds_it(self) -> None:
        with pytest.raises(AlreadyRunningError) as failed:
            take(FakeLease(OTHER), "fail")
        assert str(failed.value) == (
            "stream 'orders': another run loads the stream into '/t': process 42 on far, since "
            "2026-01-01T00:00:00+00:00 (run again when it has ended, or set "
            "`overlapping_runs.policy`)"
        )
        assert failed.value.exit_code == 13

    def test_fail_waits_until_it_knows_whether_the_holder_lives(self) -> None:
        silent = Holder("r", "far", 42, is_alive=False)
        assert take(FakeLease(*[silent] * 30), "fail") == 30 * PAUSE
        with pytest.raises(AlreadyRunningError):
            take(FakeLease(silent, silent, OTHER), "fail")

    def test_wait_ends_when_the_other_run_does(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        assert take(FakeLease(OTHER, OTHER, OTHER), "wait") == 3 * PAUSE
        assert len(caplog.records) == 1, "one line for each holder"
        assert "stream 'orders': waiting for another run into '/t': process 42" in caplog.text

    def test_wait_has_a_limit(self) -> None:
        with pytest.raises(AlreadyRunningError, match="into '/t' after 10 s: process 42 on far"):
            take(FakeLease(*[OTHER] * 100), "wait")

    def test_the_end_of_the_run_ends_the_wait(self) -> None:
        lease = FakeLease(*[OTHER] * 100)
        with pytest.raises(AlreadyRunningError):
            take(lease, "wait", ends=True)
        assert lease.asked == 1


def test_a_holder_is_read_as_it_was_written_and_anything_else_is_unknown() -> None:
    assert holder_of(OTHER.to_json()) == OTHER
    assert holder_of([1]) == Holder()
    assert str(holder_of({"pid": "x"})) == "another process"


class TestLocal:
    def test_one_run_at_a_time(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "lease"
        first, second = (LocalLease(path, this_run()) for _ in range(2))
        assert first.take() is None
        assert first.take() is None, "asked twice"
        holder = second.take()
        assert holder is not None
        assert holder.pid == os.getpid()
        assert holder.is_alive
        assert not second.renew()
        assert first.renew()
        first.release()
        first.release()
        assert not path.exists()
        assert second.take() is None
        second.release()
        assert list(path.parent.iterdir()) == []

    def test_a_killed_run_does_not_block_the_next_one(self, tmp_path: Path) -> None:
        path = tmp_path / "lease"
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"None\n"
        lease = LocalLease(path, this_run())
        holder = lease.take()
        assert holder is not None
        assert holder.pid == process.pid
        process.kill()
        process.communicate()
        assert lease.take() is None
        lease.release()
        assert not path.exists()

    def test_a_file_system_without_locks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_lock(*_: object, **__: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(owned_folders, "_set_lock", no_lock)
        with pytest.raises(NoLeasesError, match="has no locks"):
            LocalLease(tmp_path / "lease", this_run()).take()
