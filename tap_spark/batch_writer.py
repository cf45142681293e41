"""BATCH messages of one slice: files written by the executors, announced while others follow."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.batch_types import BatchConfig
from shared.errors import DestinationError, SourceError, Where
from shared.messages import batch_line
from shared.spark_session import parallelism, stream_arrow
from shared.storage import shown
from tap_spark.batch_plan import STORAGE_FAILED, Join, Written, file_names, plan_joins, shares
from tap_spark.line_chunks import KeyMax, greater, unpack_meta
from tap_spark.line_output import LineOutput
from tap_spark.plans import Resume, Slice, StreamPlan
from tap_spark.record_writer import POLL_SECONDS, ChunkInfo, OnChunk, RowsWritten
from tap_spark.spark_job import SparkJob, tagged
from tap_spark.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.batch_tasks import FileWriter, Reporter

TAP_NAME = "tap-spark"
CLEAN_SECONDS = 2.0
_STORAGE_FAILED = re.compile(re.escape(STORAGE_FAILED).replace(r"\{\}", "(.*)"))
_logger = logging.getLogger(__name__)

Told = tuple[Written, KeyMax | None]
MakeTask = Callable[["Reporter"], Any]


@dataclass
class _Slice:
    """What is known of a slice while it is being written."""

    spark: SparkSession
    plan: StreamPlan
    batch: BatchConfig
    output: LineOutput
    spool: Spool | None
    writer: FileWriter
    announced: set[str] = field(default_factory=set)


def write_batches(
    spark: SparkSession,
    plan: StreamPlan,
    piece: Slice,
    output: LineOutput,
    *,
    batch: BatchConfig,
    spool: Spool | None,
    on_chunk: OnChunk,
) -> RowsWritten:
    """Write a slice as files and BATCH messages.

    With `batch_size`, every file has exactly so many rows, but for the slice's last one: tasks
    write full files, and what they have left over is joined by a second, small job. An ordered
    slice is then written by a single task.

    Args:
        spark: The session, classic or Connect.
        plan: The stream.
        piece: What to read. Where it is ordered and a replication key is followed, files are
            announced in its order.
        output: Standard output.
        batch: Where the files go, and how.
        spool: Where executors leave notes for this process; None where they share no disk.
        on_chunk: Called after each BATCH message; may write STATE.

    Returns:
        How much was written, and the greatest replication key in it.

    Raises:
        ClosedPipeError: The reader of standard output has gone away.
        DestinationError: The spool or the batch files cannot be written.
        Exception: What Spark failed with. Files that no message names have been removed.
    """
    key = plan.replication_key if plan.resume is Resume.REPLICATION_KEY else None
    ordered = piece.ordered and key is not None
    frame = _laid_out(piece.frame, batch, key)
    if batch.batch_size is not None:
        frame = frame.coalesce(1 if ordered else parallelism(spark))
    writer = _file_writer(frame, piece.frame.columns, plan, batch, key)
    this = _Slice(spark, plan, batch, output, spool, writer)
    written = RowsWritten()
    done = False
    try:
        with _explained(this), closing(_files(this, frame, key, ordered)) as files:
            for chunk in files:
                written = written.plus(chunk)
                on_chunk(chunk)
        done = True
    finally:
        if not done or spool is None:
            _remove_unannounced(this, looks=1 if done else 2)
    return written


@contextmanager
def _explained(this: _Slice) -> Iterator[None]:
    """Tell failures of the storage from those of the source."""
    try:
        yield
    except Exception as error:
        failed = _STORAGE_FAILED.search(str(error))
        if failed is None:
            raise
        root = this.writer.names.root
        raise DestinationError(
            f"batch files cannot be written: {failed.group(1)}",
            where=Where(
                stream=this.plan.stream, file=shown(root), setting="batch_config.storage.root"
            ),
            hint="check that the place exists and may be written to, and storage.options",
        ) from error


def _laid_out(frame: DataFrame, batch: BatchConfig, key: str | None) -> DataFrame:
    from shared.encodings import FORMATS  # noqa: PLC0415
    from tap_spark.batch_columns import line_frame, typed_frame  # noqa: PLC0415

    if FORMATS[batch.format].text:
        return line_frame(frame, key)
    return typed_frame(frame, key, flat=batch.format == "csv")


def _file_writer(
    frame: DataFrame, columns: list[str], plan: StreamPlan, batch: BatchConfig, key: str | None
) -> FileWriter:
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    from shared.arrow_types import struct_to_arrow  # noqa: PLC0415
    from shared.encodings import FORMATS, Encoding  # noqa: PLC0415
    from shared.storage import StorageOptions  # noqa: PLC0415
    from tap_spark.batch_tasks import FileWriter  # noqa: PLC0415

    form = FORMATS[batch.format]
    followed = 0 if key is None else 1 if form.text else 2
    fields = frame.schema.fields[: len(frame.schema.fields) - followed]
    if not form.text:
        named = zip(fields, columns, strict=True)
        fields = [T.StructField(name, field.dataType, field.nullable) for field, name in named]
    extension = form.extension(batch.compression)
    return FileWriter(
        Encoding(batch.format, batch.compression),
        file_names(batch.root or "", batch.prefix, TAP_NAME, plan.stream, extension),
        struct_to_arrow(T.StructType(fields)),
        StorageOptions(batch.options),
    )


def _files(
    this: _Slice, frame: DataFrame, key: str | None, ordered: bool
) -> Generator[ChunkInfo, None, None]:
    """Write all files and announce each as soon as it is there."""
    from tap_spark.batch_tasks import BatchTask  # noqa: PLC0415

    rows = this.batch.batch_size
    folder = None if rows is None or this.spool is None else this.spool.new_folder()
    rest_folder = None if folder is None else str(folder.path)

    def make(reporter: Reporter) -> BatchTask:
        return BatchTask(this.writer, reporter, key, rows, rest_folder)

    rests: list[Written] = []
    rest_key: KeyMax | None = None
    try:
        with closing(_told(this, frame, make, ordered)) as files:
            for written, found in files:
                if written.is_rest:
                    rests.append(written)
                    rest_key = greater(rest_key, found)
                else:
                    yield _announce(this, written, found)
        if rows is not None and rests:
            with closing(_joined(this, plan_joins(rests, rows))) as files:
                for written, _ in files:
                    yield _announce(this, written, None)
            yield ChunkInfo(0, 0, rest_key)
    finally:
        if folder is not None:
            folder.remove()


def _announce(this: _Slice, written: Written, key: KeyMax | None) -> ChunkInfo:
    encoding = {"format": this.batch.format, "compression": this.batch.compression}
    line = batch_line(this.plan.stream, encoding, [written.url], this.plan.version)
    # Known before it is written: a reader may have got the line even if writing it fails.
    this.announced.add(written.url)
    this.output.write(line)
    return ChunkInfo(written.rows, written.size, key)


def _joined(this: _Slice, joins: tuple[Join, ...]) -> Generator[Told, None, None]:
    from tap_spark.batch_tasks import JoinTask  # noqa: PLC0415

    dealt = tuple(shares(joins, parallelism(this.spark)))
    frame = this.spark.range(0, len(dealt), 1, len(dealt))
    # In order, as the short file is the last one.
    return _told(this, frame, lambda reporter: JoinTask(this.writer, reporter, dealt), True)


def _told(
    this: _Slice, frame: DataFrame, make: MakeTask, ordered: bool
) -> Generator[Told, None, None]:
    """Run a task over a frame and yield what it tells of its files."""
    if this.spool is None:
        return _by_result(this.spark, frame, make, ordered)
    return _by_notes(this.spark, frame, make, this.spool, ordered)


def _by_notes(
    spark: SparkSession, frame: DataFrame, make: MakeTask, spool: Spool, ordered: bool
) -> Generator[Told, None, None]:
    from tap_spark.batch_tasks import NOTE_SCHEMA, Reporter  # noqa: PLC0415

    folder = spool.new_folder(ordered=ordered)
    task = make(Reporter(folder.place))
    job = SparkJob(spark, frame.mapInArrow(task, NOTE_SCHEMA).collect)
    told = 0
    try:
        ended = False
        while not ended:
            ended = job.wait(POLL_SECONDS)
            for chunk in folder.ready(ended=ended):
                note = _written(chunk.path.read_text(encoding="utf-8"))
                chunk.remove()
                told += 1
                yield note, chunk.key
        _check_notes(told, len(job.result()))
    finally:
        job.cancel()
        folder.remove()


def _check_notes(told: int, expected: int) -> None:
    if told < expected:
        raise SourceError(
            f"notes on {expected - told} of {expected} batch files got lost in the spool folder",
            where=Where(setting="spool.root"),
            hint="nothing else may remove files there; run again",
        )


def _by_result(
    spark: SparkSession, frame: DataFrame, make: MakeTask, ordered: bool
) -> Generator[Told, None, None]:
    from tap_spark.batch_tasks import NOTE_SCHEMA, Reporter  # noqa: PLC0415

    with tagged(spark):
        rows = _rows(frame.mapInArrow(make(Reporter(None)), NOTE_SCHEMA))
        if ordered:
            rows = iter(sorted(rows, key=lambda row: (row["partition"], row["number"])))
        for row in rows:
            yield _written(row["note"]), unpack_meta(row["meta"])[1]


def _rows(frame: DataFrame) -> Iterator[dict[str, Any]]:
    for batch in stream_arrow(frame):
        yield from batch.to_pylist()


def _written(note: str) -> Written:
    return Written(**json.loads(note))


def _remove_unannounced(this: _Slice, looks: int) -> None:
    """Remove files of this slice that no message names; what cannot be removed is told.

    Args:
        this: The slice.
        looks: How often in a row there must be none: tasks that have been told to stop may be
            finishing a file.
    """
    options = this.writer.options
    until = time.monotonic() + CLEAN_SECONDS
    clean = 0
    try:
        while clean < looks and time.monotonic() < until:
            clean = 0 if _removed(this) else clean + 1
            if clean < looks:
                time.sleep(CLEAN_SECONDS / 10)
    except Exception as error:
        _logger.warning(
            "stream '%s': batch files that no message names could not be removed: %s",
            this.plan.stream,
            options.without_secrets(str(error)),
        )


def _removed(this: _Slice) -> int:
    from shared.storage import delete  # noqa: PLC0415

    names, options = this.writer.names, this.writer.options
    folder, _, start = f"{names.root}/{names.start}".rpartition("/")
    left = [url for url in _listed(folder, start, options) if url not in this.announced]
    for url in left:
        delete(url, options)
    return len(left)


def _listed(folder: str, start: str, options: Any) -> Iterator[str]:
    """List files whose name begins so, hidden or not."""
    from shared.storage import local_path, remote  # noqa: PLC0415

    path = local_path(folder)
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            names = [entry.name for entry in Path(path).iterdir()]
            yield from (f"{folder}/{name}" for name in names if _is_ours(name, start))
        return
    filesystem, inside = remote(folder, options)
    with contextlib.suppress(FileNotFoundError):
        for found in filesystem.ls(inside, detail=False, refresh=True):
            name = str(found).rpartition("/")[2]
            if _is_ours(name, start):
                yield f"{folder}/{name}"


def _is_ours(name: str, start: str) -> bool:
    return name.lstrip(".").startswith(start)
