"""Settings of database sessions: read only, with timeouts, in one snapshot. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shared.spark.jdbc_drivers import driver_of

_POSTGRESQL = {
    "readOnly": "true",
    # Also outside of transactions that the driver begins.
    "readOnlyMode": "always",
    "ApplicationName": "tap-spark",
    "connectTimeout": "10",
    "loginTimeout": "30",
    "tcpKeepAlive": "true",
}
_MYSQL = {
    "connectTimeout": "10000",
    "tcpKeepAlive": "true",
    "sessionVariables": "transaction_read_only=1",
    # Else the driver keeps the whole result in memory.
    "useCursorFetch": "true",
    # Else a query's tinyint(1) is a boolean, and a year a date.
    "tinyInt1isBit": "false",
    "yearIsDateType": "false",
}
_MARIADB = {
    "connectTimeout": "10000",
    "tcpKeepAlive": "true",
    # Spark does not know MariaDB, and quotes with `"` for every unknown database.
    "sessionVariables": "tx_read_only=1,sql_mode='ANSI_QUOTES'",
    "tinyInt1isBit": "false",
    "yearIsDateType": "false",
}
PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "jdbc:postgresql:": _POSTGRESQL,
    "jdbc:mysql:": _MYSQL,
    "jdbc:mariadb:": _MARIADB,
    "jdbc:sqlserver:": {
        "loginTimeout": "30",
        "applicationIntent": "ReadOnly",
        "applicationName": "tap-spark",
    },
    "jdbc:oracle:": {"oracle.net.CONNECT_TIMEOUT": "10000", "oracle.net.keepAlive": "true"},
    "jdbc:sqlite:": {},
    "jdbc:duckdb:": {"duckdb.read_only": "true"},
}
"""Default properties of each driver, by prefix of the URL; the user's own win."""
_IN_MEMORY = ("jdbc:duckdb:", "jdbc:duckdb::memory:")
NO_IDLE_TIMEOUT = "SET LOCAL idle_in_transaction_session_timeout = 0"
"""A session that waits for Spark to write rows already read is not idle."""
TEXT_FORMATS = ("SET TIME ZONE 'UTC'", "SET intervalstyle = 'iso_8601'")
"""How the server formats values that are read as text."""
REPEATABLE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


def session_properties(url: str) -> dict[str, str]:
    """Return the default properties of sessions, without those that `url` sets.

    Args:
        url: JDBC URL.
    """
    text = url.strip()
    if text.lower() in _IN_MEMORY:
        return {}
    found = next((p for start, p in PROPERTIES.items() if text.lower().startswith(start)), {})
    return {name: value for name, value in found.items() if f"{name}=" not in text}


def init_statement(url: str, snapshot: str | None = None) -> str | None:
    """Return the statement that begins a session that reads.

    Args:
        url: JDBC URL.
        snapshot: Name of the snapshot for the session, if any.

    Returns:
        None if a session needs none.
    """
    driver = driver_of(url)
    database = driver.database if driver else ""
    if database == "postgresql":
        begin = REPEATABLE if snapshot else "SET TRANSACTION READ ONLY"
        # The server makes snapshots' names of digits and dashes; quoted all the same.
        name = (snapshot or "").replace("'", "''")
        seen = (f"SET TRANSACTION SNAPSHOT '{name}'",) if snapshot else ()
        return "; ".join((begin, *seen, NO_IDLE_TIMEOUT, *TEXT_FORMATS))
    return "PRAGMA query_only = 1" if database == "sqlite" else None
