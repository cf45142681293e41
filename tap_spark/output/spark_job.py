"""Spark actions in threads of their own, so that they can be polled and cancelled."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from shared.spark.session import JobTags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
CANCEL_SECONDS = 1.0


@contextmanager
def tagged(spark: SparkSession) -> Iterator[str]:
    """Tag every action of this thread; cancel actions that still run at the end.

    Args:
        spark: The session, classic or Connect.
    """
    tag = f"tap-spark-{uuid.uuid4().hex}"
    tags = JobTags(spark)
    tags.add(tag)
    try:
        yield tag
    finally:
        with contextlib.suppress(Exception):
            tags.remove(tag)
        interrupt(spark, tag)


def interrupt(spark: SparkSession, tag: str) -> None:
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
    """A Spark action that runs in the background.

    Args:
        spark: The session, classic or Connect.
        action: Runs the job and returns its result.
    """

    def __init__(self, spark: SparkSession, action: Callable[[], T]) -> None:
        self._spark = spark
        self._action = action
        self._tag = f"tap-spark-{uuid.uuid4().hex}"
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark-job", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            JobTags(self._spark).add(self._tag)
            self._result.append(self._action())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the job, but not longer than `seconds`.

        Returns:
            Whether the job has ended.

        Raises:
            Exception: The failure of the job.
        """
        ended = self._done.wait(seconds)
        if self._error is not None:
            raise self._error
        return ended

    def result(self) -> T:
        """Wait for the result; raises the failure of the job."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result[0]

    def cancel(self) -> None:
        """Cancel the job if it still runs; waits for two seconds at most."""
        if not self._done.is_set():
            interrupt(self._spark, self._tag)
            self._done.wait(CANCEL_SECONDS)
