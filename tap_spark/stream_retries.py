"""Streams of databases tried again after a failure that passes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from shared.errors import SourceError
from shared.retries import Pauses, repeated
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
    sleep: Callable[[float], object] = time.sleep,
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
    retries = 0 if database is None else database.retries

    def work(number: int) -> None:
        nonlocal plan
        plan = replan(plan) if number else plan
        attempt(plan)

    def tell(error: Exception, seconds: float, left: int) -> None:
        text = error.message if isinstance(error, SourceError) else str(error)
        _logger.warning(
            "stream '%s': %s; trying again in %.0f s, %d more after that",
            plan.stream,
            text,
            seconds,
            left,
        )

    repeated(
        work,
        lambda error: isinstance(error, SourceError) and error.retryable,
        attempts=retries + 1,
        pauses=Pauses(LONGEST_SECONDS, first=FIRST_SECONDS, least=0.5),
        tell=tell,
        sleep=sleep,
    )
