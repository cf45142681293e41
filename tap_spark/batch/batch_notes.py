"""Notes from the tasks that write batch files: one per file, while they write the next."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from shared.spark.session import stream_arrow
from tap_spark.batch.batch_plan import WrittenFile
from tap_spark.output.line_chunks import KeyMax, unpack_meta
from tap_spark.output.record_writer import POLL_SECONDS
from tap_spark.output.spark_job import SparkJob, tagged
from tap_spark.output.spool import Spool, check_complete

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.batch.batch_tasks import Reporter

FileNote = tuple[WrittenFile, KeyMax | None]
MakeTask = Callable[["Reporter"], Any]


def written_files(
    spark: SparkSession, frame: DataFrame, make: MakeTask, spool: Spool | None, *, ordered: bool
) -> Generator[FileNote, None, None]:
    """Run a task over a frame; yield each file it reports, with its greatest key.

    Args:
        spark: The session.
        frame: Input of the task.
        make: Builds the task.
        spool: Where tasks leave notes; None if executors do not share a disk: notes then come at
            the end.
        ordered: Whether to yield files in the order of the frame's rows.

    Raises:
        SourceError: Notes were lost.
        Exception: Any failure of Spark.
    """
    if spool is None:
        return _by_result(spark, frame, make, ordered)
    return _by_notes(spark, frame, make, spool, ordered)


def _by_notes(
    spark: SparkSession, frame: DataFrame, make: MakeTask, spool: Spool, ordered: bool
) -> Generator[FileNote, None, None]:
    from tap_spark.batch.batch_tasks import NOTE_SCHEMA, Reporter  # noqa: PLC0415

    folder = spool.new_folder(ordered=ordered)
    task = make(Reporter(folder.task_spool))
    job = SparkJob(spark, frame.mapInArrow(task, NOTE_SCHEMA).collect)
    written_files = 0
    try:
        ended = False
        while not ended:
            ended = job.wait(POLL_SECONDS)
            for chunk in folder.ready(ended=ended):
                note = _written(chunk.path.read_text(encoding="utf-8"))
                chunk.remove()
                written_files += 1
                yield note, chunk.key
        check_complete(written_files, len(job.result()), "notes on {} of {} batch files")
    finally:
        job.cancel()
        folder.remove()


def _by_result(
    spark: SparkSession, frame: DataFrame, make: MakeTask, ordered: bool
) -> Generator[FileNote, None, None]:
    from tap_spark.batch.batch_tasks import NOTE_SCHEMA, Reporter  # noqa: PLC0415

    with tagged(spark):
        rows = _rows(frame.mapInArrow(make(Reporter(None)), NOTE_SCHEMA))
        if ordered:
            rows = iter(sorted(rows, key=lambda row: (row["partition"], row["number"])))
        for row in rows:
            yield _written(row["note"]), unpack_meta(row["meta"])[1]


def _rows(frame: DataFrame) -> Iterator[dict[str, Any]]:
    for batch in stream_arrow(frame):
        yield from batch.to_pylist()


def _written(note: str) -> WrittenFile:
    return WrittenFile(**json.loads(note))
