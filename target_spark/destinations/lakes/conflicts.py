"""Retries of commits that conflict with other writers of a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from shared.errors import DestinationError, SingerSparkError, Where
from shared.retries import Pauses
from shared.retries import repeated as retried
from shared.spark.spark_errors import explain

T = TypeVar("T")

ATTEMPTS = 30
PAUSES = Pauses(longest=10.0)


class LostCommit(Exception):  # noqa: N818
    """Others have changed the table concurrently; our commit has not changed it."""


def repeated(
    work: Callable[[int], T], conflicts: re.Pattern[str], where: Where, *, shown: str
) -> T:
    """Do work, and retry it if it conflicts with other writers of the table.

    Args:
        work: Called with the number of the attempt, from 0.
        conflicts: Matches the text of conflicts, which have not changed anything.
        where: Place for errors.
        shown: Name of the table.

    Raises:
        DestinationError: It failed for another reason, or `ATTEMPTS` times.
    """

    def is_lost(error: Exception) -> bool:
        if isinstance(error, SingerSparkError | LostCommit):
            return isinstance(error, LostCommit)
        return conflicts.search(f"{type(error).__name__}: {error}") is not None

    try:
        return retried(work, is_lost, attempts=ATTEMPTS, pauses=PAUSES)
    except SingerSparkError:
        raise
    except Exception as error:
        if not is_lost(error):
            raise explain(error, where, DestinationError) from error
        raise DestinationError(
            f"{shown}: gave up after {ATTEMPTS} attempts: other writers keep committing",
            where=where,
            hint="run fewer programs that write to this table at the same time",
        ) from error
