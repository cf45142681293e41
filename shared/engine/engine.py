"""Where the work on rows of a run takes place: one rule for both programs, machines and masters.

Threads of this program do what is over before Spark has started; what comes beyond runs on Spark.
Both run the same tasks: numbers in, reports out, as Arrow batches. See `docs/engines.md`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.encodings.encoding_format import FORMATS, Encoding
from shared.errors import SettingsError, Where
from shared.settings.checking import FORMER
from shared.settings.kinds import at_least, one_of, setting
from shared.singer.platform import usable_cores
from shared.spark.conf import SparkSettings, local_cores
from shared.spark.packages import Need
from shared.spark.session import SessionStarter, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


_log = logging.getLogger(__name__)

AUTO, SPARK, THREADS = ENGINES = ("auto", "spark", "threads")
SPARK_ABOVE = 256 * 1024 * 1024


@dataclass(frozen=True)
class EngineSettings:
    """Where work on rows takes place."""

    engine: str = setting(
        {**one_of(ENGINES), FORMER: ["load_without_spark"]},
        "Where work on rows takes place: `spark`: always on Spark; `threads`: in threads of this "
        "program, which never starts Java; `auto`: in threads up to `spark_above`, then on Spark. "
        "See `singer-spark docs engines`.",
        default=AUTO,
    )
    spark_above: int = setting(
        at_least(0),
        "Bytes of text in a run up to which threads do the work, with `engine: auto`; four times "
        "as many of columnar files. See `singer-spark docs engines`.",
        default=SPARK_ABOVE,
    )


COLUMNAR = 0.25
"""A byte of Parquet, ORC, Avro or Arrow."""
COPIED = COLUMNAR / 32
"""A byte of Parquet whose columns are copied: 3 % of the time that its rows take, with 150 columns
in small row groups up to 14 %."""
SERVER_ROWS = COLUMNAR / 2
"""A byte of rows of PostgreSQL, as its planner estimates them, into files: 2 GiB by COPY in threads
take as long as a start of Spark and its tasks."""
COMPRESSED = 3
"""A byte of compressed text: it holds about three."""
INTO_SERVER = 0.5
"""A byte of text whose rows a database server writes: 430 MiB are loaded before Spark has started,
and executors would wait for the same server."""
IN_PYTHON = 16
"""A byte whose records Python evaluates one by one, as some stream maps need it: ten maps of 40,000
records take 1.5 seconds."""
IN_PYTHON_COLUMNAR = 64
"""The same for columnar files, which have more records in as many bytes."""
JSON_VALUES = 8
"""A byte of JSON lines that the tap reads: 26 MiB take a second of a core, nested ones five times
as long. Up to 32 MiB that is less than a start of Spark and its tasks."""


def weight(
    encoding: Encoding, *, in_python: bool = False, into_server: bool = False, copied: bool = False
) -> float:
    """Return the work of a byte of a file, in bytes of plain text.

    Args:
        in_python: Whether Python evaluates an expression for each record.
        into_server: Whether a database server writes the rows.
        copied: Whether its columns are copied, and no row is read.
    """
    if copied:
        return COPIED
    if FORMATS[encoding.format].rows != "lines":
        return IN_PYTHON_COLUMNAR if in_python else COLUMNAR
    packed = 1 if encoding.compression == "none" else COMPRESSED
    return packed * (IN_PYTHON if in_python else INTO_SERVER if into_server else 1)


Task = Callable[[Iterable["pa.RecordBatch"]], Iterable["pa.RecordBatch"]]
"""Takes numbers of tasks, as for `mapInArrow`, and yields their reports."""
Report = dict[str, Any]

WHILE_STARTING = 0.5
"""Part of the limit: work of this size is over in about the time that a start of Spark takes."""
READING, TYPES = "reading", "types"
"""Passes over the rows: each has the whole limit."""

_CHANGES_READING = (
    "spark.sql.legacy.",
    "spark.sql.csv.",
    "spark.sql.json",
    "spark.sql.timestampType",
    "spark.sql.caseSensitive",
)


@dataclass(frozen=True)
class FrameTask:
    """Work whose rows pass through columns of Spark: `make` turns the frame of the numbers of tasks
    into that of their reports.
    """

    make: Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Work:
    """The work of some tasks.

    Attributes:
        stream: Whose rows.
        size: In bytes of plain text; see `weights`.
        needs_spark: Why only Spark can do it; empty if threads can.
        reports: The columns of the reports, as Spark DDL.
        kind: The pass over the rows that it belongs to.
    """

    stream: str | None
    size: float
    needs_spark: str = ""
    reports: str = ""
    kind: str = READING


class Threads:
    """Runs tasks, numbered from 0, in threads of this program. `run` raises what a task raises.

    Args:
        count: How many tasks run at the same time, over all calls.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._turns = threading.BoundedSemaphore(count)

    def run(self, task: Task | FrameTask, count: int, work: Work) -> list[Report]:  # noqa: ARG002
        import pyarrow as pa  # noqa: PLC0415

        if isinstance(task, FrameTask):
            raise TypeError("only Spark runs a frame")

        def run_one(number: int) -> list[Report]:
            numbers = pa.record_batch({"number": [number]})
            with self._turns:
                return [row for rows in task([numbers]) for row in rows.to_pylist()]

        with ThreadPoolExecutor(self.count, "task") as threads:
            return [row for rows in threads.map(run_one, range(count)) for row in rows]


@dataclass(eq=False)
class Spark:
    """Runs tasks as one job of Spark. The reports are the same as by `Threads`.

    Args:
        session: Returns the session, waits for it if it still starts.
        context: Likewise, the context in which `run_tasks` does without one; None if it does not.
    """

    session: Callable[[], SparkSession]
    context: Callable[[], Any] = lambda: None

    def run(self, task: Task | FrameTask, count: int, work: Work) -> list[Report]:
        context = self.context()
        if context is not None and not isinstance(task, FrameTask):
            return run_tasks(context, task, count)
        numbers = self.session().range(0, count, 1, numPartitions=count)
        if isinstance(task, FrameTask):
            frame = task.make(numbers)
        else:
            frame = numbers.mapInArrow(task, work.reports)
        return [row.asDict() for row in frame.collect()]


Runs = Threads | Spark
"""What runs tasks."""


class Engine:
    """Chooses between threads and Spark, and alone starts Spark. Methods suit any thread.

    Args:
        choice: The setting `engine`.
        limit: The setting `spark_above`.
        may_read: Whether Spark reads files by its defaults, so that threads can do the same.

    Attributes:
        used: Stream → what has done its work, and why; nothing if there was none. Spark counts as
            soon as it has done a part.
    """

    def __init__(
        self,
        starter: SessionStarter | _OtherSession,
        choice: str = AUTO,
        limit: int = SPARK_ABOVE,
        threads: int = 0,
        *,
        may_read: bool = True,
    ) -> None:
        self.choice = choice
        self.limit = limit
        self.may_read = may_read
        self.threads = Threads(threads or usable_cores())
        self.spark = Spark(starter.get, starter.context)
        self._starter = starter
        self._lock = threading.Lock()
        self._done = Counter[str]()
        self._received = self._expected = 0
        self._heaviest = 0.0
        self._why_needed = ""
        self.used: dict[str, tuple[str, str]] = {}
        self._stream: ContextVar[str | None] = ContextVar("stream", default=None)

    @classmethod
    def of(cls, get: Callable[[], SparkSession]) -> Engine:
        """Return the engine over a session that others start and stop, for all work."""
        return cls(_OtherSession(get), SPARK)

    @property
    def conf(self) -> Mapping[str, str]:
        """Return the Spark configuration of the settings."""
        return getattr(self._starter, "conf", {})

    def choose(self, work: Work) -> Runs:
        """Return what runs some work, and start Spark if it is time to.

        Raises:
            SettingsError: Only Spark can do it, and the settings forbid Spark.
        """
        return self.threads if self.takes(work) else self.spark

    def takes(self, work: Work) -> bool:
        """Return whether threads do some work; see `choose`."""
        with self._lock:
            before = self._done[work.kind]
            self._done[work.kind] += work.size  # type: ignore[assignment]
        by_threads, reason = self._decided(work, before)
        if work.kind == READING:
            self._note(work.stream, THREADS if by_threads else SPARK, reason)
        return by_threads

    def _decided(self, work: Work, before: float) -> tuple[bool, str]:
        # 1. What only Spark can do, and the setting `engine`, leave no choice.
        reason = f"{_mib(before + work.size)} of {_mib(self.limit)} MiB"
        if work.needs_spark:
            self._reject_threads(work.needs_spark, work.stream)
        if self.choice != AUTO:
            return self.choice == THREADS, f"engine: {self.choice}"
        if work.needs_spark:
            return False, work.needs_spark
        # 2. Beyond the limit Spark does the work. It is started before: at half of the limit,
        #    unless the whole size is known and within it.
        is_due = before + work.size > self.limit
        is_open = before + work.size > self._expected
        if is_due or (is_open and before > self.limit / 2):
            self.start()
        # 3. Until it is up, threads go on with pieces that are over by then, as cores would wait.
        is_quick = work.size <= self.limit * WHILE_STARTING
        return not is_due or (is_quick and self.running() is None), reason

    def needs(self, why: str, stream: str | None = None) -> None:
        """Say before the first row that only Spark can do the work: it then starts with that row.

        Args:
            stream: Whose rows; None for all.

        Raises:
            SettingsError: The settings forbid Spark.
        """
        self._reject_threads(why, stream)
        self._why_needed = self._why_needed or why

    def weigh(self, weight: float) -> None:
        """Say that a byte that is received may be other work than one of plain text."""
        self._heaviest = max(self._heaviest, weight)

    def expect(self, size: int) -> None:
        """Say how many bytes of text come in all."""
        self._expected = size

    def receive(self, size: int) -> None:
        """Count bytes of text that have come; start Spark if it has to be up soon."""
        self._received += size
        # A stream whose length nobody knows may be as long again.
        coming = self._expected or 2 * self._received
        is_due = self.choice == SPARK or self._why_needed
        if is_due or (self.choice == AUTO and coming * (self._heaviest or 1) > self.limit):
            self.start()

    def start(self) -> None:
        """Start Spark in the background, unless the settings forbid it."""
        if self.choice != THREADS:
            self._starter.start()

    def session(self, why: str = "") -> SparkSession:
        """Return the session; start Spark if needed, and wait.

        Raises:
            SettingsError: The settings forbid Spark, or need packages that are not installed.
            SparkStartError: It could not be started, or was stopped.
        """
        self._note_need(why)
        return self._starter.get()

    def context(self, why: str) -> Any:
        """Return the context for tasks that need no session, or None; raises as `session`."""
        self._note_need(why)
        return self._starter.context()

    def running(self) -> Any:
        """Return the session, or the context, if Spark has started; does not wait."""
        return self._starter.running()

    def is_spark_ready(self) -> bool:
        """Return whether Spark does all work, or could take the next."""
        return self.choice == SPARK or (self.choice == AUTO and self.running() is not None)

    def stop(self) -> None:
        """Stop Spark with its running jobs; never hang."""
        self._starter.stop()

    @contextmanager
    def serving(self, stream: str) -> Iterator[None]:
        """Name the stream that this thread works for."""
        token = self._stream.set(stream)
        try:
            yield
        finally:
            self._stream.reset(token)

    def _note_need(self, why: str) -> None:
        stream = self._stream.get()
        why = why or self._why_needed or "a step that only Spark can do"
        self._reject_threads(why, stream)
        if self.used.get(stream or "", (THREADS, ""))[0] == THREADS:
            self._note(stream, SPARK, why if self.choice == AUTO else f"engine: {self.choice}")

    def _note(self, stream: str | None, engine: str, reason: str) -> None:
        stream = self._stream.get() or stream
        if stream is None:
            return
        with self._lock:
            if engine == SPARK or self.used.get(stream, (THREADS, ""))[0] == THREADS:
                self.used[stream] = engine, reason

    def _reject_threads(self, why: str, stream: str | None) -> None:
        if self.choice == THREADS:
            raise SettingsError(
                f"Spark is needed, which `engine: threads` never starts: {why}",
                where=Where(stream=stream, setting="engine"),
                hint="set `engine` to auto",
            )


class _OtherSession:
    """A session that others start and stop; work takes the session, not its context."""

    def __init__(self, get: Callable[[], SparkSession]) -> None:
        self.get = self.running = get

    def start(self) -> None: ...

    def context(self) -> None: ...

    def stop(self) -> None: ...


def engine_of(settings: EngineSettings, spark: SparkSettings, needs: Sequence[Need] = ()) -> Engine:
    """Return the engine of a run.

    Args:
        spark: How to start or reach Spark. A server of others has a configuration of its own.
    """
    may_read = spark.remote is None and not any(
        name.startswith(_CHANGES_READING) for name in spark.conf
    )
    threads = local_cores(spark)
    starter = SessionStarter(spark, needs)
    return Engine(starter, settings.engine, settings.spark_above, threads, may_read=may_read)


def _mib(size: float) -> str:
    """Write bytes as MiB, with a digit after the point for few."""
    mib = size / (1 << 20)
    if 0 < mib < 0.1:  # noqa: PLR2004
        return "<0.1"
    return f"{mib:.1f}" if 0 < mib < 10 and mib != int(mib) else f"{mib:.0f}"  # noqa: PLR2004
