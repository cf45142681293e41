"""Retries of streams of databases after temporary failures."""

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
"""Plans the stream again: with the current bookmark, and a new version."""


def read_with_retries(
    plan: StreamPlan,
    attempt: Callable[[StreamPlan], None],
    replan: Replan,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Read a stream; retry temporary failures of its source.

    A retry resumes at the current bookmark; a FULL_TABLE stream starts over with a new version.
    Rows written after the bookmark may be written twice.

    Args:
        plan: The stream; its connection's `retries` limit the attempts.
        attempt: Reads it once.
        replan: See `Replan`.
        sleep: Waits for so many seconds.

    Raises:
        SourceError: No retries are left, or a retry cannot help.
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
                "stream '%s': %s; retrying in %.0f s (%d retries left after that)",
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
