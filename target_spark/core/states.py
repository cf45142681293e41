"""The STATE to emit, and the STATE that commits carry. Pure.

The newest STATE with everything before it durable is emitted. If a stream fails and the others go
on, its bookmark stays in all later STATEs as the last one before the failure has it. That takes a
value with `bookmarks` by stream, as the SDK writes it. A STATE may have the bookmark under another
name than the SCHEMA (`tap_stream_id`, `__alias__`): one in which that may have moved stays back.

A commit vouches for the bookmark of its own stream alone: records of other streams before the same
STATE may not be durable yet. So that is what is stored, and what is taken from it.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from shared.formats.json_text import Number, Refused, decode, json_text
from target_spark.core.load_plans import Reached

MOST_WAITING_BYTES = 16 * 1024 * 1024
"""Bytes of STATE values to keep; above that, some that wait for the same acts are dropped."""

OVERHEAD = 200
"""Bytes that a STATE takes beside its value."""
_FEW = 32


@dataclass(frozen=True)
class SeenState:
    """A STATE that was received: its position, its line of the input and its text."""

    position: int
    line: int
    value: bytes


@dataclass(frozen=True)
class HeldBookmark:
    """The bookmark that a failed stream keeps.

    Attributes:
        line: Line of the input from which on STATEs get it.
        bookmarks: The bookmark of the stream; all that the STATE has that it comes from if that one
            has none of it.
        has_own: Whether the tap says that the stream has a bookmark.
    """

    line: int
    bookmarks: dict[str, Any]
    has_own: bool


@dataclass(eq=False)
class StateTracker:
    """Orders STATE against the acts (flushes, activations, swaps) that must be durable first.

    An act is identified by the position of its first message. A STATE may be emitted once every
    act that began before it is durable; an idle stream does not have an open act and does not hold
    back STATE. All waiting STATEs are kept, as the input may prove bad before any of them. Above
    `most_bytes`, every second one of those that wait for the same acts is dropped, never the
    newest.

    Attributes:
        streams: The streams that a SCHEMA has named so far.
    """

    streams: Container[str] = ()
    most_bytes: int = MOST_WAITING_BYTES
    released: int = field(default=0, init=False)
    """Position of the newest released STATE."""
    position: int = field(default=0, init=False)
    """Position of the newest act or STATE."""
    _open: dict[int, None] = field(default_factory=dict, init=False)
    _emitted: SeenState | None = field(default=None, init=False)
    _states: list[SeenState] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)
    _begun: int = field(default=0, init=False)
    waiting: list[int] = field(default_factory=list, init=False)
    """Positions of the STATEs to emit if the input stays valid: one for each act."""
    withholds: bool = field(default=False, init=False)
    """Whether STATEs are not emitted, as the bookmark of a failed stream is unknown."""
    held: dict[str, int] = field(default_factory=dict, init=False)
    """The streams that have failed, and the position that their bookmarks stay at."""
    _held: dict[str, HeldBookmark] = field(default_factory=dict, init=False)
    _withheld_from: float = field(default=math.inf, init=False)

    def begin(self) -> int:
        """Record that an act has begun; return its position, which identifies it."""
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
        seen = SeenState(self.position, line, value)
        state = self._with_held(seen) if self._held or self.withholds else seen
        if state is None:
            return
        self._states.append(state)
        self._bytes += len(state.value)
        if self._bytes + len(self._states) * OVERHEAD > self.most_bytes:
            self._thin_out()
        # A staging file notes how many of its bytes come before each STATE, so that it can be cut
        # there. Only the newest of the STATEs that wait for the same acts will be emitted: noting
        # the others would take memory by STATE, not by act.
        if self.waiting and self.waiting[-1] > self._begun:
            self.waiting.pop()  # It waits for the same acts as the new one.
        self.waiting.append(self.position)
        if len(self.waiting) > 2 * (len(self._open) + _FEW):
            acts = list(self._open)
            self.waiting = list({bisect_left(acts, at): at for at in self.waiting}.values())

    def hold(self, stream: str, line: int, *, has_own: bool = False) -> None:
        """Keep a stream's bookmark as it was before a line of the input, where it has failed.

        Without a STATE before that line the bookmark is unknown: no STATE after it is emitted.

        Args:
            has_own: Whether the tap says that the stream has a bookmark.
        """
        # The last STATE before the failure has the bookmark up to which the stream is durable, or
        # becomes so: its earlier flushes go on.
        before = [state for state in self._states if state.line < line]
        base = before[-1] if before else self._emitted
        bookmarks = None if base is None else _bookmarks(base.value)
        if base is None or bookmarks is None:
            self.withholds, self._withheld_from = True, min(line, self._withheld_from)
        else:
            own = {stream: bookmarks[stream]} if stream in bookmarks else bookmarks
            self._held[stream] = HeldBookmark(line, own, has_own)
            self.held[stream] = base.position
        withheld = self.withholds
        self._keep([kept for state in self._states if (kept := self._with_held(state))])
        self.withholds |= withheld  # A newer one is not among them.

    def discard_from(self, line: int) -> None:
        """Discard the STATEs from this line on: their records will not be durable."""
        self._keep([state for state in self._states if state.line < line])

    def release(self) -> bytes | None:
        """Return the newest STATE to emit, or None; forget it and all older ones."""
        if not self._states:
            return None
        # Acts begin in the order of positions, and a dict keeps that order: the first one is the
        # oldest.
        oldest = next(iter(self._open), self.position + 1)
        count = bisect_left(self._states, oldest, key=attrgetter("position"))
        if not count:
            return None
        newest = self._states[count - 1]
        self._keep(self._states[count:])
        self._emitted, self.released = newest, newest.position
        self.waiting = [position for position in self.waiting if position > self.released]
        return newest.value

    def newest(self, until: float = math.inf) -> SeenState | None:
        """Return the newest STATE up to a line that was not discarded; None if there is none."""
        for state in reversed(self._states):
            if state.line <= until:
                return state
        return self._emitted if self._emitted and self._emitted.line <= until else None

    def newest_before(self, position: int) -> int:
        """Return the position of the newest waiting STATE before a position; 0 without one."""
        count = bisect_left(self._states, position, key=attrgetter("position"))
        return self._states[count - 1].position if count else 0

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
            self.withholds, self._withheld_from = True, state.line
            return None
        unnamed = [
            own for name, own in held.items() if name not in bookmarks and name not in own.bookmarks
        ]
        for name, own in held.items():
            bookmarks.pop(name, None)
            if name in own.bookmarks:
                bookmarks[name] = own.bookmarks[name]
        may_move = any(self._may_move(own, bookmarks) for own in unnamed)
        # A later STATE may have the name, and go out.
        self.withholds = may_move or self._withheld_from < math.inf
        if may_move:
            return None
        value = decode(state.value) | {"bookmarks": bookmarks}
        return replace(state, value=_text(value).encode())

    def _may_move(self, held: HeldBookmark, bookmarks: Mapping[str, Any]) -> bool:
        """Return whether a bookmark has moved that may be that of a stream without one."""
        names = {**bookmarks, **held.bookmarks}
        moved = [name for name in names if bookmarks.get(name) != held.bookmarks.get(name)]
        return any(held.has_own or name not in self.streams for name in moved)

    def _keep(self, states: list[SeenState]) -> None:
        self._states = states
        self._bytes = sum(len(state.value) for state in states)

    def _thin_out(self) -> None:
        """Drop some of the STATEs that wait for the same acts, never the newest."""
        acts = list(self._open)
        alike = groupby(self._states, key=lambda state: bisect_left(acts, state.position))
        # From the newest backwards, so that it is one of those that stay.
        self._keep([state for _, group in alike for state in list(group)[::-2][::-1]])


def _bookmarks(value: bytes) -> dict[str, Any] | None:
    """Return the bookmarks of a STATE by stream; None if it does not have any."""
    try:
        state = decode(value)
    except Refused:
        return None
    result = state.get("bookmarks")
    return result if isinstance(result, dict) else None


def _text(value: Any) -> str:
    """Write a decoded value like `json_text`, but with lone surrogates, which it refuses."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value)


MOST_STORED_BYTES = 32 * 1024
"""Longest text to store: Iceberg writes those of all snapshots at each commit."""

_BOOKMARKS = "bookmarks"
_UNSORTED = "progress_markers"
"""Singer's word for a bookmark that has not moved, though records were sent."""


class StateConflict(ValueError):  # noqa: N818 - an answer, not an error
    """Tables hold STATE values from which none can be made that is true for all."""


@dataclass(frozen=True)
class TableState:
    """The STATE that a table holds for a stream.

    Attributes:
        stream: Name of the stream in the tap.
        at: When it was committed, seconds since the epoch.
    """

    table: str
    stream: str
    state: str
    at: float


@dataclass(frozen=True)
class JointState:
    """One STATE for several tables.

    Attributes:
        notes: What a user should know about it, one line each.
    """

    state: str
    notes: tuple[str, ...] = ()


def stored_state(reached: Reached | None, stream: str, *, by_key: bool) -> str | None:
    """Return the text to store with a flush.

    Args:
        reached: The STATE that the flush makes true, if any.
        by_key: Records that come again replace their rows.

    Returns:
        The STATE with the bookmark of the stream alone; the whole STATE if it has none of that
        name. None if it is too long, or if rows would be doubled by a run that begins with it: the
        flush has records after it, or the tap will send them again as its bookmark has not moved.
    """
    if reached is None or not (reached.is_exact or by_key):
        return None
    try:
        value = decode(reached.value)
        own = _own(value, stream)
        if own is not None:
            # With these markers the bookmark is that of the last whole run: records after it come
            # again.
            if not by_key and isinstance(own, dict) and own.get(_UNSORTED):
                return None
            value = {**value, _BOOKMARKS: {stream: own}}
        text = json_text(value)
    except Refused:
        text = reached.value.decode(errors="replace")  # Not an object.
    return text if len(text.encode()) <= MOST_STORED_BYTES else None


def joint_state(results: Sequence[TableState]) -> JointState:
    """Return the STATE that is true for all tables.

    Args:
        results: At least one; several of one stream if it is loaded into several tables.

    Raises:
        StateConflict: The STATE values differ and have no bookmarks by the names of the streams.
    """
    ordered = sorted(results, key=lambda one: one.at)
    values = [_decoded(one.state) for one in ordered]
    owns = [(one, _own(value, one.stream)) for one, value in zip(ordered, values, strict=True)]
    bookmarks: dict[str, Any] = {}
    notes: list[str] = []
    for one, own in owns:  # The oldest first: what was committed after it comes again.
        if own is not None and bookmarks.setdefault(one.stream, own) != own:
            notes.append(
                f"'{one.table}' holds a newer bookmark of stream '{one.stream}' than another of "
                "its tables: its rows after the older one come again"
            )
    newest = values[-1]
    if not bookmarks:
        other = next((one for one in ordered if one.state != ordered[-1].state), None)
        if other is None:
            return JointState(ordered[-1].state)
        raise StateConflict(
            f"the STATEs of '{other.table}' and '{ordered[-1].table}' differ and have no "
            "`bookmarks` with the names of the streams"
        )
    for one, value in zip(ordered, values, strict=True):
        if not isinstance(value.get(_BOOKMARKS), dict):
            raise StateConflict(f"the STATE of '{one.table}' has no `bookmarks`, others have")
    notes += [
        f"stream '{one.stream}' has no bookmark: the tap sends it from its beginning"
        for one, own in owns
        if own is None and one.stream not in bookmarks
    ]
    return JointState(json_text({**newest, _BOOKMARKS: bookmarks}), tuple(dict.fromkeys(notes)))


def bookmark_text(state: str, stream: str) -> str:
    """Return a stream's own bookmark as JSON text; the whole STATE if it has none."""
    own = _own(_decoded(state), stream)
    return state if own is None else json_text(own)


def _decoded(text: str) -> dict[str, Any]:
    try:
        return decode(text.encode())
    except Refused:
        return {}


def _own(value: dict[str, Any], stream: str) -> Any:
    bookmarks = value.get(_BOOKMARKS)
    return bookmarks.get(stream) if isinstance(bookmarks, dict) else None
