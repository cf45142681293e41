"""Which STATE may go out: the newest one with nothing undone before it. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class StateTracker:
    """Orders STATE against the acts (flushes, activations, swaps) that must be durable first.

    An act is known by the position at which its first message arrived. A STATE may go out once
    every act that began before it is durable; an idle stream has no act open and holds nothing.
    At most one STATE is kept per open act, so memory does not grow with the number of STATEs.
    """

    def __init__(self) -> None:
        self.released = 0
        """Position of the newest STATE that has been released."""
        self.position = 0
        """Position of the newest act or STATE."""
        self._open: dict[int, None] = {}
        self._states: list[tuple[int, bytes]] = []

    def begin(self) -> int:
        """Note that an act has begun.

        Returns:
            Its position, the name to close it by.
        """
        self.position += 1
        self._open[self.position] = None
        return self.position

    def durable(self, position: int) -> None:
        """Note that the act begun at `position` is durable."""
        del self._open[position]
        self._thin_out()

    def seen(self, value: bytes) -> None:
        """Note a STATE that covers everything begun so far."""
        self.position += 1
        self._states.append((self.position, value))
        self._thin_out()

    def release(self) -> bytes | None:
        """The newest STATE that may go out and has not; it is forgotten with all older ones."""
        if not self._states:
            return None
        oldest = next(iter(self._open), self.position + 1)
        count = bisect_left(self._states, (oldest,))
        if not count:
            return None
        self.released, value = self._states[count - 1]
        del self._states[:count]
        return value

    @property
    def waiting(self) -> frozenset[int]:
        """Positions of the STATEs that may still go out."""
        return frozenset(position for position, _ in self._states)

    def holders(self) -> Iterable[int]:
        """Positions of the open acts that hold the newest STATE back."""
        newest = self._states[-1][0] if self._states else 0
        return tuple(position for position in self._open if position < newest)

    def _thin_out(self) -> None:
        """Of STATEs that will become free at the same moment, keep the newest."""
        if len(self._states) <= 1:
            return
        acts = list(self._open)
        newest = {
            bisect_left(acts, position): (position, value) for position, value in self._states
        }
        self._states = list(newest.values())
