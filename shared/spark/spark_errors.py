"""Turn failures of Spark into one error that a user can act on.

Works on texts alone: the same failure has other classes in classic Spark and Spark Connect, and
nothing here needs pyspark.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from traceback import walk_tb

from shared import errors
from shared.errors import (
    DISK_FULL,
    DestinationError,
    MessageError,
    NoExecutorError,
    RecordError,
    SettingsError,
    SingerSparkError,
    SourceError,
    SparkLostError,
    SparkStartError,
    Where,
    may_pass,
    settled,
)
from shared.singer.signals import NO_THREAD, NO_THREAD_HINT, received_error
from shared.spark import s3a
from shared.spark.cluster_executors import NO_EXECUTOR
from shared.storage.access import storage_hint

SHOWN = 400

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]\s*([^\n]*)")
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*): (.+)$", re.MULTILINE)
PYTHON_TRACE = "Traceback (most recent call last)"
_MACHINE = re.compile(r"\(TID \d+\) \(([^\s()]+) executor (?!driver\))")
"""The machine of an executor, in the words of its driver."""
_ERRNO = re.compile(r"\[Errno (\d+)\] ([^\n]*)")
_JAVA_ERROR = re.compile(r"^(?:: |Caused by: )([\w.$]+): (.+)$", re.MULTILINE)
_TAIL = re.compile(r"\s*(SQLSTATE: \w+|;?\s*line \d+ pos \d+).*$", re.DOTALL)
_FILE = re.compile(r"(?:reading file|Path does not exist:) (\S+?)\.?(?:\s|$)")
_OUR_ERRORS = {kind.__name__: kind for kind in errors.EXIT_CODES}

_OF_DATA = (RecordError, MessageError, SettingsError)
"""Errors that every machine would raise."""


@dataclass(frozen=True)
class Cause:
    """A kind of failure: recognised by any of some texts, explained by one error.

    Attributes:
        signs: Texts, any of which identifies it.
        error: What it becomes; None for what an unknown failure becomes there.
        message: Said in place of Spark's own words; empty to keep those.
        lasts: The same run fails again until somebody changes something.
    """

    signs: tuple[str, ...]
    error: type[SingerSparkError] | None
    message: str = ""
    hint: str = ""
    lasts: bool = False


MISSING_FILE = ("FAILED_READ_FILE.FILE_NOT_EXIST", "java.io.FileNotFoundException")
"""Texts by which Spark says that an executor does not find a file."""
SHARED_FOLDER = "check the path; executors on other machines must share the folder"

LOST = "Spark has gone away"
LOST_HINT = "see the log for the reason; a new run continues from the last STATE"

_DISK_SIGNS = ("No space left on device", "Disk quota exceeded")

ENVIRONMENT: Sequence[Cause] = (
    Cause(
        (NO_EXECUTOR,),
        NoExecutorError,
        NO_EXECUTOR,
        "other programs have the cores or memory of the cluster, or executors end at their start: "
        "see their logs",
    ),
    Cause(NO_THREAD, SparkStartError, "Spark cannot start a thread", NO_THREAD_HINT),
    Cause(
        ("java.lang.OutOfMemoryError", "SparkOutOfMemoryError", "Java heap space"),
        SparkStartError,
        "Spark ran out of memory",
        "raise spark.driver.memory (local) or spark.executor.memory in spark.conf",
    ),
    Cause(
        _DISK_SIGNS,
        DestinationError,
        "no space left on a disk Spark works on",
        "free some space, or point spark.local.dir in spark.conf at a larger disk",
    ),
    Cause(
        (
            "Answer from Java side is empty",
            "Master removed our application",
            "An error occurred while trying to connect to the Java server",
            "Cannot call methods on a stopped SparkContext",
            "SparkContext was shut down",
            "StatusCode.UNAVAILABLE",
            "INVALID_HANDLE.SESSION",
            "Py4JNetworkError",
            "[Errno 111] Connection refused",
        ),
        SparkLostError,
        LOST,
        LOST_HINT,
    ),
    Cause(
        ("Cannot run program", "PYTHON_VERSION_MISMATCH", "ModuleNotFoundError: No module named"),
        SparkStartError,
        "",
        "Spark's Python workers need this Python version and its packages "
        "(`singer-spark docs clusters`)",
    ),
    Cause(
        ("Python worker exited unexpectedly", "Python worker failed to connect back"),
        SparkLostError,
        "a Python worker of Spark died",
        "often too little memory: fewer cores (spark.master) or smaller batches help",
    ),
)

DATA: Sequence[Cause] = (
    Cause(("PATH_NOT_FOUND", "Path does not exist"), SourceError, "", "check the path"),
    Cause(
        (
            "CAST_INVALID_INPUT",
            "CAST_OVERFLOW",
            "NUMERIC_VALUE_OUT_OF_RANGE",
            "MALFORMED_RECORD_IN_PARSING",
            "MALFORMED_CSV_RECORD",
            "CANNOT_PARSE_TIMESTAMP",
            "ARITHMETIC_OVERFLOW",
        ),
        RecordError,
        "",
        "correct the value, or read the column as a string",
    ),
    Cause(
        ("DATA_SOURCE_NOT_FOUND", "Failed to find the data source"),
        None,
        "",
        "a Spark Connect server needs the package of a format from its start "
        "(`singer-spark docs lakes`)",
    ),
    Cause(
        ("AMBIGUOUS_REFERENCE",),
        None,
        "",
        "the names differ only by case: set spark.conf 'spark.sql.caseSensitive' to \"true\"",
    ),
    Cause(MISSING_FILE, SourceError, "", SHARED_FOLDER),
    Cause(
        ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "UNABLE_TO_INFER_SCHEMA"),
        SourceError,
        "",
        "the file is damaged, or does not have the configured format and schema",
    ),
    Cause(
        (
            "Spark does not support time fields",
            "Unsupported logical type: TIME",
            "Cannot convert unsupported type to Spark",
        ),
        None,
        "Spark cannot use a table with a column of the type time, timestamp_ns, timestamptz_ns, "
        "geometry or geography, also a dropped one",
        "let the writer of the table store it as string or long, or use another table",
        lasts=True,
    ),
    Cause(
        ("DELTA_CANNOT_MODIFY_APPEND_ONLY", "configured to only allow appends"),
        None,
        "the table takes no updates and deletions (its property delta.appendOnly)",
        "use the load method append-only, or unset the property",
        lasts=True,
    ),
    Cause(("TASK_WRITE_FAILED", "FAILED_RENAME_PATH"), DestinationError),
    Cause(s3a.NOT_THERE, None, "Spark knows no way to S3", s3a.HINT),
)


def explain(
    error: BaseException,
    where: Where | None = None,
    default: type[SingerSparkError] = SourceError,
) -> SingerSparkError:
    """Convert any exception from Spark to one clear error.

    Args:
        where: What it was about; completes the place of the error.
        default: What an unknown failure becomes.

    Returns:
        The error to raise `from` the given one. One of ours is given back as it is, with its
        place completed; so is one that was raised by Python code on an executor. If a signal has
        interrupted the call, its error.
    """
    where = where or Where()
    if isinstance(error, SingerSparkError):
        error.where = _merge(error.where, where)
        return error
    ended = received_error()
    if ended is not None:
        return ended
    text = str(error)
    explained = explain_environment(error, where) or _from_worker(text, where)
    if explained is not None:
        return explained
    message, condition = _reason(error, text)
    cause = _first(DATA, text) or Cause((), default)
    file = _FILE.search(text)
    place = _merge(where, Where(file=plain_path(file.group(1)) if file else None))
    hint = cause.hint or ("" if condition else type(error).__name__)
    failure = (cause.error or default)(cause.message or message, where=place, hint=hint)
    failure.__cause__ = error
    if cause.lasts and isinstance(failure, DestinationError):
        failure.end_as(SettingsError)
    return settled(failure)  # While Java is there to ask for the text.


def explain_environment(
    error: BaseException, where: Where | None = None
) -> SingerSparkError | None:
    """Explain a failure of the machine or the cluster; None if it is about data or code."""
    text = str(error)
    cause = _first(ENVIRONMENT, f"{type(error).__name__}: {text}")
    if cause is None or cause.error is None:
        return None
    if cause.error is NoExecutorError:
        where = _merge(where or Where(), Where(setting="spark.executor_wait_seconds"))
    python = _python_error(text)
    words = f"{python.group(1)}: {_short(python.group(2))}" if python else _reason(error, text)[0]
    return cause.error(cause.message or words, where=where, hint=cause.hint)


def start_error(message: str, reason: BaseException | str, *, hint: str = "") -> SingerSparkError:
    """Return the error of a Spark that does not start, with the exit code of its reason.

    Args:
        reason: What failed, or the words of Java.
        hint: What the user can do; for a full disk there is one of its own.
    """
    error = reason if isinstance(reason, BaseException) else RuntimeError(reason)
    is_full = isinstance(error, OSError) and error.errno in DISK_FULL
    if is_full or any(sign in str(error) for sign in _DISK_SIGNS):
        text = hint or "free some space, or set TMPDIR to a folder on a larger disk"
        return DestinationError(message, hint=text)
    if any(sign in str(error) for sign in NO_THREAD):
        hint = NO_THREAD_HINT
    return (SparkLostError if may_pass(error) else SparkStartError)(message, hint=hint)


def is_of_java(error: OSError) -> bool:
    """Return whether a connection to Java has failed, because Java has ended."""
    if not isinstance(error, ConnectionError):
        return False
    names = (str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__))
    return any(name.partition(".")[0] in {"py4j", "pyspark"} for name in names)


def plain_path(url: str) -> str:
    """Write a `file:` URL as a plain path."""
    return re.sub(r"^file:/+", "/", url)


def _first(causes: Sequence[Cause], text: str) -> Cause | None:
    return next((cause for cause in causes if any(sign in text for sign in cause.signs)), None)


def _merge(one: Where, other: Where) -> Where:
    """Complete the first place from the second."""
    return replace(other, **{k: part for k, part in vars(one).items() if part is not None})


def _python_error(text: str) -> re.Match[str] | None:
    trace = text.find(PYTHON_TRACE)
    return _PYTHON_ERROR.search(text, trace) if trace >= 0 else None


def _from_worker(text: str, where: Where) -> SingerSparkError | None:
    python = _python_error(text)
    if python is None:
        return None
    name, message = python.group(1).rsplit(".", 1)[-1], _short(python.group(2))
    kind = _OUR_ERRORS.get(name)
    if kind in _OF_DATA:
        return kind(message, where=where)
    machine = _MACHINE.search(text)
    if machine is not None:
        message = f"{message} (on {machine.group(1)})"
    if kind is not None:
        return kind(message, where=where)
    number = _ERRNO.search(message)
    if number is not None:
        return _os_error(int(number.group(1)), number.group(2), where)
    return SingerSparkError(f"Python code on an executor failed: {name}: {message}", where=where)


def _os_error(number: int, message: str, where: Where) -> SingerSparkError:
    if number in DISK_FULL:
        return DestinationError(message, where=where, hint="free some space")
    if "://" in message:
        return DestinationError(message, where=where, hint=storage_hint(number))
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DestinationError(message, where=where, hint="check the permissions")
    return DestinationError(f"{message or os.strerror(number)}", where=where)


def _reason(error: BaseException, text: str) -> tuple[str, str]:
    """Return the sentence of Spark that explains most, and the name of its error condition."""
    conditions = _CONDITION.findall(text)
    sentences = [(_short(message), name) for name, message in conditions if _short(message)]
    if sentences:
        return sentences[-1]
    return _short(java_reason(text)) or type(error).__name__, ""


def java_reason(text: str) -> str:
    """Return the message of the innermost exception of Java; without one, the first line.

    A message of one word, such as the path that `NoSuchFileException` has, follows the class.
    """
    errors = _JAVA_ERROR.findall(text)
    if errors:
        name, message = errors[-1]
        return message if " " in message.strip() else f"{name.rpartition('.')[2]}: {message}"
    return next((line for line in text.strip().splitlines() if line.strip()), "")


def _short(message: str) -> str:
    text = " ".join(_TAIL.sub("", message).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
