"""STATE messages: after the records they cover, at an interval, and only if changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from shared.sigterm import Termination
from shared.singer.messages import state_line

Clock = Callable[[], float]
State = Mapping[str, Any]
Change = Callable[[State], State]
"""Returns the next state, given the latest one, which parallel streams share."""

LONG_BYTES = 64 * 1024
"""Bytes of a STATE above which one for each stream would be most of what a run writes."""
LONG_SECONDS = 1.0


class StateWriter:
    """Holds the state of the run and writes STATE messages. Thread-safe.

    Args:
        state: State at the start of the run.
        write: Writes a line to standard output.
        interval: Seconds between STATE messages inside a stream.
        clock: Returns seconds.
        termination: Ends the run after a STATE, if requested.
    """

    def __init__(
        self,
        state: State,
        write: Callable[[bytes], None],
        interval: float,
        clock: Clock = time.monotonic,
        termination: Termination | None = None,
    ) -> None:
        self.state = dict(state)
        self._write = write
        self._interval = interval
        self._clock = clock
        self._termination = termination or Termination()
        self._written_at = clock()
        self._due = False
        self._last = state_line(self.state)
        # Also held while a line is written, so that an older state never follows a newer one.
        self._lock = threading.RLock()

    def adopt(self, change: Change) -> None:
        """Change the state without writing it."""
        with self._lock:
            self.state = dict(change(self.state))

    def update(self, change: Change) -> None:
        """Change the state after records were written; write it if the interval has passed."""
        with self._lock:
            self.adopt(change)
            since = self._clock() - self._written_at
            if since >= self._interval or self._termination.requested:
                self.flush()

    def flush(self) -> None:
        """Write the state now, if it changed since it was last written.

        Raises:
            TerminatedRunError: The run was to end after a STATE.
        """
        with self._lock:
            line = state_line(self.state)
            if line != self._last:
                self._write(line)
                self._last = line
                self._written_at = self._clock()
                self._due = False
            self._termination.end_run()

    def finish(self, change: Change) -> None:
        """Change the state at the end of a stream and write it, even if it did not change.

        A long state is written once a second, and by `end`: with thousands of streams, each in the
        state, it would otherwise grow with their square.
        """
        with self._lock:
            self.adopt(change)
            since = self._clock() - self._written_at
            self._due = len(self._last) > LONG_BYTES and since < LONG_SECONDS
            if not self._due:
                self._last = b""
                self.flush()

    def end(self) -> None:
        """Write the state at the end of the run, if a stream's end has not."""
        with self._lock:
            if self._due:
                self._last = b""
                self.flush()
