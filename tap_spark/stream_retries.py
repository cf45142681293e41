"""Streams of databases tried again after a failure that passes."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from shared.errors import SourceError
from tap_spark.plans import StreamPlan

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0
_logger = logging.getLogger(__name__)

Replan = Callable[[StreamPlan], StreamPlan]
"""Gives the plan anew: with the bookmark as far as it has come, and a version of its own."""


def keep_trying(
    plan: StreamPlan,
    attempt: Callable[[StreamPlan], None],
    replan: Replan,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Read a stream, again where its source failed for a passing reason.

    A stream that is read again goes on from its bookmark as far as that has come; a FULL_TABLE
    stream starts over under a new version. Rows that were sent meanwhile may be sent twice.

    Args:
        plan: The stream; its connection's `retries` bound the attempts.
        attempt: Reads it once.
        replan: See `Replan`.
        sleep: Waits for so many seconds.

    Raises:
        SourceError: Nothing more can be tried, or trying cannot help.
    """
    database = plan.config.database
    left = 0 if database is None else database.retries
    delay = FIRST_SECONDS
    while True:
        try:
            attempt(plan)
        except SourceError as error:
            if not error.retryable or left == 0:
                raise
            left -= 1
            _logger.warning(
                "stream '%s': %s; trying again in %.0f s, %d more after that",
                plan.stream,
                error.message,
                delay,
                left,
            )
        else:
            return
        sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311
        delay = min(2 * delay, LONGEST_SECONDS)
        plan = replan(plan)
