"""Retries of streams after temporary failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.errors import SourceError
from tap_spark.send.sync import LONGEST_SECONDS, read_with_retries
from tap_spark.sources.source_failures import TransientSourceError
from tap_spark.state.stream_plans import StreamPlan
from tap_spark.stream_config import ConnectionConfig, StreamConfig


def plan_of(retries: int | None, number: int = 0) -> StreamPlan:
    database = None if retries is None else ConnectionConfig("c", url="jdbc:x", retries=retries)
    return StreamPlan(
        stream="s",
        tap_stream_id="s",
        config=StreamConfig(name="s", format="jdbc", database=database),
        schema={},
        columns=(),
        version=number,
    )


class Runs:
    """Fails so often, and remembers what it was asked."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or TransientSourceError("the connection was cut")
        self.seen: list[int | None] = []
        self.waits: list[float] = []

    def attempt(self, plan: StreamPlan) -> None:
        self.seen.append(plan.version)
        if len(self.seen) <= self.failures:
            raise self.error

    def read_with_retries(self, retries: int | None) -> None:
        def replan(plan: StreamPlan) -> StreamPlan:
            return replace(plan, version=(plan.version or 0) + 1)

        read_with_retries(plan_of(retries), self.attempt, replan, self.waits.append)


def test_what_works_is_done_once() -> None:
    runs = Runs(0)
    runs.read_with_retries(3)
    assert (runs.seen, runs.waits) == ([0], [])


def test_every_attempt_has_its_own_plan() -> None:
    runs = Runs(2)
    runs.read_with_retries(3)
    assert runs.seen == [0, 1, 2]


def test_attempts_are_bounded() -> None:
    runs = Runs(99)
    with pytest.raises(TransientSourceError, match="was cut"):
        runs.read_with_retries(2)
    assert runs.seen == [0, 1, 2]


def test_waits_grow_to_a_bound_and_vary() -> None:
    runs = Runs(12)
    runs.read_with_retries(12)
    assert 0.5 <= runs.waits[0] <= 1
    assert 1 <= runs.waits[1] <= 2
    assert LONGEST_SECONDS / 2 <= runs.waits[-1] <= LONGEST_SECONDS
    assert len(set(runs.waits)) == 12


@pytest.mark.parametrize("retries", [0, None])
def test_without_retries(retries: int | None) -> None:
    runs = Runs(1)
    with pytest.raises(TransientSourceError):
        runs.read_with_retries(retries)


@pytest.mark.parametrize("error", [SourceError("no such table"), ValueError("a bug")])
def test_what_cannot_pass_is_raised_at_once(error: Exception) -> None:
    runs = Runs(1, error)
    with pytest.raises(type(error)):
        runs.read_with_retries(3)
    assert runs.waits == []


def test_a_retry_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    Runs(1).read_with_retries(3)
    (record,) = caplog.records
    assert record.getMessage() == (
        "stream 's': the connection was cut; retrying in 1 s (2 retries left after that)"
    )
