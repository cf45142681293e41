"""Databases that can be loaded into, one module per kind, and their failures as one clear error.

A `Database` has the SQL of one server; the order of work and the transactions are in
`target_spark.destinations.databases.database_destination`, for all of them. A failure shows
whether a retry may help.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shared.errors import DestinationError, SingerSparkError, Where, causes
from target_spark.destinations.databases.database_tables import (
    Connection,
    Cursor,
    DatabaseAddress,
    FoundTable,
    TablePlace,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark.destinations.databases.staged_columns import StagingTable
    from target_spark.destinations.databases.statements import LoadSql
    from target_spark.tables.table_changes import Capabilities, NameRules


@dataclass(frozen=True)
class Failure:
    """The meaning of a driver's error.

    Attributes:
        message: Message of the server or the driver, in one line.
        code: The number or SQLSTATE, or nothing.
        number: An errno, which shows whether a retry may help; 0 for a permanent failure.
        hint: What the user can do.
        refusal: What the server refuses a row for, without its values; empty for other failures.
        is_of_value: Whether it refuses the row for the value of one column.
        column: That column, if the server names it.
    """

    message: str
    code: str = ""
    number: int = 0
    hint: str = ""
    refusal: str = ""
    is_of_value: bool = False
    column: str = ""


class Database(Protocol):
    """A kind of database. It raises errors of its driver; `failure` explains them."""

    rules: NameRules
    can: Capabilities
    sql: LoadSql
    keeps_notes: bool
    """Whether it can prove that the rows of a flush are still in the table, unchanged."""
    null_keys: bool
    """Whether keys can be unique with null values; known once connected."""

    def connect(self, place: DatabaseAddress) -> Connection:
        """Begin a session in UTC, without autocommit.

        Raises:
            SettingsError: The driver's package is not installed.
        """

    def stage(
        self, connection: Connection, stage: StagingTable, tables: Iterator[pa.Table]
    ) -> tuple[int, int]:
        """Create a staging table with all rows, without a commit; return rows and bytes."""

    def describe(self, cursor: Cursor, table: TablePlace) -> FoundTable | None:
        """Return the existing table; None if there is none.

        Raises:
            SettingsError: Something else has its name, or it cannot be loaded into.
        """

    def failure(self, error: BaseException) -> Failure | None:
        """Return the meaning of a driver's error; None for any other error."""


def is_alive(database: Database, connection: Connection) -> bool:
    """Return whether a session that has waited still answers; close one that does not."""
    try:
        connection.cursor().execute("SELECT 1")
        connection.commit()
    except Exception as error:
        with suppress(Exception):
            connection.close()
        if database.failure(error) is None:
            raise
        return False
    return True


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
    """Convert the driver's errors in the block to a DestinationError of one line without secrets.

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
        text = " ".join(place.without_secrets(failure.message).split())
        for pattern, word in _WORDS:
            text = pattern.sub(word, text)
        text = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
        code = f" [{failure.code}]" if failure.code else ""
        raise DestinationError(
            f"{place}: {text}{code}", where=where, hint=failure.hint
        ) from OSError(failure.number or errno.EINVAL, f"{place} has failed")


def errno_of(error: BaseException) -> int:
    """Return the number of the failure behind an error; 0 for none."""
    results = (cause.errno or 0 for cause in causes(error) if isinstance(cause, OSError))
    return next(results, 0)
