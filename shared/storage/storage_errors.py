"""Turn failures of storages into OSErrors with a number, text and path that explain them.

Packages of object stores raise errors of their own, or OSErrors without a number. Callers need the
number: it separates temporary failures from permanent ones, and selects the hint.
"""

from __future__ import annotations

import errno
import os
import re

from shared.errors import causes

NO_SUCH_HOST = errno.ENXIO
"""Number of a host name that nobody has; EHOSTUNREACH if name servers do not answer."""

_CODES: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), number)
    for pattern, number in (
        (r"NoSuchBucket|NoSuchKey|404", errno.ENOENT),
        (
            r"AccessDenied|AllAccessDisabled|AccountProblem|Forbidden|401|403|SignatureDoesNotMatch"
            r"|InvalidAccessKeyId|XAdminUserNotFound|\w*Token\w*|InvalidSecurity|NotSignedUp"
            r"|RequestTimeTooSkewed|UnauthorizedAccess",
            errno.EACCES,
        ),
        (
            r"SlowDown|\w*Throttl\w*|TooManyRequests\w*|RequestLimitExceeded|ServiceUnavailable"
            r"|BandwidthLimitExceeded|OperationAborted|NoSuchUpload|409|429|503",
            errno.EBUSY,
        ),
        (r"InternalError|500|502|504", errno.EIO),
        (r"RequestTimeout", errno.ETIMEDOUT),
    )
)
"""Codes of S3's answers; any other is taken for one that lasts."""

_CREDENTIALS = re.compile(r"Credential|ProfileNotFound|InvalidConfigError|SSO|UnauthorizedError")
_NO_CONNECTION = re.compile(
    r"EndpointConnection|ClientConnector|ConnectionClosed|ConnectTimeout|ReadTimeout|ServerTimeout"
    r"|ServerDisconnected|ClientOSError|ClientPayloadError|IncompleteRead|HTTPClientError"
    r"|ResponseStreamingError|gaierror"
)
_BY_CLASS: tuple[tuple[type[OSError], int], ...] = (
    (FileNotFoundError, errno.ENOENT),
    (PermissionError, errno.EACCES),
    (TimeoutError, errno.ETIMEDOUT),
    (ConnectionRefusedError, errno.ECONNREFUSED),
    (ConnectionError, errno.ECONNRESET),
)
_CONNECT = "check the endpoint (`endpoint_url` or AWS_ENDPOINT_URL) and the network"
_HINTS = {
    errno.ENOENT: "check the bucket and the path; a bucket is never created",
    errno.EACCES: "check the credentials (`singer-spark docs s3`) and what they are allowed",
    errno.EPERM: "check the credentials (`singer-spark docs s3`) and what they are allowed",
    errno.EBUSY: "the storage asks for fewer requests; try again later",
    NO_SUCH_HOST: "check the host's name in the endpoint (`endpoint_url` or AWS_ENDPOINT_URL)",
    errno.EIO: "the storage has failed by itself; try again later",
    **dict.fromkeys(
        (errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH), _CONNECT
    ),
}
_ABOUT_ONE_FILE = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EINVAL})


def storage_error(error: BaseException, place: str, blot: str | None = None) -> OSError:
    """Return the failure of a remote storage as an OSError.

    Args:
        error: The exception of fsspec, or of a package below it.
        place: URL without secrets.
        blot: Its text without secrets, if that differs.

    Returns:
        An error with number, text and `place` if the number is known, so that it also has
        Python's class for the number; otherwise one with only a text.
    """
    if isinstance(error, OSError) and error.errno and error.filename == place:
        return error
    text = " ".join((str(error) if blot is None else blot).split())
    number, code = _number(error)
    if number is None:
        return OSError(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    plain = re.sub(r"^\[Errno -?\d+\] ", "", text)
    if isinstance(error, FileNotFoundError) and not code:
        plain = os.strerror(number)
    if number == errno.ECONNREFUSED:
        # In a failure of a job, those words mean that Spark itself has gone away.
        plain = plain.replace("Connection refused", "the connection was refused")
    if code and code not in plain:
        plain = f"{plain.rstrip('.')} ({code})"
    return OSError(number, plain or os.strerror(number), place)


def is_unknown_host(text: str) -> bool:
    """Return whether the system says of a host that its name does not exist."""
    return bool(
        re.search(r"Name or service not known|nodename nor servname|No address assoc", text)
    )


def storage_hint(number: int | None) -> str:
    """Return what a user can do about a failure of a remote storage."""
    return _HINTS.get(number or 0, "")


def is_trouble(error: BaseException) -> bool:
    """Return whether a failure concerns the storage as a whole, not only the requested file."""
    number = error.errno if isinstance(error, OSError) else None
    return number is not None and number not in _ABOUT_ONE_FILE


def _number(error: BaseException) -> tuple[int | None, str]:
    """Return the number of a failure, and the code that a server answered with."""
    chain = list(causes(error, suppressed=True))
    for cause in chain:
        code = _code(cause)
        if code:
            numbers = (number for pattern, number in _CODES if pattern.fullmatch(code))
            return next(numbers, errno.EINVAL), code
    names = [kind.__name__ for cause in chain for kind in type(cause).__mro__]
    if any(map(_CREDENTIALS.search, names)):
        return errno.EACCES, ""
    if any(map(_NO_CONNECTION.search, names)):
        return _connection_number(chain), ""
    for cause in chain:
        if isinstance(cause, OSError):
            by_class = (number for kind, number in _BY_CLASS if isinstance(cause, kind))
            return cause.errno or next(by_class, None), ""
    return None, ""


def _code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    answer = response.get("Error") if isinstance(response, dict) else None
    return str(answer.get("Code") or "") if isinstance(answer, dict) else ""


def _connection_number(chain: list[BaseException]) -> int:
    names = [type(cause).__name__ for cause in chain]
    if any("Timeout" in name for name in names):
        return errno.ETIMEDOUT
    if any(name in {"gaierror", "ClientConnectorDNSError"} for name in names):
        is_unknown = any(map(is_unknown_host, map(str, chain)))
        return NO_SUCH_HOST if is_unknown else errno.EHOSTUNREACH
    refused = any(getattr(cause, "errno", None) == errno.ECONNREFUSED for cause in chain)
    return errno.ECONNREFUSED if refused else errno.ECONNRESET
