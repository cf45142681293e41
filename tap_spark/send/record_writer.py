"""RECORD lines of one slice: built by Spark, copied to standard output in chunks.

Spark's actions have threads of their own, so that they can be polled and cancelled.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shared.formats import date_numbers
from shared.singer import platform
from shared.singer.messages import record_head, record_tail
from shared.spark.conf import WAITING
from shared.spark.session import JobTags, run_tasks
from tap_spark.send import spool_files
from tap_spark.send.batch_columns import record_input, record_of
from tap_spark.send.line_output import ChunkInfo, LineOutput, OnChunk, spool_error
from tap_spark.send.spool import Spool, SpoolFolder, check_complete
from tap_spark.send.spool_files import (
    CHUNK_SCHEMA,
    COUNT_SCHEMA,
    SPOOL_FAILED,
    ChunkRows,
    RecordLines,
    SpoolWriter,
    chain,
    unpack_meta,
)
from tap_spark.sources import record_arrays
from tap_spark.state.stream_plans import Resume, RowTasks, Slice, StreamPlan

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


_log = logging.getLogger(__name__)
_REPLACED = (
    "stream '%s', column '%s': %d rows have text that is not UTF-8, with U+FFFD instead of it in "
    "their records (batch files of Parquet keep the bytes)"
)
T = TypeVar("T")
CANCEL_SECONDS = 1.0


@contextmanager
def tagged(spark: SparkSession) -> Iterator[str]:
    """Tag every action of this thread; cancel actions that still run at the end."""
    tag = f"tap-spark-{uuid.uuid4().hex}"
    tags = JobTags(spark)
    tags.add(tag)
    try:
        yield tag
    finally:
        with contextlib.suppress(Exception):
            tags.remove(tag)
        interrupt(spark, tag)


def interrupt(spark: SparkSession | SparkContext, tag: str) -> None:
    """Cancel what runs under a tag; does not wait long for a session that no longer answers."""
    _ask(lambda: JobTags(spark).interrupt(tag))


def interrupt_all(spark: SparkSession) -> None:
    """Cancel everything that runs in the session; does not wait long for an answer."""
    _ask(lambda: JobTags(spark).interrupt_all())


def _ask(action: Callable[[], object]) -> None:
    def ask() -> None:
        with contextlib.suppress(Exception):
            action()

    thread = threading.Thread(target=ask, name="spark-cancel", daemon=True)
    thread.start()
    thread.join(CANCEL_SECONDS)


class SparkJob(Generic[T]):
    """A Spark action that runs in the background, and its result."""

    def __init__(self, spark: SparkSession | SparkContext, action: Callable[[], T]) -> None:
        self._spark = spark
        self._tag = f"tap-spark-{uuid.uuid4().hex}"
        self._ended: Future[T] = Future()
        threading.Thread(target=self._run, args=(action,), name="spark-job", daemon=True).start()

    def _run(self, action: Callable[[], T]) -> None:
        try:
            JobTags(self._spark).add(self._tag)
            self._ended.set_result(action())
        except BaseException as error:
            self._ended.set_exception(error)

    def wait(self, seconds: float) -> bool:
        """Return whether the job has ended, after `seconds` at most; raises its failure."""
        if not futures.wait([self._ended], seconds).done:
            return False
        self._ended.result()
        return True

    def result(self) -> T:
        """Wait for the result; raises the failure of the job."""
        return self._ended.result()

    def cancel(self) -> None:
        """Cancel the job if it still runs; waits for two seconds at most."""
        if not self._ended.done():
            interrupt(self._spark, self._tag)
            futures.wait([self._ended], CANCEL_SECONDS)


SPOOL_CHUNK_BYTES = 8 * 1024 * 1024
FETCH_CHUNK_BYTES = 4 * 1024 * 1024
POLL_SECONDS = 0.01

_SPOOL_FAILED = re.compile(re.escape(SPOOL_FAILED).replace(r"\{\}", r"(\d+)"))


Counts = Any
"""What a task has written, by the names of `COUNT_SCHEMA`."""


def write_records(
    spark: SparkSession,
    plan: StreamPlan,
    slice_: Slice,
    output: LineOutput,
    *,
    spool: Spool | None,
    on_chunk: OnChunk,
) -> int:
    """Write a slice as RECORD messages.

    Args:
        slice_: The slice; if it is ordered, lines are written in its order.
        spool: Where executors leave lines; None if they do not share a disk with this process.
        on_chunk: Called after each chunk has been written; may write STATE.

    Returns:
        The number of RECORD messages.

    Raises:
        ClosedPipeError: The reader of standard output has closed it.
        DestinationError: The spool folder cannot be written.
        Exception: Any failure of Spark (see `shared.spark.spark_errors`).
    """
    key = plan.replication_key if plan.resume is Resume.REPLICATION_KEY else None
    # In a Spark that the target uses, tasks that wait for it must leave it cores.
    tasks = 0 if spool is None else int(spark.conf.get(WAITING, "0") or 0) // spool.jobs
    rows = record_input(slice_, key)
    if tasks and not slice_.ordered:
        rows = replace(rows, frame=rows.frame.coalesce(tasks))
    head, tail = record_head(plan.stream), record_tail(datetime.now(timezone.utc), plan.version)
    lines = RecordLines(tuple(record_of(slice_).names), rows.ready, head, tail)
    _send_by_value()
    replaced: Counter[str] = Counter()
    if spool is None:
        task = chain(rows.read, lines, ChunkRows(key, FETCH_CHUNK_BYTES))
        chunks = _fetch(spark, rows.frame.mapInArrow(task, CHUNK_SCHEMA), output, replaced)
    else:
        folder = spool.new_folder(ordered=slice_.ordered)
        task = chain(rows.read, lines, SpoolWriter(folder.task_spool, key, SPOOL_CHUNK_BYTES))
        frame = rows.frame.mapInArrow(task, COUNT_SCHEMA)
        counts: Callable[[], Iterable[Counts]] = frame.collect
        if tasks and slice_.ordered:
            # One task, or two at a time, in the order of partitions.
            counts = partial(frame.toLocalIterator, prefetchPartitions=tasks > 1)
        chunks = _drain(spark, counts, output, folder, replaced)
    rows_written = 0
    # Closed at once: after an error in `on_chunk` the job would otherwise keep running.
    with closing(chunks):
        for chunk in chunks:
            rows_written += chunk.rows
            on_chunk(chunk)
    warn_of_replaced(plan.stream, replaced)
    return rows_written


def write_task_records(
    context: SparkContext,
    plan: StreamPlan,
    rows: RowTasks,
    output: LineOutput,
    spool: Spool,
    on_chunk: OnChunk,
) -> None:
    """Do what `write_records` does, for rows that tasks make without a session; for `context` see
    `shared.spark.session.run_tasks`.
    """
    head, tail = record_head(plan.stream), record_tail(datetime.now(timezone.utc), plan.version)
    folder, replaced = spool.new_folder(), Counter[str]()
    task = chain(
        rows.read,
        RecordLines(plan.columns, frozenset(), head, tail),
        SpoolWriter(folder.task_spool, None, SPOOL_CHUNK_BYTES),
    )
    _send_by_value()
    counts = partial(run_tasks, context, task, rows.count)
    with closing(_drain(context, counts, output, folder, replaced)) as chunks:
        for chunk in chunks:
            on_chunk(chunk)
    warn_of_replaced(plan.stream, replaced)


def warn_of_replaced(stream: str, replaced: Mapping[str, int]) -> None:
    """Log the columns of a stream whose text was not UTF-8, and in how many rows."""
    for column, count in replaced.items():
        _log.warning(_REPLACED, stream, column, count)


def _send_by_value() -> None:
    """Send our modules to workers, which may not have this package installed."""
    from pyspark import cloudpickle  # noqa: PLC0415

    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    for module in (platform, date_numbers, record_arrays, spool_files):
        register(module)


def _drain(
    spark: SparkSession | SparkContext,
    counts: Callable[[], Iterable[Counts]],
    output: LineOutput,
    folder: SpoolFolder,
    replaced: Counter[str],
) -> Generator[ChunkInfo, None, None]:
    """Run the slice as one job and copy its chunk files while later ones are being written."""
    job = SparkJob(spark, lambda: list(counts()))
    rows = 0
    try:
        ended = False
        while not ended:
            ended = _wait(job, folder)
            for chunk in folder.ready(ended=ended):
                size = chunk.path.stat().st_size
                output.copy_file(chunk.path)
                chunk.release(folder.task_spool.limit)
                rows += chunk.rows
                yield ChunkInfo(chunk.rows, size, chunk.key)
        check_complete(rows, sum(row["rows"] for row in job.result()), "{} of {} lines")
        for row in job.result():
            replaced.update(json.loads(row["replaced"]))
    finally:
        job.cancel()
        folder.remove()


def _wait(job: SparkJob[list[Counts]], folder: SpoolFolder) -> bool:
    """Wait a moment for the job to end; explains a full or broken spool folder."""
    try:
        return job.wait(POLL_SECONDS)
    except Exception as error:
        failed = _SPOOL_FAILED.search(str(error))
        if failed is None:
            raise
        number = int(failed.group(1))
        raise spool_error(OSError(number, os.strerror(number)), folder.path.parent) from error


def _fetch(
    spark: SparkSession, chunks: DataFrame, output: LineOutput, replaced: Counter[str]
) -> Generator[ChunkInfo, None, None]:
    """Fetch chunks through Spark's result stream, partition after partition."""
    with tagged(spark):
        for row in chunks.toLocalIterator(prefetchPartitions=True):
            output.write(row.chunk)
            replaced.update(json.loads(row.replaced))
            yield ChunkInfo(row.rows, len(row.chunk), unpack_meta(row.meta)[1])
