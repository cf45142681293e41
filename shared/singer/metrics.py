"""`METRIC:` lines in the log, as the Meltano SDK writes them."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

RECORD_COUNT = "record_count"
BATCH_COUNT = "batch_count"
SYNC_DURATION = "sync_duration"
JOB_DURATION = "job_duration"
BATCH_PROCESSING_TIME = "batch_processing_time"
LOG_INTERVAL_SECONDS = 60.0

Clock = Callable[[], float]

_logger = logging.getLogger(__name__)


def emit(kind: str, metric: str, value: float, stream: str | None, **tags: str | int) -> None:
    """Write one measurement to the log, with its keys in the order of the SDK.

    Args:
        kind: `counter` or `timer`.
        metric: E.g. `RECORD_COUNT`.
        value: A number of things, or of seconds.
        stream: Name of the stream that it is about, if there is one.
        tags: More tags.
    """
    of_stream = {} if stream is None else {"stream": stream}
    tagged: dict[str, Any] = {**of_stream, "pid": os.getpid(), "context": {}, **tags}
    data = {"type": kind, "metric": metric, "value": value, "tags": tagged}
    text = json.dumps(data, default=str, separators=(",", ":"), ensure_ascii=False)
    _logger.info("METRIC: %s", text, extra={"metric_info": data, "stream_name": stream})


class Counter:
    """Counts, and writes what has come since the last line, each minute and at the end.

    Safe for several threads.

    Args:
        metric: E.g. `RECORD_COUNT`.
        stream: Name of the stream, if the count belongs to one.
        clock: Seconds.
        interval: Seconds between lines.
        tags: More tags.
    """

    def __init__(
        self,
        metric: str,
        stream: str | None = None,
        *,
        clock: Clock = time.monotonic,
        interval: float = LOG_INTERVAL_SECONDS,
        **tags: str | int,
    ) -> None:
        self.total = 0
        self._metric = metric
        self._stream = stream
        self._tags = tags
        self._clock = clock
        self._interval = interval
        self._lock = threading.Lock()
        self._pending = 0
        self._written_at = clock()

    def increment(self, count: int = 1) -> None:
        """Add to the count."""
        with self._lock:
            self.total += count
            self._pending += count
            if self._clock() - self._written_at >= self._interval:
                self._write()

    def close(self) -> None:
        """Write the rest of the count; write 0 once if nothing was counted."""
        with self._lock:
            if self._pending or not self.total:
                self._write()

    def _write(self) -> None:
        emit("counter", self._metric, self._pending, self._stream, **self._tags)
        self._pending = 0
        self._written_at = self._clock()

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Timer:
    """Measures a `with` block and writes its seconds, with `status` succeeded or failed.

    Args:
        metric: E.g. `SYNC_DURATION`.
        stream: Name of the stream, if the time belongs to one.
        clock: Seconds.
        tags: More tags.
    """

    def __init__(
        self,
        metric: str,
        stream: str | None = None,
        *,
        clock: Clock = time.monotonic,
        **tags: str | int,
    ) -> None:
        self.seconds = 0.0
        self._metric = metric
        self._stream = stream
        self._tags = tags
        self._clock = clock
        self._started = clock()

    def __enter__(self) -> Timer:
        self._started = self._clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = self._clock() - self._started
        tags = {**self._tags, "status": "succeeded" if kind is None else "failed"}
        emit("timer", self._metric, round(self.seconds, 6), self._stream, **tags)
