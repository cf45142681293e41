"""The watch over a run that makes no progress: lines that say so, and an end if it lasts."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from shared.errors import StalledRunError, Where

_log = logging.getLogger(__name__)


@dataclass
class StallWatch:
    """Knows how long nothing has happened.

    Attributes:
        limit: Seconds after which the run ends; `math.inf` for never.
        heartbeat: Seconds after which a line says what the run waits for, again and again;
            `math.inf` for never.
        progress_at: When something happened last.
        has_warned: Whether a warning was given since then.
        beats: How many heartbeats were due since then.
        what: What has not happened, in a message.
    """

    limit: float = math.inf
    progress_at: float = 0.0
    has_warned: bool = False
    heartbeat: float = math.inf
    beats: int = 0
    what: str = "no input, conversion or commit has made progress"

    def progress(self, now: float) -> None:
        """Record that something happens now."""
        self.progress_at, self.has_warned, self.beats = now, False, 0

    @property
    def deadline(self) -> float:
        """Return when to look at the watch again."""
        return min(self._next_step, self._next_beat)

    @property
    def _next_step(self) -> float:
        return self.progress_at + (self.limit if self.has_warned else self.limit / 2)

    @property
    def _next_beat(self) -> float:
        return self.progress_at + self.heartbeat * (self.beats + 1)

    def beat(self, now: float, waits_for: Callable[[], str]) -> str | None:
        """Return a line about the silence if one is due.

        Args:
            now: The time.
            waits_for: Returns what the run waits for, as the end of a sentence.
        """
        if now < self._next_beat:
            return None
        silent = now - self.progress_at
        self.beats = max(self.beats + 1, int(silent / self.heartbeat))
        return f"no progress for {silent:,.0f} s: waiting for {waits_for()}"

    def warning(self, now: float) -> str | None:
        """Return a warning if half of the limit is over, once."""
        if self.has_warned or now < self._next_step:
            return None
        self.has_warned = True
        silent = now - self.progress_at
        return f"no progress for {silent:,.0f} s; the run ends after {self.limit:,.0f} s"

    def error(self, now: float) -> StalledRunError | None:
        """Return the error that ends the run if the limit is over."""
        if now < self.progress_at + self.limit:
            return None
        return StalledRunError(
            f"{self.what} for {self.limit:,.0f} s",
            where=Where(setting="stall_limit_seconds"),
            hint="look at the source and the destination, or allow more time",
        )


@contextmanager
def ends_if_stalled(limit: float | None, done: Callable[[], int], what: str) -> Iterator[None]:
    """End the block if a number does not change for too long. For the main thread alone.

    Args:
        limit: Seconds; None for no limit.
        done: Returns a number that changes with progress, such as bytes written.
        what: What has not happened, in the message.

    Raises:
        StalledRunError: It has not changed.
    """
    if limit is None:
        yield
        return
    watch = StallWatch(limit, time.monotonic(), what=what)
    over = threading.Event()
    main = threading.get_ident()

    def look(now: float) -> None:
        warning = watch.warning(now)
        if warning is not None:
            _log.warning("%s", warning)
        if watch.error(now) is not None:
            signal.pthread_kill(main, signal.SIGUSR2)

    def end(_signal: int, _frame: FrameType | None) -> None:
        error = watch.error(time.monotonic())
        if error is not None and not over.is_set():
            over.set()
            raise error

    before = signal.signal(signal.SIGUSR2, end)
    try:
        with _watched(watch, done, look, over):
            yield
    finally:
        signal.signal(signal.SIGUSR2, before)


@contextmanager
def heartbeats(
    seconds: float, done: Callable[[], int], waits_for: Callable[[], str]
) -> Iterator[None]:
    """Log a line each time that a number has not changed for so long, while the block runs.

    Args:
        seconds: The time; 0 for no lines.
        done: Returns a number that changes with progress, such as bytes written.
        waits_for: Returns what the run waits for, as the end of a sentence.
    """
    if not seconds:
        yield
        return
    watch = StallWatch(progress_at=time.monotonic(), heartbeat=seconds)

    def look(now: float) -> None:
        line = watch.beat(now, waits_for)
        if line is not None:
            _log.info("%s", line)

    with _watched(watch, done, look, threading.Event()):
        yield


@contextmanager
def _watched(
    watch: StallWatch,
    done: Callable[[], int],
    look: Callable[[float], None],
    over: threading.Event,
) -> Iterator[None]:
    """Call `look` whenever the watch may be due, by a thread, while the block runs."""
    thread = threading.Thread(target=_look, args=(watch, done, look, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _look(
    watch: StallWatch,
    done: Callable[[], int],
    look: Callable[[float], None],
    over: threading.Event,
) -> None:
    last = done()
    while not over.wait(max(0.01, min(1.0, watch.deadline - time.monotonic()))):
        now, count = time.monotonic(), done()
        if count != last:
            last = count
            watch.progress(now)
        look(now)
