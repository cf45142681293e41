"""The messages of an Arrow IPC file: where they are, and what they would take in memory.

Arrow's own reader tells neither without decoding a message, and trusts the sizes that it declares.
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from shared.formats.encoding_base import ContentError
from shared.storage import limits

FILE_MARK = b"ARROW1"
STREAM_MARK = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _ROWS = 1, 2, 3
_PREFIX = struct.Struct("<4si")
_NUMBER = struct.Struct("<q")
_AFTER_FILE_MARK = 8
_BLOCK = struct.Struct("<qi4xq")
_NODE = struct.Struct("<qq")
_BUFFER = struct.Struct("<qq")
_STORED_PLAIN = -1


@dataclass(frozen=True)
class MessagePlace:
    """One message: its place in the file, its bytes before the body, and those of the body."""

    start: int
    head: int
    body: int

    @property
    def size(self) -> int:
        """Return the bytes of the whole message."""
        return self.head + self.body


@dataclass(frozen=True)
class FileMessages:
    """The messages of a file: its schema, its dictionaries, and its record batches.

    Attributes:
        ordered: A later dictionary may replace an earlier one, as in a stream.
    """

    schema: MessagePlace
    dictionaries: tuple[MessagePlace, ...]
    batches: tuple[MessagePlace, ...]
    ordered: bool

    def messages(self, batches: Sequence[MessagePlace]) -> Sequence[MessagePlace]:
        """Return the messages of a stream with these record batches."""
        rest = (*self.dictionaries, *batches)
        return self.schema, *(sorted(rest, key=_start) if self.ordered else rest)


class _Fields:
    """A table of a FlatBuffer, whose fields have numbers."""

    def __init__(self, data: bytes, start: int = 0, *, root: bool = False) -> None:
        self._data = data
        self._start = start + self._read("<I", start) if root else start

    def _read(self, code: str, at: int) -> int:
        if at < 0:
            raise IndexError(at)
        return int(struct.unpack_from(code, self._data, at)[0])

    def _place(self, number: int) -> int | None:
        table = self._start - self._read("<i", self._start)
        slot = 4 + 2 * number
        offset = self._read("<H", table + slot) if slot < self._read("<H", table) else 0
        return self._start + offset if offset else None

    def number(self, number: int, code: str = "<q") -> int:
        place = self._place(number)
        return 0 if place is None else self._read(code, place)

    def table(self, number: int) -> _Fields | None:
        place = self._place(number)
        return None if place is None else _Fields(self._data, place, root=True)

    def structs(self, number: int, kind: struct.Struct) -> Iterator[tuple[int, ...]]:
        place = self._place(number)
        if place is None:
            return
        place += self._read("<I", place)
        first, count = place + 4, self._read("<I", place)
        if first + count * kind.size > len(self._data):
            raise IndexError(count)
        yield from kind.iter_unpack(self._data[first : first + count * kind.size])


def layout_of(source: pa.NativeFile) -> FileMessages:
    """Return where the messages of a file or stream are, without reading their bodies.

    Raises:
        ContentError: It is truncated or damaged.
    """
    with _damage():
        if _read(source, 0, len(FILE_MARK)) != FILE_MARK:
            return _stream_layout(source)
        return _file_layout(source)


def _file_layout(source: pa.NativeFile) -> FileMessages:
    end = source.size() - len(FILE_MARK) - 4
    if end < _AFTER_FILE_MARK or _read(source, end + 4, len(FILE_MARK)) != FILE_MARK:
        raise ContentError("it is truncated: its footer is missing")
    size = int.from_bytes(_read(source, end, 4), "little")
    footer = _Fields(_read(source, end - size, size), root=True)
    dictionaries, batches = (
        tuple(MessagePlace(*block) for block in footer.structs(number, _BLOCK)) for number in (2, 3)
    )
    schema, _ = _message_at(source, _AFTER_FILE_MARK)
    return FileMessages(schema, dictionaries, batches, ordered=False)


def _stream_layout(source: pa.NativeFile) -> FileMessages:
    """Walk the messages up to the mark of the end: without it, rows may be missing."""
    found: dict[int, list[MessagePlace]] = {_SCHEMA: [], _DICTIONARY: [], _ROWS: []}
    at = 0
    while True:
        block, kind = _message_at(source, at)
        if not kind:
            break
        if kind not in found:
            raise IndexError(kind)
        found[kind].append(block)
        at += block.size
    return FileMessages(
        found[_SCHEMA][0], tuple(found[_DICTIONARY]), tuple(found[_ROWS]), ordered=True
    )


def _start(block: MessagePlace) -> int:
    return block.start


def _message_at(source: pa.NativeFile, start: int) -> tuple[MessagePlace, int]:
    """Return a message and its kind; 0 for the end of a stream."""
    mark, size = _PREFIX.unpack(_read(source, start, _PREFIX.size))
    if mark != STREAM_MARK:
        raise IndexError(start)
    if size == 0:
        return MessagePlace(start, _PREFIX.size, 0), 0
    message = _Fields(_read(source, start + _PREFIX.size, size), root=True)
    block = MessagePlace(start, _PREFIX.size + size, message.number(3))
    if block.body < 0 or start + block.size > source.size():
        raise ContentError("it is truncated")
    return block, message.number(1, "<B")


def rows_of(source: pa.NativeFile, block: MessagePlace) -> int:
    """Return the rows of a record batch.

    Raises:
        ContentError: It is truncated or damaged.
    """
    with _damage():
        rows, _ = _rows_and_fields(_read(source, block.start, block.head))
        return rows


def checked_message(source: pa.NativeFile, block: MessagePlace) -> bytes:
    """Read a message.

    Raises:
        ContentError: It is truncated or damaged, or would take more memory than any data does.
    """
    with _damage():
        data = _read(source, block.start, block.size)
        rows, batch = _rows_and_fields(data)
        lengths = (length for length, _ in batch.structs(1, _NODE)) if batch else ()
        plain = max(rows, *lengths, 0) + (_plain_bytes(data, block.head, batch) if batch else 0)
    if limits.is_bomb(block.size, plain):
        raise ContentError(limits.bomb_text())
    return data


def _rows_and_fields(data: bytes) -> tuple[int, _Fields | None]:
    """Return the rows of a record batch or dictionary, and the fields that describe its body."""
    message = _Fields(data, _PREFIX.size, root=True)
    header = message.table(2)
    if message.number(1, "<B") == _DICTIONARY and header:
        header = header.table(1)
    elif message.number(1, "<B") != _ROWS:
        return 0, None
    return (header.number(0), header) if header else (0, None)


def _plain_bytes(data: bytes, body: int, batch: _Fields) -> int:
    """Return the bytes of all buffers, which each begin with them if they are compressed."""
    packed, plain = batch.table(3) is not None, 0
    for start, length in batch.structs(2, _BUFFER):
        declared = _STORED_PLAIN
        if packed and length:
            if start < 0:
                raise IndexError(start)
            (declared,) = _NUMBER.unpack_from(data, body + start)
        plain += length if declared == _STORED_PLAIN else declared
    return plain


def _read(source: pa.NativeFile, start: int, size: int) -> bytes:
    if min(start, size) < 0 or start + size > source.size():
        raise ContentError("it is truncated")
    source.seek(start)
    return bytes(source.read(size))


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (struct.error, IndexError) as error:
        raise ContentError("its metadata is damaged or truncated") from error
