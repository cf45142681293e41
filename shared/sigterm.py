"""Signals: they end the run at once, or, while streams are read, after the next STATE.

A signal that comes within a call of a library surfaces as the library's error, whose text does not
tell of the signal: `received_error` does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from shared.errors import (
    HungUpRunError,
    InterruptedRunError,
    SingerSparkError,
    TerminatedRunError,
)

GRACE_SECONDS = 3.0
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
