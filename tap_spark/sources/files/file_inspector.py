"""Inspection of files by the driver: fingerprints, line ends and unfinished last lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b

import pyarrow as pa

from shared.storage.files import open_random
from shared.storage.urls import local_path

KIB = 1024
WHOLE = 4 * KIB * KIB
EDGE = KIB * KIB
BLOCK = 64 * KIB
BLOCKS = 16
COUNT_CHUNK = 4 * KIB * KIB
TERMINATOR = re.compile(rb"\r\n|\n|\r")


class StorageFileInspector:
    """Inspects files, local or by fsspec; opens the file for each call."""

    def fingerprint(self, url: str, length: int) -> str:
        """Hash the first `length` bytes: all of them up to 4 MiB, else edges and samples."""
        digest = blake2b(str(length).encode(), digest_size=16)
        with open_random(url) as file:
            for start, count in _samples(length):
                digest.update(file.read_at(count, start))
        return digest.hexdigest()

    def size(self, url: str) -> int:
        """Return the size of the file in bytes."""
        with open_random(url) as file:
            return int(file.size())

    def read_at(self, url: str, offset: int, length: int) -> bytes:
        """Read up to `length` bytes from `offset` on; fewer at the file's end."""
        with open_random(url) as file:
            return _read_at(file, offset, min(length, max(0, file.size() - offset)))

    def cut(self, url: str, at: int, limit: int) -> int:
        """Find the first line start at or after `at`; `limit` if there is none before it."""
        with open_random(url) as file:
            return next_line_start(file, at, limit)

    def line_ends(self, url: str, start: int, end: int) -> int | None:
        """Count line feeds between two offsets of a local file; None for a remote one."""
        if local_path(url) is None:
            return None
        with open_random(url) as file:
            return sum(
                bytes(file.read_at(min(COUNT_CHUNK, end - at), at)).count(b"\n")
                for at in range(start, end, COUNT_CHUNK)
            )

    def unfinished_line(self, url: str, start: int, end: int) -> int | None:
        """Find the start of the last line before `end`, if it has no line end; at least `start`."""
        with open_random(url) as file:
            at = end
            while at > start:
                begin = max(start, at - BLOCK)
                block = _read_at(file, begin, at - begin)
                if at == end and block[-1:] in (b"\n", b"\r"):
                    return None
                last = max(block.rfind(b"\n"), block.rfind(b"\r"))
                if last >= 0:
                    return begin + last + 1
                at = begin
        return start


def next_line_start(file: pa.NativeFile, at: int, limit: int) -> int:
    """Find the first line start at or after `at` in an open file; `limit` if there is none.

    Lines end with a line feed, a carriage return, or both, as for Spark's own readers.

    Raises:
        OSError: The file ends before `limit`.
    """
    position = at - 1
    if position < 0:
        return 0
    while position < limit:
        block = _read_at(file, position, min(BLOCK, limit - position))
        if not block:
            raise OSError("it was truncated while it was read")
        match = TERMINATOR.search(block)
        if match:
            end = position + match.end()
            half = match.group() == b"\r" and match.end() == len(block) and end < limit
            return end + (half and _read_at(file, end, 1) == b"\n")
        position += len(block)
    return limit


def _read_at(file: pa.NativeFile, offset: int, length: int) -> bytes:
    return bytes(file.read_at(length, offset))


def _samples(length: int) -> Iterator[tuple[int, int]]:
    if length <= WHOLE:
        yield 0, length
        return
    yield 0, EDGE
    step = (length - 2 * EDGE) // BLOCKS
    for number in range(BLOCKS):
        yield EDGE + number * step, min(BLOCK, step)
    yield length - EDGE, EDGE
