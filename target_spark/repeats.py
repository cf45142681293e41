"""Records that come again after a crash: told by their text, and not loaded twice.

A run that is killed may have committed rows whose STATE never went out; the next run gets them
again. Destinations that keep a note with every flush (`Noted`) are given the digests of the
records in it, cut where STATE messages came: there the next run may begin. The first records of a
run are compared with what an earlier run that did not end well has left, and those found are passed
over. `time_extracted` does not count, as it differs from run to run.

Not recognised, and loaded again: records that the tap sends in another order or with other text,
and the rest of a run's staged file where it ends between two cuts of the earlier run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any

from shared.storage import StorageOptions, local_path, size_of
from target_spark.manifests import STAGED
from target_spark.plans import Batch, InputFile, LoadResult, Segment

MOST_SEGMENTS = 400
"""Segments in a note, the newest ones: bounds what is stored with a flush."""

KEPT_FLUSHES = 4
"""Flushes in a note that are older than the last STATE: that one may not have been kept."""

_BLOCK = 1 << 20
_LINES = 10_000
_EXTRACTED = re.compile(rb'"time_extracted"\s*:\s*"[^"]*"\s*,?')


def note_text(segments: Sequence[Segment]) -> str:
    """The note to keep with a flush: what the run has committed to the table so far."""
    return json.dumps([[s.lines, s.digest] for s in segments[-MOST_SEGMENTS:]])


def note_segments(note: str | None) -> tuple[Segment, ...]:
    """The inverse of `note_text`; nothing for what is no note."""
    try:
        return tuple(Segment(int(lines), str(digest)) for lines, digest in json.loads(note or "[]"))
    except (ValueError, TypeError):
        return ()


def line_segments(source: IO[bytes], start: int, marks: Sequence[int]) -> Iterator[Segment]:
    """The segments of a staged file from a byte on, cut at `marks` (bytes, ascending).

    Args:
        source: The file.
        start: First byte that counts; the start of a line.
        marks: Ends of lines.
    """
    cuts = [start, *(mark for mark in marks if mark > start)]
    source.seek(start)
    for first, last in pairwise(cuts):
        yield _segment(source, last - first)
    rest = _segment(source, None)
    if rest.lines:
        yield rest


def file_segment(source: IO[bytes]) -> Segment:
    """The segment of a batch file: the digest of its bytes."""
    digest = _digest()
    while block := source.read(_BLOCK):
        digest.update(block)
    return Segment(0, digest.hexdigest())


@dataclass(frozen=True)
class Compared:
    """What became of a piece.

    Attributes:
        files: What of it is new.
        segments: Of all of it.
        expected: What the earlier run has committed behind it.
    """

    files: tuple[InputFile, ...]
    segments: tuple[Segment, ...] = ()
    expected: tuple[Segment, ...] = ()

    def told(self, result: LoadResult) -> LoadResult:
        """The result of loading the files, with what is kept in the note."""
        return replace(result, segments=self.segments, expected=self.expected)


@dataclass
class _Place:
    """A place in the earlier run's segments where the records that come may be.

    Attributes:
        index: The segment that is expected.
        begun: Line of the staged file at which it begins.
    """

    index: int
    begun: int = 0


class Replay:
    """Compares what comes with what an earlier run has committed.

    Args:
        segments: What it has committed, oldest first; empty for nothing to compare with.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._places = [_Place(index) for index in range(len(segments))]

    @property
    def is_over(self) -> bool:
        """Whether everything that comes now is new."""
        return not self._places

    @property
    def rest(self) -> tuple[Segment, ...]:
        """What is still expected to come again."""
        first = min((place.index for place in self._places), default=len(self._segments))
        return tuple(self._segments[first:])

    def lines(self, source: IO[bytes]) -> tuple[int, tuple[Segment, ...]]:
        """Compare the lines of a staged file, read from its start.

        Returns:
            Bytes at its start that have been committed, and their segments.
        """
        found: tuple[int, int, tuple[Segment, ...]] = 0, 0, ()
        read = size = 0
        digests: dict[int, Any] = {}
        for place in self._places:
            place.begun = 0
        while True:
            if read and _is_at_end(source):
                # What comes next is another piece, and may be a batch file.
                self._places = [place for place in self._places if place.begun == read]
                break
            self._places = [place for place in self._places if self._is_lines(place)]
            cuts = sorted({self._end(place) for place in self._places})
            if not cuts:
                break
            begun = {place.begun for place in self._places}
            digests = {line: digests.get(line) or _digest() for line in begun}
            lines, data = _read_lines(source, cuts[0] - read, digests.values())
            read, size = read + lines, size + data
            if read < cuts[0]:
                # The file ends within these segments: nobody can say whether they go on alike.
                self._places = [place for place in self._places if place.begun == read]
                break
            matched = self._matched(read, digests)
            if matched is not None:
                found = read, size, (*found[2], matched)
        return found[1], found[2]

    def file(self, segment: Segment) -> bool:
        """Compare a batch file; whether it has been committed."""
        self._places = [p for p in self._places if self._segments[p.index] == segment]
        matched = bool(self._places)
        self._go_on(self._places, 0)
        return matched

    def _is_lines(self, place: _Place) -> bool:
        return self._segments[place.index].lines > 0

    def _end(self, place: _Place) -> int:
        return place.begun + self._segments[place.index].lines

    def _matched(self, read: int, digests: dict[int, Any]) -> Segment | None:
        """Tell the places that end here: those that match go on, the others are none."""
        ending = [place for place in self._places if self._end(place) == read]
        going = [place for place in self._places if self._end(place) != read]
        matching = [
            place
            for place in ending
            if digests[place.begun].hexdigest() == self._segments[place.index].digest
        ]
        self._places = going
        if not matching:
            return None
        matched = self._segments[matching[0].index]
        # A shorter match is certain; longer ones that have not ended could only add to it.
        self._places = []
        self._go_on(matching, read)
        return matched

    def _go_on(self, places: Iterable[_Place], read: int) -> None:
        after = [place.index + 1 for place in places]
        self._places = [_Place(index, read) for index in after if index < len(self._segments)]


class Committed:
    """What a run has committed to one table: the segments of its flushes, oldest first."""

    def __init__(self) -> None:
        self._flushes: list[tuple[Segment, ...]] = []

    def note(self, segments: Sequence[Segment], expected: Sequence[Segment] = ()) -> str:
        """The note for a flush that is about to be committed.

        Args:
            segments: Of the flush.
            expected: What an earlier run has committed behind it, should this run be killed, too.
        """
        before = [segment for flush in self._flushes for segment in flush]
        return note_text([*before, *segments, *expected])

    def add(self, segments: Sequence[Segment]) -> None:
        """A flush is durable."""
        self._flushes.append(tuple(segments))

    def state_is_out(self) -> None:
        """STATE has gone out that covers what is durable, or nearly so."""
        del self._flushes[:-KEPT_FLUSHES]


class Repeats:
    """The records of a run that an earlier one has committed; for all streams, from any thread.

    Args:
        options: Of the storage of batch files.
    """

    def __init__(self, options: StorageOptions) -> None:
        self._options = options
        self._replays: dict[str, Replay] = {}
        self._turns: dict[str, int] = {}
        self._known: dict[tuple[str, int], Compared] = {}
        self._errors: dict[str, Exception] = {}
        self._changed = threading.Condition()

    def compare(self, batch: Batch, note: Callable[[], str | None]) -> Compared:
        """Compare one piece of a stream, once all pieces before it have been compared.

        Args:
            batch: With the files of the piece and its serial number.
            note: Gives the note of the stream's table; asked once.

        Raises:
            OSError: A file cannot be read.
            DestinationError: The note cannot be read.
        """
        stream, serial = batch.stream.stream, batch.serial
        with self._changed:
            self._changed.wait_for(
                lambda: self._turns.get(stream, 0) >= serial or stream in self._errors
            )
            if (stream, serial) in self._known:
                return self._known[stream, serial]
            if self._turns.get(stream, 0) < serial:
                raise self._errors[stream]
            self._errors.pop(stream, None)
        try:  # only the piece whose turn it is comes here
            if stream not in self._replays:
                self._replays[stream] = Replay(note_segments(note()))
            found = self._compared(batch.files, self._replays[stream])
        except Exception as error:
            with self._changed:
                self._errors[stream] = error
                self._changed.notify_all()
            raise
        with self._changed:
            self._known[stream, serial] = found
            self._turns[stream] = serial + 1
            self._changed.notify_all()
        return found

    def _compared(self, files: Sequence[InputFile], replay: Replay) -> Compared:
        new: list[InputFile] = []
        segments: list[Segment] = []
        for file in files:
            if file.encoding.format == STAGED:
                rest, found = _compared_lines(file, replay)
                segments += found
            else:
                segments.append(segment := self._file_segment(file))
                rest = None if replay.file(segment) else file
            new += [rest] if rest is not None else []
        return Compared(tuple(new), tuple(segments), replay.rest)

    def _file_segment(self, file: InputFile) -> Segment:
        path = local_path(file.url)
        if path is None:  # its bytes would have to be fetched twice
            size = size_of(file.url, self._options)
            return Segment(0, hashlib.sha256(f"{size} {file.url}".encode()).hexdigest()[:16])
        with Path(path).open("rb") as source:
            return file_segment(source)


def _compared_lines(
    file: InputFile, replay: Replay
) -> tuple[InputFile | None, tuple[Segment, ...]]:
    """What of a staged file is new, and all its segments."""
    with Path(file.url).open("rb") as source:
        start, found = (0, ()) if replay.is_over else replay.lines(source)
        rest = tuple(line_segments(source, start, file.marks))
    return (replace(file, start=start) if rest else None), (*found, *rest)


def _segment(source: IO[bytes], length: int | None) -> Segment:
    digest, lines = _digest(), 0
    while length is None or length > 0:
        block = source.read(_BLOCK if length is None else min(_BLOCK, length))
        if not block:
            break
        block += source.readline() if not block.endswith(b"\n") else b""
        length = None if length is None else length - len(block)
        lines += block.count(b"\n")
        digest.update(_normal(block))
    return Segment(lines, digest.hexdigest())


def _read_lines(source: IO[bytes], count: int, digests: Iterable[Any]) -> tuple[int, int]:
    """Read lines into digests; how many there were, and their bytes."""
    told, size = 0, 0
    digests = tuple(digests)
    while told < count:
        lines = list(islice(source, min(_LINES, count - told)))
        if not lines:
            break
        block = b"".join(lines)
        told, size = told + len(lines), size + len(block)
        for digest in digests:
            digest.update(_normal(block))
    return told, size


def _is_at_end(source: IO[bytes]) -> bool:
    found = len(source.read(1))
    source.seek(-found, os.SEEK_CUR)
    return not found


def _normal(block: bytes) -> bytes:
    """The lines without what differs from run to run."""
    return _EXTRACTED.sub(b"", block) if b'"time_extracted"' in block else block


def _digest() -> Any:
    return hashlib.blake2b(digest_size=8)
