"""The one load path: files of a batch in, durable rows of a table out.

`convert` runs one Spark job in which each task reads some files, completes the rows and writes one
hidden file, all in Arrow; formats whose text Spark makes take the same readers and writers with a
DataFrame between them. Nothing but file names and counts comes back to the driver.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.errors import DestinationError, MessageError, RecordError, Where
from shared.spark_errors import explain
from shared.storage import shown, size_of
from shared.transforms.record_metadata import RecordMetadata, record_schema, stored_columns
from target_spark import load_frames, load_tasks
from target_spark.destinations import DESTINATIONS, Destination, Flush, TableWrite
from target_spark.destinations.evolution import arrow_schema
from target_spark.destinations.trouble import write_error
from target_spark.plans import Batch, LoadResult, Part, Reject
from target_spark.task_plan import plan_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from target_spark.config import TargetConfig


class Loader:
    """Loads batches into the destination of the settings; methods may be called from any thread.

    Args:
        config: The settings.
        spark: Gives the session, waiting for it where it still starts.
    """

    def __init__(self, config: TargetConfig, spark: Callable[[], SparkSession]) -> None:
        self._config = config
        self._spark = spark
        self._started_at = time.time()
        self._writes: dict[str, TableWrite] = {}
        self._lock = threading.Lock()
        self._destination: Destination = DESTINATIONS[config.format](config, self._rewrite)

    def convert(self, batch: Batch) -> LoadResult:
        """Turns the batch's files into parts that no reader sees, by one Spark job.

        Raises:
            RecordError: A record does not fit its schema; names its line.
            MessageError: A file of a BATCH message cannot be read.
            DestinationError: The parts cannot be written.
        """
        write = self._prepare(batch)
        try:
            tasks = plan_tasks(batch.files, size_of)
        except OSError as error:
            raise MessageError(
                f"a file to load cannot be read: {error}", where=Where(stream=batch.stream.stream)
            ) from error
        if not tasks:
            return LoadResult()
        rows = self._collect(batch, self._job(batch, write, tasks))
        parts = _parts(rows)
        rejects = tuple(
            Reject(row["url"], row["rows"], row["text"]) for row in rows if row["kind"] == "reject"
        )
        if rejects:
            self._destination.abort(Flush(batch.stream.stream, batch.token, write, parts))
            raise _record_error(batch, rejects, rows)
        return LoadResult(parts, sum(part.rows for part in parts))

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Makes all parts of a batch durable, visible in one step.

        A batch without rows creates the table. With `overwrite`, rows are kept aside until
        `finish`: a STATE that covers them must wait for that.

        Raises:
            DestinationError: It failed; nothing of the batch is visible. May be repeated.
        """
        self._destination.commit(self._flush(batch, results))
        self._writes.pop(batch.token, None)

    def abort(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Removes the parts of a batch that will not be committed."""
        self._destination.abort(self._flush(batch, results))
        self._writes.pop(batch.token, None)

    def finish(self, stream: str) -> None:
        """The input of a stream has ended: `overwrite` makes its rows visible in one step."""
        self._destination.finish(stream)

    def activate(self, stream: str, version: int) -> None:
        """ACTIVATE_VERSION: rows of files are never changed; their version column tells."""

    def _prepare(self, batch: Batch) -> TableWrite:
        """How the parts of a flush are written: the same for all of them, until its commit."""
        with self._lock:
            if batch.token not in self._writes:
                columns = stored_columns(batch.stream.schema, self._config.add_record_metadata)
                write = self._destination.prepare(batch.stream.stream, columns)
                self._writes[batch.token] = write
            return self._writes[batch.token]

    def _flush(self, batch: Batch, results: Sequence[LoadResult]) -> Flush:
        parts = tuple(part for result in results for part in result.parts)
        return Flush(batch.stream.stream, batch.token, self._prepare(batch), parts)

    def _job(
        self, batch: Batch, write: TableWrite, tasks: tuple[tuple[load_tasks.Piece, ...], ...]
    ) -> DataFrame:
        """The frame whose rows are what the tasks tell."""
        add = self._config.add_record_metadata
        metadata = RecordMetadata(
            received_at=batch.received_at,
            batched_at=time.time(),
            sync_started_at=self._started_at,
            version=batch.version,
        )
        read = load_tasks.ReadPlan(
            tasks=tasks,
            schema=record_schema(batch.stream.schema, add),
            columns=arrow_schema(write.struct, write.encoding.format),
            metadata=metadata if add else None,
            strict=self._config.validate_records,
        )
        numbers = self._numbers(len(tasks))
        if load_frames.needs_frame(write):
            return load_frames.job(numbers, read, write)
        plan = load_tasks.WritePlan(write.pending, write.encoding, read.columns)
        return numbers.mapInArrow(partial(load_tasks.load, read, plan), load_tasks.RESULTS_DDL)

    def _numbers(self, count: int) -> DataFrame:
        return self._spark().range(0, count, 1, numPartitions=count)

    def _collect(self, batch: Batch, frame: DataFrame) -> list[dict[str, Any]]:
        where = Where(stream=batch.stream.stream)
        try:
            rows = [row.asDict() for row in frame.collect()]
        except Exception as error:
            raise explain(error, where, DestinationError) from error
        _raise_failure(rows, where)
        return rows

    def _rewrite(self, pairs: Sequence[tuple[str, str]], write: TableWrite) -> None:
        """Writes files of a table anew with other columns; one task each."""
        columns = arrow_schema(write.struct, write.encoding.format)
        plan = load_tasks.WritePlan(write.pending, write.encoding, columns)
        frame = self._numbers(len(pairs)).mapInArrow(
            partial(load_tasks.rewrite, tuple(pairs), plan), load_tasks.RESULTS_DDL
        )
        try:
            rows = [row.asDict() for row in frame.collect()]
        except Exception as error:
            raise explain(error, Where(), DestinationError) from error
        _raise_failure(rows, Where())


def _parts(rows: Iterable[dict[str, Any]]) -> tuple[Part, ...]:
    return tuple(
        Part(row["url"], row["rows"], row["size"]) for row in rows if row["kind"] == "part"
    )


def _raise_failure(rows: Iterable[dict[str, Any]], where: Where) -> None:
    for row in rows:
        if row["kind"] == "error":
            raise write_error(row["url"], OSError(row["rows"], row["text"]))
        if row["kind"] == "unreadable":
            raise MessageError(
                f"the file '{shown(row['url'])}' cannot be read: {row['text']}", where=where
            )


def _record_error(
    batch: Batch, rejects: Sequence[Reject], rows: Iterable[dict[str, Any]]
) -> RecordError:
    """The error for the first record (by line) that does not fit, with the number of others."""
    order = {file.url: position for position, file in enumerate(batch.files)}
    first = min(rejects, key=lambda reject: (order.get(reject.file, 0), reject.line))
    staged = any(file.url == first.file and file.line_map for file in batch.files)
    count = len(rejects) + sum(row["rows"] for row in rows if row["kind"] == "more")
    where = Where(
        stream=batch.stream.stream,
        file=None if staged else shown(first.file),
        line=first.line,
    )
    hint = f"{count} records of this batch do not fit" if count > 1 else ""
    return RecordError(first.reason, where=where, hint=hint)
