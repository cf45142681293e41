"""Commits that lost against other writers of a table, done again."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

from shared.errors import DestinationError, SingerSparkError, Where
from shared.spark_errors import explain

_log = logging.getLogger(__name__)
T = TypeVar("T")

ATTEMPTS = 30
LONGEST_PAUSE = 10.0
_FIRST_PAUSE = 0.1


class LostCommit(Exception):  # noqa: N818
    """Others have changed the table meanwhile; nothing has happened to it by us."""


def repeated(
    work: Callable[[int], T],
    conflicts: re.Pattern[str],
    where: Where,
    *,
    shown: str,
    pause: Callable[[float], object] = time.sleep,
) -> T:
    """Does work again where it failed because others changed the table meanwhile.

    Args:
        work: Is given the number of the attempt, from 0.
        conflicts: Found in the text of failures that left nothing behind.
        where: What it is about.
        shown: Name of the table.
        pause: Waits so many seconds.

    Raises:
        DestinationError: It failed for another reason, or `ATTEMPTS` times.
    """
    for attempt in range(ATTEMPTS):
        try:
            return work(attempt)
        except SingerSparkError:
            raise
        except Exception as error:
            lost = isinstance(error, LostCommit)
            if not lost and not conflicts.search(f"{type(error).__name__}: {error}"):
                raise explain(error, where, DestinationError) from error
            _log.debug("a commit to %s lost against another writer: %s", shown, error)
            last = error
        longest = min(LONGEST_PAUSE, _FIRST_PAUSE * 2.0**attempt)
        pause(random.uniform(0, longest))  # noqa: S311
    raise DestinationError(
        f"{shown} is changed by others all the time: {ATTEMPTS} attempts were in vain",
        where=where,
        hint="run fewer programs at a time that write to this table",
    ) from last
