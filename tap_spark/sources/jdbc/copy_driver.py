"""Tables of PostgreSQL by COPY, without Spark: whether the driver may, metadata, parts, rows."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, unquote

from pyspark.sql.types import StructField, StructType

from shared.engine.engine import SERVER_ROWS, Engine, Work
from shared.errors import Where
from shared.formats.arrow_types import struct_to_arrow
from shared.spark.conf import is_one_process
from tap_spark.sources.driver_rows import driver_rows, is_read_by_threads
from tap_spark.sources.jdbc.copy_reader import (
    BATCH_BYTES,
    FILE_BATCH_BYTES,
    CopyError,
    CopyLogin,
    CopySession,
    read_batches,
)
from tap_spark.sources.jdbc.dialects.dialect import database_name
from tap_spark.sources.jdbc.jdbc_query import EXPORT, DatabaseSnapshot, cannot_export, struct_of
from tap_spark.sources.jdbc.metadata import (
    NO_IDLE_TIMEOUT,
    REPEATABLE,
    TEXT_FORMATS,
    begin_statements,
    reader_options,
)
from tap_spark.sources.jdbc.part_plan import (
    key_type_of,
    page_conditions,
    part_count,
    plan_parts,
    table_statistics,
)
from tap_spark.sources.source_failures import with_retries
from tap_spark.state.stream_plans import MOST_THREADS, DriverRows, RowForm, StreamPlan
from tap_spark.stream_config import ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tap_spark.sources.jdbc.dialects.dialect import QueryRunner, TableInfo
    from tap_spark.sources.jdbc.jdbc_query import JdbcQuery

_log = logging.getLogger("tap-spark")


MODULE = "adbc_driver_postgresql"
_URL = re.compile(
    r"jdbc:postgresql://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^/?#@,:\s]+)(?::(?P<port>\d{1,5}))?"
    r"/(?P<name>[^?#/]+)(?:\?(?P<query>.*))?",
    re.IGNORECASE,
)
_PARAMETERS = {
    "applicationname": "application_name",
    "connecttimeout": "connect_timeout",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
}
"""Properties of the JDBC driver that libpq has too, by name in lower case."""
_TUNING = ("binarytransfer", "defaultrowfetchsize", "preparethreshold", "tcpkeepalive")
"""Properties that mean nothing to COPY."""
_DEFAULTS = {"application_name": "tap-spark", "connect_timeout": "10"}
_PORT = 5432
_LEAST_TIMEOUT = 2
_OF_JDBC = ("sessionInitStatement", "customSchema", "hint", "queryTimeout", "partitionColumn")
"""Options of a stream that only Spark's reader has."""
_OTHER_SERVERS = re.compile(r"Redshift|Cockroach|-YB-|Greenplum|Materialize|RisingWave|QuestDB")
_USER_FAILED = ("08", "28", "3D", "53", "57")
_UNSUPPORTED = ("GSSAPI", "SSPI", "authentication method", "SASL")
_PROBE = "SELECT pg_catalog.version() AS version"


class LeftToJdbc(Exception):  # noqa: N818 - not a failure
    """A database or stream must be read by JDBC; the text says why."""


class CopyRule:
    """Chooses between COPY and JDBC, and asks each server once.

    Attributes:
        probed: Why a server is left to JDBC, by login; empty for COPY.
    """

    def __init__(self) -> None:
        self.probed: dict[CopyLogin, str] = {}
        self._executors: dict[int, bool] = {}
        self._logged: set[tuple[str, str]] = set()

    def login(
        self,
        connection: ConnectionConfig,
        where: Where | None = None,
        options: Iterable[str] = (),
        spark: SparkSession | None = None,
    ) -> CopyLogin | None:
        """Return how to connect; None if JDBC reads, which the log says once.

        Args:
            spark: The session whose executors read; None for this process.

        Raises:
            SettingsError: The URL or a property is rejected.
            SourceError: The database cannot be reached.
        """
        if database_name(str(connection.url)) != "postgresql":
            return None
        reader_options(connection)
        try:
            login = _login(connection, options)
            self._check_executors(spark)
            problem = self.probed.get(login)
            if problem is None:
                problem = with_retries(lambda: _problem(login), connection, where)
                self.probed[login] = problem
            if problem:
                raise LeftToJdbc(problem)
        except LeftToJdbc as reason:
            choice = (connection.name, str(reason))
            if choice not in self._logged:
                self._logged.add(choice)
                _log.info("connections['%s']: read by JDBC, not by COPY: %s", *choice)
            return None
        return login

    def _check_executors(self, spark: SparkSession | None) -> None:
        if spark is None:
            return
        from pyspark.sql import SparkSession  # noqa: PLC0415

        if not isinstance(spark, SparkSession):
            raise LeftToJdbc("Spark Connect")
        if id(spark) not in self._executors:
            self._executors[id(spark)] = _executors_can(spark)
        if not self._executors[id(spark)]:
            raise LeftToJdbc(f"executors lack the package {MODULE.replace('_', '-')}")


RULE = CopyRule()
"""That of this process."""


def why_spark(stream: StreamConfig) -> str:
    """Return why only Spark can read a stream, as far as its settings tell; else an empty text."""
    connection = stream.database
    if connection is None:
        return f"format {stream.format}"
    if stream.query is not None:
        return "a query of a database"
    if connection.count_rows:
        return "'count_rows' of a connection"
    return why_jdbc(connection, stream.options)


def why_jdbc(connection: ConnectionConfig, options: Iterable[str] = ()) -> str:
    """Return why JDBC reads a database, as far as the settings tell; else an empty text."""
    if database_name(str(connection.url)) != "postgresql":
        return "JDBC: no PostgreSQL"
    try:
        _login(connection, options)
    except LeftToJdbc as reason:
        return f"JDBC: {reason}"
    return ""


def _login(connection: ConnectionConfig, options: Iterable[str]) -> CopyLogin:
    if find_spec(MODULE) is None:
        raise LeftToJdbc("pip install 'singer-spark[postgresql]'")
    of_jdbc = {name.lower(): name for name in _OF_JDBC}
    for name in options:
        if name.lower() in of_jdbc:
            raise LeftToJdbc(f"option '{of_jdbc[name.lower()]}'")
    return copy_login(connection)


def copy_login(connection: ConnectionConfig) -> CopyLogin:
    """Return how libpq connects as the JDBC driver would.

    Raises:
        LeftToJdbc: libpq cannot, or may do it in another way.
    """
    if connection.driver is not None and connection.driver != "org.postgresql.Driver":
        raise LeftToJdbc(f"driver {connection.driver}")
    parts = _URL.fullmatch(str(connection.url).strip())
    if parts is None:
        raise LeftToJdbc("the form of the url")
    query = dict(parse_qsl(parts["query"] or "", keep_blank_values=True))
    properties = {**query, **connection.properties}
    values = {name.lower(): value for name, value in properties.items()}
    user = connection.user or values.get("user")
    password = connection.password if connection.password is not None else values.get("password")
    if not user:
        raise LeftToJdbc("no user is set")
    return CopyLogin(
        host=parts["host"].strip("[]"),
        port=int(parts["port"] or _PORT),
        database=unquote(parts["name"]),
        user=user,
        password=password,
        parameters=tuple({**_DEFAULTS, **dict(_parameters(values))}.items()),
    )


def _parameters(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield "sslmode", "prefer"
    for name, value in values.items():
        if name in ("user", "password", *_TUNING):
            continue
        if name not in _PARAMETERS:
            raise LeftToJdbc(f"property '{name}' of the driver")
        if name == "connecttimeout":
            if not value.isdecimal():
                raise LeftToJdbc("'connectTimeout' is not a number")
            value = str(max(int(value), _LEAST_TIMEOUT)) if int(value) else value  # noqa: PLW2901
        yield _PARAMETERS[name], value


def _problem(login: CopyLogin) -> str:
    """Return why a server is left to JDBC; empty if it is not.

    Raises:
        CopyError: It cannot be reached, or rejects the login.
    """
    try:
        with closing(CopySession(login, [REPEATABLE])) as session:
            [row] = session.rows(_PROBE)
    except CopyError as error:
        is_ours = any(sign in str(error) for sign in _UNSUPPORTED)
        if error.state.startswith(_USER_FAILED) and not is_ours:
            raise
        return f"the server does not support it ({error.state})"
    version = str(row["version"])
    other = _OTHER_SERVERS.search(version)
    return "" if version.startswith("PostgreSQL") and other is None else "another kind of server"


def _executors_can(spark: SparkSession) -> bool:
    """Return whether the executors have the driver; those of a local Spark are this process's."""
    if is_one_process(str(spark.conf.get("spark.master"))):
        return True
    frame = spark.range(0, 1, 1, 1).mapInArrow(_has_driver, "n bigint")
    return bool(frame.collect())


def _has_driver(batches: Iterable[object]) -> Iterator[object]:
    import importlib.util  # noqa: PLC0415

    for batch in batches:
        if importlib.util.find_spec("adbc_driver_postgresql") is not None:
            yield batch


T = TypeVar("T")
BEGIN = (REPEATABLE, NO_IDLE_TIMEOUT, *TEXT_FORMATS)


@dataclass(frozen=True)
class CopyRead:
    """One read of a table, as of the moment of a session that has not failed; `wanted` is the
    number of parts, if the user sets it.
    """

    session: CopySession
    plan: StreamPlan
    query: JdbcQuery
    table: TableInfo
    wanted: int | None = None


def opened(login: CopyLogin, action: Callable[[CopySession], T]) -> T:
    """Do something with a new session, which is closed if that fails.

    Raises:
        CopyError: The server cannot be reached.
    """
    session = CopySession(login, BEGIN)
    try:
        return action(session)
    except BaseException:
        session.close()
        raise


def asked(
    login: CopyLogin,
    connection: ConnectionConfig,
    where: Where | None,
    action: Callable[[QueryRunner], T],
) -> T:
    """Query a database through a session that is closed then; retry temporary failures.

    Raises:
        SourceError: The database cannot be reached, or rejects a query.
    """

    def alone(session: CopySession) -> T:
        with closing(session):
            return action(session)

    return with_retries(lambda: opened(login, alone), connection, where)


@contextmanager
def copy_snapshot(
    login: CopyLogin, connection: ConnectionConfig, where: Where
) -> Iterator[DatabaseSnapshot | None]:
    """Hold a snapshot of a database while the block runs.

    Yields:
        The snapshot; None if the database cannot share it.

    Raises:
        SourceError: The database cannot be reached.
    """

    def exported(session: CopySession) -> tuple[CopySession, str]:
        return session, str(session.rows(f"{EXPORT} AS name")[0]["name"])

    def held() -> tuple[CopySession, str] | None:
        try:
            return opened(login, exported)
        except CopyError as error:
            if not cannot_export(error.state, where):
                raise
            return None

    result = with_retries(held, connection, where)
    if result is None:
        yield None
        return
    session, name = result
    with closing(session):
        yield DatabaseSnapshot(name=name)


def copied_rows(read: CopyRead, form: RowForm, engine: Engine) -> DriverRows | None:
    """Return the planned rows, after the last of which the session is closed; None if Spark reads
    them.

    Raises:
        CopyError: The server rejects the query, or the connection is lost.
    """
    plan, query = read.plan, read.query
    struct = StructType([StructField(f.name, f.dataType) for f in struct_of(read.table.columns)])
    # Into files rows go on as they come, decoded into columns; as text they are written anew.
    one = SERVER_ROWS if form is RowForm.BLOCKS else 1
    work = Work(plan.stream, one * estimated_bytes(read.session, query.select()))
    if any(item.spark_type.startswith("array<") for item in query.columns):
        work = replace(work, needs_spark="columns that are arrays")
    elif not is_read_by_threads(plan, struct):
        work = replace(work, needs_spark="a replication key or type that only Spark has")
    if not engine.takes(work):
        return None
    read_at, threads = datetime.now(timezone.utc), min(engine.threads.count, MOST_THREADS)
    conditions, size = list[str](), BATCH_BYTES
    if form is RowForm.BLOCKS:
        conditions, size = _blocks(read, threads), FILE_BATCH_BYTES
    schema = struct_to_arrow(StructType([struct[item.name] for item in query.columns]))
    parts = _parts(read, conditions, schema, size)
    return driver_rows(plan, struct, parts, form, read_at)


def estimated_bytes(session: CopySession, query: str) -> int:
    """Return about how many bytes a SELECT returns, as the server plans it."""
    [row] = session.rows(f"EXPLAIN (FORMAT JSON) {query}", copy=False)
    plan = json.loads(row["QUERY PLAN"])[0]["Plan"]
    return int(plan["Plan Rows"]) * max(1, int(plan["Plan Width"]))


def _blocks(read: CopyRead, threads: int) -> list[str]:
    """Return the conditions of parts; none for one part."""
    plan, query, database = read.plan, read.query, read.plan.config.database
    if database is None or not database.snapshot:
        return []
    statistics = table_statistics(read.session, query.dialect.name, read.table, query.key)
    count = part_count(statistics, threads, read.wanted)
    kind = None if query.key is None else key_type_of(query.key.spark_type)
    parts = plan_parts(statistics, count, plan.start_value, kind, end=plan.end_value)
    conditions = page_conditions(query.block_column, parts.pages)
    if conditions:
        where = Where(stream=plan.tap_stream_id)
        _log.info("%s: reading in %d parts, by blocks", where, len(conditions))
    return conditions


def _parts(
    read: CopyRead, conditions: Sequence[str], schema: pa.Schema, size: int
) -> list[Iterator[pa.RecordBatch]]:
    """Return the rows of each part, all as of the session's moment."""
    session, query = read.session, read.query
    if not conditions:
        return [
            _Shared(session, 1).last_closes(partial(session.batches, query.select(), schema, size))
        ]
    begin = begin_statements(session.rows(f"{EXPORT} AS name")[0]["name"])
    shared, login = _Shared(session, len(conditions)), session.login
    return [
        shared.last_closes(partial(read_batches, login, begin, select, schema, size))
        for select in query.block_selects(conditions)
    ]


class _Shared:
    """A session that stays open until every part has been read."""

    def __init__(self, session: CopySession, parts: int) -> None:
        self._session = session
        self._left = parts
        self._lock = threading.Lock()

    def last_closes(self, read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        try:
            yield from read()
        finally:
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._session.close()
