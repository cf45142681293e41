"""Bytes cut at line ends, without an object for each line."""

from __future__ import annotations

FEW = 32


class Lines:
    """Whole lines that are taken from the front, some at a time.

    Args:
        data: The lines, each with its newline.
        count: Number of lines.
    """

    def __init__(self, data: bytes | memoryview, count: int) -> None:
        self.count = count
        self._data = data
        self._text: bytes | None = None
        self._position = 0

    def take(self, count: int) -> bytes | memoryview:
        """Cut lines off.

        Args:
            count: Number of lines, from 1 to all that are left.

        Returns:
            Their bytes; a view without a copy if all remaining lines are taken.
        """
        start = self._position
        if count == self.count:
            end = len(self._data)
        else:
            end = self._position = _end_of_line(self._as_bytes(), count, start)
        self.count -= count
        return memoryview(self._data)[start:end]

    def until(self, size: int) -> int:
        """Return how many lines reach a number of bytes, or the number of remaining lines."""
        if len(self._data) - self._position <= size:
            return self.count
        text, start = self._as_bytes(), self._position
        return min(self.count, text.count(b"\n", start, start + size - 1) + 1)

    def _as_bytes(self) -> bytes:
        if self._text is None:
            self._text = self._data if isinstance(self._data, bytes) else bytes(self._data)
        return self._text


def _end_of_line(text: bytes, number: int, start: int) -> int:
    """Return the offset after the newline of line `number`, found by bisection."""
    stop = len(text)
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
