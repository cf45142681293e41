"""Failures of a database or its driver: one clear error each, and retries of temporary ones."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shared.errors import DestinationError, SingerSparkError, SourceError, Where
from shared.retries import Pauses, repeated
from shared.spark.session import sql_state
from tap_spark.connection_config import ConnectionConfig, secrets_of

T = TypeVar("T")
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
SHOWN = 300
REDISCOVER = "it may have changed since discovery: run --discover again"
_log = logging.getLogger("tap-spark")

_THROWN = re.compile(
    r"[\w.$]*(?:SQL\w*Exception|\bjdbc\w*\.[\w.$]*(?:Exception|Error))\)?:? +([^\n]+)"
)
_EMBEDDED = re.compile(r"\.\s((?:ERROR|FATAL): [^\n]+)")
_NETWORK = re.compile(r"java\.net\.(\w+)(?:Exception)?: ([^\n]+)")
_NO_DRIVER = re.compile(r"ClassNotFoundException: ([\w.$]+)|No suitable driver")
_SECRET = re.compile(r"((?:password|passwd|pwd|secret|token)\w*\s*=\s*)[^&;\s,)]*", re.IGNORECASE)


class TransientSourceError(SourceError):
    """A database failed for a temporary reason: the run reads it again."""

    exit_code, retryable = DestinationError.exit_code, DestinationError.retryable


@dataclass(frozen=True)
class FailureRule:
    """What a class of SQLSTATEs means.

    Attributes:
        states: Prefixes of the SQLSTATEs; without any, its signs decide.
        signs: Texts that identify the failure if its SQLSTATE is unknown.
        hint: What the user can do.
        transient: A retry may help.
    """

    states: tuple[str, ...]
    signs: tuple[str, ...] = ()
    hint: str = ""
    transient: bool = False


FAILURE_RULES: Sequence[FailureRule] = (
    FailureRule(
        (),
        ("No value specified for parameter", "invalid value for parameter", "step size cannot"),
        "correct the stream's 'query'",
    ),
    FailureRule((), (" of the query to text",), "or to numeric with a precision"),
    FailureRule((), (": cast it to text in a query",), "or deselect the column"),
    FailureRule(
        ("28",),
        ("password authentication failed", "Access denied for user", "Login failed", "ORA-01017"),
        "check 'user' and 'password' of the connection",
    ),
    FailureRule(("3D",), ('database "',), "check the database's name in the connection's 'url'"),
    FailureRule(
        ("42501",),
        ("permission denied", "command denied", "ORA-01031"),
        "grant SELECT (and USAGE of the schema) to the connection's 'user'",
    ),
    FailureRule(
        ("42P01", "42S02", "42703", "42S22", "3F000"),
        ('relation "', 'column "', "no such table", "no such column", "ORA-00942", "ORA-00904"),
        REDISCOVER,
    ),
    FailureRule(("42883", "42804", "22P02"), (), REDISCOVER),
    FailureRule(("25006",), ("read-only transaction",), "a stream's query must not write"),
    FailureRule(
        ("22023",),
        ("invalid snapshot identifier",),
        "the connection that held the snapshot was closed",
        transient=True,
    ),
    FailureRule(
        ("57014",),
        (),
        "the database cancelled the query; raise its statement timeout, or read less",
    ),
    FailureRule(
        ("08", "57P", "40", "53", "55P03", "25P03", "HYT0"),
        (
            "terminating connection",
            "refused",
            "The connection attempt failed",
            "I/O error",
            "Communications link failure",
            "timed out",
            "too many c",
            "deadlock",
        ),
        "check host, port, network and the database's limits",
        transient=True,
    ),
)


def database_error(
    error: BaseException, where: Where, secrets: Sequence[str] = ()
) -> SourceError | None:
    """Explain what Spark raised, if a database or its driver is the cause.

    Args:
        error: What Spark or Py4J raised.
        where: The stream or connection that was read.
        secrets: Texts that the error must not show.

    Returns:
        None if a database is not the cause; a TransientSourceError if a retry may help.
    """
    text = str(error)
    state = sql_state(error)
    thrown = _THROWN.findall(text)
    if state is None and not thrown:
        return _without_driver(text, where)
    embedded = _EMBEDDED.findall(text)
    message = (thrown or embedded or text.strip().splitlines() or [type(error).__name__])[-1]
    network = _NETWORK.findall(text)
    if network and network[-1][1] not in message:
        message = ": ".join((message, *network[-1]))
    failure = _failure(state, message)
    kind = TransientSourceError if failure.transient else SourceError
    code = f" [{state}]" if state else ""
    return kind(
        f"the database says: {one_line(message, secrets)}{code}", where=where, hint=failure.hint
    )


def with_retries(
    action: Callable[[], T],
    connection: ConnectionConfig,
    where: Where | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Work with a database; retry temporary failures, at most `retries` times.

    Args:
        action: What to do; may raise anything.
        connection: The database.
        where: The stream that is read; by default the connection.
        sleep: Waits for so many seconds.

    Raises:
        SourceError: It failed, and retries did not help or cannot.
    """
    where = where or Where(setting=f"connections['{connection.name}']")

    def explained(error: Exception) -> SourceError | None:
        if isinstance(error, SingerSparkError):
            return None
        return database_error(error, where, secrets_of(connection))

    def may_pass(error: Exception) -> bool:
        return isinstance(explained(error), TransientSourceError)

    def report(error: Exception, seconds: float, left: int) -> None:
        found = explained(error)
        _log.warning("%s; retrying in %g s (%d retries left after that)", found, seconds, left)

    try:
        return repeated(
            lambda _: action(),
            may_pass,
            attempts=connection.retries + 1,
            pauses=Pauses(LONGEST_WAIT, first=FIRST_WAIT, least=1.0),
            report=report,
            sleep=sleep,
        )
    except Exception as error:
        found = explained(error)
        if found is None:
            raise
        raise _final(found, connection.retries) from error


def _final(found: SourceError, retries: int) -> SourceError:
    """Make an error final, so that the stream is not read again."""
    if not isinstance(found, TransientSourceError):
        return found
    times = f" (tried {retries + 1} times)" if retries else ""
    return SourceError(found.message + times, where=found.where, hint=found.hint, passes=True)


def one_line(message: str, secrets: Sequence[str] = ()) -> str:
    """Return a driver's message on one line, without secrets."""
    for secret in secrets:
        message = message.replace(secret, "***")
    text = " ".join(message.split())
    text = _SECRET.sub(r"\1***", text)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _failure(state: str | None, message: str) -> FailureRule:
    if state is not None:
        fits = [
            rule
            for rule in FAILURE_RULES
            if any(state.startswith(start) for start in rule.states)
            or (not rule.states and any(sign in message for sign in rule.signs))
        ]
    else:
        fits = [f for f in FAILURE_RULES if any(sign in message for sign in f.signs)]
    return fits[0] if fits else FailureRule(())


def _without_driver(text: str, where: Where) -> SourceError | None:
    found = _NO_DRIVER.search(text)
    if found is None or ("java.sql" not in text and "jdbc" not in text.lower()):
        return None
    what = (
        f"driver {found.group(1)} is not installed"
        if found.group(1)
        else "no JDBC driver accepts its url"
    )
    return SourceError(
        f"cannot connect to the database: {what}",
        where=where,
        hint="set 'package' or 'driver' of the connection, or 'spark.jars'",
    )
