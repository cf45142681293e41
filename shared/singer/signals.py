"""How a run ends early: by signals, by known errors, or because it makes no progress.

Signals end the run at once, or, while streams are read, after the next STATE. A signal that comes
within a call of a library surfaces as the library's error, whose text does not tell of the signal:
`received_error` does.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from shared.errors import (
    DISK_FULL,
    ClosedPipeError,
    DestinationError,
    HungUpRunError,
    InterruptedRunError,
    SettingsError,
    SingerSparkError,
    SourceError,
    SparkStartError,
    StalledRunError,
    TerminatedRunError,
    Where,
    settled,
)

GRACE_SECONDS = 3.0
NO_THREAD = ("can't start new thread", "unable to create native thread")
"""What Python and Java say if the system allows no more threads. Java calls it lack of memory."""
NO_THREAD_HINT = "allow more threads: `ulimit -u`, or the limit of pids of the container"

SIGNALS: dict[int, type[SingerSparkError]] = {
    signal.SIGINT: InterruptedRunError,
    signal.SIGTERM: TerminatedRunError,
    signal.SIGHUP: HungUpRunError,
}
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []


def raise_on_sigterm() -> None:
    """Make SIGTERM and SIGHUP raise their errors in the main thread, and SIGINT as usual.

    A signal that the caller has told the process to ignore (`nohup`) stays ignored.
    """
    forget_signals()
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGTERM:
            signal.signal(number, _terminate)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def forget_signals() -> None:
    """Forget the signals of an earlier run in this process."""
    _received.clear()


def note_signal(number: int) -> None:
    """Let `received_error` tell of a signal that another handler has caught."""
    _received.append(number)


def received_error() -> SingerSparkError | None:
    """Return the error of the signal that ends this run; None without one."""
    return signal_error(_received[0]) if _received else None


def signal_error(number: int) -> SingerSparkError:
    """Return the error of a signal."""
    if number == signal.SIGINT:
        return InterruptedRunError("interrupted; committed data stays")
    name = signal.Signals(number).name
    verb = "terminated" if number == signal.SIGTERM else "stopped"
    return SIGNALS[number](f"{verb} by {name}; committed data stays")


@contextmanager
def own_interrupt() -> Iterator[None]:
    """Keep the handler of SIGINT while the block starts Spark, which sets one of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def _terminate(number: int, _frame: FrameType | None) -> None:
    # Neither a second signal nor the timer may interrupt the clean-up.
    for ending in _ENDING:
        signal.signal(ending, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if number in SIGNALS:
        _received.append(number)
    raise signal_error(_received[0])


class Termination:
    """A request to end the run after the next STATE."""

    def __init__(self) -> None:
        self.requested = False

    def end_run(self) -> None:
        """End the run if that was requested.

        Raises:
            SingerSparkError: It was: the error of the signal.
        """
        if self.requested:
            signal.setitimer(signal.ITIMER_REAL, 0)
            name = signal.Signals(_received[0]).name
            raise SIGNALS[_received[0]](f"terminated by {name}, after a STATE")

    @contextmanager
    def on_sigterm(self) -> Iterator[None]:
        """Let a signal make the request; a second one, or `GRACE_SECONDS`, ends the run at once.

        Does nothing without `raise_on_sigterm` before it: the signal is then of another program.
        """
        if signal.getsignal(signal.SIGTERM) is not _terminate:
            yield
            return
        ours = [number for number in _ENDING if signal.getsignal(number) is _terminate]
        before = signal.signal(signal.SIGALRM, _terminate)
        for number in ours:
            signal.signal(number, self._request)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            for number in ours:
                if signal.getsignal(number) == self._request:
                    signal.signal(number, _terminate)

    def _request(self, number: int, _frame: FrameType | None) -> None:
        self.requested = True
        _received.append(number)
        signal.signal(number, _terminate)
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)


def documented_error(error: BaseException) -> SingerSparkError | None:
    """Return the documented error for an exception; None for an unexpected one.

    After a signal, an unexpected one, or that Spark has gone away or cannot read a source, is what
    the signal has done to a call of a library.
    """
    if isinstance(error, SingerSparkError):
        is_cut_off = isinstance(error, SparkStartError | SourceError)
        return (received_error() if is_cut_off else None) or settled(error)
    if isinstance(error, KeyboardInterrupt):
        return signal_error(signal.SIGINT)
    if (ended := received_error()) is not None:
        return ended
    if isinstance(error, BrokenPipeError):
        _forget_stdout()
        return ClosedPipeError("the reader of standard output has gone away")
    return _known_os_error(error) if isinstance(error, OSError) else _known_limit(error)


def _known_limit(error: BaseException) -> SingerSparkError | None:
    has_utf_8 = "utf-8" in (sys.getfilesystemencoding(), getattr(error, "encoding", ""))
    if isinstance(error, UnicodeEncodeError) and not has_utf_8:
        return SettingsError(
            f"the locale's encoding lacks characters of a name ({error})",
            hint="set LC_ALL to a locale of UTF-8, such as C.UTF-8",
        )
    if isinstance(error, RuntimeError) and str(error) in NO_THREAD:
        return SingerSparkError(str(error), hint=NO_THREAD_HINT)
    return None


def _known_os_error(error: OSError) -> SingerSparkError | None:
    if error.errno == errno.EBADF and error.filename is None:
        return DestinationError("standard output cannot be written (it is closed)")
    if error.errno == errno.ENOENT and "temporary directory" in str(error.strerror):
        # Python's own search, which tries to write to each; a full disk may pass.
        folder = os.environ.get("TMPDIR", "/tmp")  # noqa: S108
        return DestinationError(
            str(error.strerror),
            hint="set TMPDIR to a folder with space that this user may write to",
            lasts=not os.access(folder, os.W_OK),
        )
    if error.errno == errno.ENOENT and error.filename is None and not _has_current_folder():
        return SettingsError(
            "the current folder has been deleted", hint="change to another one, or name full paths"
        )
    if error.errno in DISK_FULL:
        name = str(error.filename) if error.filename else None
        return DestinationError(
            f"{error.strerror}", where=Where(file=name), hint="free some disk space and run again"
        )
    return None


def _has_current_folder() -> bool:
    with contextlib.suppress(OSError):
        return bool(os.getcwd())  # noqa: PTH109
    return False


def _forget_stdout() -> None:
    # Otherwise Python flushes the rest at exit, and reports the error again.
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


_log = logging.getLogger(__name__)


@dataclass
class StallWatch:
    """Knows how long nothing has happened.

    Attributes:
        limit: Seconds after which the run ends; `math.inf` for never.
        heartbeat: Seconds after which a line says what the run waits for, again and again;
            `math.inf` for never.
        progress_at: When something happened last.
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
        step = self.limit if self.has_warned else self.limit / 2
        return min(self.progress_at + step, self._next_beat)

    @property
    def _next_beat(self) -> float:
        return self.progress_at + self.heartbeat * (self.beats + 1)

    def beat(self, now: float, waits_for: Callable[[], str]) -> str | None:
        """Return a line about the silence if one is due."""
        if now < self._next_beat:
            return None
        silent = now - self.progress_at
        self.beats = max(self.beats + 1, int(silent / self.heartbeat))
        return f"no progress for {silent:,.0f} s: waiting for {waits_for()}"

    def warning(self, now: float) -> str | None:
        """Return a warning if half of the limit is over, once."""
        if self.has_warned or now < self.progress_at + self.limit / 2:
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

    def run() -> None:
        last = done()
        while not over.wait(max(0.01, min(1.0, watch.deadline - time.monotonic()))):
            now, count = time.monotonic(), done()
            if count != last:
                last = count
                watch.progress(now)
            look(now)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
