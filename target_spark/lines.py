"""Cutting bytes at lines without making an object per line."""

from __future__ import annotations

FEW = 32


def first_lines(data: bytes | memoryview, count: int) -> tuple[memoryview, memoryview]:
    """Cut after a number of lines.

    Args:
        data: Whole lines, each with its newline, more than `count` of them.
        count: Lines in the first part, at least 1.

    Returns:
        The first `count` lines, and the rest (views of the same bytes where `data` is bytes).
    """
    text = data if isinstance(data, bytes) else bytes(data)
    end = _end_of_line(text, count)
    view = memoryview(text)
    return view[:end], view[end:]


def _end_of_line(text: bytes, number: int) -> int:
    """The offset after the newline of line `number`, found by halving: no loop over all lines."""
    start, stop = 0, len(text)
    while number > FEW:
        middle = (start + stop) // 2
        before = text.count(b"\n", start, middle)
        if before < number:
            start, number = middle, number - before
        else:
            stop = middle
    for _ in range(number):
        start = text.index(b"\n", start) + 1
    return start
