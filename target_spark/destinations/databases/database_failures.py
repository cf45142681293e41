"""Failures of databases as one clear error, which also shows whether a retry may help."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.errors import DestinationError, SingerSparkError, Where, causes

if TYPE_CHECKING:
    from target_spark.destinations.databases.database import Database, Failure
    from target_spark.destinations.databases.database_url import DatabaseAddress

SHOWN = 300
CONFLICT = errno.EAGAIN
"""Conflict with another session: the same work can be retried at once."""
LOST = errno.ECONNRESET
"""The connection is lost: it is unknown whether the last transaction was committed."""
PASSING = frozenset(
    {
        CONFLICT,
        LOST,
        errno.ECONNREFUSED,
        errno.EHOSTUNREACH,
        errno.ETIMEDOUT,
        errno.ENOMEM,
        errno.ENOSPC,
    }
)
"""Failures that a retry may overcome."""

_WORDS = (
    (re.compile(r"\[Errno -?\d+\] "), ""),
    # Those words mean, in a failure of a job, that a disk of Spark is full or Spark has gone.
    (re.compile(r"No space left on device", re.I), "the server's disk is full"),
    (re.compile(r"Connection refused", re.I), "the connection was refused"),
)


@contextmanager
def explain_errors(
    database: Database, place: DatabaseAddress, where: Where | None = None
) -> Iterator[None]:
    """Convert the driver's errors in the block to a DestinationError.

    Its cause is an OSError with the number of the failure.
    """
    try:
        yield
    except SingerSparkError:
        raise
    except Exception as error:
        failure = database.failure(error)
        if failure is None:
            raise
        raise destination_error(failure, place, where) from OSError(
            failure.number or errno.EINVAL, f"{place} has failed"
        )


def destination_error(
    failure: Failure, place: DatabaseAddress, where: Where | None = None
) -> DestinationError:
    """Return the one-line error of a failure, without secrets."""
    text = " ".join(place.without_secrets(failure.message).split())
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    text = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
    code = f" [{failure.code}]" if failure.code else ""
    return DestinationError(f"{place}: {text}{code}", where=where, hint=failure.hint)


def errno_of(error: BaseException) -> int:
    """Return the number of the failure behind an error; 0 for none."""
    found = (cause.errno or 0 for cause in causes(error) if isinstance(cause, OSError))
    return next(found, 0)
