"""When STATE goes out: after what it covers, at a steady interval, and never twice the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from shared.messages import state_line

Clock = Callable[[], float]


class StatePace:
    """Holds the state of the run and writes it.

    Args:
        state: State the run began with.
        write: Writes a line to standard output.
        interval: Seconds between STATE messages inside a stream.
        clock: Seconds.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
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

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Take over a state without writing it."""
        self.state = dict(state)

    def update(self, state: Mapping[str, Any]) -> None:
        """Take over a state whose records have been written; write it when it is time."""
        self.state = dict(state)
        if self._clock() - self._written_at >= self._interval:
            self.flush()

    def flush(self) -> None:
        """Write the state now, unless it is what was written last."""
        line = state_line(self.state)
        if line == self._last:
            return
        self._write(line)
        self._last = line
        self._written_at = self._clock()

    def finish(self, state: Mapping[str, Any]) -> None:
        """Take over a stream's final state and write it, changed or not."""
        self.state = dict(state)
        self._last = b""
        self.flush()
