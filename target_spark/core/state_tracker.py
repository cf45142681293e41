"""The STATE to emit: the newest one with everything before it durable. Pure.

If a stream fails and the others go on, its bookmark stays in all later STATEs as the last one
before the failure has it. That takes a value with `bookmarks` by stream, as the SDK writes it.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of STATE values to keep; above that, some that wait for the same acts are dropped."""

_OVERHEAD = 200
_FEW = 32


@dataclass(frozen=True)
class SeenState:
    """A STATE that was received: its position, its line of the input and its text."""

    position: int
    line: int
    value: bytes

    @property
    def size(self) -> int:
        return len(self.value) + _OVERHEAD


@dataclass(frozen=True)
class HeldBookmark:
    """The bookmark that a failed stream keeps.

    Attributes:
        line: Line of the input from which on STATEs get it.
        position: Position of the STATE that it comes from.
        bookmark: The bookmark; empty if that STATE does not have one of the stream.
    """

    line: int
    position: int
    bookmark: tuple[Any, ...]


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
        self._emitted: SeenState | None = None
        self._most_bytes = most_bytes
        self._states: list[SeenState] = []
        self._bytes = 0
        self._begun = 0
        self._newest: list[int] = []
        self._held: dict[str, HeldBookmark] = {}
        self._withheld_from: float = math.inf

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
        state = self._with_held(SeenState(self.position, line, value))
        if state is None:
            return
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

    def hold(self, stream: str, line: int) -> None:
        """Keep a stream's bookmark as it was before a line of the input, where it has failed.

        Without a STATE before that line the bookmark is unknown: no STATE after it is emitted.
        """
        before = [state for state in self._states if state.line < line]
        base = before[-1] if before else self._emitted
        bookmarks = None if base is None else _bookmarks(base.value)
        if base is None or bookmarks is None:
            self._withheld_from = min(line, self._withheld_from)
        else:
            own = (bookmarks[stream],) if stream in bookmarks else ()
            self._held[stream] = HeldBookmark(line, base.position, own)
        self._keep([kept for state in self._states if (kept := self._with_held(state))])

    @property
    def withholds(self) -> bool:
        """Return whether STATEs are not emitted, as the bookmark of a failed stream is unknown."""
        return self._withheld_from < math.inf

    @property
    def held(self) -> dict[str, int]:
        """Return the streams that have failed, and the position that their bookmarks stay at."""
        return {stream: held.position for stream, held in self._held.items()}

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
        self._emitted, self.released = newest, newest.position
        self._newest = [position for position in self._newest if position > self.released]
        return newest.value

    def newest(self, until: float = math.inf) -> SeenState | None:
        """Return the newest STATE up to a line that was not discarded; None if there is none."""
        for state in reversed(self._states):
            if state.line <= until:
                return state
        return self._emitted if self._emitted and self._emitted.line <= until else None

    def newest_before(self, position: int) -> int:
        """Return the position of the newest waiting STATE before a position; 0 without one."""
        count = bisect_left(self._states, position, key=_position)
        return self._states[count - 1].position if count else 0

    @property
    def waiting(self) -> frozenset[int]:
        """Return the positions of the STATEs to emit if the input stays valid: one for each act."""
        return frozenset(self._newest)

    def holders(self) -> Iterable[int]:
        """Return positions of the open acts that hold back the newest STATE."""
        newest = self._states[-1].position if self._states else 0
        return tuple(position for position in self._open if position < newest)

    def _with_held(self, state: SeenState) -> SeenState | None:
        """Return a STATE with the bookmarks of failed streams; None if it must not be emitted."""
        if state.line >= self._withheld_from:
            return None
        held = {name: own for name, own in self._held.items() if own.line <= state.line}
        if not held:
            return state
        bookmarks = _bookmarks(state.value)
        if bookmarks is None:
            self._withheld_from = state.line
            return None
        for name, own in held.items():
            bookmarks.pop(name, None)
            if own.bookmark:
                bookmarks[name] = own.bookmark[0]
        value = json.loads(state.value) | {"bookmarks": bookmarks}
        return replace(state, value=json.dumps(value, separators=(",", ":")).encode())

    def _keep(self, states: list[SeenState]) -> None:
        self._states = states
        self._bytes = sum(state.size for state in states)

    def _thin_out(self) -> None:
        """Drop some of the STATEs that wait for the same acts, never the newest."""
        acts = list(self._open)
        alike = groupby(self._states, key=lambda state: bisect_left(acts, state.position))
        self._keep([state for _, group in alike for state in list(group)[::-2][::-1]])


def _position(state: SeenState) -> int:
    return state.position


def _bookmarks(value: bytes) -> dict[str, Any] | None:
    """Return the bookmarks of a STATE by stream; None if it does not have any."""
    try:
        state = json.loads(value)
    except ValueError:
        return None
    found = state.get("bookmarks") if isinstance(state, dict) else None
    return found if isinstance(found, dict) else None
