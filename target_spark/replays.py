"""Replays: records of a killed run that are received again, detected and not loaded twice.

A run may be killed after it has committed rows and before it has emitted the STATE that covers
them; the next run receives these rows again. Destinations with `keeps_notes` keep a *note* of
every append-only stream: the digests of the durable records that a STATE does not cover yet, cut
at STATE messages, as the next run can begin only there. The note shrinks before each STATE is
emitted, never after it.

Records count as replays only if the destination shows that the run of the note has ended and that
the table still holds its commits and nothing newer, and if they are the same sequence, from the
first record of the stream on. At the first difference detection ends for good. Everything else is
loaded.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, takewhile
from pathlib import Path
from typing import IO, Any

import orjson

from shared.formats.json_text import newlines
from shared.storage.urls import local_path
from target_spark.core.load_plans import STAGED, InputFile, Segment

_BLOCK = 1 << 17
"""Bytes that are read at once: of larger ones the C library returns the memory after each use."""
_DIGEST_BYTES = 16
# It begins with plain text: such a pattern is found five times as fast as one with a choice.
_NAME = b'"time_extracted"'
_EXTRACTED = re.compile(_NAME + rb'\s*:\s*"[^"\\\n]*"')
_LAST = re.compile(
    _EXTRACTED.pattern + rb'(?=(?:\s*,\s*"version"\s*:\s*\d+)?\s*\}\s*$)', re.MULTILINE
)
_NESTED = re.compile(rb"[{}\[\]]")
_SHORT = 1024
"""Bytes of a line up to which one pass of a pattern takes less than steps from name to name, and
Arrow less than `bytes.replace`."""


@dataclass(frozen=True)
class Entry:
    """A segment and the commit with its rows.

    Attributes:
        token: Token of the flush; empty if its rows were not to be loaded.
    """

    token: str
    segment: Segment


@dataclass(frozen=True)
class Note:
    """The records of a stream in a table that a STATE does not cover yet, oldest first.

    Attributes:
        anchor: See `Bookmarks`: of the last STATE emitted before them, if known.
    """

    entries: tuple[Entry, ...] = ()
    anchor: str | None = None

    @property
    def tokens(self) -> frozenset[str]:
        """Return the commits that must be in the table."""
        return frozenset(entry.token for entry in self.entries if entry.token)

    def held(self, tokens: Collection[str]) -> Note:
        """Return the entries up to the first whose commit is not among `tokens`.

        Empty if a later commit is among them: the table does not hold the sequence then.
        """
        kept = tuple(takewhile(lambda e: not e.token or e.token in tokens, self.entries))
        later = {entry.token for entry in self.entries[len(kept) :]}
        return Note() if later & set(tokens) else Note(kept, self.anchor)

    def to_text(self) -> str:
        """Return the text to store."""
        groups = groupby(self.entries, key=lambda entry: entry.token)
        content = [
            [token, [[e.segment.lines, e.segment.digest] for e in entries]]
            for token, entries in groups
        ]
        return json.dumps([self.anchor, content], separators=(",", ":"))


def read_note(text: str | None) -> Note:
    """Return the note of a stored text; an empty note for any other text."""
    try:
        anchor, content = json.loads(text or "[null,[]]")
        entries = tuple(
            Entry(str(token), Segment(int(lines), str(digest)))
            for token, segments in content
            for lines, digest in segments
        )
    except (ValueError, TypeError):
        return Note()
    return Note(entries, None if anchor is None else str(anchor))


@dataclass(eq=False)
class Bookmarks:
    """The bookmarks of the value of a STATE, parsed when first asked for."""

    state: bytes

    def digest(self, stream: str) -> str | None:
        """Return the digest of a stream's bookmark; None if the STATE does not have bookmarks.

        A stream without a bookmark of its own is identified by all of them.

        Args:
            stream: Name of the stream in the tap.
        """
        result = self._stored
        if result is None:
            return None
        return _digest_of(result[stream]) if stream in result else self._whole

    @cached_property
    def _stored(self) -> dict[str, Any] | None:
        try:
            result = orjson.loads(self.state)["bookmarks"]
        except (ValueError, TypeError, KeyError):
            return None
        return result if isinstance(result, dict) else None

    @cached_property
    def _whole(self) -> str:
        return _digest_of(self._stored)


@dataclass(eq=False)
class Journal:
    """The records of one stream of this run that a STATE does not cover yet.

    Args:
        most: Most segments to keep; with more, replays of them are not detected later.
        inherited: Records of an ended run that may still be replayed: the entries of its note.
        anchor: See `Note`: the anchor of that note.

    Attributes:
        lock: Held while the journal changes and its note is stored, so that notes are stored in
            their order.
    """

    most: int
    inherited: list[Entry] = field(default_factory=list)
    anchor: str | None = None
    lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _durable: list[Entry] = field(default_factory=list, init=False)
    _pending: list[Entry] = field(default_factory=list, init=False)
    _matched: int = field(default=0, init=False)
    _unknown_until: int | None = field(default=None, init=False)
    _is_stale: bool = field(default=False, init=False)

    @property
    def is_open(self) -> bool:
        """Return whether a STATE can change anything."""
        kept = self._durable or self.inherited or self._is_stale
        return bool(kept or self._unknown_until is not None)

    def forget(self) -> None:
        """Forget all records: they will not come again."""
        self._durable, self.inherited, self._unknown_until = [], [], None

    def match(self, index: int, whole: Segment, parts: Sequence[Segment]) -> bool:
        """Compare a piece with an inherited segment; the earlier ones have been compared.

        Args:
            index: Index of the segment, from 0.
            whole: The piece as one segment.
            parts: The piece, cut at the STATE messages of this run.

        Returns:
            Whether the piece is a replay. If so, its parts replace the segment.
        """
        with self.lock:
            if index < self._matched:
                return True
            first = self.inherited[0] if self.inherited and index == self._matched else None
            old = None if first is None else (first.segment.lines, first.segment.digest)
            if first is None or old != (whole.lines, whole.digest):
                self._end_replay()
                return False
            del self.inherited[0]
            self._matched += 1
            self._add([Entry(first.token, part) for part in parts])
            return True

    def begin(self, token: str, segments: Sequence[Segment]) -> bool:
        """Record that a flush is about to be committed; its records end the replay.

        Returns:
            Whether the note has changed, and must be stored before the commit.
        """
        with self.lock:
            self._pending = [Entry(token, segment) for segment in segments]
            if segments:
                self.inherited = []
            has_changed = bool(segments) or self._is_stale
            self._is_stale = False
            return has_changed

    def committed(self) -> None:
        """Record that the flush is durable."""
        with self.lock:
            entries, self._pending = self._pending, []
            self._add(entries)

    def cover(self, position: int, bookmark: str | None) -> bool:
        """Discard the segments that a STATE covers.

        Args:
            position: Position of the STATE in the tracker.
            bookmark: See `Bookmarks`: of the STATE.

        Returns:
            Whether the note has changed, and must be stored before the STATE is emitted.
        """
        with self.lock:
            was_stale, self._is_stale = self._is_stale, False
            if self._unknown_until is not None:
                if self._unknown_until < position:
                    self._unknown_until = None
                return was_stale
            if self.inherited and not self._matched:
                # The tap may have gone past these records without sending them.
                if bookmark is None or bookmark != self.anchor:
                    self.inherited = []
                    return True
                return was_stale
            count = len(self._durable)
            kept = [entry for entry in self._durable if entry.segment.until >= position]
            if any(entry.segment.since < position for entry in kept):
                # The next run begins within a segment: nothing of the rest can be compared.
                self._give_up()
                self._is_stale = False
                return True
            self._durable = kept
            return was_stale or len(kept) < count

    def not_stored(self) -> None:
        """Record that the note could not be stored; it must be stored before anything else."""
        with self.lock:
            self._is_stale = True

    def note(self, anchor: str | None) -> Note:
        """Return the note: records that are or will be durable, then those that may be replayed."""
        with self.lock:
            entries = (*self._durable, *self._pending, *self.inherited)
            if self._unknown_until is not None or len(entries) > self.most:
                return Note()
            return Note(entries, anchor)

    def _add(self, entries: Sequence[Entry]) -> None:
        self._durable += entries
        if self._unknown_until is not None or len(self._durable) > self.most:
            self._give_up()

    def _give_up(self) -> None:
        """Stop keeping segments until a STATE covers all records received so far."""
        last = max((entry.segment.until for entry in self._durable), default=0)
        self._unknown_until = max(last, self._unknown_until or 0)
        self._durable = []
        self._end_replay()

    def _end_replay(self) -> None:
        """Expect no more replays; the stored note is outdated until it is replaced."""
        self.inherited, self._is_stale = [], True


def whole_segment(file: InputFile) -> Segment:
    """Return a staged file or a batch file as one segment; raises OSError like `segments_of`."""
    (segment,) = segments_of(replace(file, marks=()))
    return segment


def line_segments(source: IO[bytes], file: InputFile) -> Iterator[Segment]:
    """Yield the segments of a staged file, which is at its start, by its marks and positions."""
    done, since = 0, file.since
    for size, position in file.marks:
        if size > done:
            segment = _segment(source, size - done, since, position - 1)
            if segment.lines:  # Its end may have been cut off.
                yield segment
        done, since = size, position
    rest = _segment(source, None, since, file.until)
    if rest.lines:
        yield rest


def segments_of(file: InputFile) -> Iterator[Segment]:
    """Yield the segments of a staged file, cut at STATE messages, or of a batch file.

    Raises:
        OSError: It cannot be read.
    """
    if file.encoding.format == STAGED:
        with Path(file.url).open("rb") as source:
            yield from line_segments(source, file)
        return
    # Not at the top: executors, which import this module, too, need no digests.
    from blake3 import blake3  # noqa: PLC0415

    path, digest = local_path(file.url), blake3()
    if path is not None:
        with Path(path).open("rb") as source:
            while block := source.read(_BLOCK):
                digest.update(block)
    else:
        # Its bytes would have to be fetched twice; a file without a checksum never matches.
        digest.update((file.checksum or uuid.uuid4().hex).encode())
    yield Segment(0, digest.hexdigest(_DIGEST_BYTES), file.since, file.until)


def _segment(source: IO[bytes], length: int | None, since: int, until: int) -> Segment:
    from blake3 import blake3  # noqa: PLC0415

    digest, lines = blake3(), 0
    while length is None or length > 0:
        block = source.read(_BLOCK if length is None else min(_BLOCK, length))
        if not block:
            break
        block += source.readline() if not block.endswith(b"\n") else b""
        length = None if length is None else length - len(block)
        result = newlines(block)
        lines += result
        digest.update(_normal(block, result))
    return Segment(lines, digest.hexdigest(_DIGEST_BYTES), since, until)


def _normal(block: bytes, lines: int) -> bytes | memoryview:
    """Return the lines without `time_extracted` of their envelope, which differs between runs.

    In the envelope it is in front of `record`, or has nothing but the closing brace of the message
    (and perhaps its version) behind it.
    """
    same, removed = _without_same_end(block, lines), 0
    if same is not None:
        return same
    if len(block) < lines * _SHORT:
        block, removed = _LAST.subn(b"", block)
    if removed and removed == lines and block.endswith(b"\n"):
        return block
    # Joined: BLAKE3 takes three times as long for parts of a few thousand bytes.
    parts, whole, kept, at = list[memoryview](), memoryview(block), 0, block.find(_NAME)
    while at >= 0:
        match = _LAST.match(block, at) or _in_front(block, at)
        if match:
            parts.append(whole[kept:at])
            kept = match.end()
        at = block.find(_NAME, match.end() if match else at + len(_NAME))
    return b"".join((*parts, whole[kept:]))


def _without_same_end(block: bytes, lines: int) -> memoryview | None:
    """Return what `_LAST` leaves of lines that all end alike; None for other lines.

    It takes a quarter of the time of a pattern; of short lines by Arrow, so that other threads go
    on meanwhile.
    """
    first = block[: block.find(b"\n") + 1]
    match = _LAST.search(first)
    end, kept = (first[match.start() :], first[match.end() :]) if match else (b"", b"")
    if not (end and block.endswith(end)):
        return None
    if len(block) < lines * _SHORT:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        text = pa.scalar(block, pa.binary())
        shorter = memoryview(pc.replace_substring(text, end, kept).as_buffer())
    else:
        shorter = memoryview(block.replace(end, kept))
    removed = lines * (len(end) - len(kept))
    return shorter if len(block) - len(shorter) == removed else None


def _in_front(block: bytes, at: int) -> re.Match[bytes] | None:
    first = block.rfind(b"\n", 0, at) + 1
    if not block.startswith(b"{", first) or _NESTED.search(block, first + 1, at):
        return None
    return _EXTRACTED.match(block, at)


def _digest_of(value: Any) -> str:
    from blake3 import blake3  # noqa: PLC0415

    return blake3(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest(_DIGEST_BYTES)
