"""Lines counted without a look at each byte of long ones."""

from __future__ import annotations

_LONG = 512
"""Bytes of a line from which a search for its end beats `bytes.count`, which looks at each byte."""


def newlines(data: bytes, start: int = 0, end: int | None = None) -> int:
    """Return the number of newlines in some bytes, or in a range of them."""
    count, at = 0, data.find(b"\n", start, end)
    while at - start >= _LONG:
        count, start = count + 1, at + 1
        at = data.find(b"\n", start, end)
    return count if at < 0 else count + data.count(b"\n", at, end)
