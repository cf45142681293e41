"""Work done again after a failure that may pass."""

from __future__ import annotations

import random
import threading
import time

import pytest

from shared.errors import Pauses, repeated

QUICK = Pauses(longest=0.5)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The longest pause of each time that this thread waited."""
    longest: list[float] = []
    test, sleep, uniform = threading.get_ident(), time.sleep, random.uniform

    def noted(least: float, most: float) -> float:
        if threading.get_ident() != test:
            return uniform(least, most)
        longest.append(most)
        return 0.0

    monkeypatch.setattr(random, "uniform", noted)
    monkeypatch.setattr(
        time, "sleep", lambda pause: None if threading.get_ident() == test else sleep(pause)
    )
    return longest


@pytest.mark.parametrize("failures", [0, 1, 5])
def test_work_is_done_until_it_succeeds(pauses: list[float], failures: int) -> None:
    def work(attempt: int) -> str:
        if attempt < failures:
            raise OSError(attempt)
        return f"done at {attempt}"

    actual = repeated(work, lambda _: True, attempts=6, pauses=QUICK)
    assert actual == f"done at {failures}"
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5][:failures]


def test_the_last_failure_is_raised(pauses: list[float]) -> None:
    def work(attempt: int) -> None:
        raise OSError(attempt)

    with pytest.raises(OSError, match="3"):
        repeated(work, lambda _: True, attempts=4, pauses=QUICK)
    assert len(pauses) == 3


def test_a_failure_that_does_not_pass_is_raised_at_once(pauses: list[float]) -> None:
    def work(attempt: int) -> None:
        raise (OSError if attempt == 0 else KeyError)(attempt)

    with pytest.raises(KeyError):
        repeated(work, lambda error: isinstance(error, OSError), attempts=4, pauses=QUICK)
    assert len(pauses) == 1
