"""Retries of streams of databases after temporary failures."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from shared.errors import SourceError
from shared.retries import Pauses, repeated
from tap_spark.sources.jdbc_failures import TransientSourceError
from tap_spark.state.stream_plans import StreamPlan

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0
_logger = logging.getLogger(__name__)

Replan = Callable[[StreamPlan], StreamPlan]
"""Plans the stream again: with the current bookmark, and a new version."""


def read_with_retries(
    plan: StreamPlan,
    attempt: Callable[[StreamPlan], None],
    replan: Replan,
    sleep: Callable[[float], object] = time.sleep,
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
    retries = 0 if database is None else database.retries

    def work(number: int) -> None:
        nonlocal plan
        plan = replan(plan) if number else plan
        attempt(plan)

    def report(error: Exception, seconds: float, left: int) -> None:
        text = error.message if isinstance(error, SourceError) else str(error)
        _logger.warning(
            "stream '%s': %s; retrying in %.0f s (%d retries left after that)",
            plan.stream,
            text,
            seconds,
            left,
        )

    repeated(
        work,
        lambda error: isinstance(error, TransientSourceError),
        attempts=retries + 1,
        pauses=Pauses(LONGEST_SECONDS, first=FIRST_SECONDS, least=0.5),
        report=report,
        sleep=sleep,
    )
