"""Batches that the driver converts itself until Spark is up: a start takes seconds.

Threads of the driver run what tasks of Spark would, on the same plans. On a machine with few cores
they never need Spark for that: its start costs more than its processes save. Small batches are
theirs in any case: many small streams would each wait for a job.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shared.errors import DestinationError, Where
from shared.formats.file_formats import FORMATS, Encoding
from shared.spark.spark_errors import explain
from target_spark.destinations.folders.folder_failures import write_error
from target_spark.load.load_results import raise_failure
from target_spark.load.task_plan import PACKED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE_BYTES = 32 * 1024 * 1024
"""Bytes of lines that the driver converts; by then a start of Spark has begun to pay."""
FEW_CORES = 4
"""Cores of a local Spark up to which it does not pay for conversions alone."""
BATCH_BYTES = 512 * 1024 * 1024
"""Bytes of lines in the largest batch that the driver converts on few cores. A signal waits for it:
on two cores, some seven seconds."""
SMALL_BYTES = 4 * 1024 * 1024
"""Bytes of lines that the driver also converts while Spark is up: in less time than a job takes."""
SMALL_FILES = 64
"""Files of such a batch, at most: each is asked for its size."""
EARLY_BYTES = 4 * 1024 * 1024
"""Bytes of records after which Spark starts ahead of the first batch that needs it."""
EVALUATED_BYTES = 16 * 1024 * 1024
"""Bytes of lines whose stream maps Python evaluates record by record in a run: ten maps of 40,000
records take 1.5 seconds. Spark's columns take less, but its start takes several seconds."""
COLUMN_WEIGHT = 0.25
"""Work for a byte of a columnar file, compared with a byte of lines."""
EVALUATED_COLUMN_WEIGHT = 4
"""The same if Python evaluates a map: a columnar file has more records in as many bytes."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class DriverTasks:
    """Takes batches while Spark is not up, and small ones; wants Spark once they are many.

    Args:
        running: Returns the session if it has started; does not wait.
        start: Starts Spark in the background.
        cores: Cores of Spark on this machine; 0 if it runs elsewhere.

    Attributes:
        early_bytes: Bytes of records after which Spark starts before a batch needs it.
    """

    def __init__(
        self,
        running: Callable[[], SparkSession | None],
        start: Callable[[], None],
        cores: int = 0,
    ) -> None:
        suffices = 0 < cores <= FEW_CORES
        self.early_bytes = sys.maxsize if suffices else EARLY_BYTES
        self._most = math.inf if suffices else LINE_BYTES
        self._largest = BATCH_BYTES if suffices else LINE_BYTES
        self._running = running
        self._start = start
        self._lock = threading.Lock()
        self._work = self._evaluated = 0.0
        self._threads = cores or os.cpu_count() or 1
        self._turns = threading.BoundedSemaphore(self._threads)

    @property
    def is_spark_up(self) -> bool:
        """Return whether Spark could take a batch at once."""
        return self._running() is not None

    def take(self, work: float, *, evaluated: bool = False) -> bool:
        """Return whether the driver converts a batch, and start Spark if it is time to.

        Args:
            work: See `work_of`.
            evaluated: Whether Python evaluates a stream map for each record.
        """
        if self.is_spark_up:
            return work <= SMALL_BYTES and not evaluated
        with self._lock:
            self._work += work
            self._evaluated += work if evaluated else 0
            is_much = self._work > self._most or self._evaluated > EVALUATED_BYTES
        fits = work <= (EVALUATED_BYTES if evaluated else self._largest)
        if is_much or not fits:
            self._start()
        return fits

    def run(self, task: Task, count: int, place: str, where: Where) -> list[dict[str, Any]]:
        """Return the reports of some tasks.

        Args:
            task: Takes numbers of tasks, as for `mapInArrow`, and yields their reports.
            count: Number of tasks.
            place: Where they write, for messages.
            where: The stream.

        Raises:
            SingerSparkError: A task has failed, or reports a failure.
        """

        def run_one(number: int) -> list[dict[str, Any]]:
            numbers = pa.record_batch({"number": [number]})
            with self._turns:
                return [row for rows in task([numbers]) for row in rows.to_pylist()]

        try:
            with ThreadPoolExecutor(self._threads, "convert") as threads:
                found = list(threads.map(run_one, range(count)))
        except OSError as error:
            raise write_error(place, error) from error
        except Exception as error:
            raise explain(error, where, DestinationError) from error
        rows = [row for reports in found for row in reports]
        raise_failure(rows, where)
        return rows


def work_of(encoding: Encoding, size: int, *, evaluated: bool = False) -> float:
    """Return the work to read, map and write a file of some bytes, in bytes of lines."""
    if not FORMATS[encoding.format].text:
        return size * (EVALUATED_COLUMN_WEIGHT if evaluated else COLUMN_WEIGHT)
    return size * (1 if encoding.compression == "none" else PACKED)
