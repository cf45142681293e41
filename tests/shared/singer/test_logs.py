"""Log lines, their JSON form, and their form on a terminal."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.singer.logs import (
    IN_SUMMARY,
    Console,
    ConsoleHandler,
    LineFormatter,
    choose_level,
    is_debug,
    mark_run,
    setup_logging,
)
from shared.singer.metrics import emit

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \| (\w+) +\| ([\w.-]+) \| (.*)")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Put the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with warnings.catch_warnings():
        yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(environ: dict[str, str], program: str = "tap-spark") -> io.StringIO:
    stream = io.StringIO()
    setup_logging(program, environ, Console(stream))
    return stream


class TestLines:
    def test_shape(self) -> None:
        stream = logged({})
        logging.getLogger("tap_spark.send.sync").info("read %s", 3)
        match = LINE.fullmatch(stream.getvalue().rstrip("\n"))
        assert match is not None
        assert match.groups() == ("INFO", "tap-spark", "read 3")
        assert "| INFO     | tap-spark | read 3\n" in stream.getvalue()

    def test_a_message_is_one_line_whatever_names_it_holds(self) -> None:
        stream = logged({})
        logging.getLogger("tap_spark").info("column '%s'", "a\r\nb\n| ERROR | c\u2028")
        assert stream.getvalue().endswith("| tap-spark | column 'a b | ERROR | c '\n")
        assert stream.getvalue().count("\n") == 1

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            ("tap_spark", "tap-spark"),
            ("tap_spark.send.sync", "tap-spark"),
            ("shared.singer.metrics", "tap-spark"),
            ("tap-spark", "tap-spark"),
            ("__main__", "tap-spark"),
            ("botocore.client", "botocore.client"),
            ("sharedness", "sharedness"),
        ],
    )
    def test_own_loggers_have_the_name_of_the_program(self, name: str, shown: str) -> None:
        record = logging.LogRecord(name, logging.INFO, "", 0, "text", None, None)
        assert LineFormatter("tap-spark").format(record).endswith(f"| {shown} | text")

    def test_set_up_twice_writes_once(self) -> None:
        logged({})
        stream = logged({})
        logging.getLogger("x").warning("once")
        assert stream.getvalue().count("once") == 1
        ours = [h for h in logging.getLogger().handlers if isinstance(h, ConsoleHandler)]
        assert len(ours) == 1

    def test_a_bad_format_does_not_end_the_run(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logging, "raiseExceptions", False)
        logged({})
        logging.getLogger("x").warning("%d", "text")

    def test_a_closed_stream_does_not_end_the_run(self) -> None:
        stream = logged({})
        stream.close()
        logging.getLogger("x").warning("lost")

    def test_stderr_is_looked_up_when_written(self, capsys: pytest.CaptureFixture[str]) -> None:
        setup_logging("tap-spark", {})
        logging.getLogger("x").warning("to stderr")
        out, err = capsys.readouterr()
        assert out == ""
        assert "to stderr" in err


class TestLevels:
    @pytest.mark.parametrize(
        ("environ", "level"),
        [
            ({}, logging.INFO),
            ({"LOGLEVEL": "debug"}, logging.DEBUG),
            ({"LOGLEVEL": "WARNING"}, logging.WARNING),
            ({"LOGLEVEL": " error "}, logging.ERROR),
            ({"LOGLEVEL": "error", "TAP_SPARK_LOGLEVEL": "debug"}, logging.DEBUG),
            ({"LOGLEVEL": "error", "TARGET_SPARK_LOGLEVEL": "debug"}, logging.ERROR),
            ({"LOGLEVEL": ""}, logging.INFO),
        ],
    )
    def test_level(self, environ: dict[str, str], level: int) -> None:
        logged(environ)
        assert logging.getLogger().level == level
        assert is_debug() == (level == logging.DEBUG)

    @pytest.mark.parametrize("program", ["tap-spark", "target-spark"])
    def test_each_program_has_a_level_of_its_own(self, program: str) -> None:
        name = program.upper().replace("-", "_")
        logged({"LOGLEVEL": "error", f"{name}_LOGLEVEL": "debug"}, program)
        assert logging.getLogger().level == logging.DEBUG

    def test_unknown_level_is_warned_of(self) -> None:
        stream = logged({"LOGLEVEL": "loud", "LOG_FORMAT": "jsn"})
        assert "'loud' is unknown" in stream.getvalue()
        assert "LOG_FORMAT 'jsn' is unknown" in stream.getvalue()
        assert logging.getLogger().level == logging.INFO

    @pytest.mark.parametrize("name", ["py4j.clientserver", "pyspark.sql", "fsspec", "s3fs"])
    @pytest.mark.parametrize("level", ["info", "debug"])
    def test_noise_of_libraries_is_kept_out(self, name: str, level: str) -> None:
        stream = logged({"LOGLEVEL": level})
        logging.getLogger(name).info("noise")
        logging.getLogger(name).debug("noise")
        assert stream.getvalue() == ""


class TestMeltano:
    def config(self, folder: Path, formatter: dict[str, str], level: str = "INFO") -> str:
        path = folder / "logging.json"
        path.write_text(
            json.dumps({"formatters": {"default": formatter}, "root": {"level": level}})
        )
        return str(path)

    def test_structured_logs_where_meltano_asks(self, tmp_path: Path) -> None:
        path = self.config(tmp_path, {"()": "singer_sdk.logging.StructuredFormatter"}, "DEBUG")
        stream = logged({"SINGER_SDK_LOG_CONFIG": path})
        logging.getLogger("tap_spark").debug("hello")
        assert json.loads(stream.getvalue())["message"] == "hello"

    def test_a_configuration_in_yaml(self, tmp_path: Path) -> None:
        path = tmp_path / "logging.yml"
        text = "version: 1\nformatters:\n  one:\n    (): singer_sdk.logging.StructuredFormatter\n"
        path.write_text(f"{text}root:\n  handlers: [console]\n  level: DEBUG\n")
        stream = logged({"SINGER_SDK_LOG_CONFIG": str(path)})
        logging.getLogger("tap_spark").debug("hello")
        assert json.loads(stream.getvalue())["message"] == "hello"

    def test_own_variables_win(self, tmp_path: Path) -> None:
        path = self.config(tmp_path, {"()": "singer_sdk.logging.StructuredFormatter"}, "DEBUG")
        environ = {"SINGER_SDK_LOG_CONFIG": path, "LOG_FORMAT": "text", "LOGLEVEL": "info"}
        stream = logged(environ)
        logging.getLogger("tap_spark").debug("hidden")
        logging.getLogger("tap_spark").info("shown")
        assert LINE.fullmatch(stream.getvalue().rstrip("\n"))

    def test_plain_format(self, tmp_path: Path) -> None:
        path = self.config(tmp_path, {"format": "%(message)s"})
        stream = logged({"SINGER_SDK_LOG_CONFIG": path})
        logging.getLogger("tap_spark").info("shown")
        assert LINE.fullmatch(stream.getvalue().rstrip("\n"))

    @pytest.mark.parametrize("content", [None, "", "[]", "{", "version: 1"])
    def test_unreadable_configuration_is_passed_over(
        self, tmp_path: Path, content: str | None
    ) -> None:
        path = tmp_path / "logging.json"
        if content is not None:
            path.write_text(content)
        logged({"SINGER_SDK_LOG_CONFIG": str(path)})
        assert logging.getLogger().level == logging.INFO


class TestJson:
    # What Meltano's parser of SDK logs asks for.
    REQUIRED = frozenset(
        {"level", "pid", "logger_name", "ts", "thread_name", "app_name", "message"}
    )

    def test_keys(self) -> None:
        stream = logged({"LOG_FORMAT": "json"})
        logging.getLogger("tap_spark.send.sync").warning("two\nlines %s", "x")
        line = stream.getvalue()
        data = json.loads(line)
        assert line.count("\n") == 1
        assert set(data) >= self.REQUIRED
        assert (data["level"], data["message"]) == ("warning", "two\nlines x")
        assert (data["app_name"], data["logger_name"]) == ("tap-spark", "tap_spark.send.sync")

    def test_run_id(self) -> None:
        stream = logged({"LOG_FORMAT": "json"})
        mark_run("one")
        logging.getLogger("tap_spark").info("x")
        mark_run("two")
        logging.getLogger("tap_spark").info("x")
        ids = [json.loads(line)["extra"]["run_id"] for line in stream.getvalue().splitlines()]
        assert ids == ["one", "two"]

    def test_stream_name(self) -> None:
        stream = logged({"LOG_FORMAT": "JSON"})
        logging.getLogger("tap_spark").info("x", extra={"stream_name": "orders"})
        assert json.loads(stream.getvalue())["stream_name"] == "orders"

    def test_exception(self) -> None:
        stream = logged({"LOG_FORMAT": "json"})
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("tap_spark").exception("failed")
        error = json.loads(stream.getvalue())["exception"]
        assert (error["type"], error["module"], error["message"]) == (
            "ValueError",
            "builtins",
            "why",
        )
        assert error["traceback"][0]["function"] == "test_exception"


class TestTerminal:
    def shown(self, environ: dict[str, str]) -> str:
        stream = Terminal()
        setup_logging("target-spark", environ, Console(stream))
        logger = logging.getLogger("target_spark")
        emit("counter", "record_count", 3, None)
        logger.info("loaded by threads", extra=IN_SUMMARY)
        logger.info("a name\x1b[2J\nand more")
        logger.warning("odd")
        logger.error("bad")
        return stream.getvalue()

    def test_lines_are_for_people(self) -> None:
        time = r"\d\d:\d\d:\d\d target-spark \| "
        lines = self.shown({"NO_COLOR": "1"}).split("\n")
        wanted = (r"a name\?\[2J and more", "warning: odd", "error: bad")
        for line, text in zip(lines[:-1], wanted, strict=True):
            assert re.fullmatch(rf"\r\x1b\[J{time}{text}", line), line

    def test_colors_unless_nobody_wants_them(self) -> None:
        assert re.search(r"\x1b\[31m[^\n]*error: bad\x1b\[0m\n", self.shown({}))
        assert "\x1b[31m" not in self.shown({"NO_COLOR": "1"})
        assert "\x1b" not in self.shown({"TERM": "dumb"})

    @pytest.mark.parametrize("environ", [{"LOGLEVEL": "debug"}, {"LOG_FORMAT": "json"}])
    def test_nothing_is_left_out_for_those_who_look_for_faults(
        self, environ: dict[str, str]
    ) -> None:
        text = self.shown(environ)
        assert "record_count" in text
        assert "loaded by threads" in text

    def test_a_chosen_level_is_stronger_than_the_environment(self) -> None:
        stream = logged({"LOGLEVEL": "debug"})
        choose_level("error")
        logging.getLogger("x").warning("no")
        assert stream.getvalue() == ""


class TestPythonWarnings:
    @pytest.mark.parametrize(
        ("kind", "at_info", "at_debug"),
        [
            (ResourceWarning, "", "DEBUG"),
            (DeprecationWarning, "", "DEBUG"),
            (FutureWarning, "", "DEBUG"),
            (UserWarning, "WARNING", "WARNING"),
        ],
    )
    def test_they_are_log_lines(self, kind: type[Warning], at_info: str, at_debug: str) -> None:
        for level, expected in (("info", at_info), ("debug", at_debug)):
            stream = logged({"LOGLEVEL": level})
            warnings.simplefilter("always")
            warnings.warn("two\nlines", kind, stacklevel=1)
            lines = stream.getvalue().splitlines()
            assert len(lines) == bool(expected)
            for line in lines:
                match = LINE.fullmatch(line)
                assert match is not None
                assert match[1] == expected
                assert match[2] == "py.warnings"
                assert match[3].startswith(f"{kind.__name__}: two lines (")


class _Broken:
    def __del__(self) -> None:
        raise ValueError("two\nlines")


@pytest.mark.parametrize(("level", "count"), [("info", 0), ("debug", 1)])
def test_an_exception_that_cannot_be_raised_is_a_log_line(
    level: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    stream = logged({"LOGLEVEL": level})
    _Broken()
    lines = stream.getvalue().splitlines()
    assert len(lines) == count
    assert all("ValueError, ignored in" in line and "two lines" in line for line in lines)
