"""What a run tells while it goes on: `METRIC:` lines in the log, and live lines on a terminal.

Metrics are as the Meltano SDK writes them. Of two programs in a pipe, which share the terminal, the
one with a lock on it shows live lines: one for each stream, below the log. The cursor waits at the
first of them, so that whatever either program logs takes their place.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from shared.settings.texts import cut
from shared.singer.logs import CONSOLE, Console

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
    """
    of_stream = {} if stream is None else {"stream": stream}
    tagged: dict[str, Any] = {**of_stream, "pid": os.getpid(), "context": {}, **tags}
    data = {"type": kind, "metric": metric, "value": value, "tags": tagged}
    text = json.dumps(data, default=str, separators=(",", ":"), ensure_ascii=False)
    _logger.info("METRIC: %s", text, extra={"metric_info": data, "stream_name": stream})


class Counter(AbstractContextManager["Counter"]):
    """Counts, and writes what has come since the last line, each minute and at the end.

    Safe for several threads. Its clock and interval are in seconds.
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

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def timed(
    metric: str, stream: str | None = None, *, clock: Clock = time.monotonic
) -> Iterator[Callable[[], float]]:
    """Measure a `with` block, and write its seconds, with `status` succeeded or failed.

    Yields:
        A function that returns the seconds since the block began.
    """
    begin, status = clock(), "failed"
    try:
        yield lambda: clock() - begin
        status = "succeeded"
    finally:
        emit("timer", metric, round(clock() - begin, 6), stream, status=status)


INTERVAL_SECONDS = 0.5
MOST_LINES = 10


class Progress:
    """Counts what a stream has moved, for its line; safe for several threads.

    Args:
        label: What moves, e.g. the stream's name.
        live: Shows the line between `__enter__` and `close`, if anybody watches.
        clock: Seconds.

    Attributes:
        active_at: When rows came last.
    """

    def __init__(
        self, label: str, *, live: LiveLines | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._label = label
        self._live = LIVE if live is None else live
        self._clock = clock
        self._lock = threading.Lock()
        self._started = self.active_at = clock()
        self._committed_at: float | None = None
        self.rows = 0
        self.bytes = 0

    def add(self, rows: int, size: int = 0) -> None:
        """Count rows and bytes that are done."""
        with self._lock:
            self.rows += rows
            self.bytes += size
            self.active_at = self._clock()

    def committed(self) -> None:
        """Record that rows have become durable now."""
        self._committed_at = self.active_at = self._clock()

    def text(self, now: float, width: int) -> str:
        """Return the line; the name is cut if it is too long for the width."""
        seconds = now - self._started
        rate = self.rows / seconds if seconds > 0 else 0.0
        text = f": {self.rows:,} rows, {rate:,.0f} rows/s, {self.bytes / 1e6:,.1f} MB"
        if self._committed_at is not None:
            text += f", last commit {max(0.0, now - self._committed_at):,.0f} s ago"
        return cut(cut(self._label, max(8, width - len(text))) + text, width)

    def close(self) -> None:
        """End the line; safe to call twice."""
        self._live.leave(self)

    def __enter__(self) -> Progress:
        self._live.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StreamProgress:
    """The progress of streams that come as they like, each from its first rows on."""

    def __init__(self, live: LiveLines | None = None) -> None:
        self._live = LIVE if live is None else live
        self._streams: dict[str, Progress] = {}

    def of(self, stream: str) -> Progress:
        """Return the progress of a stream."""
        if stream not in self._streams:
            self._streams[stream] = Progress(stream, live=self._live).__enter__()
        return self._streams[stream]

    def close(self) -> None:
        """End all lines."""
        for progress in self._streams.values():
            progress.close()


class LiveLines:
    """Draws the lines of running streams twice a second, if someone watches."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._running: list[Progress] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._terminal: int | None = None

    def enter(self, progress: Progress) -> None:
        """Show the line of a stream."""
        if self._console.live_after is None:
            return
        with self._lock:
            self._running.append(progress)
            if self._thread is None:
                # An event for each thread: the last one may not have looked at its own yet.
                self._over = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._over,), daemon=True, name="live-lines"
                )
                self._thread.start()

    def leave(self, progress: Progress) -> None:
        """No longer show the line of a stream."""
        with self._lock:
            if progress in self._running:
                self._running.remove(progress)
            thread = None if self._running else self._thread
            if thread is not None:
                self._thread = None
                self._over.set()
        if thread is not None:
            thread.join()

    def _run(self, over: threading.Event) -> None:
        try:
            while not over.wait(INTERVAL_SECONDS):
                with self._lock:
                    running = list(self._running)
                columns, rows = self._console.size
                lines = lines_of(running, time.monotonic(), columns - 1, rows)
                if lines and self._may_show():
                    self._console.show(lines)
        finally:
            self._console.clear()
            with self._lock:
                terminal, self._terminal = self._terminal, None
            if terminal is not None:
                os.close(terminal)

    def _may_show(self) -> bool:
        """Return whether this program may show lines now: no other one does."""
        after = self._console.live_after
        is_time = after is not None and time.monotonic() - self._began >= after
        if self._terminal is None and is_time:
            self._terminal = lock_terminal(self._console)
        return self._terminal is not None


def lock_terminal(console: Console) -> int | None:
    """Return a descriptor that locks the terminal; None if another process has the lock."""
    with suppress(OSError, ValueError):
        name = os.ttyname(console.stream.fileno())
        # A file description of its own: the one of standard error is shared by all of the pipe.
        fd = os.open(name, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
        else:
            return fd
    return None


def lines_of(running: Sequence[Progress], now: float, width: int, height: int) -> list[str]:
    """Return the lines of streams, those that moved last if there are too many for the terminal.

    `now` are seconds on their clock.
    """
    most = max(1, min(MOST_LINES, height - 2))
    shown = [one for one in running if one.rows]
    if len(shown) > most:
        latest = sorted(shown, key=lambda one: one.active_at, reverse=True)[: most - 1]
        left = len(shown) - len(latest)
        shown = [one for one in shown if one in latest]
        return [*(one.text(now, width) for one in shown), cut(f"and {left} more streams", width)]
    return [one.text(now, width) for one in shown]


LIVE = LiveLines(CONSOLE)
