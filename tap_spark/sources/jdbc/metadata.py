"""Sessions of a database, and its metadata, by queries through Spark's reader.

Sessions are read only, with timeouts, in one snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from shared.errors import SettingsError, SourceError, Where
from shared.spark.packages import driver_of
from tap_spark.sources.jdbc.dialects.dialect import QueryRunner, database_name, dialect_for
from tap_spark.sources.source_failures import REDISCOVER, with_retries
from tap_spark.stream_config import ConnectionConfig, decodings, property_problems

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tap_spark.sources.jdbc.dialects.dialect import TableInfo


_POSTGRESQL = {
    "readOnly": "true",
    # Also outside of transactions that the driver begins.
    "readOnlyMode": "always",
    "ApplicationName": "tap-spark",
    "connectTimeout": "10",
    "loginTimeout": "30",
    "tcpKeepAlive": "true",
}
_VARIABLES = "sessionVariables"
# A server may limit the rows of all queries.
_ALL_ROWS = "sql_select_limit=18446744073709551615,sql_big_selects=1"
_MYSQL = {
    "connectTimeout": "10000",
    "tcpKeepAlive": "true",
    _VARIABLES: f"transaction_read_only=1,{_ALL_ROWS}",
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
    _VARIABLES: f"tx_read_only=1,sql_mode='ANSI_QUOTES',{_ALL_ROWS}",
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
    # To read and write: a mistyped path fails instead of making an empty database.
    "jdbc:sqlite:": {"open_mode": "2"},
    "jdbc:duckdb:": {"duckdb.read_only": "true"},
}
"""Default properties of each driver, by prefix of the URL; the user's own win, or are joined."""
_VARIABLES_IN_URL = re.compile(
    rf"(?<=[?&]){_VARIABLES}=([^&]*)&|[?&]{_VARIABLES}=([^&]*)$", re.IGNORECASE
)
_VARIABLE = re.compile(r"(\w+)=('[^']*'|\w+)")
_READ_ONLY = re.compile(r"\b(tx|transaction)_read_only\s*=\s*1\b,?", re.IGNORECASE)
_SET = r"\b{}\b\s*=\s*('[^']*'|\w+)"
_IN_MEMORY = ("jdbc:duckdb:", "jdbc:duckdb::memory:")
NO_IDLE_TIMEOUT = "SET LOCAL idle_in_transaction_session_timeout = 0"
"""A session that waits for Spark to write rows already read is not idle."""
TEXT_FORMATS = (
    "SET TIME ZONE 'UTC'",
    "SET intervalstyle = 'iso_8601'",
    "SET datestyle = 'ISO'",
    "SET extra_float_digits = 3",
    "SET bytea_output = 'hex'",
)
"""How the server formats values that are read as text: JDBC reads floats so, with all digits."""
REPEATABLE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


def session_properties(url: str) -> dict[str, str]:
    """Return the default properties of sessions, without those that the JDBC URL sets."""
    text = url.strip()
    if text.lower() in _IN_MEMORY:
        return {}
    return {name: value for name, value in _defaults(text).items() if f"{name}=" not in text}


def _defaults(url: str) -> Mapping[str, str]:
    """Return the default properties of the driver of a JDBC URL."""
    return next((p for start, p in PROPERTIES.items() if url.lower().startswith(start)), {})


def begin_statements(snapshot: str | None) -> tuple[str, ...]:
    """Return the statements that begin a session of PostgreSQL that reads, by a snapshot's name."""
    begin = REPEATABLE if snapshot else "SET TRANSACTION READ ONLY"
    # The server makes snapshots' names of digits and dashes; quoted all the same.
    name = (snapshot or "").replace("'", "''")
    seen = (f"SET TRANSACTION SNAPSHOT '{name}'",) if snapshot else ()
    return (begin, *seen, NO_IDLE_TIMEOUT, *TEXT_FORMATS)


def init_statement(url: str, snapshot: str | None = None) -> str | None:
    """Do what `begin_statements` does, for any JDBC URL; return None if a session needs none."""
    database = database_name(url)
    if database == "postgresql":
        return "; ".join(begin_statements(snapshot))
    return "PRAGMA query_only = 1" if database == "sqlite" else None


def reader_options(connection: ConnectionConfig) -> dict[str, str]:
    """Return the options with which Spark's reader connects to a database that has a URL.

    Raises:
        SettingsError: The URL or a property could load classes, read files or the like, and
            `allow_properties` does not name it.
    """
    where = f"connections['{connection.name}']"
    options: Mapping[str, Any] = {
        "url": connection.url,
        "properties": connection.properties,
        "allow_properties": connection.allow_properties,
    }
    for at, text in property_problems(options):
        setting = where + "".join(f"['{part}']" for part in at)
        raise SettingsError(text, where=Where(setting=setting))
    url, properties = _joined_variables(connection)
    driver = connection.driver or getattr(driver_of(url), "class_name", None)
    own = {name.lower() for name in properties}
    defaults = {k: v for k, v in session_properties(url).items() if k.lower() not in own}
    fixed = {
        "url": url,
        "driver": driver,
        "user": connection.user,
        "password": connection.password,
        "fetchsize": str(connection.fetch_size),
        "preferTimestampNTZ": "true",
    }
    set_values = {name: value for name, value in fixed.items() if value is not None}
    return {**defaults, **properties, **set_values}


def _joined_variables(connection: ConnectionConfig) -> tuple[str, Mapping[str, str]]:
    """Return URL and properties with the variables of sessions in one property, ours last.

    Raises:
        SettingsError: One of ours is set, or some are set where they cannot be joined.
    """
    url, properties = str(connection.url).strip(), connection.properties
    ours, name = _defaults(url).get(_VARIABLES), _VARIABLES.lower()
    if ours is None:
        return url, properties
    values = [("['url']", unquote("".join(value))) for value in _VARIABLES_IN_URL.findall(url)]
    values += [(f"['properties']['{n}']", v) for n, v in properties.items() if n.lower() == name]
    where = f"connections['{connection.name}']"
    for at, value in values:
        for taken, own in _VARIABLE.findall(ours):
            if any(text != own for text in re.findall(_SET.format(taken), value, re.IGNORECASE)):
                raise SettingsError(
                    f"'{_VARIABLES}' sets '{taken}', which tap-spark sets itself",
                    where=Where(setting=where + at),
                    hint="remove it there",
                )
    if any(_READ_ONLY.search(value) for _, value in values):  # By the name that the server knows.
        ours = _READ_ONLY.sub("", ours)
    url = _VARIABLES_IN_URL.sub("", url)
    if any(name in text.lower() for text in decodings(url)):
        raise SettingsError(
            f"'{_VARIABLES}' must be in 'properties' here", where=Where(setting=f"{where}['url']")
        )
    others = {n: v for n, v in properties.items() if n.lower() != name}
    joined = ",".join(filter(None, [*(value.strip(" ,;") for _, value in values), ours]))
    return url, {**others, _VARIABLES: joined}


T = TypeVar("T")


class JdbcQueryRunner:
    """Runs queries through Spark's JDBC reader; retries temporary failures.

    Args:
        where: The place that errors name; by default the connection.
        options: Options of the reader, if not those of the connection alone.

    Raises:
        SettingsError: The URL or a property is rejected.
    """

    def __init__(
        self,
        spark: SparkSession,
        connection: ConnectionConfig,
        where: Where | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._where = where
        self._options = reader_options(connection) if options is None else options

    def __call__(self, query: str, texts: Sequence[str] = ()) -> list[dict[str, Any]]:
        """See `QueryRunner`.

        Raises:
            SourceError: The database cannot be reached, or rejects the query.
        """
        rows = self._run(lambda: self._frame(query, texts).collect())
        return [{name.lower(): value for name, value in row.asDict().items()} for row in rows]

    def struct(self, query: str) -> StructType:
        """See `QueryRunner`.

        Raises:
            SourceError: The database cannot be reached, or rejects the query.
        """
        return self._run(lambda: self._frame(query).schema)

    def _frame(self, query: str, texts: Sequence[str] = ()) -> DataFrame:
        reader = self._spark.read.format("jdbc").options(**self._options)
        if texts:
            types = ", ".join(f"`{name}` string" for name in texts)
            reader = reader.option("customSchema", types)
        return reader.option("query", query.strip()).load()

    def _run(self, action: Callable[[], T]) -> T:
        return with_retries(action, self._connection, self._where)


def described_table(
    run_query: QueryRunner, connection: ConnectionConfig, parts: tuple[str, ...], where: Where
) -> TableInfo:
    """Describe one table as it is now.

    Args:
        parts: Schema and name, or the name alone.

    Raises:
        SourceError: The table does not exist, or the database cannot be reached.
    """
    *schemas, name = parts
    schema = schemas[-1] if schemas else None
    tables = dialect_for(str(connection.url)).tables(run_query, (schema, name))
    if not tables:
        shown = ".".join(parts)
        raise SourceError(f"table or view {shown!r} does not exist", where=where, hint=REDISCOVER)
    return tables[0]
