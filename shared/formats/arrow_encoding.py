"""Arrow IPC, as files and as streams; bounded by what its messages would take in memory.

Arrow's own reader tells neither where messages are nor their sizes without decoding them, and
trusts the sizes that they declare. In a dictionary, a view or a run, many rows share one value:
18 KB of a file may stand for gigabytes as soon as a column becomes plain.
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.line_encodings import (
    BLOCK_BYTES,
    JOINED,
    TABLE_ROWS,
    ContentError,
    check_mark,
    grouped,
)
from shared.formats.typed_rows import BYTES, retyped
from shared.storage import limits
from shared.storage.access import StorageOptions
from shared.storage.files import is_bomb, open_output, open_plain, open_random

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
_MESSAGE = struct.Struct("<I6HiIhBx4x")
"""A message whose header stands behind it: the places of its table and of the fields in it, then
the header's place, the version, and the header's kind."""
_MOST_PADDING = 64


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

    schema: bytes
    dictionaries: tuple[MessagePlace, ...]
    batches: tuple[MessagePlace, ...]
    ordered: bool

    def messages(self, batches: Sequence[MessagePlace]) -> Sequence[MessagePlace]:
        """Return the messages that follow the schema in a stream with these record batches."""
        rest = (*self.dictionaries, *batches)
        return sorted(rest, key=attrgetter("start")) if self.ordered else rest


class _Fields:
    """A table of a FlatBuffer, whose fields have numbers, and its place there."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        self._data = data
        self.start = start + self._read("<I", start)

    def _read(self, code: str, at: int) -> int:
        if at < 0:
            raise IndexError(at)
        return int(struct.unpack_from(code, self._data, at)[0])

    def _place(self, number: int) -> int | None:
        table = self.start - self._read("<i", self.start)
        slot = 4 + 2 * number
        offset = self._read("<H", table + slot) if slot < self._read("<H", table) else 0
        return self.start + offset if offset else None

    def number(self, number: int, code: str = "<q") -> int:
        place = self._place(number)
        return 0 if place is None else self._read(code, place)

    def table(self, number: int) -> _Fields | None:
        place = self._place(number)
        return None if place is None else _Fields(self._data, place)

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
    start = end - size
    data = _read(source, start, size)
    footer = _Fields(data)
    dictionaries, batches = (
        tuple(MessagePlace(*block) for block in footer.structs(number, _BLOCK)) for number in (2, 3)
    )
    ends = [block.start + block.size for block in (*dictionaries, *batches)]
    # Before the footer there is a mark of the end, and in a file without rows the schema.
    if start - max(ends, default=_AFTER_FILE_MARK) > size + _MOST_PADDING:
        raise ContentError(JOINED)
    return FileMessages(_schema_message(data, footer), dictionaries, batches, ordered=False)


def _schema_message(data: bytes, footer: _Fields) -> bytes:
    """Return the schema in a footer as the message that begins a stream.

    Polars does not write that message into files: readers are to take the schema from here.
    """
    schema = footer.table(1)
    if schema is None:
        raise IndexError(1)
    head = _MESSAGE.pack(16, 12, 12, 8, 10, 4, 0, 12, schema.start + 12, footer.number(0, "<h"), 1)
    data = head + data + bytes(-len(data) % 8)
    return _PREFIX.pack(STREAM_MARK, len(data)) + data


def _stream_layout(source: pa.NativeFile) -> FileMessages:
    """Walk the messages up to the mark of the end: without it, rows may be missing."""
    layout: dict[int, list[MessagePlace]] = {_SCHEMA: [], _DICTIONARY: [], _ROWS: []}
    at = 0
    while True:
        block, kind = _message_at(source, at)
        if not kind:
            break
        if kind not in layout:
            raise IndexError(kind)
        layout[kind].append(block)
        at += block.size
    if at + block.size < source.size():
        raise ContentError(JOINED)
    first = layout[_SCHEMA][0]
    schema = _read(source, first.start, first.size)
    return FileMessages(schema, tuple(layout[_DICTIONARY]), tuple(layout[_ROWS]), ordered=True)


def _message_at(source: pa.NativeFile, start: int) -> tuple[MessagePlace, int]:
    """Return a message and its kind; 0 for the end of a stream."""
    mark, size = _PREFIX.unpack(_read(source, start, _PREFIX.size))
    if mark != STREAM_MARK:
        raise IndexError(start)
    if size == 0:
        return MessagePlace(start, _PREFIX.size, 0), 0
    message = _Fields(_read(source, start + _PREFIX.size, size))
    block = MessagePlace(start, _PREFIX.size + size, message.number(3))
    if block.body < 0 or start + block.size > source.size():
        raise ContentError("it is truncated")
    return block, message.number(1, "<B")


def rows_of_block(source: pa.NativeFile, block: MessagePlace) -> int:
    """Return the rows of a record batch.

    Raises:
        ContentError: It is truncated or damaged.
    """
    with _damage():
        return _rows_and_fields(_read(source, block.start, block.head))[0]


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
    if is_bomb(block.size, plain):
        raise ContentError(limits.bomb_text())
    return data


def _rows_and_fields(data: bytes) -> tuple[int, _Fields | None]:
    """Return the rows of a record batch or dictionary, and the fields that describe its body."""
    message = _Fields(data, _PREFIX.size)
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


def bounded_tables(batch: pa.RecordBatch, packed: int) -> Iterator[pa.Table]:
    """Yield the rows of a batch as tables that stay bounded when their columns become plain.

    `packed` is the number of bytes that the rows take in their file.

    Raises:
        ContentError: A single row takes more memory than any data does.
    """
    shares = any(_shares(column.type) for column in batch.columns)
    plain = sum(_most_bytes(column) for column in batch.columns) if shares else 0
    if plain > limits.TABLE_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from bounded_tables(batch.slice(0, half), packed)
        yield from bounded_tables(batch.slice(half), packed)
        return
    if plain > max(limits.TABLE_BYTES, limits.FREE_NESTED_BYTES, limits.MAX_RATIO * packed):
        raise ContentError(limits.decoded_text())
    yield pa.Table.from_batches([batch])


def _shares(kind: pa.DataType) -> bool:
    """Return whether rows of a type can share their values."""
    return any(test(kind) for test in _SHARING) or any(
        _shares(kind.field(number).type) for number in range(kind.num_fields)
    )


_Test = Callable[[pa.DataType], bool]
_VIEW_INTEGERS = 4
"""A view is 16 bytes, of which the first four are its length."""

_TEXTS: tuple[_Test, ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
_LISTS: tuple[_Test, ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_map,
)
_SHARING: tuple[_Test, ...] = (
    pa.types.is_dictionary,
    pa.types.is_run_end_encoded,
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def _most_bytes(array: pa.Array) -> int:
    """Return what all rows take at the most."""
    kind = array.type
    if pa.types.is_struct(kind):
        return sum(map(_most_bytes, array.flatten()))
    if _is_list(kind):
        lists = _as_list(array)
        return int(len(lists.flatten()) * _longest(lists.values) + array.nbytes)
    return int(len(array) * _longest(array))


def _longest(array: pa.Array) -> int:
    """Return the bytes of the largest value at the most."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _longest(array.storage)
    if pa.types.is_dictionary(kind):
        return _longest(array.dictionary)
    if pa.types.is_run_end_encoded(kind):
        return _longest(array.values)
    if pa.types.is_struct(kind):
        return sum(map(_longest, array.flatten()))
    if not _is_list(kind):
        return _longest_plain(array)
    lists = _as_list(array)
    return int(pc.max(pc.list_value_length(lists)).as_py() or 0) * _longest(lists.values)


def _longest_plain(array: pa.Array) -> int:
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        lengths = memoryview(array.buffers()[1]).cast("B").cast("i")[::_VIEW_INTEGERS]
        return int(max(lengths[array.offset : array.offset + len(array)], default=0))
    if any(test(kind) for test in _TEXTS):
        return int(pc.max(pc.binary_length(array)).as_py() or 0)
    is_null = pa.types.is_null(kind)
    return array.nbytes if kind.num_fields or is_null else int(-(-kind.bit_width // 8))


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _LISTS)


def _as_list(array: pa.Array) -> pa.Array:
    """Return a map as the list that it is, any other list unchanged."""
    kind = array.type
    if not pa.types.is_map(kind):
        return array
    return array.view(pa.list_(pa.struct([kind.key_field, kind.item_field])))


class ArrowFormat:
    """Arrow IPC: written as files, which have a footer; streams are read too."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`."""
        return read_groups(url, None, options)

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
        level: int | None = None,
    ) -> None:
        """See `Codec`."""
        codec = None if compression == "none" else pa.Codec(compression, level)
        with (
            open_output(url, options=options) as sink,
            pa.ipc.new_file(
                sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec)
            ) as writer,
        ):
            for group in grouped(tables, BLOCK_BYTES):
                writer.write_table(group.combine_chunks(), max_chunksize=TABLE_ROWS)


def read_groups(
    url: str, groups: range | None, options: StorageOptions | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of some record batches of a file or stream (None: all), in bounded tables.

    Raises:
        OSError: The file cannot be opened, or is damaged.
        pyarrow.ArrowInvalid: As `shared.formats.row_groups.read_groups`.
    """
    codec = check_mark(url, (FILE_MARK, STREAM_MARK), "arrow", options, packed=True)
    with open_plain(url, codec, options) as source:
        layout = layout_of(source)
        chosen = layout.batches if groups is None else layout.batches[groups.start : groups.stop]
        blocks = layout.messages(chosen)
        rest = (checked_message(source, block) for block in blocks)
        messages = _Messages(chain([layout.schema], rest))
        packed = sum(block.size for block in blocks)
        yield from _decoded(pa.PythonFile(messages, mode="r"), packed)


def group_sizes(url: str, options: StorageOptions | None = None) -> list[tuple[int, int]]:
    """Return bytes and rows of each record batch; empty for a file of another kind.

    Raises:
        OSError: The file cannot be opened.
    """
    with open_random(url, options, ahead=False) as source:
        try:
            batches = layout_of(source).batches
            return [(block.size, rows_of_block(source, block)) for block in batches]
        except pa.ArrowInvalid:
            return []


def _decoded(messages: pa.NativeFile, packed: int) -> Iterator[pa.Table]:
    """Yield the rows of a stream, and a table without rows at its end."""
    try:
        stream = pa.ipc.open_stream(messages)
        empty = stream.schema.empty_table()
        if empty.column_names:
            for batch in stream:
                _check(batch)
                for start in range(0, batch.num_rows, TABLE_ROWS):
                    yield from bounded_tables(batch.slice(start, TABLE_ROWS), packed)
        yield empty
    except (KeyError, MemoryError, TypeError, UnicodeDecodeError) as error:
        raise ContentError(f"it is damaged: {error}") from None


def _check(batch: pa.RecordBatch) -> None:
    """Check offsets, which Arrow does not when it reads; texts are checked row by row later.

    Raises:
        ContentError: A column is not as its type says.
    """
    batch.validate()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            try:
                column.view(retyped(column.type, BYTES, plain=False)).validate(full=True)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise ContentError(f"column '{name}': {error}") from None


class _Messages:
    """A file that Arrow can read: one message after the other, none of them copied."""

    closed = False

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> memoryview:
        if not self._rest:
            self._rest = memoryview(next(self._messages, b""))
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def close(self) -> None:
        self.closed = True
