"""Files of a batch in, hidden parts of a table out.

Each task of the engine reads some files, completes the rows and writes one hidden part, all in
Arrow. Formats whose text Spark makes take the same readers and writers with a DataFrame
between them. Only file names and counts come back to the driver.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from shared.engine.engine import Engine, FrameTask, Report, Runs, Task, Threads, Work
from shared.engine.weights import weight
from shared.errors import DestinationError, Where
from shared.formats.file_formats import FORMATS
from shared.maps.record_metadata import RecordMetadata, record_schema
from shared.spark.spark_errors import explain
from shared.storage.files import size_of
from target_spark.core.load_plans import Batch, LoadResult, Making, Reject
from target_spark.destinations.destination import RefusedByStoreError, TableWrite
from target_spark.destinations.files.stored_columns import arrow_schema
from target_spark.destinations.folders.folder_failures import write_error, writing
from target_spark.load import load_frames, load_tasks, mapped_frames
from target_spark.load.adoption import adoption
from target_spark.load.batch_files import BatchFiles
from target_spark.load.line_uploads import LineUploads
from target_spark.load.load_results import raise_failure, result_of
from target_spark.load.read_rows import Piece, ReadPlan
from target_spark.load.rejected_originals import Originals
from target_spark.load.rewrite_tasks import RewritePlan, rewrite
from target_spark.load.stream_tables import StreamTables
from target_spark.load.task_plan import plan_tasks
from target_spark.tables.documents import DOCUMENT
from target_spark.validation.missing_keys import Key
from target_spark.validation.schema_check import SlowKeywords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from target_spark.run_settings import TargetConfig
    from target_spark.tables.version_edit import VersionEdit

_Seen = TypeVar("_Seen")

MOST_LOOKED_AT = 10_000
"""Files that the driver looks at, at most, to find that it needs no Spark to rewrite them."""
LOOKERS = 16
"""Threads that look at files: most of it is waiting."""


class Converter:
    """Converts batches by tasks of the engine; methods may be called from any thread.

    Args:
        config: The settings.
        engine: Runs the tasks.
        files: Opens the files.
        tables: Tables of the run.
    """

    def __init__(
        self,
        config: TargetConfig,
        engine: Engine,
        files: BatchFiles,
        tables: StreamTables,
    ) -> None:
        self._config = config
        self._engine = engine
        self._files = files
        self._tables = tables
        self._uploads = LineUploads(config)
        self._started_at = time.time()
        self._slow = SlowKeywords()

    def convert(self, batch: Batch, write: TableWrite) -> LoadResult:
        """Convert the batch's files into hidden parts.

        Raises:
            MessageError: A file is missing, damaged or has another format than its label; names it.
            DestinationError: The parts cannot be written, or the storage of the files fails or
                does not answer.
            RefusedByStoreError: The store refuses rows, but takes each of them alone.
        """
        adopted = self._adopted(batch, write)
        if adopted is not None:
            return adopted
        try:
            rows = self._reports(batch, write)
        except RefusedByStoreError:
            write = self._without_refused(batch, write)
            rows = self._reports(batch, write)
        files = batch.files if write.row_origin is not None else ()
        return replace(result_of(rows, batch), files=files)

    def refused(self, batch: Batch, write: TableWrite, rows: Mapping[int, str]) -> list[Reject]:
        """Return the records of refused rows.

        Args:
            batch: Files that one job has converted.
            write: How it has written the rows.
            rows: Origin within that conversion → reason.
        """
        originals = Originals(self._read_plan(batch, write))
        return [originals.place(origin, reason) for origin, reason in sorted(rows.items())]

    def _without_refused(self, batch: Batch, write: TableWrite) -> TableWrite:
        """Find the records whose rows cannot be written; return how others are written."""
        refusals = self._tables.refusals
        refusals.trace(batch.stream.stream)
        write = self._tables.prepare(batch)
        if write.sink is not None:
            trial = self._reports(batch, replace(write, sink=write.sink.trial()))
            refused = {row["rows"]: row["text"] for row in trial if row["kind"] == "refused row"}
            refusals.add(batch, refused)
        return write

    def _reports(self, batch: Batch, write: TableWrite) -> list[Report]:
        """Convert the batch's files, and return what the tasks report."""
        read = self._read_plan(batch, write)
        if not read.tasks:
            return []
        task, in_python = _task(batch, write, read)
        work = self._work(batch, in_python=in_python, frame=task is None)
        if self._engine.takes(work) and task is not None:
            return reports(self._engine.threads, task, len(read.tasks), work, write.pending)
        with self._uploads.reachable(read) as reachable:
            by_spark = _spark_task(batch, write, reachable)
            return reports(self._engine.spark, by_spark, len(reachable.tasks), work, write.pending)

    def _work(self, batch: Batch, *, in_python: bool, frame: bool) -> Work:
        with self._files.readable(batch) as size:
            sizes = (size(file.url) if file.size is None else file.size for file in batch.files)
            pairs = zip((file.encoding for file in batch.files), sizes, strict=True)
            work = sum(size * weight(form, in_python=in_python) for form, size in pairs)
        needs = load_frames.NEEDS_COLUMNS if batch.making is None else load_frames.NEEDS_MAP
        return Work(batch.source, work, needs if frame else "", load_tasks.RESULTS_DDL)

    def _tasks(self, batch: Batch) -> tuple[tuple[Piece, ...], ...]:
        with self._files.readable(batch) as size:
            cores = os.cpu_count() or 1
            return plan_tasks(batch.files, size, options=self._files.options, cores=cores)

    def _read_plan(self, batch: Batch, write: TableWrite) -> ReadPlan:
        add, making = self._config.add_record_metadata, batch.making
        metadata = RecordMetadata(
            received_at=batch.received_at,
            batched_at=time.time(),
            sync_started_at=self._started_at,
            version=batch.version,
        )
        read = ReadPlan(
            tasks=self._tasks(batch),
            schema=record_schema((making or batch.stream).schema, add),
            columns=arrow_schema(write.struct, write.encoding.format),
            metadata=metadata if add else None,
            strict=self._config.validate_records,
            options=self._files.options,
            rejects=write.pending if self._config.failure.policy == "SendToDLQ" else None,
            reject_options=write.options,
            document=None if self._config.denormalized else DOCUMENT,
            keys=tuple(Key(name, (name,)) for name in self._tables.keys(batch.stream)),
            refused=self._tables.refusals.of(batch),
        )
        if write.row_origin is not None:
            read = mapped_frames.with_origins(read)
        if read.strict:
            form = batch.files[0].encoding.format if batch.files else "singer"
            self._slow.log(batch.source, read.schema, files=not FORMATS[form].text)
        return read

    def _adopted(self, batch: Batch, write: TableWrite) -> LoadResult | None:
        """Return the files of a batch as parts, if they can be adopted unchanged; else None."""
        if batch.making is not None:
            return None
        keys = self._tables.keys(batch.stream)
        request = self._tables.request(batch.stream)
        plan = adoption(self._config, request, write, batch.files, keys)
        if plan is None:
            return None
        with writing(write.pending, write.options):
            return plan.parts(batch, write)


class Rewriter:
    """Rewrites files of a table by tasks of the engine; see `Rewrite`.

    Args:
        engine: Runs the tasks.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(
        self,
        pairs: Sequence[tuple[str, str]],
        write: TableWrite,
        edit: VersionEdit | None = None,
    ) -> dict[str, int]:
        """See `Rewrite`; one task for each file."""
        columns = arrow_schema(write.struct, write.encoding.format)
        parts = load_tasks.WritePlan(write.pending, write.encoding, columns, write.options)
        size = self._engine.limit + 1.0  # Of so many files, none is looked at.
        if len(pairs) <= MOST_LOOKED_AT:
            pairs = _without_kept(pairs, write, edit)
            sizes = _each(pairs, write, lambda url: size_of(url, write.options))
            size = sum(sizes) * weight(write.encoding)
        if not pairs:
            return {}
        task = partial(rewrite, RewritePlan(tuple(pairs), parts, edit))
        work = Work(None, size, reports=load_tasks.RESULTS_DDL)
        runs = self._engine.choose(work)
        rows = reports(runs, task, len(pairs), work, write.pending)
        return {row["url"]: row["rows"] for row in rows if row["kind"] == "part"}


def _task(batch: Batch, write: TableWrite, read: ReadPlan) -> tuple[Task | None, bool]:
    """Return what loads the tasks of a plan, by number.

    Returns:
        The work, None if rows must pass through Spark's columns; and whether Python evaluates an
        expression for each record.
    """
    copying = _arrow_task(batch, write, read)
    if copying is not None or batch.making is None:
        return copying, False
    from target_spark.load.arrow_map_tasks import map_task  # noqa: PLC0415

    return map_task(read, write, batch.making)


def _arrow_task(batch: Batch, write: TableWrite, read: ReadPlan) -> Task | None:
    if load_frames.needs_frame(write):
        return None
    if batch.making is not None:
        return mapped_frames.copying(read, write, batch.making)
    return partial(load_tasks.load, read, load_tasks.write_plan(write, read.columns))


def _spark_task(batch: Batch, write: TableWrite, read: ReadPlan) -> Task | FrameTask:
    """Return the same for Spark, whose columns map faster than Python."""
    task = _arrow_task(batch, write, read)
    if task is not None:
        return task
    if batch.making is not None:
        return FrameTask(partial(_mapped, read, write, batch.making))
    return FrameTask(lambda numbers: load_frames.job(numbers, read, write))


def _mapped(read: ReadPlan, write: TableWrite, making: Making, numbers: DataFrame) -> DataFrame:
    return mapped_frames.job(numbers, read, write, making)


def _without_kept(
    pairs: Sequence[tuple[str, str]], write: TableWrite, edit: VersionEdit | None
) -> Sequence[tuple[str, str]]:
    """Return the files that an edit may change, as their footers tell."""
    if edit is None:
        return pairs
    form, options = write.encoding.format, write.options
    kept = _each(pairs, write, lambda url: edit.keeps_file(url, form, options))
    return [pair for pair, is_kept in zip(pairs, kept, strict=True) if not is_kept]


def _each(
    pairs: Sequence[tuple[str, str]], write: TableWrite, look: Callable[[str], _Seen]
) -> list[_Seen]:
    """Return what is seen at the first file of each pair."""
    with writing(write.pending, write.options), ThreadPoolExecutor(LOOKERS, "look") as threads:
        return list(threads.map(look, [source for source, _ in pairs]))


def reports(runs: Runs, task: Task | FrameTask, count: int, work: Work, place: str) -> list[Report]:
    """Run tasks and return what they report.

    Args:
        runs: Runs them.
        task: The work.
        count: Number of tasks.
        work: See `Work`.
        place: Where they write, for messages.

    Raises:
        DestinationError: Spark failed, or a part could not be written.
        MessageError: A file could not be read.
    """
    where = Where(stream=work.stream)
    try:
        rows = runs.run(task, count, work)
    except Exception as error:
        if isinstance(error, OSError) and isinstance(runs, Threads):
            raise write_error(place, error) from error
        raise explain(error, where, DestinationError) from error
    raise_failure(rows, where)
    return rows
