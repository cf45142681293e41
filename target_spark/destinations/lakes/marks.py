"""What a commit of ours tells of itself, stored in the table's log together with the rows. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

ORIGIN = "target-spark"


@dataclass(frozen=True)
class Mark:
    """The mark of one commit.

    Attributes:
        run: The run that made it.
        stream: Of the rows.
        token: See `Flush.token`; None for commits that are no flush.
        note: See `Flush.note`.
        ended: Runs whose notes nobody needs any more, as of this commit.
    """

    run: str
    stream: str
    token: str | None = None
    note: str = ""
    ended: tuple[str, ...] = ()

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
            "note": self.note,
            "ended": list(self.ended),
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
        note=str(content.get("note", "")),
        ended=tuple(content.get("ended", ())),
    )


def open_flush(marks: Iterable[Mark], stream: str) -> Mark | None:
    """The newest flush of a stream whose run has not ended well.

    Args:
        marks: Newest first.
        stream: Its name.
    """
    ended: set[str] = set()
    for mark in marks:
        if mark.stream != stream:
            continue
        if mark.token is not None and mark.run not in ended:
            return mark
        ended.update(mark.ended)
    return None


def run_of(token: str) -> str:
    """The run that a flush's token belongs to."""
    return token.rpartition("-")[0] or token
