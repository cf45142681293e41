"""Work done again where others were in the way."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

_log = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_PAUSE = 0.1


def repeated(
    work: Callable[[int], T], passes: Callable[[Exception], bool], *, attempts: int, longest: float
) -> T:
    """Does work until it succeeds; the last failure, and one that does not pass, are raised.

    Args:
        work: Is given the number of the attempt, from 0.
        passes: Tells whether a failure may be over by the next attempt.
        attempts: How many at most.
        longest: Seconds that are waited at most between two of them.
    """
    attempt = 0
    while True:
        try:
            return work(attempt)
        except Exception as error:
            attempt += 1
            if attempt == attempts or not passes(error):
                raise
            _log.debug("trying again: %s", error)
        pause = min(longest, _FIRST_PAUSE * 2.0 ** (attempt - 1))
        time.sleep(random.uniform(0, pause))  # noqa: S311
