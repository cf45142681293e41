from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shared.errors import SparkStartError
from shared.spark import jvm
from shared.spark.conf import SCHEDULES
from shared.spark.jvm import Jvm, Tracebacks, spawn_jvm
from shared.storage.owned_folders import OwnedFolder

CONF = {"spark.master": "local[1]"}


def options(conf: dict[str, str], environ: dict[str, str] | None = None) -> list[str]:
    return jvm._command(CONF | conf, environ or {}, Path("/t"), Path("/t/p"))


def test_the_command_names_every_jar_in_a_fixed_order() -> None:
    command = options({})
    jars = command[command.index("-cp") + 1].split(":")
    assert jars == sorted(jars)
    assert len(jars) > 200
    assert "*" not in "".join(jars)


def test_the_vector_module_is_left_out_as_the_wheel_lacks_it() -> None:
    assert not [option for option in options({}) if "incubator" in option]


def test_no_setting_of_the_user_is_shown_in_the_process_list() -> None:
    assert "geheim" not in " ".join(options({"spark.hadoop.fs.s3a.secret.key": "geheim"}))


@pytest.mark.parametrize(
    ("conf", "environ", "expected"),
    [
        ({}, {}, "-Xmx1g"),
        ({"spark.driver.memory": "3g"}, {"SPARK_DRIVER_MEMORY": "2g"}, "-Xmx3g"),
        ({}, {"SPARK_DRIVER_MEMORY": "2g"}, "-Xmx2g"),
    ],
)
def test_memory(conf: dict[str, str], environ: dict[str, str], expected: str) -> None:
    assert expected in options(conf, environ)


def test_memory_at_first_does_not_follow_from_the_machine() -> None:
    command = options({"spark.driver.extraJavaOptions": "-Xms2g"})
    assert [option for option in command if option.startswith("-Xms")] == ["-Xms128m", "-Xms2g"]


def test_java_that_only_schedules_has_no_slow_compiler() -> None:
    quick = "-XX:TieredStopAtLevel=1"
    assert quick in options({SCHEDULES: "true"})
    assert quick not in options({})


def test_its_heap_begins_small() -> None:
    assert "-Xms64m" in options({SCHEDULES: "true"})


@pytest.mark.parametrize("memory", ["100m", "1024K", "99999"])
def test_memory_at_first_is_not_more_than_all(memory: str) -> None:
    assert f"-Xms{memory}" in options({"spark.driver.memory": memory})


def test_options_of_the_user_come_last() -> None:
    command = options(
        {
            "spark.driver.extraJavaOptions": "-Da='x y' -Djava.io.tmpdir=/mine",
            "spark.driver.defaultJavaOptions": "-Db=1",
        }
    )
    assert command.index("-Db=1") < command.index("-Da=x y") < command.index("-cp")
    assert command.index("-Djava.io.tmpdir=/t") < command.index("-Djava.io.tmpdir=/mine")


def test_one_garbage_collector() -> None:
    def collectors(conf: dict[str, str]) -> list[str]:
        return [option for option in options(conf) if option.endswith("GC")]

    assert len(collectors({})) == 1
    assert collectors({"spark.driver.extraJavaOptions": "-XX:+UseZGC"}) == ["-XX:+UseZGC"]


def test_collector_by_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    actual: list[str] = []
    for cores in (1, 2, 3, 64):
        monkeypatch.setattr(jvm, "usable_cores", lambda cores=cores: cores)
        actual += jvm._collector([])
    assert actual == ["-XX:+UseSerialGC"] * 2 + ["-XX:+UseParallelGC"] * 2


def test_folders_of_a_cluster_configuration_are_on_the_classpath(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "b.jar").touch()
    (tmp_path / "jars" / "a.jar").touch()
    environ = {"SPARK_HOME": str(tmp_path), "SPARK_CONF_DIR": "/conf", "HADOOP_CONF_DIR": "/hadoop"}
    names = [Path(item).name for item in jvm.classpath(environ)]
    assert names == ["conf", "a.jar", "b.jar", "hadoop"]


def test_environment_of_a_local_session() -> None:
    supplied = {"SPARK_REMOTE": "sc://x", "LD_LIBRARY_PATH": "/b", "HOME": "/h"}
    conf = CONF | {"spark.driver.extraLibraryPath": "/a"}
    env = jvm._environment(conf, supplied, Path("/t/gateway"))
    assert env["PYSPARK_PYTHON"] == env["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert env["LD_LIBRARY_PATH"] == "/a:/b"
    assert env["HOME"] == "/h"
    assert not {"SPARK_REMOTE", "SPARK_HOME"} & env.keys()
    assert "SPARK_HOME" in jvm._environment({"spark.master": "yarn"}, supplied, Path("/t/gateway"))


@pytest.mark.parametrize(
    ("encoding", "expected"), [("UTF-8", "de_DE"), ("ANSI_X3.4-1968", "C.UTF-8")]
)
def test_java_names_files_as_python_does(
    encoding: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm.locale, "nl_langinfo", lambda _: encoding)
    assert jvm._environment(CONF, {"LC_ALL": "de_DE"}, Path("/t/gateway"))["LC_ALL"] == expected


def test_workers_import_from_the_current_folder_only_if_the_program_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, expected in (["/a"], "1"), (["", "/a"], None), ([str(tmp_path)], None):
        monkeypatch.setattr(jvm.sys, "path", path)
        assert jvm._environment(CONF, {}, Path("/t/gateway")).get("PYTHONSAFEPATH") == expected


def test_a_deleted_current_folder_does_not_keep_java_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setattr(sys, "path", ["/somewhere"])
    assert jvm.with_same_path({"A": "1"}) == {"A": "1", "PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain1", "plain1"),
        ("a b=c:d\\e\n#!", "a\\u0020b\\u003dc\\u003ad\\u005ce\\u000a\\u0023\\u0021"),
        ("ü", "\\u00fc"),
        ("😀", "\\ud83d\\ude00"),
        ("", ""),
    ],
)
def test_properties(text: str, escaped: str) -> None:
    assert jvm._escape(text) == escaped


@pytest.mark.parametrize(
    ("name", "value"), [("SPARK_HOME", "/nonexistent"), ("PYSPARK_SUBMIT_ARGS", "--name x")]
)
def test_a_variable_that_keeps_spark_from_starting_is_named(name: str, value: str) -> None:
    process, connection_file = spawn_jvm(CONF, {**os.environ, name: value})
    with pytest.raises(SparkStartError, match="Java ended while") as caught:
        process.wait_ready(connection_file)
    process.close()
    assert name in str(caught.value)


def child(code: str, folder: Path) -> Jvm:
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return Jvm(process, OwnedFolder(folder, jvm.FOLDER_PREFIX))


@pytest.mark.parametrize(
    ("printed", "reported"),
    [
        ("noise\\nError: Could not find main\\nmore", "Error: Could not find main"),
        ('Exception in thread "main" a.b.C: no such thing\\n\\tat x', "no such thing"),
        ("downloading\\n[unresolved dependency: a#b;1: not found]\\nx", "[unresolved dependency"),
        (
            "Error occurred during initialization of VM\\nCould not reserve enough space\\n",
            "Could not reserve enough space",
        ),
        (
            "Error occurred during initialization of VM\\njava.lang.Error: no folder\\n\\tat x",
            "java.lang.Error: no folder",
        ),
        ("only this\\n\\n", "only this"),
        ("", "exit code 3"),
    ],
)
def test_why_java_ended(tmp_path: Path, printed: str, reported: str) -> None:
    process = child(f"import sys; sys.stdout.write('{printed}'); sys.exit(3)", tmp_path / "f")
    with pytest.raises(SparkStartError) as caught:
        process.wait_ready(tmp_path / "gateway")
    assert str(caught.value).startswith(f"Java ended while Spark was starting: {reported}")
    process.close()


def test_what_java_prints_is_logged_but_for_lines_about_logging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ready = tmp_path / "ready"
    ready.write_bytes(struct.pack("!ii", 1, 0))
    lines = ["SLF4J: Failed to load class", 'Setting default log level to "WARN".', "disk is full"]
    text = "\n".join(lines)
    process = child(f"import sys; sys.stdin.readline(); print({text!r})", tmp_path / "f")
    with caplog.at_level("INFO"):
        process.wait_ready(ready)
        process._process.stdin.write(b"\n")  # type: ignore[union-attr]
        process._process.stdin.flush()  # type: ignore[union-attr]
        process._listener.join()
    process.close()
    assert [record.getMessage() for record in caplog.records] == ["Spark: disk is full"]


def test_close_ends_a_process_that_does_not_listen(tmp_path: Path) -> None:
    process = child("import time; time.sleep(60)", tmp_path / "f")
    began = time.monotonic()
    process.close(orderly=True, seconds=0.3)
    process.close()
    assert time.monotonic() - began < 5
    assert not process.alive
    assert list((tmp_path / "f").iterdir()) == []


def test_an_orderly_close_waits(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import sys, time; sys.stdin.read(); time.sleep(0.3); open({str(mark)!r}, 'w')"
    child(code, tmp_path / "f").close(orderly=True)
    assert mark.exists()


def test_java_that_cannot_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(jvm, "_command", lambda *_: ["/nonexistent/java"])
    with pytest.raises(SparkStartError, match="Java cannot be executed"):
        spawn_jvm(CONF, {})
    assert list(tmp_path.iterdir()) == []


def test_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm.tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(SparkStartError, match=r"cannot create a temporary folder: .*TMPDIR"):
        spawn_jvm(CONF, {})


def test_a_start_removes_what_killed_ones_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OwnedFolder(tmp_path, jvm.FOLDER_PREFIX) as dead:
        copy = dead.path.with_name(dead.path.name + "x")
        shutil.copytree(dead.path, copy)
    (copy / jvm.PROPERTIES).write_text("secret")
    monkeypatch.setattr(jvm.tempfile, "tempdir", str(tmp_path))
    wait = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    monkeypatch.setattr(jvm, "_command", lambda *_: wait)
    process, connection_file = spawn_jvm(CONF, dict(os.environ))
    assert [path.name for path in tmp_path.iterdir()] == [connection_file.parent.name]
    assert (connection_file.parent / jvm.PROPERTIES).stat().st_mode & 0o777 == 0o600
    process.close()
    assert list(tmp_path.iterdir()) == []


def test_tracebacks_of_workers_are_told_from_other_lines() -> None:
    lines = [
        ("26/11/21 WARN something", False),
        ("Traceback (most recent call last):", True),
        ('  File "daemon.py", line 1, in manager', True),
        ("    code = worker(sock)", True),
        ("", True),
        ("ValueError: broken", True),
        ("26/11/21 WARN something else", False),
        ("  indented, but by itself", False),
    ]
    is_trace = Tracebacks()
    assert [(line, is_trace(line)) for line, _ in lines] == lines


@pytest.mark.parametrize("asked", ["", "default", "error::UserWarning"])
def test_workers_show_no_warnings_for_developers(asked: str) -> None:
    supplied = {"PATH": "/bin"} | ({"PYTHONWARNINGS": asked} if asked else {})
    env = jvm._environment(CONF, supplied, Path("/t/gateway"))
    code = "import warnings; warnings.warn('x', ResourceWarning); warnings.warn('y', UserWarning)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert "ResourceWarning: x" not in done.stderr
    assert "UserWarning: y" in done.stderr
    assert done.returncode == (1 if "error" in asked else 0)
