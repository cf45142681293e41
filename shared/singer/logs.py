"""Logs on stderr, in the line shape of the Meltano SDK, and a progress line on a terminal."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from shared.text_table import printable

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
FOR_DEVELOPERS = (DeprecationWarning, ImportWarning, PendingDeprecationWarning, ResourceWarning)
"""Warnings that Python ignores by default, but not if Meltano or PYTHONWARNINGS asks for all."""
PROGRESS_INTERVAL_SECONDS = 0.5

_OUR_PACKAGES = ("tap_spark", "target_spark", "shared", "__main__")
_NOISY = ("py4j", "pyspark", "fsspec", "s3fs", "botocore", "aiobotocore", "asyncio", "urllib3")
_ROOT_OF_YAML = re.compile(r"^root:[^\n]*\n(?:[ \t]+[^\n]*\n)*?[ \t]+level:[ \t]*['\"]?(\w+)", re.M)
_CLEAR_LINE = "\r\x1b[K"
_TAB = "\t"


class Console:
    """Standard error, shared by log lines and one transient line.

    Args:
        stream: A text stream; None for `sys.stderr` at the time of writing.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._given = stream
        self._lock = threading.RLock()
        self._transient = False

    @property
    def stream(self) -> TextIO:
        """Return the stream written to."""
        return self._given if self._given is not None else sys.stderr

    @property
    def is_terminal(self) -> bool:
        """Return whether the stream is a terminal."""
        with contextlib.suppress(ValueError, AttributeError):
            return self.stream.isatty()
        return False

    def write_line(self, text: str) -> None:
        """Write a line that stays, in place of the transient one; it cannot steer a terminal."""
        lines = "\n".join(_TAB.join(map(printable, line.split(_TAB))) for line in text.split("\n"))
        with self._lock:
            self._write(f"{_CLEAR_LINE if self._transient else ''}{lines}\n")
            self._transient = False

    def show(self, text: str) -> None:
        """Write, or replace, the transient line."""
        with self._lock:
            self._write(f"{_CLEAR_LINE}{printable(text)}")
            self._transient = True

    def clear(self) -> None:
        """Remove the transient line."""
        with self._lock:
            if self._transient:
                self._write(_CLEAR_LINE)
                self._transient = False

    def _write(self, text: str) -> None:
        # Without stderr it cannot be reported.
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()


CONSOLE = Console()


class ConsoleHandler(logging.Handler):
    """Sends formatted log records to a console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            self.console.write_line(self.format(record))
        except Exception:
            self.handleError(record)


class LineFormatter(logging.Formatter):
    """`2026-11-21 06:20:21,224 | INFO     | tap-spark | message`.

    Args:
        program: Shown in place of the names of this project's own loggers.
    """

    def __init__(self, program: str) -> None:
        super().__init__("%(asctime)s | %(levelname)-8s | %(source)s | %(message)s")
        self.program = program

    def format(self, record: logging.LogRecord) -> str:
        """Write one record; a traceback follows on lines of its own."""
        record.source = source_name(self.program, record.name)
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Write the message on one line, also if names in it hold line ends."""
        return " ".join(super().formatMessage(record).splitlines())


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the keys Meltano's parser for SDK logs asks for.

    Args:
        program: Value of `app_name`.
    """

    def __init__(self, program: str) -> None:
        super().__init__()
        self.program = program
        self.extra: dict[str, str] = {}

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        metric = getattr(record, "metric_info", None)
        data: dict[str, Any] = {
            "level": record.levelname.lower(),
            "pid": record.process,
            "logger_name": record.name,
            "ts": record.created,
            "thread_name": record.threadName,
            "app_name": self.program,
            "stream_name": getattr(record, "stream_name", None),
            "message": "METRIC" if metric else record.getMessage(),
            "extra": self.extra,
        }
        if metric:
            data["metric_info"] = metric
        if record.exc_info and record.exc_info[0]:
            data["exception"] = _exception_data(record.exc_info[0], record.exc_info[1:])
        return json.dumps(data, default=str, separators=(",", ":"))


def _exception_data(
    kind: type[BaseException], rest: tuple[BaseException | None, TracebackType | None]
) -> dict[str, Any]:
    error, trace = rest
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(
            {
                "filename": code.co_filename,
                "function": code.co_name,
                "lineno": trace.tb_lineno,
                "line": "",
            }
        )
        trace = trace.tb_next
    return {
        "type": kind.__name__,
        "module": kind.__module__,
        "message": str(error),
        "traceback": frames,
    }


def source_name(program: str, logger_name: str) -> str:
    """Return the program for its own loggers, and the name of any other logger."""
    return (
        program
        if logger_name.split(".", maxsplit=1)[0] in (*_OUR_PACKAGES, program)
        else logger_name
    )


def setup_logging(program: str, environ: Mapping[str, str], console: Console = CONSOLE) -> None:
    """Send all logs, and the warnings of Python, to stderr.

    `LOGLEVEL` (or, before it, `TAP_SPARK_LOGLEVEL`) sets the level; `LOG_FORMAT=json` writes JSON.
    Meltano's `SINGER_SDK_LOG_CONFIG` sets both if they are not set.

    Args:
        program: E.g. `tap-spark`.
        environ: Environment variables.
        console: The console to write to.
    """
    prefix = program.upper().replace("-", "_")
    level_name, style = _meltano_logging(environ.get("SINGER_SDK_LOG_CONFIG"))
    asked = environ.get(f"{prefix}_LOGLEVEL") or environ.get("LOGLEVEL") or level_name
    level = LEVELS.get(asked.strip().lower())
    wants_json = (environ.get("LOG_FORMAT") or style).strip().lower() == "json"
    handler = ConsoleHandler(console)
    handler.setFormatter(JsonFormatter(program) if wants_json else LineFormatter(program))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, ConsoleHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO if level is None else level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING if name != "py4j" else logging.CRITICAL)
    warnings.showwarning = _log_warning
    if level is None:
        known = "debug, info, warning, error"
        logging.getLogger(program).warning(
            "the log level %r is unknown; known are %s; using info", asked, known
        )


def mark_run(run_id: str) -> None:
    """Put the identity of the run into each JSON line from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonFormatter):
            handler.formatter.extra = {"run_id": run_id}
    logging.getLogger(__name__).debug("run %s", run_id)


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    level = logging.DEBUG if issubclass(category, FOR_DEVELOPERS) else logging.WARNING
    text = " ".join(str(message).split())
    logging.getLogger("py.warnings").log(
        level, "%s: %s (%s:%s)", category.__name__, text, filename, lineno
    )


def _meltano_logging(path: str | None) -> tuple[str, str]:
    """Read level and style from the logging configuration of an SDK plugin.

    Meltano writes it as JSON, users as YAML, of which this takes the level of `root` in a block.
    """
    try:
        text = Path(path).read_text(encoding="utf-8") if path else "{}"
    except (OSError, ValueError):
        return "info", "text"
    try:
        level = json.loads(text).get("root", {}).get("level", "info")
    except (ValueError, AttributeError):
        found = _ROOT_OF_YAML.search(text)
        level = found[1] if found else "info"
    return str(level), "json" if "StructuredFormatter" in text else "text"


def is_debug() -> bool:
    """Return whether to log tracebacks."""
    return logging.getLogger().isEnabledFor(logging.DEBUG)


class Progress:
    """A line with rows, rows/s and MB that a terminal shows while a stream runs.

    Safe for several threads; does nothing if stderr is not a terminal.

    Args:
        label: What moves, e.g. the stream's name.
        console: The console that shows the line.
        clock: Seconds.
    """

    def __init__(
        self,
        label: str,
        *,
        console: Console = CONSOLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._console = console
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._shown_at = self._started
        self._enabled = console.is_terminal
        self._committed_at: float | None = None
        self.rows = 0
        self.bytes = 0

    def add(self, rows: int, size: int = 0) -> None:
        """Count rows and bytes that are done, and show the line at most twice a second."""
        with self._lock:
            self.rows += rows
            self.bytes += size
            now = self._clock()
            if not self._enabled or now - self._shown_at < PROGRESS_INTERVAL_SECONDS:
                return
            self._shown_at = now
            self._console.show(self.text(now - self._started))

    def committed(self) -> None:
        """Record that rows have become durable now."""
        self._committed_at = self._clock()

    def text(self, seconds: float) -> str:
        """Write the line for a stream that has run for so long."""
        rate = self.rows / seconds if seconds > 0 else 0.0
        text = f"{self._label}: {self.rows:,} rows, {rate:,.0f} rows/s, {self.bytes / 1e6:,.1f} MB"
        if self._committed_at is None:
            return text
        age = self._started + seconds - self._committed_at
        return f"{text}, last commit {max(0.0, age):,.0f} s ago"

    def close(self) -> None:
        """Remove the line."""
        if self._enabled:
            self._console.clear()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
