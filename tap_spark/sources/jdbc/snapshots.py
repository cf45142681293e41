"""One snapshot of a database for all parts of a table, while others write to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import SourceError, Where
from shared.spark.jdbc_drivers import driver_of
from shared.spark.session import HeldConnection, hold_connection, sql_state
from tap_spark.sources.jdbc.jdbc_urls import reader_options
from tap_spark.sources.jdbc.metadata import query_runner
from tap_spark.sources.jdbc.read_sessions import NO_IDLE_TIMEOUT, REPEATABLE
from tap_spark.sources.jdbc_failures import with_retries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.connection_config import ConnectionConfig

EXPORT = "SELECT pg_catalog.pg_export_snapshot()"
SCN = "SELECT DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER AS scn FROM DUAL"
# SQLSTATEs of servers that speak PostgreSQL's protocol but cannot export a snapshot.
_UNKNOWN = ("42883", "0A000", "42601", "25006")
_OF_SPARK = ("url", "driver", "fetchsize", "prefertimestampntz")
_log = logging.getLogger("tap-spark")


@dataclass(frozen=True)
class DatabaseSnapshot:
    """A snapshot that several sessions can read.

    Attributes:
        name: Name for `SET TRANSACTION SNAPSHOT`; None without one.
        as_of: SQL after the table's name in a query.
    """

    name: str | None = None
    as_of: str = ""


@contextmanager
def snapshot_of(
    spark: SparkSession, connection: ConnectionConfig, where: Where
) -> Iterator[DatabaseSnapshot | None]:
    """Hold a snapshot of a database while the block runs.

    Args:
        spark: The session.
        connection: The database.
        where: The place that errors name.

    Yields:
        The snapshot; None if the database has none to share, or the settings turn it off.

    Raises:
        SourceError: The database cannot be reached.
    """
    driver = driver_of(str(connection.url))
    database = driver.database if driver else ""
    if not connection.snapshot or database not in ("postgresql", "oracle"):
        yield None
    elif database == "oracle":
        yield _scn(spark, connection, where)
    else:
        held = with_retries(lambda: _held(spark, connection, where), connection, where)
        try:
            yield None if held is None else held.snapshot
        finally:
            if held is not None:
                held.connection.close()


@dataclass(frozen=True)
class _HeldSnapshot:
    connection: HeldConnection
    snapshot: DatabaseSnapshot


def _held(spark: SparkSession, connection: ConnectionConfig, where: Where) -> _HeldSnapshot | None:
    options = reader_options(connection)
    held = hold_connection(spark, options["url"], options["driver"], _properties(options))
    if held is None:
        _log.warning(
            "%s: reading in one part, as Spark Connect cannot hold a snapshot; to read in several, "
            "set 'snapshot' of the connection to false",
            where,
        )
        return None
    try:
        held.run(REPEATABLE)
        held.run(NO_IDLE_TIMEOUT)
        return _HeldSnapshot(held, DatabaseSnapshot(name=held.run(EXPORT)))
    except Exception as error:
        held.close()
        if sql_state(error) not in _UNKNOWN:
            raise
        _log.warning("%s: reading in one part, as the database cannot share a snapshot", where)
        return None


def _properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return those of the reader's options that are the driver's."""
    return {name: value for name, value in options.items() if name.lower() not in _OF_SPARK}


def _scn(
    spark: SparkSession, connection: ConnectionConfig, where: Where
) -> DatabaseSnapshot | None:
    try:
        number = int(query_runner(spark, connection, where)(SCN)[0]["scn"])
    except SourceError as error:
        _log.warning("%s; reading in one part (grant EXECUTE on DBMS_FLASHBACK)", error)
        return None
    return DatabaseSnapshot(as_of=f" AS OF SCN {number}")
