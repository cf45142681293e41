"""Background actions with a fake session: results, errors, cancelling in time."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tap_spark.send import record_writer
from tap_spark.send.record_writer import SparkJob, interrupt, tagged


class Session:
    """Remembers tags; an action that waits on `stopped` ends when its tag is interrupted."""

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.interrupted: list[str] = []
        self.stopped = threading.Event()

    def addTag(self, tag: str) -> None:  # noqa: N802
        self.tags.add(tag)

    def removeTag(self, tag: str) -> None:  # noqa: N802
        self.tags.discard(tag)

    def interruptTag(self, tag: str) -> list[str]:  # noqa: N802
        self.interrupted.append(tag)
        self.stopped.set()
        return []

    def interruptAll(self) -> list[str]:  # noqa: N802
        return []


@pytest.fixture
def session() -> Any:
    return Session()


def test_the_result_is_returned(session: Any) -> None:
    job = SparkJob(session, lambda: 42)
    assert job.result() == 42
    assert job.wait(0)
    job.cancel()
    assert session.interrupted == []


def test_an_error_is_raised_by_every_call(session: Any) -> None:
    def fail() -> None:
        raise KeyError("x")

    job = SparkJob(session, fail)
    with pytest.raises(KeyError):
        job.wait(5)
    with pytest.raises(KeyError):
        job.result()


def test_a_running_job_is_cancelled_by_its_tag(session: Any) -> None:
    job = SparkJob(session, lambda: session.stopped.wait(30))
    assert not job.wait(0.01)
    job.cancel()
    assert session.interrupted == list(session.tags)
    assert job.result() is True


def test_cancelling_never_hangs(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "CANCEL_SECONDS", 0.05)
    endless = threading.Event()
    session.interruptTag = lambda _: endless.wait()
    job = SparkJob(session, endless.wait)
    started = time.monotonic()
    job.cancel()
    assert time.monotonic() - started < 1
    endless.set()


def test_a_dead_session_is_not_a_second_error(session: Any) -> None:
    def refuse(_: str) -> None:
        raise ConnectionRefusedError

    session.interruptTag = session.removeTag = refuse
    interrupt(session, "t")
    with tagged(session):
        pass


def test_a_block_is_tagged_and_cancelled_at_its_end(session: Any) -> None:
    with pytest.raises(ValueError, match="x"), tagged(session) as tag:
        assert session.tags == {tag}
        raise ValueError("x")
    assert session.tags == set()
    assert session.interrupted == [tag]
