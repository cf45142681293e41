"""Positions in files that grow: how far they were read, and what to read next.

The driver looks at the files: fingerprints, line ends, unfinished last lines, and first bytes,
which say what a file is: compressed, in an encoding, or no text.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from enum import Enum
from hashlib import blake2b
from typing import Any

from shared.storage.files import codec_of_head, open_random
from shared.storage.urls import local_path
from tap_spark.sources.files.line_reader import next_line_start, unfinished_line
from tap_spark.sources.files.paths import ListedFile

FORGET_DAYS = 30
"""Days for which the position of a file that is no longer listed is kept."""


class FileChange(str, Enum):
    """How a file changed since its position was written."""

    NEW = "new"
    GROWN = "grown"
    UNFINISHED = "its last line went on"
    TRUNCATED = "truncated"
    REWRITTEN = "rewritten"


@dataclass(frozen=True)
class FilePosition:
    """How far a file was read; one entry of `bookmarks.<stream>.files`.

    Attributes:
        offset: Bytes read.
        size: Bytes the file had when it was planned; if it is read as a whole, without a last line
            that waits.
        mtime: Time of its last change then.
        fingerprint: Hash of the first `offset` bytes.
        lines: Line ends in them, for people who read the state; None for remote files, as
            counting needs a second download.
        gone: Day (UTC) on which it was first not listed; None while it is listed.
    """

    offset: int
    size: int
    mtime: str
    fingerprint: str
    lines: int | None = None
    gone: str | None = None

    @classmethod
    def from_json(cls, value: object) -> FilePosition:
        """Read a position from the state.

        Raises:
            ValueError: It is not a position.
        """
        if not isinstance(value, Mapping):
            raise ValueError("a file's position is not an object")
        try:
            lines, gone = value.get("lines"), value.get("gone")
            position = cls(
                offset=int(value["offset"]),
                size=int(value["size"]),
                mtime=str(value["mtime"]),
                fingerprint=str(value["fingerprint"]),
                lines=None if lines is None else int(lines),
                gone=None if gone is None else date.fromisoformat(gone).isoformat(),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"a file's position has a missing or wrong value: {error}") from error
        if min(position.offset, position.size, position.lines or 0) < 0:
            raise ValueError("a file's position has a negative number")
        return position

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON for the state."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class FileRange:
    """Bytes of one file to read; `start` and `end` are line starts, or the end of the file.

    Attributes:
        lines: Line ends before `start`, if known.
    """

    file: ListedFile
    start: int
    end: int
    change: FileChange
    lines: int | None = 0


def plan_range(
    file: ListedFile, position: FilePosition | None, *, lines: bool = True
) -> FileRange | None:
    """Decide which bytes of a file to read; None if nothing is new.

    It is opened only if its size or time changed.

    Args:
        file: The file as listed now.
        position: How far it was read, if ever.
        lines: Whether reading may resume after the last line; else a file that grew is read
            again as a whole.
    """
    if position is None:
        return FileRange(file, 0, file.size, FileChange.NEW) if file.size else None
    if file.size < position.offset:
        return FileRange(file, 0, file.size, FileChange.TRUNCATED)
    touched = (file.size, file.mtime) != (position.size, position.mtime)
    if touched and fingerprint(file.url, position.offset) != position.fingerprint:
        return FileRange(file, 0, file.size, FileChange.REWRITTEN)
    if file.size == position.offset:
        return None
    start, change = _resume(file, position) if lines else (0, FileChange.GROWN)
    return FileRange(file, start, file.size, change, position.lines) if start < file.size else None


def refreshed(file: ListedFile, position: FilePosition) -> FilePosition:
    """Renew the position of a file without new data, so that it is not inspected again."""
    return replace(position, size=file.size, mtime=file.mtime)


def kept_positions(
    positions: Mapping[str, FilePosition], listed: Collection[str], today: date
) -> dict[str, FilePosition]:
    """Drop the positions of files that have not been listed for `FORGET_DAYS`.

    If no file is listed, as in a folder that is not mounted, all stay unchanged.
    """
    if not listed:
        return dict(positions)
    kept = {
        url: replace(position, gone=None if url in listed else position.gone or today.isoformat())
        for url, position in positions.items()
    }
    last = (today - timedelta(days=FORGET_DAYS)).isoformat()
    return {
        url: position
        for url, position in kept.items()
        if position.gone is None or position.gone > last
    }


def _resume(file: ListedFile, position: FilePosition) -> tuple[int, FileChange]:
    """Find the first line that was not read as a whole."""
    if not position.offset:
        return 0, FileChange.GROWN
    around = read_at(file.url, position.offset - 1, 3)
    before, after = around[:1], around[1:]
    if before in (b"\n", b"\r"):
        split_crlf = before == b"\r" and after[:1] == b"\n"
        return position.offset + split_crlf, FileChange.GROWN
    if after[:1] in (b"\n", b"\r"):
        return position.offset + (2 if after == b"\r\n" else 1), FileChange.GROWN
    start = unfinished_line(file.url, 0, position.offset)
    return start or 0, FileChange.UNFINISHED


IsWhole = Callable[[str, int, int], bool]
"""Returns whether the last line of a file, from a byte to another, is complete without line end."""


def complete_end(url: str, start: int, end: int, is_whole: IsWhole) -> int:
    """Find the end of whole lines from a line start on, and of a last one that `is_whole` takes."""
    at = unfinished_line(url, start, end)
    return end if at is None or is_whole(url, at, end) else at


def waves(
    file_ranges: Sequence[FileRange], wave_bytes: int, cut: Callable[[str, int, int], int]
) -> Iterator[list[tuple[FileRange, int, int]]]:
    """Group file ranges into waves of about `wave_bytes`; long files are cut between lines.

    `cut` finds the first line start of a file at or after an offset, and before another one.

    Yields:
        For each wave its parts `(file_range, start, end)`; all waves cover every range once.
    """
    wave: list[tuple[FileRange, int, int]] = []
    room = wave_bytes
    for file_range in file_ranges:
        start = file_range.start
        while start < file_range.end:
            end = file_range.end
            if end - start > room:
                end = min(end, cut(file_range.file.url, start + room, file_range.end))
            wave.append((file_range, start, end))
            room -= end - start
            start = end
            if room <= 0:
                yield wave
                wave, room = [], wave_bytes
    if wave:
        yield wave


KIB = 1024
WHOLE = 4 * KIB * KIB
EDGE = KIB * KIB
BLOCK = 64 * KIB
BLOCKS = 16
COUNT_CHUNK = 4 * KIB * KIB


def fingerprint(url: str, length: int) -> str:
    """Hash the first `length` bytes of a file: all up to 4 MiB, else edges and samples."""
    digest = blake2b(str(length).encode(), digest_size=16)
    with open_random(url) as file:
        for start, count in _samples(length):
            digest.update(file.read_at(count, start))
    return digest.hexdigest()


def read_at(url: str, offset: int, length: int) -> bytes:
    """Read up to `length` bytes from `offset` on; fewer at the file's end."""
    with open_random(url) as file:
        return bytes(file.read_at(min(length, max(0, file.size() - offset)), offset))


def cut_at_line(url: str, at: int, limit: int) -> int:
    """Find the first line start at or after `at`; `limit` if there is none before it."""
    with open_random(url) as file:
        return next_line_start(file, at, limit)


def line_ends(url: str, start: int, end: int) -> int | None:
    """Count line feeds between two offsets of a local file; None for a remote one."""
    if local_path(url) is None:
        return None
    with open_random(url) as file:
        return sum(
            bytes(file.read_at(min(COUNT_CHUNK, end - at), at)).count(b"\n")
            for at in range(start, end, COUNT_CHUNK)
        )


def _samples(length: int) -> Iterator[tuple[int, int]]:
    if length <= WHOLE:
        yield 0, length
        return
    yield 0, EDGE
    step = (length - 2 * EDGE) // BLOCKS
    for number in range(BLOCKS):
        yield EDGE + number * step, min(BLOCK, step)
    yield length - EDGE, EDGE


HEAD_BYTES = 4096
UNPACK_HINT = "unpack it first, or name a format that reads it"
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_OTHERS = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
    b"PAR1": "a Parquet file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"SQLite format 3\x00": "an SQLite database",
    b"%PDF-": "a PDF document",
    b"\xd0\xcf\x11\xe0": "an old Office document",
}


class NotTextError(Exception):
    """A file cannot be read as text; the hint says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class FileKind:
    """How to read a file.

    Attributes:
        is_compressed: Whether its content is compressed, whatever its name says.
        encoding: Its encoding, by a byte order mark; empty without one.
    """

    is_compressed: bool = False
    encoding: str = ""


def file_kind(head: bytes, encoding: str) -> FileKind:
    """Return how to read a file, by its first bytes and the encoding of the settings, if any.

    Raises:
        NotTextError: It is no text, or in an encoding that must be set.
    """
    for mark, what in _OTHERS.items():
        if head.startswith(mark):
            raise NotTextError(f"the file is {what}, not text", UNPACK_HINT)
    if codec_of_head(head) is not None:
        return FileKind(is_compressed=True)
    if encoding:
        return FileKind()
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    if not marked and head.count(0) * 4 > len(head):
        even = head[::2].count(0) > head[1::2].count(0)
        likely = "UTF-16BE" if even else "UTF-16LE"
        raise NotTextError(
            f"byte {head.index(0)} and many others are 0, as in UTF-16 or UTF-32",
            f"set the option 'encoding', likely to {likely}",
        )
    return FileKind(encoding=marked)
