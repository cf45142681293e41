"""When STATE goes out: after what it covers, at a steady interval, and never twice the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from shared.messages import state_line

Clock = Callable[[], float]
State = Mapping[str, Any]
Change = Callable[[State], State]
"""Makes the next state of the latest one; streams that run at the same time share it."""


class StatePace:
    """Holds the state of the run and writes it. Safe for several threads.

    Args:
        state: State the run began with.
        write: Writes a line to standard output.
        interval: Seconds between STATE messages inside a stream.
        clock: Seconds.
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
        # Held while a line is written, too: an older state must not come after a newer one.
        self._lock = threading.RLock()

    def adopt(self, change: Change) -> None:
        """Change the state without writing it."""
        with self._lock:
            self.state = dict(change(self.state))

    def update(self, change: Change) -> None:
        """Change the state for records that have been written; write it when it is time."""
        with self._lock:
            self.adopt(change)
            if self._clock() - self._written_at >= self._interval:
                self.flush()

    def flush(self) -> None:
        """Write the state now, unless it is what was written last."""
        with self._lock:
            line = state_line(self.state)
            if line == self._last:
                return
            self._write(line)
            self._last = line
            self._written_at = self._clock()

    def finish(self, change: Change) -> None:
        """Change the state at a stream's end and write it, changed or not."""
        with self._lock:
            self.adopt(change)
            self._last = b""
            self.flush()
