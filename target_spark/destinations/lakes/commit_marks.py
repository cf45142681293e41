"""The mark of a commit: which run has made it, for which stream, and what is true then. Pure."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from target_spark.replays import Note

ORIGIN = "target-spark"
_SHORT_BYTES = 1024
_MOST_PACKED_BYTES = 4096
ACTIVATION = "activation"
"""Stands for the token if older versions of rows were removed or marked."""


@dataclass(frozen=True)
class Mark:
    """The mark of one commit.

    Attributes:
        run: The run that made it.
        stream: Name of the stream.
        token: See `Flush.token`; `ACTIVATION`; None for commits that do not change what rows say.
        source: Name of the stream in the tap, if another.
        state: The STATE that is true for the stream in the table; see `stored_state`.
        rows: Rows of the flush.
        whole: It stands for all earlier flushes of the stream in the run, too.
    """

    run: str
    stream: str
    token: str | None = None
    source: str | None = None
    state: str | None = None
    rows: int | None = None
    whole: bool = False

    @property
    def tap_stream(self) -> str:
        """Return the name of the stream in the tap."""
        return self.source or self.stream

    @property
    def number(self) -> int | None:
        """Return the number of the flush within the run; None if the token lacks one."""
        tail = (self.token or "").rpartition("-")[2]
        return int(tail) if tail.isascii() and tail.isdecimal() else None

    def stands_for(self, tokens: Collection[str]) -> set[str]:
        """Return those flushes of the stream, among the given ones, that the commit has made."""
        last = self.number
        if not self.whole or last is None:
            return {self.token} & set(tokens) if self.token is not None else set()
        numbers = {t: replace(self, token=t).number for t in tokens if run_of(t) == self.run}
        return {token for token, at in numbers.items() if at is not None and at <= last}

    def to_short_text(self) -> str:
        """Return the text for the log of Iceberg, which repeats that of each snapshot in each file.

        A long STATE is packed; one that stays long is left out.
        """
        plain = (self.state or "").encode()
        if len(plain) <= _SHORT_BYTES:
            return self.to_text()
        packed = base64.b64encode(zlib.compress(plain, 9)).decode()
        return self.to_text(packed=packed if len(packed) <= _MOST_PACKED_BYTES else None)

    def to_text(self, **state: str | None) -> str:
        """Return the text to store.

        Args:
            state: Another form of the STATE.
        """
        content = {
            "origin": ORIGIN,
            "run": self.run,
            "stream": self.stream,
            "token": self.token,
            "source": self.source,
            "rows": self.rows,
            "whole": self.whole,
            **(state or {"state": self.state}),
        }
        text = json.dumps({name: value for name, value in content.items() if value})
        return text.replace("$", "\\u0024")  # Spark would replace ${...} in its configuration.


def read_mark(text: str | None) -> Mark | None:
    """Return the mark of a stored text; None for a text of others."""
    try:
        content = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("origin") != ORIGIN:
        return None
    return Mark(
        run=str(content.get("run", "")),
        stream=str(content.get("stream", "")),
        token=content.get("token"),
        source=content.get("source"),
        state=_state(content),
        rows=content.get("rows"),
        whole=bool(content.get("whole")),
    )


def _state(content: Mapping[str, Any]) -> str | None:
    packed = content.get("packed")
    if not packed:
        return content.get("state")
    return zlib.decompress(base64.b64decode(packed)).decode()


def held(note: Note, marks: Iterable[Mark | None], stream: str) -> Note:
    """Return the part of a note that a table still holds; nothing after a newer commit of others.

    Args:
        note: Note of the stream.
        marks: Marks of the table's commits, newest first; None for those of others.
        stream: Name of the stream.
    """
    results: set[str] = set()
    runs = {run_of(token) for token in note.tokens}
    for mark in marks:
        if mark is None or mark.stream != stream or mark.run not in runs:
            break
        if mark.token not in (None, ACTIVATION):  # A replay activates the version again.
            created = mark.stands_for(note.tokens)
            if not created:
                break
            results |= created
    return note.held(results)


def run_of(token: str) -> str:
    """Return the run of a flush's token."""
    return token.rpartition("-")[0] or token
