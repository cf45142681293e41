"""Transient failures, and the pauses before retries. Pure."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable

from shared.errors import RecordError, SettingsError, causes
from shared.retries import Pauses

LONGEST_PAUSE = 300.0

_PASSING = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ESTALE,
        errno.EPIPE,
        errno.ETIMEDOUT,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ENETRESET,
        errno.ENOLCK,
    }
)
_NUMBER = re.compile(r"\w+(?:Error|Exception): \[Errno (\d+)\]")
_NEVER = (RecordError, SettingsError)
_LASTING_NAMES = re.compile(
    r"AccessDenied|AccessControlException|Forbidden|PermissionError|Permission denied|NoCredentials"
    r"|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket|AnalysisException|ParseException"
    r"|CommitStateUnknown|_SCHEMA|SCHEMA_|TypeError|AttributeError"
)
_PASSING_NAMES = re.compile(
    r"Concurrent\w*Exception|DELTA_CONCURRENT|CommitFailedException|CommitConflict"
    r"|SlowDown|Throttl|TooManyRequests|RequestLimitExceeded|RequestTimeout|ServiceUnavailable"
    r"|InternalError|OperationAborted|EndpointConnectionError|ConnectionClosedError"
    r"|ConnectTimeout|ReadTimeout|IncompleteRead|ClientConnect|ClientOSError|ServerDisconnected"
    r"|TimeoutError|SocketTimeoutException|ConnectException|UnknownHostException"
    r"|NoRouteToHost|Connection reset|Connection refused|timed out"
    r"|No space left on device|Disk quota exceeded"
    r"|Python worker exited unexpectedly|Python worker failed to connect back"
)


def may_pass(error: BaseException) -> bool:
    """Return whether a failure is transient: network, throttling, full disk, conflict.

    Judged by the innermost cause that shows it: the number of an `OSError`, else class and text.
    An unknown failure is not transient.
    """
    if isinstance(error, _NEVER):
        return False
    verdicts = [_verdict(cause) for cause in causes(error)]
    return next((verdict for verdict in reversed(verdicts) if verdict is not None), False)


def _verdict(error: BaseException) -> bool | None:
    """Return whether one error, without its cause, is temporary; None if unknown."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _PASSING
    if _LASTING_NAMES.search(text):
        return False
    numbers = _NUMBER.findall(text)
    if numbers:
        return int(numbers[-1]) in _PASSING
    return True if _PASSING_NAMES.search(text) else None


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
