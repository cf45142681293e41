"""Failures of sources: one clear error each; which may pass, and which spare the other streams.

Errors of single rows are raised inside Spark with a marked text, `[tap-spark]...[/tap-spark]`,
which is found again inside the messages of Spark, Py4J and Spark Connect.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from shared.errors import (
    DestinationError,
    PartialRunError,
    Pauses,
    RecordError,
    SingerSparkError,
    SourceError,
    Where,
    may_pass,
    repeated,
)
from shared.spark import s3a
from shared.spark.session import sql_state
from shared.spark.spark_errors import MISSING_FILE, SHARED_FOLDER, java_reason, plain_path
from tap_spark.stream_config import ConnectionConfig, secrets_of

T = TypeVar("T")
Report = Callable[[str, SingerSparkError], None]
"""Takes a stream that failed, and its error."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
SHOWN = 300
REDISCOVER = "it may have changed since discovery: run --discover again"
_log = logging.getLogger("tap-spark")

_THROWN = re.compile(
    r"[\w.$]*(?:SQL\w*Exception|\bjdbc\w*\.[\w.$]*(?:Exception|Error))\)?:? +([^\n]+)"
)
_EMBEDDED = re.compile(r"\.\s((?:ERROR|FATAL): [^\n]+)")
_NETWORK = re.compile(r"java\.net\.(\w+)(?:Exception)?: ([^\n]+)")
_NO_DRIVER = re.compile(r"ClassNotFoundException(?:\)|:) ([\w.$]+)|No suitable driver")
_OF_JDBC = re.compile(r"java\.sql|jdbc|\) [\w.$]*Driver", re.IGNORECASE)
"""What shows that a missing class is a driver; Spark Connect sends its name alone."""
COPY_BEGIN, COPY_END = "[tap-spark database]", "[/tap-spark database]"
"""Marks of a failure of COPY, which Spark passes on from an executor."""
_COPIED = re.compile(re.escape(COPY_BEGIN) + r"(.*?)" + re.escape(COPY_END), re.DOTALL)
_SECRET = re.compile(r"((?:password|passwd|pwd|secret|token)\w*\s*=\s*)[^&;\s,)]*", re.IGNORECASE)


class TransientSourceError(SourceError):
    """A database failed for a temporary reason: the run reads it again."""

    exit_code, retryable = DestinationError.exit_code, DestinationError.retryable


@dataclass(frozen=True)
class FailureRule:
    """What a class of SQLSTATEs means.

    Attributes:
        states: Prefixes of the SQLSTATEs; without any, its signs decide.
        signs: Texts that identify the failure if its SQLSTATE is unknown.
        hint: What the user can do.
        transient: A retry may help.
    """

    states: tuple[str, ...]
    signs: tuple[str, ...] = ()
    hint: str = ""
    transient: bool = False


FAILURE_RULES: Sequence[FailureRule] = (
    FailureRule(
        (),
        ("No value specified for parameter", "invalid value for parameter", "step size cannot"),
        "correct the stream's 'query'",
    ),
    FailureRule((), (" of the query to text",), "or to numeric with a precision"),
    FailureRule((), (": cast it to text in a query",), "or deselect the column"),
    FailureRule(
        ("28",),
        ("password authentication failed", "Access denied for user", "Login failed", "ORA-01017"),
        "check 'user' and 'password' of the connection",
    ),
    FailureRule(("3D",), ('database "',), "check the database's name in the connection's 'url'"),
    FailureRule(
        ("42501",),
        ("permission denied", "command denied", "ORA-01031"),
        "grant SELECT (and USAGE of the schema) to the connection's 'user'",
    ),
    FailureRule(
        ("42P01", "42S02", "42703", "42S22", "3F000"),
        ('relation "', 'column "', "no such table", "no such column", "ORA-00942", "ORA-00904"),
        REDISCOVER,
    ),
    FailureRule(("42883", "42804", "22P02"), (), REDISCOVER),
    FailureRule(("25006",), ("read-only transaction",), "a stream's query must not write"),
    FailureRule(("55000",), ("not been populated",), "REFRESH the view, or deselect it"),
    FailureRule(
        ("22023",),
        ("invalid snapshot identifier",),
        "the connection that held the snapshot was closed",
        transient=True,
    ),
    FailureRule(
        ("57014",),
        (),
        "the database cancelled the query; raise its statement timeout, or read less",
    ),
    FailureRule(
        ("08", "57P", "40", "53", "55P03", "25P03", "HYT0"),
        (
            "terminating connection",
            "refused",
            "The connection attempt failed",
            "I/O error",
            "Communications link failure",
            "timed out",
            "too many c",
            "deadlock",
        ),
        "check host, port, network and the database's limits",
        transient=True,
    ),
)


def database_error(
    error: BaseException, where: Where, secrets: Sequence[str] = ()
) -> SourceError | None:
    """Explain what Spark or Py4J raised, without secrets; None if no database is the cause.

    Returns:
        A TransientSourceError if a retry may help.
    """
    text = str(error)
    copied = _COPIED.search(text)
    if copied is not None:
        parts = json.loads(copied[1])
        return _explained(parts["message"], parts["state"] or None, where, secrets)
    state = sql_state(error)
    thrown = _THROWN.findall(text)
    if state is None and not thrown:
        return _without_driver(text, where)
    embedded = _EMBEDDED.findall(text)
    message = (thrown or embedded or text.strip().splitlines() or [type(error).__name__])[-1]
    network = _NETWORK.findall(text)
    if network and network[-1][1] not in message:
        message = ": ".join((message, *network[-1]))
    return _explained(message, state, where, secrets)


def _explained(
    message: str, state: str | None, where: Where, secrets: Sequence[str]
) -> SourceError:
    failure = _failure(state, message)
    kind = TransientSourceError if failure.transient else SourceError
    code = f" [{state}]" if state else ""
    return kind(
        f"the database says: {one_line(message, secrets)}{code}", where=where, hint=failure.hint
    )


def with_retries(
    action: Callable[[], T],
    connection: ConnectionConfig,
    where: Where | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Work with a database; retry temporary failures, at most `retries` times.

    Errors name the connection if no other place is given.

    Raises:
        SourceError: It failed, and retries did not help or cannot.
    """
    where = where or Where(setting=f"connections['{connection.name}']")

    def explained(error: Exception) -> SourceError | None:
        if isinstance(error, SingerSparkError):
            return None
        return database_error(error, where, secrets_of(connection))

    def report(error: Exception, seconds: float, left: int) -> None:
        failure = explained(error)
        _log.warning("%s; retrying in %g s (%d retries left after that)", failure, seconds, left)

    try:
        return repeated(
            lambda _: action(),
            lambda error: isinstance(explained(error), TransientSourceError),
            attempts=connection.retries + 1,
            pauses=Pauses(LONGEST_WAIT, first=FIRST_WAIT, least=1.0),
            report=report,
            sleep=sleep,
        )
    except Exception as error:
        failure = explained(error)
        if failure is None:
            raise
        raise _final(failure, connection.retries) from error


def _final(failure: SourceError, retries: int) -> SourceError:
    """Make an error final, so that the stream is not read again."""
    if not isinstance(failure, TransientSourceError):
        return failure
    times = f" (tried {retries + 1} times)" if retries else ""
    return SourceError(failure.message + times, where=failure.where, hint=failure.hint, passes=True)


def one_line(message: str, secrets: Sequence[str] = ()) -> str:
    """Return a driver's message on one line, without secrets."""
    for secret in secrets:
        message = message.replace(secret, "***")
    text = " ".join(message.split())
    text = _SECRET.sub(r"\1***", text)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _failure(state: str | None, message: str) -> FailureRule:
    for rule in FAILURE_RULES:
        by_sign = (state is None or not rule.states) and any(sign in message for sign in rule.signs)
        if by_sign or (state is not None and state.startswith(rule.states)):
            return rule
    return FailureRule(())


def _without_driver(text: str, where: Where) -> SourceError | None:
    match = _NO_DRIVER.search(text)
    if match is None or not _OF_JDBC.search(text):
        return None
    what = (
        f"driver {match.group(1)} is not installed"
        if match.group(1)
        else "no JDBC driver accepts its url"
    )
    return SourceError(
        f"cannot connect to the database: {what}",
        where=where,
        hint="set 'package' or 'driver' of the connection, or 'spark.jars', the only one that "
        "Spark Connect sends",
    )


BEGIN, END = "[tap-spark]", "[/tap-spark]"
# A plan, which some errors show, has the marks around columns.
_MARKED = re.compile(re.escape(BEGIN) + r"(\{.*?)" + re.escape(END), re.DOTALL)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]\s*(.*)")
_FILE = re.compile(r"reading file (\S.*?)\.\s+SQLSTATE|Path does not exist: (\S+?)\.? SQLSTATE")
_VALUE = re.compile(r"The value '(.*?)' of the type \S+ cannot be cast to \"(\w+)", re.DOTALL)
_HEADER = re.compile(
    r"CSV header does not conform.*?\n\s*Header: (.*?)\n\s*Schema: (.*?)\n", re.DOTALL
)
_CSV_FILE = re.compile(r"CSV file: (\S+)")
_COLON = re.compile(r"Relative path in absolute URI: (?:\.(\S+)\.crc|(\S+))")
_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "(.+?)", line (\d+), in .*\n', re.MULTILINE)
# Code of Spark and of the programs, not of users.
_OURS = re.compile(r"[\\/](?:pyspark|tap_spark|shared)[\\/]|^<")
_LIBRARY = re.compile(
    r"[\\/](?:lib[\\/]python\d[^\\/]*|(?:site|dist)-packages)[\\/]", re.IGNORECASE
)
_WITHOUT_VALUES = {"", "FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "STREAM_FAILED"}
"""Conditions whose text has no values of rows, which could look like a reason."""
_EXPIRED = ("OffsetOutOfRangeException", "KAFKA_DATA_LOSS")
HINTS = {
    "PATH_NOT_FOUND": "check 'path'",
    "COLUMN_ALREADY_EXISTS": "names must differ by more than case; set "
    "spark.conf 'spark.sql.caseSensitive' to true, or 'schema'",
    "AMBIGUOUS_REFERENCE": "the names differ only by case: deselect one of the columns, or set "
    "spark.conf 'spark.sql.caseSensitive' to \"true\"",
    "CANNOT_MERGE_SCHEMAS": "the files disagree on a column's type; set 'schema'",
    "TABLE_OR_VIEW_NOT_FOUND": "it was dropped or renamed, or its catalog is not in 'spark.conf'",
    "FAILED_READ_FILE.FILE_NOT_EXIST": "it was deleted during the run, or with old versions of the "
    "table: with LOG_BASED remove the stream's bookmark to read it from the start",
    "FAILED_READ_FILE": "the file is damaged, or not of the stream's format and schema",
}
_TEXT_HINTS = {
    "spark.driver.maxResultSize": "raise it and spark.driver.memory, or send BATCH messages",
    "Could not serialize object": "executors get a module by value: make locks and connections "
    "of it inside of rows()",
}


def all_of(errors: Sequence[SourceError]) -> SourceError:
    """Return one error that names all of them."""
    if len(errors) == 1:
        return errors[0]
    passes = all(error.retryable for error in errors)
    return SourceError("; ".join(map(str, errors)), passes=passes)


@dataclass(frozen=True)
class SourceErrors:
    """Collects the errors of several sources, so that one error names all of them.

    Attributes:
        failed: Takes the errors of streams instead; None to collect these, too.
    """

    failed: Report | None = None
    errors: list[SourceError] = field(default_factory=list)

    @contextmanager
    def of(self, stream: str | None = None) -> Iterator[None]:
        """Keep an error of the block, which is about a stream or something else."""
        try:
            yield
        except SourceError as error:
            if stream is not None:
                error.name_stream(stream)
            if stream is None or self.failed is None:
                self.errors.append(error)
            else:
                self.failed(stream, error)

    def raise_if_any(self) -> None:
        """Raise one SourceError that names all, if there are any."""
        if self.errors:
            raise all_of(self.errors)


def source_error(stream: str, error: BaseException) -> SourceError:
    """Convert an error that Spark raised while reading a stream to one SourceError."""
    if isinstance(error, SourceError):
        return error
    of_database = database_error(error, Where(stream=stream))
    if of_database is not None:
        return of_database
    text = str(error)
    marked = _MARKED.search(text)
    if marked:
        return _row_error(stream, marked.group(1))
    cast = _VALUE.search(text)
    if cast:
        value, kind = cast.groups()
        return SourceError(
            f"the value {json.dumps(value)} cannot be read as {kind}", where=Where(stream=stream)
        )
    header = _HEADER.search(text)
    if header:
        actual, expected = (part.strip() for part in header.groups())
        file = _CSV_FILE.search(text)
        return SourceError(
            f"the header {actual} differs from that of the other files: {expected}",
            where=Where(stream=stream, file=plain_path(file.group(1)) if file else None),
            hint="read files with other columns as a stream of their own",
        )
    return _python_error(stream, text) or _spark_error(stream, error, text)


def row_failure(**parts: str) -> str:
    """Return the marked text of a failure, to be raised by Python code on an executor."""
    return BEGIN + json.dumps(parts) + END


def _row_error(stream: str, text: str) -> SourceError:
    try:
        parts = json.loads(text)
    except ValueError:
        parts = {"problem": text}
    value = parts.get("value")
    shown = f": {value[:SHOWN]}" if isinstance(value, str) else ""
    return SourceError(
        parts.get("problem", "a row cannot be read") + shown,
        where=Where(stream=stream, file=plain_path(parts.get("file") or "") or None),
        hint=parts.get("hint", ""),
    )


def _python_error(stream: str, text: str) -> SourceError | None:
    """Return an error for what a user's own Python code raised; None if it was not that."""
    trace = text.rpartition(_TRACEBACK)[2] if _TRACEBACK in text else ""
    trace = re.split(r"\n\s+at |\s+SQLSTATE: ", trace)[0]
    frames = list(_FRAME.finditer(trace))
    theirs = [frame for frame in frames if not _OURS.search(frame.group(1))]
    if not theirs:
        return None
    place = ([frame for frame in theirs if not _LIBRARY.search(frame.group(1))] or theirs)[-1]
    lines = trace[frames[-1].end() :].splitlines()
    raised = " ".join(line.strip() for line in lines if line.strip() and line[:4] != "    ")
    return SourceError(
        f"the source's own code failed: {raised}"[:SHOWN],
        where=Where(stream=stream, file=place.group(1), line=int(place.group(2))),
        passes=may_pass(RuntimeError(raised)),
    )


def _spark_error(stream: str, error: BaseException, text: str) -> SourceError:
    if any(sign in text for sign in s3a.MISSING) and "s3" in text:
        return SourceError("Spark has no S3 file system", where=Where(stream=stream), hint=s3a.HINT)
    if any(sign in text for sign in _EXPIRED):
        return SourceError(
            "messages expired before they were read",
            where=Where(stream=stream),
            hint="set 'on_data_loss' to 'continue' to read what is left, or run more often",
        )
    colon = _COLON.search(text)
    if colon:
        return SourceError(
            f"Spark cannot read files with ':' in their names: {colon[1] or colon[2]}",
            where=Where(stream=stream),
            hint="rename it; csv, text, fixed_width, json and parquet without 'options' read it",
        )
    # The plan follows the message; its `[NAMES]` are not error conditions.
    conditions = _CONDITION.findall(re.split(r";\n(?=')", text)[0])
    file = _FILE.search(text)
    path = next((group for group in file.groups() if group), None) if file else None
    condition = conditions[0][0] if conditions else ""
    messages = [message.split(" SQLSTATE")[0].strip() for _, message in conditions]
    reason = next((message for message in reversed(messages) if message), "")
    reason = reason or java_reason(text) or type(error).__name__
    is_missing = any(sign in text for sign in MISSING_FILE)
    hint = HINTS.get(condition) or HINTS.get(condition.split(".")[0], "")
    hint = hint or (SHARED_FOLDER if is_missing else "")
    hint = hint or next((hint for sign, hint in _TEXT_HINTS.items() if sign in text), "")
    return SourceError(
        f"Spark cannot read it: {reason}"[:SHOWN],
        where=Where(stream=stream, file=plain_path(path) if path else None),
        hint=hint,
        passes=condition.partition(".")[0] in _WITHOUT_VALUES and may_pass(error),
    )


OF_STREAM = (SourceError, RecordError)
"""Failures of one stream; all others concern the whole run."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamFailures:
    """The first error of each stream that failed. Safe for several threads."""

    errors: dict[str, SingerSparkError] = field(default_factory=dict)

    def report(self, stream: str, error: SingerSparkError) -> None:
        """Log the error of a stream, and keep it."""
        error.name_stream(stream)
        _logger.error("%s; going on with the other streams", error)
        self.errors.setdefault(stream, error)

    def raise_if_any(self, planned: Iterable[str]) -> None:
        """Raise one error about every stream that failed; `planned` are all that were planned.

        Raises:
            PartialRunError: A stream failed.
        """
        if self.errors:
            raise PartialRunError.of(self.errors.values(), len({*planned, *self.errors}))
