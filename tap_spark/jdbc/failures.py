"""What a database or its driver failed with, as one clear error; and trying again what may pass."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from shared.errors import SingerSparkError, SourceError, Where
from shared.retries import Pauses, repeated
from shared.spark_session import sql_state
from tap_spark.jdbc.urls import secrets_of

if TYPE_CHECKING:
    from tap_spark.connection_config import ConnectionConfig

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


class PassingSourceError(SourceError):
    """A database failed for a reason that may pass: reading again may help."""

    retryable = True


@dataclass(frozen=True)
class Failure:
    """What a class of SQLSTATEs means.

    Attributes:
        states: How they begin.
        signs: Texts that tell it where no SQLSTATE is known.
        hint: What the user can do.
        passes: Trying again may help.
    """

    states: tuple[str, ...]
    signs: tuple[str, ...] = ()
    hint: str = ""
    passes: bool = False


FAILURES: Sequence[Failure] = (
    Failure(
        ("28",),
        ("password authentication failed", "Access denied for user", "Login failed", "ORA-01017"),
        "check 'user' and 'password' of the connection",
    ),
    Failure(("3D",), ('database "',), "check the database's name in the connection's 'url'"),
    Failure(
        ("42501",),
        ("permission denied", "command denied", "ORA-01031"),
        "grant SELECT (and USAGE of the schema) to the connection's 'user'",
    ),
    Failure(
        ("42P01", "42S02", "42703", "42S22", "3F000"),
        ('relation "', 'column "', "no such table", "no such column", "ORA-00942", "ORA-00904"),
        REDISCOVER,
    ),
    Failure(("42883", "42804", "22P02"), (), REDISCOVER),
    Failure(
        ("25006",), ("read-only transaction",), "a stream only reads: its query must not write"
    ),
    Failure(
        ("22023",),
        ("invalid snapshot identifier",),
        "the connection that held the snapshot was cut",
        passes=True,
    ),
    Failure(
        ("57014",), (), "the database ended the query; raise its statement timeout, or read less"
    ),
    Failure(
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
        passes=True,
    ),
)


def database_error(
    error: BaseException, where: Where, secrets: Sequence[str] = ()
) -> SourceError | None:
    """Explain what Spark raised where a database or its driver is behind it.

    Args:
        error: What Spark or Py4J raised.
        where: What was read.
        secrets: Not to be shown, whatever the driver says.

    Returns:
        None where no database is behind it; a PassingSourceError where trying again may help.
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
    kind = PassingSourceError if failure.passes else SourceError
    code = f" [{state}]" if state else ""
    return kind(
        f"the database says: {shown(message, secrets)}{code}", where=where, hint=failure.hint
    )


def run(
    action: Callable[[], T],
    connection: ConnectionConfig,
    where: Where | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Do something with a database, again after failures that may pass, `retries` times at most.

    Args:
        action: What to do; may raise anything.
        connection: The database.
        where: What is read; the connection where it is left out.
        sleep: Waits for so many seconds.

    Raises:
        SourceError: It failed for good.
    """
    where = where or Where(setting=f"connections['{connection.name}']")

    def explained(error: Exception) -> SourceError | None:
        if isinstance(error, SingerSparkError):
            return None
        return database_error(error, where, secrets_of(connection))

    def may_pass(error: Exception) -> bool:
        found = explained(error)
        return found is not None and found.retryable

    def tell(error: Exception, seconds: float, left: int) -> None:
        found = explained(error)
        _log.warning("%s; trying again in %g s, %d more after that", found, seconds, left)

    try:
        return repeated(
            lambda _: action(),
            may_pass,
            attempts=connection.retries + 1,
            pauses=Pauses(LONGEST_WAIT, first=FIRST_WAIT, least=1.0),
            tell=tell,
            sleep=sleep,
        )
    except Exception as error:
        found = explained(error)
        if found is None:
            raise
        raise _final(found, connection.retries) from error


def _final(found: SourceError, retries: int) -> SourceError:
    """The error once nothing more is tried: whoever reads the stream must not begin again."""
    if not found.retryable:
        return found
    times = f" (tried {retries + 1} times)" if retries else ""
    return SourceError(found.message + times, where=found.where, hint=found.hint)


def shown(message: str, secrets: Sequence[str] = ()) -> str:
    """A driver's message on one line, without secrets."""
    for secret in secrets:
        message = message.replace(secret, "***")
    text = " ".join(message.split())
    text = _SECRET.sub(r"\1***", text)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _failure(state: str | None, message: str) -> Failure:
    if state is not None:
        fits = [f for f in FAILURES if any(state.startswith(start) for start in f.states)]
    else:
        fits = [f for f in FAILURES if any(sign in message for sign in f.signs)]
    return fits[0] if fits else Failure(())


def _without_driver(text: str, where: Where) -> SourceError | None:
    found = _NO_DRIVER.search(text)
    if found is None or ("java.sql" not in text and "jdbc" not in text.lower()):
        return None
    what = (
        f"its driver {found.group(1)} is not there" if found.group(1) else "no driver takes its url"
    )
    return SourceError(
        f"the database cannot be reached: {what}",
        where=where,
        hint="set 'package' or 'driver' of the connection, or 'spark.jars'",
    )
