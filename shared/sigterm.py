"""SIGTERM: it ends the run at once, or, while streams are read, after the next STATE."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from shared.errors import TerminatedRunError

GRACE_SECONDS = 3.0


def raise_on_sigterm() -> None:
    """Make SIGTERM raise `TerminatedRunError` in the main thread."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    # Neither a second SIGTERM nor the timer may interrupt the clean-up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise TerminatedRunError("terminated by SIGTERM; committed data stays")


class Termination:
    """A request to end the run after the next STATE."""

    def __init__(self) -> None:
        self.requested = False

    def end_run(self) -> None:
        """End the run if that was requested.

        Raises:
            TerminatedRunError: It was.
        """
        if self.requested:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise TerminatedRunError("terminated by SIGTERM, after a STATE")

    @contextmanager
    def on_sigterm(self) -> Iterator[None]:
        """Let SIGTERM make the request; a second one, or `GRACE_SECONDS`, ends the run at once.

        Does nothing without `raise_on_sigterm` before it: the signal is then of another program.
        """
        if signal.getsignal(signal.SIGTERM) is not _terminate:
            yield
            return
        before = signal.signal(signal.SIGALRM, _terminate)
        signal.signal(signal.SIGTERM, self._request)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if signal.getsignal(signal.SIGTERM) == self._request:
                signal.signal(signal.SIGTERM, _terminate)

    def _request(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGTERM, _terminate)
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
