"""Both command lines: options, exit codes, outputs, and what is not imported."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import tap_spark.cli
import target_spark.cli
from shared import cli
from shared.errors import (
    EXIT_CODES,
    ClosedPipeError,
    DestinationError,
    InvalidSettingsError,
    MessageError,
    RecordError,
    SourceError,
    SparkStartError,
    TerminatedRunError,
    Where,
)
from tap_spark.config import PROGRAM as TAP
from tap_spark.config import TapConfig
from tap_spark.plan.run_options import RunOptions, StreamRange
from target_spark.run_settings import TargetConfig

PROGRAMS = pytest.mark.parametrize("program", ["tap-spark", "target-spark"])
MAIN: dict[str, Callable[[list[str]], int]] = {
    "tap-spark": tap_spark.cli.main,
    "target-spark": target_spark.cli.main,
}
GOOD: dict[str, dict[str, Any]] = {
    "tap-spark": {"streams": [{"name": "r", "format": "rows", "row_count": 1}]},
    "target-spark": {"path": "out"},
}
HEAVY = ("pyspark", "pyarrow", "py4j", "pandas", "numpy", "fsspec")


@pytest.fixture(autouse=True)
def process_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Handlers, signals and working folder as they were; no settings from outside."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    on_term = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("TAP_", "TARGET_", "LOG"))]:
        monkeypatch.delenv(name)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    signal.signal(signal.SIGTERM, on_term)


def write(name: str, value: Any) -> str:
    Path(name).write_text(value if isinstance(value, str) else json.dumps(value))
    return name


def config_of(program: str) -> str:
    return write("config.json", GOOD[program])


class FakeOutput:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Stands in for everything behind the command lines; lists the calls."""
    calls: list[tuple[Any, ...]] = []
    output = FakeOutput()

    def module(name: str, **functions: Any) -> None:
        created = ModuleType(name)
        vars(created).update(functions)
        monkeypatch.setitem(sys.modules, name, created)

    def recorder(name: str, result: Any = None) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            calls.append((name, *args))
            return result

        return call

    for program in (tap_spark.cli, target_spark.cli):
        monkeypatch.setattr(program, "claim_stdout", recorder("claim_stdout", output))
    monkeypatch.setattr(tap_spark.cli, "load_catalog", recorder("load_catalog", {"c": 1}))
    monkeypatch.setattr(tap_spark.cli, "load_state", recorder("load_state", {"s": 1}))
    module("tap_spark.plan.discovery", discover=recorder("discover", {"streams": ["é"]}))
    module("tap_spark.send.sync", run_sync=recorder("run_sync"))
    module("tap_spark.send.trials", **{name: recorder(name) for name in ("run_test", "dry_run")})
    monkeypatch.setattr(target_spark.cli, "run", recorder("run"))
    return calls


@PROGRAMS
class TestAnswers:
    def test_help(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert MAIN[program](["--help"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"Usage: {program} [OPTIONS]")
        for option in ("--config", "--about", "--format", "--version", "--validate-config"):
            assert option in out

    def test_version(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert MAIN[program](["--version"]) == 0
        assert capsys.readouterr().out.startswith(f"{program} v")

    @pytest.mark.parametrize("style", ["text", "json", "markdown"])
    def test_about(self, program: str, style: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert MAIN[program](["--about", "--format", style]) == 0
        out, err = capsys.readouterr()
        assert program in out
        assert err == ""
        if style == "json":
            assert json.loads(out)["name"] == program

    def test_about_needs_no_settings(
        self, program: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert MAIN[program](["--about", "--config", "missing.json"]) == 0
        assert capsys.readouterr().out.startswith(f"Name: {program}\n")

    def test_validate_config(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert MAIN[program](["--config", config_of(program), "--validate-config"]) == 0
        out, err = capsys.readouterr()
        assert out == ""
        assert "the settings are valid" in err

    def test_a_password_is_no_part_of_a_place(
        self, program: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place = {"path": "sftp://me:hunter2pass@host.example/dir.csv"}
        settings = (
            place
            if program == "target-spark"
            else {
                "streams": [{"name": "c", "format": "csv", "path": [*place.values()]}],
                "connections": [{"name": "a", **place}],
            }
        )
        file = write("c.json", settings)
        for args in (["--config", file], [*place.values()]):
            assert MAIN[program]([*args, "--validate-config", "--summary", "s.json"]) == 2
            err = capsys.readouterr().err
            assert err.count("['path']") == err.count("sftp://***@host.example") == len(settings)
            assert "hunter2" not in err + Path("s.json").read_text()
            settings = place

    @pytest.mark.parametrize(
        "args",
        [
            ["https://me:hunter2@host/api", "--format", "x"],
            ["sqlserver://sa:hunter2@db/x"],
            ["--config", "https://me:hunter2@host/c.json"],
            ["--config=ENV", "--summary", "s3://me:hunter2@bucket/s.json"],
        ],
    )
    def test_a_password_in_an_argument_is_hidden(
        self, program: str, args: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert MAIN[program]([*args, "--report", "r.html"]) == 2
        assert "hunter2" not in capsys.readouterr().err

    def test_validate_wrong_config(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        path = write("bad.json", {"spark": {"mastr": 1}, "surplus": "hunter2"})
        assert MAIN[program](["--config", path, "--validate-config"]) == 2
        out, err = capsys.readouterr()
        lines = err.splitlines()
        assert out == ""
        assert len(lines) == 3
        assert all(f"| ERROR    | {program} | config" in line for line in lines)
        assert "hunter2" not in err

    def test_missing_config_file(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert MAIN[program](["--config", "missing.json"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.endswith("config file 'missing.json': the file does not exist")

    def test_no_config(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert MAIN[program]([]) == 2
        assert "give --config FILE or --config ENV" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "args", [["--confg", "x"], ["--format", "xml"], ["a", "stray"], ["--config"]]
    )
    def test_wrong_usage(
        self, program: str, args: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert MAIN[program](args) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith((f"Usage: {program}", "Error: "))

    def test_wrong_usage_that_cannot_be_told(
        self, program: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Path("/dev/full").open("wb", buffering=0) as full:
            monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(full, write_through=True))
            assert MAIN[program](["--bogus"]) == 2

    def test_several_configs_and_environment(
        self, program: str, monkeypatch: pytest.MonkeyPatch, edge: list[tuple[Any, ...]]
    ) -> None:
        first = write("a.json", {**GOOD[program], "spark": {"master": "a", "app_name": "a"}})
        second = write("b.json", {"spark": {"master": "b"}})
        prefix = program.upper().replace("-", "_")
        monkeypatch.setenv(f"{prefix}_SPARK__MASTER", "env")
        write(".env", f"{prefix}_SPARK__CONF__SPARK__X=1\n")
        args = ["--config", first, "--config=ENV", "--config", second]
        assert MAIN[program](args) == 0
        config = next(
            call[1] for call in edge if call[1:] and isinstance(call[1], (TapConfig, TargetConfig))
        )
        assert (config.spark.master, config.spark.app_name) == ("env", "a")
        assert config.spark.conf == {"spark.x": "1"}

    def test_arguments_of_the_process(
        self, program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "argv", [program, "--version"])
        main: Any = MAIN[program]
        assert main() == 0
        assert capsys.readouterr().out.startswith(program)


class TestTap:
    def run(self, *args: str) -> int:
        return tap_spark.cli.main(["--config", config_of("tap-spark"), *args])

    def test_sync(self, edge: list[tuple[Any, ...]]) -> None:
        assert self.run() == 0
        assert [call[0] for call in edge] == ["claim_stdout", "run_sync"]
        assert edge[1][2:4] == (None, None)

    def test_logins_beside_a_place_are_in_dotenv(self, edge: list[tuple[Any, ...]]) -> None:
        shop = {"name": "s", "url": "jdbc:postgresql://h/s", "password_variable": "SHOP_PW"}
        own = {"TAP_SPARK_USER": "me", "TAP_SPARK_PASSWORD": "hush", "SHOP_PW": "hush"}
        own["TAP_SPARK_CONNECTIONS"] = f"'{json.dumps([shop])}'"
        write(".env", "".join(f"{name}={value}\n" for name, value in own.items()))
        for place, user in ((write("a.csv", "x\n"), None), ("postgresql://h/d", "me")):
            assert tap_spark.cli.main([place]) == 0
            [one] = edge[-1][1].connections
            assert (one.user, one.password) == (user, "hush")
        write(".env", "PGUSER=me\nPGPASSWORD=hush\n")
        assert target_spark.cli.main(["postgresql://h/d"]) == 0
        assert edge[-1][1].block.user == "me"
        write(".env", "A='x")
        assert tap_spark.cli.main(["a.csv"]) == 2

    def test_sync_with_catalog_and_state(self, edge: list[tuple[Any, ...]]) -> None:
        assert self.run("--catalog", "c.json", "--state", "s.json") == 0
        assert edge[1:3] == [("load_catalog", "c.json"), ("load_state", "s.json")]
        name, config, catalog, state, output, options, _ = edge[3]
        assert (name, catalog, state) == ("run_sync", {"c": 1}, {"s": 1})
        assert options == RunOptions()
        assert isinstance(config, TapConfig)
        assert isinstance(output, FakeOutput)

    @pytest.mark.parametrize(
        ("option", "mode"), [("--test", "all"), ("--test=all", "all"), ("--test=schema", "schema")]
    )
    def test_test(self, edge: list[tuple[Any, ...]], option: str, mode: str) -> None:
        assert self.run(option) == 0
        name, _, supplied, catalog, _, options = edge[1]
        assert (name, supplied, catalog, options) == ("run_test", mode, None, RunOptions())

    def test_test_before_another_option(self, edge: list[tuple[Any, ...]]) -> None:
        assert tap_spark.cli.main(["--test", "--config", config_of("tap-spark")]) == 0
        assert edge[1][0] == "run_test"

    @pytest.mark.usefixtures("edge")
    def test_discover_prints_the_catalog(self, monkeypatch: pytest.MonkeyPatch) -> None:
        output = FakeOutput()
        monkeypatch.setattr(tap_spark.cli, "claim_stdout", lambda: output)
        assert self.run("--discover") == 0
        assert json.loads(output.data) == {"streams": ["é"]}
        assert output.data.endswith(b"\n")

    def test_discover_claims_stdout_first(self, edge: list[tuple[Any, ...]]) -> None:
        self.run("--discover")
        assert [call[0] for call in edge] == ["claim_stdout", "discover"]

    def test_options_of_a_run(self, edge: list[tuple[Any, ...]]) -> None:
        assert self.run("--streams", "a*", "--streams", "b", "--full-refresh", "*") == 0
        assert edge[1][-2] == RunOptions(streams=("a*", "b"), full_refresh=("*",))

    def test_a_dry_run(self, edge: list[tuple[Any, ...]]) -> None:
        assert self.run("--dry-run", "--state", "s.json", "--limit", "5") == 0
        name, _, catalog, state, options = edge[-1]
        assert (name, catalog, state) == ("dry_run", None, {"s": 1})
        assert options == RunOptions(limit=5)

    def test_a_limit_is_at_least_one(self, edge: list[tuple[Any, ...]]) -> None:
        assert self.run("--limit", "0") == 2
        assert edge == []

    def test_a_backfill(self, edge: list[tuple[Any, ...]]) -> None:
        assert self.run("--backfill", "s", "--from", "1", "--to", "9") == 0
        assert edge[1][-2] == RunOptions(backfill=StreamRange("s", "1", "9"))

    @pytest.mark.parametrize(
        "args",
        [["--backfill", "s"], ["--from", "1", "--to", "2"], ["--backfill", "s", "--to", "2"]],
    )
    def test_a_backfill_has_a_range(
        self, edge: list[tuple[Any, ...]], args: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.run(*args) == 2
        assert "must be given together" in capsys.readouterr().err
        assert edge == []

    def test_streams_to_test(self, edge: list[tuple[Any, ...]]) -> None:
        assert self.run("--test", "--streams", "a") == 0
        assert edge[1][0] == "run_test"
        assert edge[1][-1] == RunOptions(streams=("a",))

    @pytest.mark.parametrize(
        "args",
        [
            ["--discover", "--test"],
            ["--discover", "--streams", "a"],
            ["--discover", "--full-refresh", "a"],
            ["--discover", "--dry-run"],
            ["--test", "--dry-run"],
            ["--test", "--limit", "5"],
            ["--backfill", "s", "--from", "1", "--to", "2", "--streams", "s"],
            ["--backfill", "s", "--from", "1", "--to", "2", "--full-refresh", "s"],
            ["--test", "--full-refresh", "a"],
            ["--dry-run", "--empty-code", "99"],
        ],
    )
    def test_options_that_exclude_each_other(
        self, edge: list[tuple[Any, ...]], args: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.run(*args) == 2
        assert "exclude each other" in capsys.readouterr().err
        assert edge == []

    def test_sigterm_ends_the_run(
        self, edge: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        def sync(*_: Any) -> None:
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError("not reached")

        module: Any = sys.modules["tap_spark.send.sync"]
        module.run_sync = sync
        assert self.run() == 143
        assert "terminated by SIGTERM" in capsys.readouterr().err
        signal.raise_signal(signal.SIGTERM)  # A second one no longer interrupts the clean-up.

    def test_sigterm_within_a_log_line_ends_the_run(
        self, edge: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Stderr(io.StringIO):
            def write(self, text: str) -> int:
                if "reading" in text:
                    signal.raise_signal(signal.SIGTERM)
                return super().write(text)

        def sync(*_: Any) -> None:
            logging.getLogger("tap_spark").warning("reading")
            edge.append(("not reached",))

        module: Any = sys.modules["tap_spark.send.sync"]
        module.run_sync = sync
        monkeypatch.setattr(sys, "stderr", Stderr())
        assert (self.run(), edge) == (143, [("claim_stdout",)])

    @pytest.mark.parametrize(
        "error",
        [SparkStartError("Spark has gone away"), SourceError("Spark cannot read it: calling o1")],
    )
    def test_what_a_signal_has_cut_off_is_no_failure_of_spark_or_the_source(
        self, error: Exception, edge: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        def sync(*_: Any) -> None:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                raise error

        module: Any = sys.modules["tap_spark.send.sync"]
        module.run_sync = sync
        assert self.run() == 143
        assert "terminated by SIGTERM" in capsys.readouterr().err

    def test_ctrl_c_ends_the_run(
        self, edge: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        def sync(*_: Any) -> None:
            signal.raise_signal(signal.SIGINT)

        module: Any = sys.modules["tap_spark.send.sync"]
        module.run_sync = sync
        assert self.run() == 130
        [line] = capsys.readouterr().err.splitlines()
        assert "interrupted" in line


class TestTarget:
    def run(self, *args: str) -> int:
        return target_spark.cli.main(["--config", config_of("target-spark"), *args])

    def test_stdin(self, edge: list[tuple[Any, ...]]) -> None:
        assert self.run() == 0
        assert [call[0] for call in edge] == ["claim_stdout", "run"]
        assert isinstance(edge[1][1], TargetConfig)
        assert edge[1][2] == 0

    def test_input_file(self, edge: list[tuple[Any, ...]]) -> None:
        seen: list[bytes] = []
        module: Any = target_spark.cli
        module.run = lambda _config, fd, *_: seen.append(os.read(fd, 100))
        write("in.jsonl", '{"type":"STATE"}\n')
        assert self.run("--input", "in.jsonl") == 0
        assert seen == [b'{"type":"STATE"}\n']

    def test_input_file_is_closed_after_a_failure(self, edge: list[tuple[Any, ...]]) -> None:
        fds: list[int] = []

        def run(_config: Any, fd: int, *_: Any) -> None:
            fds.append(fd)
            raise RecordError("bad")

        module: Any = target_spark.cli
        module.run = run
        write("in.jsonl", "")
        assert self.run("--input", "in.jsonl") == 5
        with pytest.raises(OSError, match=r"\[Errno 9\]"):
            os.fstat(fds[0])

    @pytest.mark.parametrize("name", ["missing.jsonl", "."])
    def test_input_that_cannot_be_read(
        self, name: str, edge: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.run("--input", name) == 3
        [line] = capsys.readouterr().err.splitlines()
        assert f"file '{name}': cannot be read" in line
        assert edge == []

    def test_sigterm_before_the_run_is_told_too(self, edge: list[tuple[Any, ...]]) -> None:
        module: Any = target_spark.cli
        module.run = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
        before = signal.getsignal(signal.SIGTERM)
        try:
            assert self.run() == TerminatedRunError.exit_code
        finally:
            signal.signal(signal.SIGTERM, before)


def ended(error: BaseException, environ: dict[str, str] | None = None) -> int:
    @click.command()
    def command() -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environ or {}).items():
            patch.setenv(name, value)
        return cli.run_main(TAP, command, [])


class TestEndings:
    @pytest.mark.parametrize("kind", EXIT_CODES, ids=lambda kind: kind.__name__)
    def test_every_documented_error(self, kind: Any, capsys: pytest.CaptureFixture[str]) -> None:
        error = kind("it broke", where=Where(stream="s", line=3), hint="do this")
        assert ended(error) == kind.exit_code
        [line] = capsys.readouterr().err.splitlines()
        # A reader that has had enough, like `head`, is no error.
        level = "INFO " if kind is ClosedPipeError else "ERROR"
        assert line.endswith(f"| {level}    | tap-spark | stream 's', line 3: it broke (do this)")

    def test_programs_that_fail_are_seen_if_the_caller_ignores_the_end_of_children(self) -> None:
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            ended(SourceError("it broke"))
            assert subprocess.run(["false"]).returncode == 1
        finally:
            signal.signal(signal.SIGCHLD, before)

    def test_signals_that_the_caller_blocks_arrive(self) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            ended(SourceError("it broke"))
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, set())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def test_all_setting_problems_one_a_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert ended(InvalidSettingsError(["a: x", "b: y"])) == 2
        assert [line.split("| ")[-1] for line in capsys.readouterr().err.splitlines()] == [
            "a: x",
            "b: y",
        ]

    def test_unexpected(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert ended(TypeError("two\nlines %s")) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert line.endswith(
            "unexpected error: TypeError: two lines %s (set LOGLEVEL=debug for the traceback)"
        )

    @pytest.mark.parametrize("error", [TypeError("x"), SourceError("x")])
    def test_traceback_at_debug(self, error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
        ended(error, {"LOGLEVEL": "debug"})
        err = capsys.readouterr().err
        assert "Traceback (most recent call last)" in err
        assert "set LOGLEVEL=debug" not in err

    def test_keyboard_interrupt(self) -> None:
        assert ended(KeyboardInterrupt()) == 130

    def test_terminated(self) -> None:
        assert ended(TerminatedRunError("x")) == 143

    def test_disk_full(self, capsys: pytest.CaptureFixture[str]) -> None:
        error = OSError(errno.ENOSPC, "No space left on device", "/tmp/x")
        assert ended(error) == DestinationError.exit_code
        [line] = capsys.readouterr().err.splitlines()
        assert "file '/tmp/x': No space left on device (free some disk space" in line

    @pytest.mark.parametrize(("folder", "code"), [("/", 6), ("/nonexistent", 2)])
    def test_no_temporary_folder(
        self,
        folder: str,
        code: int,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nonexistent"])
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setenv("TMPDIR", folder)
        with pytest.raises(FileNotFoundError) as caught:
            tempfile.gettempdir()
        assert ended(caught.value) == code
        [line] = capsys.readouterr().err.splitlines()
        assert "No usable temporary directory found in ['/nonexistent'] (set TMPDIR to a" in line

    def test_a_deleted_current_folder(
        self,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        folder = tmp_path / "gone"
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert ended(FileNotFoundError(errno.ENOENT, "No such file or directory")) == 1
        capsys.readouterr()
        folder.rmdir()
        with pytest.raises(FileNotFoundError) as caught:
            Path("out").absolute()
        assert ended(caught.value) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "the current folder has been deleted (change to another one" in line

    def test_no_more_threads(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert ended(RuntimeError("can't start new thread")) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert "can't start new thread (allow more threads: `ulimit -u`, or the limit" in line

    def test_a_locale_without_the_characters_of_a_name(self, tmp_path: Path) -> None:
        config = tmp_path / "target.json"
        config.write_text(json.dumps({"path": str(tmp_path / "größe")}))
        old = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        done = subprocess.run(
            [sys.executable, "-m", "target_spark.cli", "--config", str(config)],
            input=b'{"type": "SCHEMA", "stream": "s", "schema": {"properties": {"a": {}}}}\n'
            b'{"type": "RECORD", "stream": "s", "record": {"a": 1}}\n',
            stderr=subprocess.PIPE,
            env={**os.environ, **old},
            check=False,
        )
        assert done.returncode == 2
        assert b"the locale's encoding lacks characters of a name ('ascii' codec" in done.stderr

    def test_other_os_errors_are_unexpected(self) -> None:
        assert ended(OSError(errno.EIO, "I/O error")) == 1
        assert ended(EOFError()) == 1

    def test_exit_code_of_click(self) -> None:
        assert ended(click.exceptions.Exit(7)) == 7

    def test_known_errors_pass_as_they_are(self) -> None:
        error = MessageError("x")
        assert cli.documented_error(error) is error
        assert cli.documented_error(ValueError("x")) is None


ROOT = Path(cli.__file__).parents[1]


def run_program(program: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    module = program.replace("-", "_") + ".cli"
    code = (
        "import sys\n"
        f"from {module} import main\n"
        f"code = main({list(args)!r})\n"
        f"sys.stderr.write('HEAVY=' + ','.join(m for m in {HEAVY!r} if m in sys.modules))\n"
        "sys.exit(code)\n"
    )
    # No java at all: an answer that started a JVM could not come.
    env = {"PATH": "/nonexistent", "PYTHONPATH": str(ROOT), **environ}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )


@PROGRAMS
@pytest.mark.pipe
class TestProcess:
    @pytest.mark.parametrize(
        ("args", "code"),
        [
            (["--help"], 0),
            (["--version"], 0),
            (["--about"], 0),
            (["--about", "--format=json"], 0),
            (["--config=config.json", "--validate-config"], 0),
            (["--config=bad.json"], 2),
            (["--config=missing.json"], 2),
            (["--nonsense"], 2),
        ],
    )
    def test_answers_without_spark(self, program: str, args: list[str], code: int) -> None:
        config_of(program)
        write("bad.json", {"surplus": 1})
        started = time.monotonic()
        result = run_program(program, *args)
        assert result.returncode == code
        assert result.stderr.endswith("HEAVY=")
        # Far above what it takes (0.2 s), far below a JVM on a busy machine.
        assert time.monotonic() - started < 10

    def test_as_a_module(self, program: str) -> None:
        module = program.replace("-", "_") + ".cli"
        result = subprocess.run(
            [sys.executable, "-m", module, "--config=ENV", "--validate-config"],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "TAP_SPARK_STREAMS": json.dumps(GOOD["tap-spark"]["streams"]),
                "TARGET_SPARK_PATH": "out",
            },
            check=False,
        )
        assert (result.returncode, result.stdout) == (0, "")
        assert "the settings are valid" in result.stderr

    def test_reader_that_goes_away(self, program: str) -> None:
        module = program.replace("-", "_") + ".cli"
        read_end, write_end = os.pipe()
        os.close(read_end)
        result = subprocess.run(
            [sys.executable, "-m", module, "--about"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        os.close(write_end)
        assert result.returncode == 8
        [line] = result.stderr.splitlines()
        assert "has gone away" in line
