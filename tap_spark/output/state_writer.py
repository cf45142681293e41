"""STATE messages: after the records they cover, at an interval, and only if changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from shared.singer.messages import state_line

Clock = Callable[[], float]
State = Mapping[str, Any]
Change = Callable[[State], State]
"""Returns the next state, given the latest one, which parallel streams share."""


class StateWriter:
    """Holds the state of the run and writes STATE messages. Thread-safe.

    Args:
        state: State at the start of the run.
        write: Writes a line to standard output.
        interval: Seconds between STATE messages inside a stream.
        clock: Returns seconds.
    """

    def __init__(
        self,
        state: State,
        write: Callable[[bytes], None],
        interval: float,
        clock: Clock = time.monotonic,
    ) -> None:
        self.state = dict(state)
        self._write = write
        self._interval = interval
        self._clock = clock
        self._written_at = clock()
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
            if self._clock() - self._written_at >= self._interval:
                self.flush()

    def flush(self) -> None:
        """Write the state now, if it changed since it was last written."""
        with self._lock:
            line = state_line(self.state)
            if line == self._last:
                return
            self._write(line)
            self._last = line
            self._written_at = self._clock()

    def finish(self, change: Change) -> None:
        """Change the state at the end of a stream and write it, even if it did not change."""
        with self._lock:
            self.adopt(change)
            self._last = b""
            self.flush()
