"""What a commit of ours tells of itself, stored in the table's log together with the rows. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from target_spark.replays import Note

ORIGIN = "target-spark"


@dataclass(frozen=True)
class Mark:
    """The mark of one commit.

    Attributes:
        run: The run that made it.
        stream: Of the rows.
        token: See `Flush.token`; None for commits that are no flush.
    """

    run: str
    stream: str
    token: str | None = None

    @property
    def number(self) -> int | None:
        """Of the flush within the run; None where the token has none."""
        tail = (self.token or "").rpartition("-")[2]
        return int(tail) if tail.isascii() and tail.isdecimal() else None

    def to_text(self) -> str:
        """The text to be stored."""
        content = {
            "origin": ORIGIN,
            "run": self.run,
            "stream": self.stream,
            "token": self.token,
        }
        return json.dumps({name: value for name, value in content.items() if value})


def read_mark(text: str | None) -> Mark | None:
    """The inverse of `Mark.to_text`; None for what others have stored."""
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
    )


def held(note: Note, marks: Iterable[Mark | None], stream: str) -> Note:
    """Return as much of a note as a table still holds, with no newer commit of anybody else.

    Args:
        note: Of the stream.
        marks: Of the table's commits, newest first; None for those of others.
        stream: Its name.
    """
    found: set[str] = set()
    runs = {run_of(token) for token in note.tokens}
    for mark in marks:
        if mark is None or mark.stream != stream or mark.run not in runs:
            break
        if mark.token is not None:
            if mark.token not in note.tokens:
                break
            found.add(mark.token)
    return note.held(found)


def run_of(token: str) -> str:
    """The run that a flush's token belongs to."""
    return token.rpartition("-")[0] or token
