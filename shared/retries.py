"""Work done again after a failure that may pass: exponential pauses, with jitter."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Pauses:
    """How long to wait between attempts: twice as long each time.

    Attributes:
        longest: Seconds that are waited at most.
        first: Seconds that are waited at most before the first retry.
        least: Part of the longest pause that is always waited; the rest is left to chance, so that
            several programs do not meet again. 1 for pauses of exact length.
    """

    longest: float
    first: float = 0.1
    least: float = 0.0

    def bound(self, retry: int) -> float:
        """Return the longest pause before a retry, counted from 1."""
        return min(self.longest, self.first * 2.0 ** min(retry - 1, 60))

    def pick(self, retry: int) -> float:
        """Return a pause before a retry, counted from 1."""
        bound = self.bound(retry)
        return random.uniform(self.least * bound, bound)  # noqa: S311


def log_quietly(error: Exception, seconds: float, left: int) -> None:
    """Log a retry at level DEBUG, for failures that are expected."""
    _log.debug("trying again in at most %g s, %d more after that: %s", seconds, left, error)


def repeated(
    work: Callable[[int], T],
    may_pass: Callable[[Exception], bool],
    *,
    attempts: int,
    pauses: Pauses,
    report: Callable[[Exception, float, int], None] = log_quietly,
    sleep: Callable[[float], object] | None = None,
) -> T:
    """Do work until it succeeds.

    Args:
        work: Gets the number of the attempt, from 0.
        may_pass: Returns whether a failure may be over by the next attempt.
        attempts: How many at most.
        pauses: Between the attempts.
        report: Gets each failure, the longest pause after it, and the attempts after the next.
        sleep: Waits for so many seconds; `time.sleep` by default.

    Returns:
        What the work returned.

    Raises:
        Exception: The last failure, or the first one that does not pass.
    """
    attempt = 0
    while True:
        try:
            return work(attempt)
        except Exception as error:
            attempt += 1
            if attempt >= attempts or not may_pass(error):
                raise
            report(error, pauses.bound(attempt), attempts - attempt - 1)
        (sleep or time.sleep)(pauses.pick(attempt))
