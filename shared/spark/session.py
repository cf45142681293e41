"""Start, reach and stop Spark, and what PySpark's public API cannot ask of a session."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shared.errors import SingerSparkError, SparkLostError, SparkStartError, Where, first_line
from shared.singer.platform import arrow_in_task, ask_without_numpy, map_without_pandas
from shared.singer.signals import own_interrupt
from shared.spark import running_java, s3a
from shared.spark.cluster_executors import STANDALONE, ClusterJobs, ExecutorWatch, limit_cores
from shared.spark.conf import (
    SCHEDULES,
    SparkSettings,
    executor_python,
    is_one_process,
    session_conf,
)
from shared.spark.connect import (
    CONNECT_FLAG,
    CONNECT_TOKEN,
    check_serves_connect,
    connect,
    executors_share_disk,
    require_connect,
)
from shared.spark.jvm import ORDERLY_SECONDS, Jvm, has_account, spawn_jvm
from shared.spark.packages import (
    PACKAGES,
    Need,
    add_packages,
    check_released,
    missing_jars,
    resolved,
    with_classpath,
    with_needs,
)
from shared.spark.running_java import BothEnds, JavaRecord
from shared.spark.s3a import executor_environment
from shared.spark.spark_errors import start_error
from shared.spark.spark_release import installed, too_old

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType

_NEEDS_ORDERLY_END = ("spark.eventLog.enabled", "spark.extraListeners", "spark.local.dir")
_CAUSES = 10
_log = logging.getLogger(__name__)


class SessionStarter:
    """Starts one Spark session in the background, so that input is read meanwhile.

    Args:
        settings: How to start or reach Spark.
        needs: What formats need beside it; looked up once Spark starts.
    """

    def __init__(self, settings: SparkSettings, needs: Sequence[Need] = ()) -> None:
        self._settings = settings
        self._needs = needs
        self._session: SparkSession | None = None
        self._context: Any = None
        self._making = threading.Lock()
        self._jvm: Jvm | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._stopped = self._is_shared = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark-start", daemon=True)

    @property
    def conf(self) -> Mapping[str, str]:
        """Return the configuration of the settings."""
        return self._settings.conf

    def start(self) -> None:
        """Start Spark in the background, unless it has been started or stopped."""
        with self._lock:
            if self._thread.ident is None and not self._stopped:
                self._thread.start()

    def get(self) -> SparkSession:
        """Start Spark if it has not been started, and wait for the session.

        Raises:
            SettingsError: The settings need packages that are not installed.
            SparkStartError: It could not be started, or was stopped.
        """
        self.context()
        with self._making:
            session, context = self._session, self._context
            if session is None and context is not None:
                try:
                    session = _session_of(context, session_conf(self._settings))
                except Exception as error:
                    raise _start_error(error) from error
                with self._lock:
                    # Stopped meanwhile, it is of no use.
                    session = self._session = None if self._stopped else session
        if session is None:
            raise SparkLostError("Spark has been stopped")
        return session

    def context(self) -> Any:
        """Start Spark if it has not been started, and wait for it.

        Returns:
            The SparkContext if Java only schedules tasks (`run_tasks`): a session would be a third
            of its start. Else None.

        Raises:
            SettingsError, SparkStartError: See `get`.
        """
        self.start()
        if self._thread.ident is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._context

    def running(self) -> Any:
        """Return the session, or the context, if Spark has started; does not wait."""
        return self._context if self._session is None else self._session

    def stop(self, orderly_seconds: float | None = None) -> None:
        """End the session and its Java process, even during the start or a job.

        The process of a local session is killed, which is immediate.

        Args:
            orderly_seconds: Let Java run its shutdown hooks for so long; by default only if a
                cluster, an event log or a listener must learn of the end.
        """
        with self._lock:
            already, self._stopped = self._stopped, True
            session, self._session, self._context = self.running(), None, None
            jvm, self._jvm = self._jvm, None
        self._over.set()
        if already or (session is None and self._thread.ident is None):
            return
        if orderly_seconds is None and (running_java.current() or self._needs_orderly_end()):
            orderly_seconds = ORDERLY_SECONDS
        if session is not None and self._is_shared:
            # The other end of the pipe may use Spark: nothing of ours must run there.
            _within(ORDERLY_SECONDS, JobTags(session).interrupt_all)
            _expect_end()
        # Otherwise a Connect client keeps trying to reach its server.
        elif session is not None and (self._settings.remote or orderly_seconds):
            _within(orderly_seconds or ORDERLY_SECONDS, session.stop)
        if jvm is not None:
            _expect_end()
            jvm.close(orderly_seconds is not None, orderly_seconds or 0.0)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(ORDERLY_SECONDS)
        if jvm is not None or session is not None:
            _forget_session()

    def _needs_orderly_end(self) -> bool:
        conf = self._settings.conf
        return (
            not executors_share_disk(self._settings)
            or "SPARK_LOCAL_DIRS" in os.environ
            or any(conf.get(name, "false") != "false" for name in _NEEDS_ORDERLY_END)
        )

    def _run(self) -> None:
        try:
            started = self._start()
        except BaseException as error:
            self._error = error if isinstance(error, SingerSparkError) else _start_error(error)
            with self._lock:
                jvm, self._jvm = self._jvm, None
            if jvm is not None:
                jvm.close()
                _forget_session()
            return
        is_session = not _is_context(started)
        with self._lock:
            if not self._stopped:
                self._session = started if is_session else None
                self._context = None if is_session else started
        if is_session and not self._settings.remote:
            self._watch_executors(started)

    def _watch_executors(self, session: SparkSession) -> None:
        context: Any = session.sparkContext
        if is_one_process(context.master):
            return
        watch = ExecutorWatch(ClusterJobs(context), self._settings.executor_wait_seconds)
        threading.Thread(target=watch.run, args=(self._over,), daemon=True).start()

    def _start(self) -> Any:
        """Return the session, or the context of a Java that only schedules tasks."""
        self._settings = with_needs(self._settings, self._needs)
        # pyspark would print the error of a query, which is raised as well.
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            logging.getLogger(name).disabled = True
        # 1. A Java that runs already: that of spark-submit, or a server of Spark Connect.
        submission = running_java.current()
        if submission is not None:
            return _submitted_session(submission, self._settings)
        remote = self._settings.remote
        if remote is not None:
            require_connect()
            if not remote.startswith("local"):
                check_released(self._settings)
                return connect(remote, self._settings)
            check_serves_connect()
        # 2. One Java for the tap and the target of a pipe.
        ends = None if remote else BothEnds.of(os.environ)
        settings = None if ends is None else ends.joined()
        check_released(settings or self._settings)
        if ends is not None and settings is not None:
            return self._start_for_both(ends, session_conf(settings))
        # 3. A Java of its own. With `local` as remote it serves Spark Connect to this process.
        conf = session_conf(self._settings)
        environ = dict(os.environ)
        if remote is not None:
            environ[CONNECT_TOKEN] = os.environ.setdefault(CONNECT_TOKEN, str(uuid.uuid4()))
            conf.setdefault("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
            conf.setdefault("spark.connect.grpc.binding.port", "0")
            conf.setdefault("spark.connect.grpc.binding.address", "127.0.0.1")
        context, _ = self._start_java(conf, environ)
        if SCHEDULES in conf and is_one_process(context.master):
            return context
        classic = _session_of(context, conf)
        if remote is None:
            return classic
        return connect(f"sc://localhost:{connect_port(classic)}", self._settings)

    def _start_java(
        self, conf: dict[str, str], environ: dict[str, str], ends: BothEnds | None = None
    ) -> tuple[Any, Jvm]:
        with resolved(conf, environ) as (resolved_conf, remember):
            shared = () if ends is None else (ends.open_lifeline(), ends.folder)
            java_conf, jars = with_classpath(resolved_conf, environ)
            jvm, connection_file = spawn_jvm(java_conf, environ, jars, *shared)
            with self._lock:
                self._jvm = None if self._stopped else jvm
            if self._stopped:
                jvm.close()
                raise SparkLostError("Spark has been stopped")
            # Overlaps the start of Java.
            import pyspark.sql  # noqa: F401, PLC0415

            jvm.wait_ready(connection_file)
            context = _context_of(gateway_of(jvm), java_conf)
            remember(context.getConf().get("spark.jars", "") or "")
        return context, jvm

    def _start_for_both(self, ends: BothEnds, conf: dict[str, str]) -> SparkSession:
        with ends.locked():
            self._is_shared = True
            if (java := ends.java) is not None:
                _log.info("uses the Spark of the other program (Java process %d)", java.pid)
                context = _context_of(gateway_of(java), conf, joins=True)
                return _session_of(context, conf).newSession()
            context, jvm = self._start_java(conf, dict(os.environ), ends)
            session = _session_of(context, conf)
            java = JavaRecord(jvm.pid, jvm.port, jvm.secret, self._needs_orderly_end())
            with self._lock:
                if self._stopped:
                    raise SparkLostError("Spark has been stopped")
                self._jvm = None
            ends.write("java", asdict(java))
            _log.info("has started one Spark for both programs (Java process %d)", java.pid)
            return session


def start_session(settings: SparkSettings) -> SparkSession:
    """Start or reach Spark and wait for it; for scripts and tests.

    Raises:
        SparkStartError: It could not be started or reached; the error says why in one line.
    """
    return SessionStarter(settings).get()


def stream_arrow(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Run a frame and yield its Arrow record batches while later tasks still run.

    Batches arrive as tasks finish, in any order; none is held back.

    Returns:
        An iterator of `pyarrow.RecordBatch`. Leaving it early does not cancel the job.

    Raises:
        PySparkException: The job failed.
    """
    source: Any = frame
    if not hasattr(source, "_jdf"):
        client = source._session.client
        plan: Any = source._plan
        # Clients before 4.0 do not ask for them.
        observed = (plan.observations,) if hasattr(plan, "observations") else ()
        for part in client.to_table_as_iterator(plan.to_proto(client), *observed):
            if hasattr(part, "to_batches"):  # the schema comes first
                yield from part.to_batches()
        return
    # The module that collects to Arrow has what it takes; where that is from differs by release.
    from pyspark.sql.pandas import conversion  # noqa: PLC0415

    spark: Any = conversion
    port, secret, server = source._jdf.collectAsArrowToPython()
    try:
        for batch in spark._load_from_socket((port, secret), spark.ArrowCollectSerializer()):
            if not isinstance(batch, list):  # the last item: the order of the batches
                yield batch
    except GeneratorExit:  # of a job whose reader has gone, the result is that it has gone
        server = None
        raise
    finally:
        if server is not None:
            with spark.unwrap_spark_exception():
                server.getResult()


def run_tasks(
    context: Any, task: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]], count: int
) -> list[dict[str, Any]]:
    """Run tasks as one job of a context, as `mapInArrow` of a session would.

    Without Spark's SQL, a job costs Java half as much, and the first one a third.

    Args:
        task: Takes the number of a task and yields its reports.
        count: Number of tasks; they are numbered from 0.

    Raises:
        Py4JJavaError: The job failed.
    """

    def run(number: int, _: Iterable[int]) -> Iterator[dict[str, Any]]:
        arrow_in_task()  # Before the first value, at which Arrow imports pandas.
        import pyarrow as pa  # noqa: PLC0415

        for rows in task([pa.record_batch({"number": [number]})]):
            yield from rows.to_pylist()

    reports = context.parallelize(range(count), count).mapPartitionsWithIndex(run).collect()
    return list(reports)


def _is_context(spark: Any) -> bool:
    """Return whether this is a SparkContext, by what only its class has: sessions have none."""
    return hasattr(type(spark), "parallelize")


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is of Spark Connect, whose server may see other files."""
    return not hasattr(spark, "_jsparkSession")


def activate(reader: DataFrameReader) -> None:
    """Make the session of a reader that of this thread: Spark 3.5 leaves that to its user.

    Packages that add catalogs to the session, such as Iceberg's, look for it.
    """
    session: Any = getattr(reader, "_spark", None)
    if hasattr(session, "_jsparkSession") and not installed().activates_sessions:
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)


def try_cast(column: Column, dtype: DataType | str) -> Column:
    """Return a column in another type; null if a value does not fit."""
    # Of an instance, any other name is a field of a struct.
    if hasattr(type(column), "try_cast"):
        return column.try_cast(dtype)
    # Before Spark 4.0, only SQL has it: the column is made of the expression that SQL makes.
    from pyspark import sql  # noqa: PLC0415

    source, context = vars(column), _loaded("pyspark", "SparkContext")._active_spark_context
    if "_jc" not in source or context is None:
        raise too_old("the stream over Spark Connect", "4.0", Where(setting="spark.remote"))
    spark: Any = sql
    java = context._jvm.org.apache.spark.sql
    ddl = dtype if isinstance(dtype, str) else dtype.simpleString()
    kind, none = java.types.DataType.fromDDL(ddl), getattr(context._jvm.scala, "None$")
    catalyst, value = java.catalyst.expressions, source["_jc"].expr()
    cast = catalyst.Cast(value, kind, getattr(none, "MODULE$"), catalyst.EvalMode.TRY())
    column_of_cast: Column = spark.Column(java.Column(cast))
    return column_of_cast


class JobTags:
    """Tags of what a thread runs in a session or context, by which it can be cancelled."""

    def __init__(self, spark: SparkSession | SparkContext) -> None:
        session: Any = spark
        is_context = _is_context(session)
        # Before Spark 4.0, a classic session has no tags, but its context has.
        if is_context or (hasattr(session, "_jsparkSession") and not installed().tags_sessions):
            context = session if is_context else session.sparkContext
            self.add: Callable[[str], None] = context.addJobTag
            self.remove: Callable[[str], None] = context.removeJobTag
            self.interrupt: Callable[[str], object] = context.cancelJobsWithTag
            self.interrupt_all: Callable[[], object] = context.cancelAllJobs
        else:
            self.add, self.remove = session.addTag, session.removeTag
            self.interrupt, self.interrupt_all = session.interruptTag, session.interruptAll


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks can run at the same time, according to Spark."""
    if not is_connect(spark):
        context: Any = spark.sparkContext
        return int(context.defaultParallelism)
    from pyspark.sql import functions as f  # noqa: PLC0415

    # A range has that many partitions by default; a client of Connect cannot ask.
    numbers = spark.range(0, 1 << 16).select(f.spark_partition_id().alias("number"))
    return int(numbers.agg(f.max("number")).collect()[0][0]) + 1


def connect_port(session: SparkSession) -> int:
    """Return the port of the Spark Connect server in the Java process of a classic session."""
    return int(_connect_service(session).localPort())


def connect_users(session: SparkSession) -> int:
    """Return how many sessions clients have open at that server."""
    return int(_connect_service(session).sessionManager().listActiveSessions().size())


def _connect_service(session: Any) -> Any:
    package = session._jvm.org.apache.spark.sql.connect.service
    return getattr(getattr(package, "SparkConnectService$"), "MODULE$")


@dataclass(frozen=True, eq=False)
class HeldConnection:
    """A `java.sql.Connection` that stays open in the driver's Java process."""

    connection: Any

    def run(self, statement: str) -> str | None:
        """Run a statement; return the first value of its first row, if it has one."""
        prepared = self.connection.createStatement()
        try:
            if not prepared.execute(statement):
                return None
            rows = prepared.getResultSet()
            return str(rows.getString(1)) if rows.next() else None
        finally:
            _quietly(prepared.close)

    def close(self) -> None:
        """End its transaction and close it; never fails."""
        _quietly(self.connection.rollback)
        _quietly(self.connection.close)


def hold_connection(
    spark: SparkSession, url: str, driver: str, properties: Mapping[str, str]
) -> HeldConnection | None:
    """Open a connection to a database, for a transaction; None over Spark Connect.

    Args:
        driver: Java class of the driver, which may come from `spark.jars.packages`.
        properties: Those of the connection, with user and password.

    Raises:
        Py4JJavaError: The database cannot be reached, or rejects the connection.
    """
    if is_connect(spark):
        return None
    session: Any = spark
    java = session._jvm
    # DriverManager takes any driver that accepts the URL, and sees only those of Java's classpath.
    drivers = java.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
    drivers.register(driver)
    login = java.java.util.Properties()
    for name, value in properties.items():
        login.setProperty(name, value)
    connection = drivers.get(driver).connect(url, login)
    # Of a driver that does not accept the URL, DriverManager says so.
    connection = connection or java.java.sql.DriverManager.getConnection(url, login)
    connection.setAutoCommit(False)
    return HeldConnection(connection)


def sql_state(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error of a database's driver; None if it has none."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES):
        if cause is None:
            return None
        with contextlib.suppress(Exception):
            return str(cause.getSQLState() or "") or None
        cause = cause.getCause()
    return None


def gateway_of(jvm: Jvm | JavaRecord) -> Any:
    """Connect to a Java process of ours, which serves py4j."""
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    os.environ["PYSPARK_GATEWAY_PORT"] = str(jvm.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = jvm.secret
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _submitted_session(submission: running_java.Submitted, settings: SparkSettings) -> SparkSession:
    """Start the session in the Java process of spark-submit, which cannot load jars any more."""
    check_released(settings)
    packages, jars = missing_jars(settings, submission.jars)
    if packages or jars:
        options = [f"--packages {','.join(packages)}"] if packages else []
        options += [f"--jars {','.join(jars)}"] if jars else []
        raise SparkStartError(
            "spark-submit was started without jars that the settings need",
            hint=f"add {' '.join(options)} to its options",
        )
    conf = {name: text for name, text in session_conf(settings).items() if name != PACKAGES}
    return _session_of(_context_of(submission.gateway, conf), conf)


def _context_of(gateway: Any, conf: Mapping[str, str], *, joins: bool = False) -> Any:
    """Start Spark in a Java process, or reach the one that runs there."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = executor_python(conf, os.environ)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # py4j would log a lost connection with a traceback; it also raises, and that is reported.
    logging.getLogger().addFilter(_is_no_lost_connection)
    ask_without_numpy()
    SparkContext._ensure_initialized(gateway=gateway)

    spark_conf = SparkConf().setAll(list(conf.items()))
    _share_credentials(spark_conf)
    limit_cores(SparkContext._jvm, spark_conf)
    if not (joins or has_account()):
        _log_in(SparkContext._jvm, spark_conf)
    with own_interrupt():
        return _joined_context(gateway) if joins else SparkContext.getOrCreate(spark_conf)


def _session_of(context: Any, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    map_without_pandas()
    session = SparkSession(context, options=dict(conf))
    java: Any = context._jvm
    local_files = java.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    # No `.crc` file beside every file that Spark writes to local disk.
    local_files.setWriteChecksum(False)
    _use_s3a(context)
    return session


def _log_in(java: Any, spark_conf: Any) -> None:
    """Give Hadoop a user, as it fails if the operating system has no name for the user's number.

    Then put jars and packages on the classpath, which the launcher could not (`jvm.FETCHED`).
    """
    users = java.org.apache.hadoop.security.UserGroupInformation
    name = os.environ.get("HADOOP_USER_NAME") or str(os.getuid())
    users.setLoginUser(users.createRemoteUser(name))
    add_packages(java, spark_conf)


def _joined_context(gateway: Any) -> Any:
    """Return the context that another program has started in a Java process."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    spark = gateway.jvm.org.apache.spark
    java = spark.api.java.JavaSparkContext(spark.SparkContext.getOrCreate())
    return SparkContext(conf=SparkConf(_jconf=java.getConf()), gateway=gateway, jsc=java)


def _share_credentials(spark_conf: Any) -> None:
    """Give executors of a standalone cluster the S3 credentials of this program."""
    conf = dict(spark_conf.getAll())
    if conf["spark.master"].startswith(STANDALONE):
        spark_conf.setAll(list((executor_environment(conf, os.environ) | conf).items()))


def _use_s3a(context: Any) -> None:
    """Allow `s3://` in Spark if S3A is on its classpath; keep what the user has set."""
    hadoop = context._jsc.hadoopConfiguration()
    if hadoop.getClassByNameOrNull(s3a.CLASS) is None:
        return
    for name, value in s3a.s3a_conf(os.environ).items():
        origin = list(hadoop.getPropertySources(name) or ())
        if origin in ([], ["core-default.xml"]):
            hadoop.set(name, value)


def _start_error(error: BaseException) -> SingerSparkError:
    """Return what went wrong, in one line; the Java stack stays in the cause."""
    java = getattr(error, "java_exception", None)
    text = first_line(error)
    if java is not None:
        with contextlib.suppress(Exception):
            text = str(java.getMessage() or java.toString()).splitlines()[0]
    failure = start_error(f"Spark could not be started: {text}", error)
    failure.__cause__ = error
    return failure


def _within(seconds: float, action: Callable[[], object]) -> None:
    """Run something that may hang, with a time limit."""
    thread = threading.Thread(target=_quietly, args=(action,), daemon=True)
    thread.start()
    thread.join(seconds)


def _quietly(action: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        action()


def _is_no_lost_connection(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."


def _loaded(module: str, name: str) -> Any:
    """Return a part of pyspark, if no other thread is still importing it."""
    return getattr(sys.modules.get(module), name, None)


def _expect_end() -> None:
    """Keep pyspark's helpers from reporting the lost connection, before Java is killed."""
    context = getattr(_loaded("pyspark", "SparkContext"), "_active_spark_context", None)
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
        server.server_shutdown = True
        # It takes up to a second, so it runs in the background.
        threading.Thread(target=_quietly, args=(server.shutdown,), daemon=True).start()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _forget_session() -> None:
    """Make pyspark forget a process that has ended, so that a new one can start."""
    os.environ.pop(CONNECT_FLAG, None)
    os.environ.pop(CONNECT_TOKEN, None)
    SparkContext = _loaded("pyspark", "SparkContext")  # noqa: N806
    SparkSession = _loaded("pyspark.sql.session", "SparkSession")  # noqa: N806
    if SparkContext is None or SparkSession is None:
        return
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context._jsc = None
    gateway, SparkContext._gateway = SparkContext._gateway, None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    if gateway is not None:
        gateway._gateway_client.is_connected = False
        _quietly(gateway.close)
