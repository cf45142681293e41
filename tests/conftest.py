"""Shared fixtures: one Spark session per test process, the real data folder, free ports."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import signal
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from engines import jars_of
from hypothesis import HealthCheck, settings
from mysql_servers import MariaDbServer, MySqlLikeServer, MySqlServer
from own_environments import WheelEnvironments, build_wheel
from pipe_programs import Programs
from postgres_server import Database, PostgresServer, server_programs
from postgres_server import free_port as port_for_postgres

from shared.singer.signals import forget_signals
from shared.spark.conf import NO_CODE, SparkSettings
from shared.spark.packages import with_needs
from tap_spark.sources.formats import BUILT_IN

if TYPE_CHECKING:
    from kafka_broker import KafkaBroker
    from pyspark.sql import SparkSession

# A busy machine is no failure: the time that a test takes says nothing about the code.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
ROOT = Path(__file__).resolve().parents[1]
# Files whose tests compare values, and pages that run as they stand: Spark compiles expressions, as
# it does for users. In all others it interprets them (`NO_CODE`): to write and compile classes for
# a few rows takes longer, a sixth of the time of a lake's test.
COMPILED_FILES = (
    "tests/docs/",
    "tests/model/test_engines_agree.py",
    "tests/shared/maps/expressions/test_compiled_at_random.py",
    "tests/shared/formats/test_record_text.py",
    "tests/tap_spark/send/test_record_writer_spark.py",
    "tests/tap_spark/sources/test_exact_json_spark.py",
    "tests/tap_spark/sources/test_exact_values.py",
    "tests/tap_spark/sources/test_parser_limits_spark.py",
)
TEST_SETTINGS = SparkSettings(
    master="local[2]",
    app_name="singer-spark-tests",
    conf={
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        # Delta replays a table's log by this many tasks: most of the time on two cores.
        "spark.databricks.delta.snapshotPartitions": "1",
        # As many tasks list the files of a table for VACUUM; of 10,000, most have nothing to do.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # What Spark keeps of finished queries for its own pages, which nobody looks at.
        "spark.sql.ui.retainedExecutions": "20",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "500",
        **NO_CODE,
    },
)
# For the Java of programs that tests start: almost all of its code runs too seldom to earn the slow
# compiler, which takes a third of the processor time of a short pipe. The session that hundreds of
# tests share is a fifth faster with it. Without it, Java has a fifth of the room for compiled code:
# a test of two lakes, which threw code away and compiled it anew, took a third more. Verifying the
# classes of Delta takes a seventh of Java's processor time in a short load.
UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
QUICK_JAVA = f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m {UNVERIFIED}"
# What the tests' session can read and write besides files.
TEST_FORMATS = ("delta", "iceberg", "avro", "kafka")
_SERVED_DATABASES = ("jdbc:postgresql:", "jdbc:mariadb:", "jdbc:mysql:")
TEST_DATABASES = (*_SERVED_DATABASES, "jdbc:sqlite:", "jdbc:duckdb:")
pytest.register_assert_rewrite("shared.testing", "tap_spark.testing")

ICEBERG_CATALOG = "ice"
_databases = itertools.count(1)
_Server = TypeVar("_Server", PostgresServer, MySqlLikeServer)
# Files whose tests share environments of the wheel, start both programs, or keep every core busy by
# other means: one worker runs them.
PROGRAM_FILES = (
    "tests/docs/test_tutorials.py",
    "tests/install/test_wheel_environments.py",
    "tests/model/test_chaos.py",
    "tests/model/test_destinations_killed.py",
    "tests/model/test_kafka_kills.py",
    "tests/model/test_keyless_kills.py",
    "tests/pipes/",
    "tests/s3/test_tutorial_s3.py",
    "tests/shared/spark/test_dockerfile.py",
    "tests/shared/spark/test_session.py",
    "tests/tap_spark/sources/jdbc/test_database_pipe.py",
    "tests/tap_spark/send/test_tap_ends_pipe.py",
)
# In how many days `.ci/run` has all cases of a test that takes long.
DAYS = 4
# Files of which `--turn` leaves no case out: `.ci/run` has chosen them already.
WHOLE_FILES = ("tests/install/test_release_slice.py",)
# Of a test with several markers the first one is its layer.
LAYERS = ("pipe", "spark", "server")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=int,
        default=1,
        help="random seeds per soak test (default: %(default)s; `make soak` uses 50)",
    )
    parser.addoption(
        "--kill-seeds",
        type=int,
        default=1,
        help="the same for tests that load into every destination (`make soak` uses 34)",
    )
    parser.addoption(
        "--kills",
        type=int,
        default=1,
        help="how often a chain of runs is killed (default: %(default)s; `make soak` uses 100)",
    )
    parser.addoption(
        "--chaos-minutes",
        type=int,
        default=0,
        help="how long to disturb both programs at random (default: one short chain of runs)",
    )
    parser.addoption(
        "--fault-step",
        type=int,
        help="kill before every n-th effect (default: so that a test takes minutes)",
    )
    parser.addoption(
        "--cases",
        type=int,
        help="run at most so many cases of each parametrized test (default: all)",
    )
    parser.addoption(
        "--turn",
        type=int,
        help="run what this day of `.ci/run` has of the tests with Spark, a server or a pipe "
        "(default: all)",
    )
    parser.addoption("--chaos-seed", type=int, default=1, help="what to disturb them by")


def pytest_configure(config: pytest.Config) -> None:
    """Programs hear Ctrl-C also where the tests run in the background of a script.

    Such a shell makes its children ignore it, and theirs.
    """
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument `seed` or `kill_seed` runs once per seed."""
    if "kill_seed" in metafunc.fixturenames:
        metafunc.parametrize("kill_seed", range(metafunc.config.getoption("--kill-seeds")))
    if "kills" in metafunc.fixturenames:
        metafunc.parametrize("kills", [metafunc.config.getoption("--kills")])
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds")))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes give no name to a test: packed data holds the time it was packed.

    The workers of pytest-xdist must collect the same names.
    """
    return argname if isinstance(val, bytes) else None


def few_cases(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Return at most so many cases of each test, spread from its first to its last one."""
    tests = _grouped(items, lambda item: item.nodeid.partition("[")[0])
    return [item for cases in tests for item in cases[:: max(1, -(-len(cases) // most))]]


def cases_of_turn(items: list[pytest.Item], turn: int) -> list[pytest.Item]:
    """Return what one turn runs of the tests that take long, and all of the others, in their order.

    A turn takes one in DAYS: of the cases of a test with several, and of the costly tests with one
    case. Tests of one name in the classes of a file, which share a suite, count as cases of
    one test. Any DAYS turns in a row run all cases.
    """
    left: set[pytest.Item] = set()
    singles = itertools.cycle(range(DAYS))
    for cases in _grouped(items, lambda item: (item.path, item.name.partition("[")[0])):
        is_long = any(case.get_closest_marker(layer) for case in cases for layer in LAYERS)
        if not is_long or cases[0].nodeid.startswith(WHOLE_FILES):
            continue
        if len(cases) > 1:
            days = min(DAYS, len(cases))
            left.update({*cases} - {*cases[turn % days :: days]})
        elif cases[0].get_closest_marker("costly") and next(singles) != turn % DAYS:
            left.update(cases)
    return [item for item in items if item not in left]


def _grouped(
    items: list[pytest.Item], key: Callable[[pytest.Item], object]
) -> Iterable[list[pytest.Item]]:
    """Return the tests that have a key in common, in their order."""
    tests: dict[object, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(key(item), []).append(item)
    return tests.values()


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage, a seventh of the time: nearly all of it stays."""
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests come first, so that no worker is left alone with them at the end.

    Functions of test modules travel to Spark's workers whole: those cannot import the module.
    """
    if most := config.getoption("--cases"):
        items[:] = few_cases(items, most)
    if (turn := config.getoption("--turn")) is not None:
        kept = cases_of_turn(items, turn)
        config.hook.pytest_deselected(items=[*{*items} - {*kept}])
        items[:] = kept
    items.sort(key=_turn)
    modules = {item.module for item in items if item.get_closest_marker("spark")}  # type: ignore[attr-defined]
    if modules:
        from pyspark.cloudpickle import register_pickle_by_value

        for module in modules:
            register_pickle_by_value(module)


def _turn(item: pytest.Item) -> int:
    """Return when a test comes: programs, the session, pipes, servers, and the short ones last."""
    file = item.nodeid.partition("::")[0]
    turns = (
        file.startswith(PROGRAM_FILES),
        _has(file, "spark"),
        _has(file, "pipe"),
        # Those of tools read all sources.
        _has(file, "server") or file.startswith("tests/tools/"),
        True,
    )
    return turns.index(True)


@functools.cache
def _has(file: str, marker: str) -> bool:
    """Return whether tests of a file have a marker, for xdist, which knows their names alone."""
    return f"mark.{marker}" in (ROOT / file).read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is one worker's, so that its tests share a session.

    All of PROGRAM_FILES are one worker's: several pipes at a time would starve each other. Another
    one takes all files that need the session, whose first minutes are slow, as Java compiles what
    it runs; the rest take some of them once there are no other files.
    """
    from xdist.scheduler import LoadFileScheduling

    def uses_session(scope: str) -> bool:
        return scope != "programs" and _has(scope, "spark")

    class OneSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "programs" if nodeid.startswith(PROGRAM_FILES) else super()._split_scope(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            scopes = itertools.chain(*self.assigned_work.values())
            with_session = any(map(uses_session, self.assigned_work[node])) or (
                "programs" not in self.assigned_work[node] and not any(map(uses_session, scopes))
            )
            fitting = (one for one in self.workqueue if uses_session(one) == with_session)
            if (scope := next(fitting, None)) is not None:
                self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return OneSession(config, log)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """If real servers are required, fail a test that was skipped without one (`server` mark).

    The suites for authors skip what a format or destination does not offer: no server would help.
    """
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    required = os.environ.get("SINGER_SPARK_REQUIRE_SERVERS") == "1"
    if not (report.skipped and required and item.get_closest_marker("server")):
        return
    if "not offered: " not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"SINGER_SPARK_REQUIRE_SERVERS=1, but skipped: {report.longrepr}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests each layer has, and how many minutes of workers they took."""
    counts, seconds = Counter[str](), Counter[str]()
    for report in itertools.chain(*terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            layer = next((one for one in LAYERS if one in report.keywords), "pure")
            counts[layer] += report.when == "teardown"
            seconds[layer] += report.duration
    for layer, count in counts.most_common():
        terminalreporter.write_line(f"{layer}: {count} tests, {seconds[layer] / 60:.1f} minutes")


def settings_with_packages(warehouse: str) -> SparkSettings:
    """The tests' settings, with packages for tables and databases and an Iceberg catalog."""
    catalog = f"spark.sql.catalog.{ICEBERG_CATALOG}"
    conf = {
        **TEST_SETTINGS.conf,
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": warehouse,
        "spark.sql.warehouse.dir": f"{warehouse}/spark",
    }
    databases = [(url, None) for url in TEST_DATABASES]
    needs = [need for name in TEST_FORMATS if (need := BUILT_IN[name].needs)]
    return with_needs(replace(TEST_SETTINGS, conf=conf), needs, databases)


@pytest.fixture(autouse=True)
def no_signals() -> Iterator[None]:
    """A signal that one test has sent ends no other one."""
    yield
    forget_signals()


@pytest.fixture(scope="session", autouse=True)
def state_home() -> Iterator[None]:
    """What programs keep in the user's own folder goes with the tests."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local session, started the way both programs start theirs."""
    from shared.errors import SparkStartError
    from shared.spark.session import SessionStarter

    with tempfile.TemporaryDirectory() as warehouse:
        with pytest.MonkeyPatch.context() as patch:
            if os.environ["JDK_JAVA_OPTIONS"] == QUICK_JAVA:
                patch.setenv("JDK_JAVA_OPTIONS", UNVERIFIED)
            starter = SessionStarter(settings_with_packages(warehouse))
            starter.start()
            try:
                session = starter.get()
            except SparkStartError:  # the packages cannot be had: most tests need none
                starter = SessionStarter(TEST_SETTINGS)
                starter.start()
                session = starter.get()
        yield session
        starter.stop()


@pytest.fixture(autouse=True)
def expressions(request: pytest.FixtureRequest) -> None:
    """Let Spark interpret expressions, or compile them; sessions that a test makes interpret."""
    is_argument = "spark" in getattr(getattr(request.node, "callspec", None), "params", ())
    if "spark" in request.fixturenames and not is_argument:
        conf = request.getfixturevalue("spark").conf
        for name, text in NO_CODE.items():
            if request.node.nodeid.startswith(COMPILED_FILES):
                conf.unset(name)
            else:
                conf.set(name, text)


@pytest.fixture(scope="session")
def lake_spark(spark: SparkSession) -> SparkSession:
    """The session, where it has the packages (tests that use this are marked `server`)."""
    if not any("delta-spark" in name for name in jars_of(spark)):
        pytest.skip("Spark could not resolve the packages for tables and databases")
    return spark


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real input files; the environment variable SINGER_SPARK_DATA may name another folder."""
    folder = Path(os.environ.get("SINGER_SPARK_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder} (set SINGER_SPARK_DATA)")
    return folder


@pytest.fixture
def free_port() -> int:
    """A loopback port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WheelEnvironments]:
    """Environments that hold the wheel of this checkout, as users have it."""
    folder = tmp_path_factory.mktemp("environments")
    yield (all_of_them := WheelEnvironments(build_wheel(ROOT, folder / "dist"), folder))
    all_of_them.close()


def _running(server: _Server) -> Iterator[_Server]:
    """Run a server; skip its tests if this machine cannot start it.

    Where servers are required, the hook above makes such a test fail.
    """
    try:
        server.start()
    except (AssertionError, OSError, LookupError) as error:
        server.stop()
        pytest.skip(f"the server cannot be started: {error}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One cluster per test process (tests that use it are marked `server`)."""
    programs = server_programs()
    if programs is None:
        pytest.skip("PostgreSQL's server programs are not installed")
    yield from _running(PostgresServer(programs, port_for_postgres()))


@pytest.fixture(scope="module")
def postgres(postgres_server: PostgresServer) -> Iterator[Database]:
    """A fresh database, shared by the tests of a module."""
    name = f"tests_{next(_databases)}"
    postgres_server.psql(f"create database {name}")
    yield Database(postgres_server, name)
    postgres_server.psql(f"drop database {name} with (force)")


def _started(server: MySqlLikeServer) -> Iterator[MySqlLikeServer]:
    if why := server.missing():
        pytest.skip(why)
    yield from _running(server)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MySqlLikeServer]:
    """One server per test process (tests that use it are marked `server`)."""
    yield from _started(MariaDbServer())


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySqlLikeServer]:
    """One server of MySQL itself per test process (tests that use it are marked `server`)."""
    yield from _started(MySqlServer())


@pytest.fixture(scope="session")
def kafka(lake_spark: SparkSession) -> Iterator[KafkaBroker]:
    """One broker per test process (tests that use it are marked `server`)."""
    from kafka_broker import KafkaBroker

    try:
        broker = KafkaBroker(lake_spark)
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """The programs, run in an empty folder of the test's own."""
    return Programs(tmp_path)
