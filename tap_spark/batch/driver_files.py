"""Batch files that the driver writes itself, by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tap_spark.batch.batch_tasks import BatchFileWriter, BatchTask, Reporter

if TYPE_CHECKING:
    import pyarrow as pa

    from tap_spark.batch.batch_plan import WrittenFile
    from tap_spark.state.stream_plans import BlockReaders

_ONE_STREAM = threading.Lock()
"""Its threads use every core, so that streams that are read at the same time take turns."""


class _LeftToSparkError(Exception):
    """A block must be read by Spark."""


def driver_files(
    writer: BatchFileWriter,
    readers: BlockReaders,
    threads: int,
    ended: Callable[[], bool],
) -> list[WrittenFile] | None:
    """Write files from blocks of rows.

    Args:
        writer: Writes the files.
        readers: Each reads a block; None from one means that Spark must read all of them.
        threads: How many blocks are read and written at the same time.
        ended: Returns whether the run has ended, so that nobody needs the files.

    Returns:
        The files; None if Spark must read the rows.

    Raises:
        Exception: The files cannot be written.
    """
    waiting = iter(readers)
    lock, stopped = threading.Lock(), threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        while not stopped.is_set() and not ended():
            with lock:
                read = next(waiting, None)
            if read is None:
                return
            found = read()
            if found is None:
                raise _LeftToSparkError
            yield found

    def written(task: int) -> list[WrittenFile]:
        try:
            return [
                file
                for file, _ in BatchTask(writer, Reporter(None), None, None).files(batches(), task)
            ]
        except BaseException:
            stopped.set()
            raise

    with _ONE_STREAM, ThreadPoolExecutor(max(1, min(threads, len(readers)))) as pool:
        try:
            shares = list(pool.map(written, range(threads)))
        except _LeftToSparkError:
            return None
        finally:
            # Also if this thread is interrupted while it waits.
            stopped.set()
    return [file for share in shares for file in share]
