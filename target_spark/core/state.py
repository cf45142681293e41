"""The STATE to emit: the newest one with everything before it durable. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of STATE values to keep; above that, some that wait for the same acts are dropped."""

_OVERHEAD = 200
_FEW = 32


@dataclass(frozen=True)
class _State:
    """A STATE that waits: its position, its line of the input and its text."""

    position: int
    line: int
    value: bytes

    @property
    def size(self) -> int:
        return len(self.value) + _OVERHEAD


class StateTracker:
    """Orders STATE against the acts (flushes, activations, swaps) that must be durable first.

    An act is identified by the position of its first message. A STATE may be emitted once every
    act that began before it is durable; an idle stream does not have an open act and does not hold
    back STATE. All waiting STATEs are kept, as the input may prove bad before any of them. Above
    `most_bytes`, every second one of those that wait for the same acts is dropped, never the
    newest.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.released = 0
        """Position of the newest released STATE."""
        self.position = 0
        """Position of the newest act or STATE."""
        self._open: dict[int, None] = {}
        self._most_bytes = most_bytes
        self._states: list[_State] = []
        self._bytes = 0
        self._begun = 0
        self._newest: list[int] = []

    def begin(self) -> int:
        """Record that an act has begun.

        Returns:
            Its position, which identifies it.
        """
        self.position += 1
        self._open[self.position] = None
        self._begun = self.position
        return self.position

    def durable(self, position: int) -> None:
        """Record that the act begun at `position` is durable."""
        del self._open[position]

    def seen(self, value: bytes, line: int) -> None:
        """Record a STATE in a line of the input; it covers everything begun so far."""
        self.position += 1
        state = _State(self.position, line, value)
        self._states.append(state)
        self._bytes += state.size
        if self._bytes > self._most_bytes:
            self._thin_out()
        if self._newest and self._newest[-1] > self._begun:
            self._newest.pop()  # It waits for the same acts as the new one.
        self._newest.append(self.position)
        if len(self._newest) > 2 * (len(self._open) + _FEW):
            acts = list(self._open)
            self._newest = list({bisect_left(acts, at): at for at in self._newest}.values())

    def discard_from(self, line: int) -> None:
        """Discard the STATEs from this line on: their records will not be durable."""
        self._keep([state for state in self._states if state.line < line])

    def release(self) -> bytes | None:
        """Return the newest STATE to emit, or None; forget it and all older ones."""
        if not self._states:
            return None
        oldest = next(iter(self._open), self.position + 1)
        count = bisect_left(self._states, oldest, key=_position)
        if not count:
            return None
        newest = self._states[count - 1]
        self._keep(self._states[count:])
        self.released = newest.position
        self._newest = [position for position in self._newest if position > self.released]
        return newest.value

    @property
    def waiting(self) -> frozenset[int]:
        """Return the positions of the STATEs to emit if the input stays valid: one for each act."""
        return frozenset(self._newest)

    def holders(self) -> Iterable[int]:
        """Return positions of the open acts that hold back the newest STATE."""
        newest = self._states[-1].position if self._states else 0
        return tuple(position for position in self._open if position < newest)

    def _keep(self, states: list[_State]) -> None:
        self._states = states
        self._bytes = sum(state.size for state in states)

    def _thin_out(self) -> None:
        """Drop some of the STATEs that wait for the same acts, never the newest."""
        acts = list(self._open)
        alike = groupby(self._states, key=lambda state: bisect_left(acts, state.position))
        self._keep([state for _, group in alike for state in list(group)[::-2][::-1]])


def _position(state: _State) -> int:
    return state.position
