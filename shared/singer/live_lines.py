"""Lines that a terminal shows below the log while streams run, one for each stream.

Two programs of a pipe share the terminal. One of them shows such lines at a time, the one with a
lock on the terminal. The cursor waits at the first line, so that whatever either program logs takes
the place of all of them, until they are drawn again below it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from shared.settings.texts import cut
from shared.singer.logs import CONSOLE, Console

INTERVAL_SECONDS = 0.5
MOST_LINES = 10


class Progress:
    """Counts what a stream has moved, for its line; safe for several threads.

    Args:
        label: What moves, e.g. the stream's name.
        live: Shows the line between `__enter__` and `close`, if anybody watches.
        clock: Seconds.

    Attributes:
        rows: Rows so far.
        bytes: Their bytes.
        active_at: When rows came last.
    """

    def __init__(
        self,
        label: str,
        *,
        live: LiveLines | None = None,
        clock: Callable[[], float] = time.monotonic,
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
    """The progress of streams that come as they like, each from its first rows on.

    Args:
        live: Shows the lines.
    """

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
    """Draws the lines of running streams twice a second, if someone watches.

    Args:
        console: The terminal.
        clock: Seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
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
                self._over.clear()
                self._thread = threading.Thread(target=self._run, daemon=True, name="live-lines")
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

    def _run(self) -> None:
        try:
            while not self._over.wait(INTERVAL_SECONDS):
                with self._lock:
                    running = list(self._running)
                columns, rows = self._console.size
                lines = lines_of(running, self._clock(), columns - 1, rows)
                if lines and self._may_show():
                    self._console.show(lines)
        finally:
            self._console.clear()
            if self._terminal is not None:
                os.close(self._terminal)
                self._terminal = None

    def _may_show(self) -> bool:
        """Return whether this program may show lines now: no other one does."""
        after = self._console.live_after
        if self._terminal is None and after is not None and self._clock() - self._began >= after:
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
    """Return the lines of streams, those that moved last if there are too many.

    Args:
        running: The streams.
        now: Seconds on their clock.
        width: Most characters of a line.
        height: Lines of the terminal.
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
