"""Pauses before retries of transient failures. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable

from shared.retries import Pauses
from shared.transient_failures import may_pass

LONGEST_PAUSE = 300.0


class Backoff:
    """Retry work after transient failures: exponential pauses with full jitter.

    The pause before retry n is chosen evenly between nothing and `seconds` * 2^(n-1), which is at
    most five minutes, so that several writers do not collide again.

    Args:
        retries: Most retries.
        seconds: Longest pause before the first retry.
        chance: Gives numbers from 0 to 1.
    """

    def __init__(
        self, retries: int, seconds: float, chance: Callable[[], float] = random.random
    ) -> None:
        self._retries = retries
        self._pauses = Pauses(LONGEST_PAUSE, first=seconds)
        self._chance = chance

    def pause(self, error: BaseException, failures: int) -> float | None:
        """See `RetryRule`."""
        if failures > self._retries or not may_pass(error):
            return None
        return self._chance() * self._pauses.bound(failures)
