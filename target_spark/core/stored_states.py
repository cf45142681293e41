"""The STATE that commits carry: what is stored with a flush, and how tables agree on one. Pure.

A commit vouches for the bookmark of its own stream alone: records of other streams before the same
STATE may not be durable yet. So that is what is stored, and what is taken from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared.json.exact_json import decode
from shared.json.json_values import Refused, json_text
from target_spark.core.load_plans import Reached

MOST_BYTES = 32 * 1024
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
        table: Name of the table, for messages.
        stream: Name of the stream in the tap.
        state: The stored text.
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
        state: Its text.
        notes: What a user should know about it, one line each.
    """

    state: str
    notes: tuple[str, ...] = ()


def stored_state(reached: Reached | None, stream: str, *, by_key: bool) -> str | None:
    """Return the text to store with a flush.

    Args:
        reached: The STATE that the flush makes true, if any.
        stream: Name of the stream in the tap.
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
            if not by_key and isinstance(own, dict) and own.get(_UNSORTED):
                return None
            value = {**value, _BOOKMARKS: {stream: own}}
        text = json_text(value)
    except Refused:
        text = reached.value.decode(errors="replace")  # Not an object.
    return text if len(text.encode()) <= MOST_BYTES else None


def joint_state(found: Sequence[TableState]) -> JointState:
    """Return the STATE that is true for all tables.

    Args:
        found: At least one; several of one stream if it is loaded into several tables.

    Raises:
        StateConflict: The STATE values differ and have no bookmarks by the names of the streams.
    """
    ordered = sorted(found, key=lambda one: one.at)
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
    plain = next((o.table for o, v in zip(ordered, values, strict=True) if _marks(v) is None), None)
    if plain is not None:
        raise StateConflict(f"the STATE of '{plain}' has no `bookmarks`, others have")
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


def _marks(value: dict[str, Any]) -> dict[str, Any] | None:
    found = value.get(_BOOKMARKS)
    return found if isinstance(found, dict) else None


def _own(value: dict[str, Any], stream: str) -> Any:
    return (_marks(value) or {}).get(stream)
