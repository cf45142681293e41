"""Logs on stderr: in the line shape of the Meltano SDK, or shorter on a terminal."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import stat
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, TextIO

from shared.errors import SingerSparkError
from shared.settings.texts import printable, without_secrets, without_secrets_inside

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
# No user can act on them: of `FutureWarning`, Python has one for each pattern with a "nested set".
FOR_DEVELOPERS = (
    DeprecationWarning,
    FutureWarning,
    ImportWarning,
    PendingDeprecationWarning,
    ResourceWarning,
)
"""Warnings that Python ignores by default, but not if Meltano or PYTHONWARNINGS asks for all."""
IN_SUMMARY = {"is_in_summary": True}
"""`extra` of log lines that the summary on a terminal repeats, so that it leaves them out."""

_OUR_PACKAGES = ("tap_spark", "target_spark", "shared", "__main__")
_NOISY = ("py4j", "pyspark", "fsspec", "s3fs", "botocore", "aiobotocore", "asyncio", "urllib3")
_ROOT_OF_YAML = re.compile(r"^root:[^\n]*\n(?:[ \t]+[^\n]*\n)*?[ \t]+level:[ \t]*['\"]?(\w+)", re.M)
_CLEAR = "\r\x1b[J"
"""Removes the live lines of any program of ours: the cursor waits at the first of them."""
_TAP_WAITS = 2.0
_USUAL_SIZE = os.terminal_size((80, 24))
_STDOUT = 1
_IN_LINES = "\n\t"
_COLORS = ((logging.ERROR, 31), (logging.WARNING, 33))


class Console:
    """Standard error, shared by log lines and, on a terminal, live lines below them.

    Args:
        stream: A text stream; None for `sys.stderr` at the time of writing.

    Attributes:
        live_after: Seconds after which live lines may be shown; None for never.
        is_for_people: Whether the stream is a terminal, and nobody has asked for JSON.
        colors: Whether to mark warnings and errors by colors.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._has_live_lines = False
        self.live_after: float | None = None
        self.is_for_people = False
        self.colors = False

    @property
    def stream(self) -> TextIO:
        """Return the stream written to."""
        return self._stream if self._stream is not None else sys.stderr

    @property
    def size(self) -> os.terminal_size:
        """Return columns and lines of the terminal now."""
        with contextlib.suppress(OSError, ValueError):
            size = os.get_terminal_size(self.stream.fileno())
            if size.columns and size.lines:
                return size
        return _USUAL_SIZE

    def suit(self, program: str, environ: Mapping[str, str], *, wants_json: bool) -> None:
        """Choose what a terminal shows; must come before standard output is claimed."""
        is_dumb = environ.get("TERM") == "dumb"
        self.is_for_people = False
        with contextlib.suppress(ValueError, AttributeError):
            self.is_for_people = self.stream.isatty() and not wants_json
        self.colors = self.is_for_people and not is_dumb and not environ.get("NO_COLOR")
        self.live_after = 0.0 if self.is_for_people and not is_dumb else None
        if self.live_after is not None and program == "tap-spark":
            # target-spark shows what is loaded. Another reader of a pipe may show nothing.
            self.live_after = _TAP_WAITS if is_pipe(_STDOUT) else None if os.isatty(_STDOUT) else 0

    def write_line(self, text: str) -> None:
        """Write a line, or lines, that stay; it cannot steer a terminal."""
        self.write_styled(printable(without_secrets(text), _IN_LINES))

    def write_styled(self, text: str) -> None:
        """Write lines that stay, which may have colors, in one piece."""
        with self._lock:
            clears = self._has_live_lines or self.live_after is not None
            self._write(f"{_CLEAR if clears else ''}{text}\n")
            self._has_live_lines = False

    def show(self, lines: Sequence[str]) -> None:
        """Write, or replace, the live lines."""
        with self._lock:
            up = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
            text = "\n".join(printable(without_secrets(line)) for line in lines)
            self._write(f"{_CLEAR}{text}{up}\r")
            self._has_live_lines = True

    def clear(self) -> None:
        """Remove the live lines."""
        with self._lock:
            if self._has_live_lines:
                self._write(_CLEAR)
                self._has_live_lines = False

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Keep the terminal clear while something else writes to it."""
        with self._lock:
            self.clear()
            yield

    def _write(self, text: str) -> None:
        # Without stderr it cannot be reported.
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()


def is_pipe(fd: int) -> bool:
    """Return whether a descriptor is a pipe, or a socket, which some shells use as one."""
    with contextlib.suppress(OSError):
        mode = os.fstat(fd).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    return False


CONSOLE = Console()


class ConsoleHandler(logging.Handler):
    """Sends formatted log records to a console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            self.console.write_styled(self.format(record))
        except SingerSparkError:
            # A signal came meanwhile: swallowed, the run would go on, deaf to further ones.
            raise
        except Exception:
            self.handleError(record)


class LineFormatter(logging.Formatter):
    """`2026-11-21 06:20:21,224 | INFO     | tap-spark | message`.

    Args:
        program: Shown in place of the names of this project's own loggers.
    """

    def __init__(
        self,
        program: str,
        form: str = "%(asctime)s | %(levelname)-8s | %(source)s | %(message)s",
        datefmt: str | None = None,
    ) -> None:
        super().__init__(form, datefmt)
        self.program = program

    def format(self, record: logging.LogRecord) -> str:
        """Write one record; a traceback follows on lines of its own."""
        is_own = record.name.split(".", maxsplit=1)[0] in (*_OUR_PACKAGES, self.program)
        record.source = self.program if is_own else record.name
        return printable(without_secrets(super().format(record)), _IN_LINES)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Write the message on one line, also if names in it hold line ends."""
        return " ".join(super().formatMessage(record).splitlines())


class TerminalFormatter(LineFormatter):
    """`06:20:21 tap-spark | message`, with `warning:` or `error:` before the message."""

    def __init__(self, program: str, *, colors: bool) -> None:
        super().__init__(program, "%(asctime)s %(source)s | %(level)s%(message)s", "%H:%M:%S")
        self._colors = colors

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Write the message on one line."""
        is_usual = record.levelno == logging.INFO
        record.level = "" if is_usual else f"{record.levelname.lower()}: "
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        """Write one record, which cannot steer a terminal."""
        text = super().format(record)
        color = next((c for least, c in _COLORS if record.levelno >= least), None)
        return f"\x1b[{color}m{text}\x1b[0m" if color and self._colors else text


class _NotForPeople(logging.Filter):
    """Leaves out metrics, and what the summary tells, unless somebody looks for faults."""

    def filter(self, record: logging.LogRecord) -> bool:
        is_left = hasattr(record, "metric_info") or hasattr(record, "is_in_summary")
        return not is_left or is_debug()


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the keys Meltano's parser for SDK logs asks for."""

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
            data["exception"] = _exception_data(record.exc_info[0], *record.exc_info[1:])
        data = without_secrets_inside(data)
        return json.dumps(data, default=_other_json, separators=(",", ":"))


def _other_json(value: object) -> str:
    return without_secrets(str(value))


def _exception_data(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> dict[str, Any]:
    codes = ((frame.f_code, line) for frame, line in walk_tb(trace))
    frames = [
        {"filename": code.co_filename, "function": code.co_name, "lineno": line, "line": ""}
        for code, line in codes
    ]
    facts = {"type": kind.__name__, "module": kind.__module__, "message": str(error)}
    return {**facts, "traceback": frames}


def setup_logging(program: str, environ: Mapping[str, str], console: Console = CONSOLE) -> None:
    """Send all logs, and the warnings of Python, to stderr.

    `LOGLEVEL` (or, before it, `TAP_SPARK_LOGLEVEL`) sets the level; `LOG_FORMAT=json` writes JSON.
    Meltano's `SINGER_SDK_LOG_CONFIG` sets both if they are not set.
    """
    prefix = program.upper().replace("-", "_")
    meltano = environ.get("SINGER_SDK_LOG_CONFIG")
    level_name, style = _meltano_logging(meltano) if meltano else ("info", "text")
    asked = environ.get(f"{prefix}_LOGLEVEL") or environ.get("LOGLEVEL") or level_name
    level = LEVELS.get(asked.strip().lower())
    style = (environ.get("LOG_FORMAT") or style).strip().lower()
    wants_json = style == "json"
    handler = ConsoleHandler(console)
    console.suit(program, environ, wants_json=wants_json)
    if level is not None and level > logging.INFO:
        console.live_after = None
    if console.is_for_people:
        handler.setFormatter(TerminalFormatter(program, colors=console.colors))
        handler.addFilter(_NotForPeople())
    else:
        handler.setFormatter(JsonFormatter(program) if wants_json else LineFormatter(program))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, ConsoleHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO if level is None else level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING if name != "py4j" else logging.CRITICAL)
    warnings.showwarning = _log_warning
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _log_ignored
    if level is None:
        levels = "debug, info, warning, error"
        logging.getLogger(program).warning(
            "the log level %r is unknown; known are %s; using info", asked, levels
        )
    if style not in ("json", "text"):
        text = "LOG_FORMAT %r is unknown; known are json, text; using text"
        logging.getLogger(program).warning(text, style)


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


def _log_ignored(ignored: sys.UnraisableHookArgs) -> None:
    """Log an exception that a library's callback or destructor cannot raise, in one line."""
    text = " ".join(str(ignored.exc_value).split())
    logging.getLogger("py.warnings").debug(
        "%s, ignored in %r: %s", ignored.exc_type.__name__, ignored.object, text
    )


def _meltano_logging(path: str) -> tuple[str, str]:
    """Read level and style from the logging configuration of an SDK plugin.

    Meltano writes it as JSON, users as YAML, of which this takes the level of `root` in a block.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return "info", "text"
    try:
        level = json.loads(text).get("root", {}).get("level", "info")
    except (ValueError, AttributeError):
        root = _ROOT_OF_YAML.search(text)
        level = root[1] if root else "info"
    return str(level), "json" if "StructuredFormatter" in text else "text"


def choose_level(name: str) -> None:
    """Log from a level on, whatever the environment says; from `warning` on without live lines."""
    logging.getLogger().setLevel(LEVELS[name])
    if LEVELS[name] > logging.INFO:
        CONSOLE.live_after = None


def is_debug() -> bool:
    """Return whether to log tracebacks."""
    return logging.getLogger().isEnabledFor(logging.DEBUG)
