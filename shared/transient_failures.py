"""Which failures are transient, and which come again until somebody changes something. Pure."""

from __future__ import annotations

import errno
import re

from shared.errors import (
    DestinationError,
    RecordError,
    SettingsError,
    SingerSparkError,
    SourceError,
    causes,
    error_text,
)

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
    r"AccessDenied|AccessControlException|Forbidden|Unauthorized|PermissionError|Permission denied"
    r"|NoCredentials|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket|NoSuchNamespace"
    r"|AnalysisException|ParseException|CommitStateUnknown|_SCHEMA|SCHEMA_|TypeError|AttributeError"
    r"|Read-only file system|Not a directory|File name too long|is not a directory"
)
_DAMAGED = re.compile(
    r"DeltaProtocolError|SchemaMismatchError|[Cc]orrupt|[Mm]alformed|[Ii]nvalid JSON"
    r"|JsonParseException|JSONDecodeError|Name or service not known|UnsupportedOperationException"
    r"|ValidationException|ValidationError|No FileSystem for scheme|UNSUPPORTED"
)
"""Words of failures that last; while a run is retried, they tell nothing against others."""
_ANOTHER_RUN = re.compile(
    r"CommitStateUnknown|TABLE_OR_VIEW_NOT_FOUND|NoSuchTable|TableNotFoundError"
    r"|DELTA_TABLE_NOT_FOUND|PATH_NOT_FOUND"
)
"""Words of failures that another run may overcome, though not this one: it creates the table."""
_PASSING_NAMES = re.compile(
    r"Concurrent\w*Exception|DELTA_CONCURRENT|CommitFailedException|CommitConflict"
    r"|SlowDown|Throttl|TooManyRequests|RequestLimitExceeded|RequestTimeout|ServiceUnavailable"
    r"|InternalError|OperationAborted|EndpointConnectionError|ConnectionClosedError"
    r"|ConnectTimeout|ReadTimeout|IncompleteRead|ClientConnect|ClientOSError|ServerDisconnected"
    r"|TimeoutError|TimeoutException|ConnectException|UnknownHostException"
    r"|NoRouteToHost|Connection reset|Connection refused|timed out|Status Code: (?:429|50[0234])"
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


def settled(error: SingerSparkError) -> SingerSparkError:
    """Return the error that ends a run, one of a place with the exit code of its cause.

    Exit code 6 promises that the same run can succeed later. A cause shows that it cannot: no
    permission, a wrong password, a missing bucket, a damaged log. One that tells nothing leaves it.
    Of a source only an error of the system shows that it can: other texts may have values of rows.
    """
    if isinstance(error, DestinationError) and _lasts(error):
        error.mark_lasting()
    if isinstance(error, SourceError):
        numbered = [e for e in causes(error) if isinstance(e, OSError) and e.errno is not None]
        if numbered and may_pass(numbered[-1]):
            error.mark_passing()
    return error


def _lasts(error: BaseException) -> bool:
    """Return whether a cause of an error shows that it comes again, the innermost one first."""
    for cause in reversed(list(causes(error))):
        if isinstance(cause, SingerSparkError):  # its text is for people, and has their names
            continue
        text = error_text(cause)
        if _ANOTHER_RUN.search(text) or _is_removed_file(cause):
            return False
        passes = _verdict(cause)
        if passes is None and _DAMAGED.search(text):
            passes = False
        if passes is not None:
            return not passes
    return False


def _is_removed_file(error: BaseException) -> bool:
    """Return whether a local file is missing: every run creates its files and folders."""
    if not isinstance(error, OSError) or error.errno != errno.ENOENT:
        return False
    return error.filename is not None and "://" not in str(error.filename)


def _verdict(error: BaseException) -> bool | None:
    """Return whether one error, without its cause, is temporary; None if unknown."""
    text = error_text(error)
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
