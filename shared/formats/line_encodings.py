"""Files of JSON lines as blocks of whole lines; and how the format of any file is detected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

from shared.formats.json_text import newlines
from shared.storage import limits
from shared.storage.access import StorageOptions
from shared.storage.files import (
    codec_of,
    codec_of_head,
    head_of,
    open_input,
    open_output,
    open_random,
    unpacked,
)

BLOCK_BYTES = 8 * 1024 * 1024
"""Bytes of lines that are parsed at once."""

TABLE_ROWS = 16_384
"""Rows of a columnar file that are read at once."""

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Arrow bytes that are collected into one row group or stripe."""

LOOKED_AT = 512
"""Bytes at the beginning of a file from which its format is detected."""

BLANKS = b"\xef\xbb\xbf \t\r\n"
"""Bytes that may precede the first value of a text."""

_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_TAR_MARK = slice(257, 262)
_LOOKS = {
    b"PAR1": "a Parquet file",
    b"PARE": "an encrypted Parquet file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"\x04\x22\x4d\x18": "an LZ4 file",
    b"\xff\x06\x00\x00sNaPpY": "a Snappy file",
    b"\xfd7zXZ\x00": "an xz file",
    b"PK\x03\x04": "a zip file",
    b"ARROW1": "an Arrow file",
    b"\xff\xff\xff\xff": "an Arrow stream",
    b"SQLite format 3": "an SQLite file",
    b"\x1f\x8b": "gzip data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"7z\xbc\xaf\x27\x1c": "a 7z file",
}
_BYTE_ORDERS = (b"\xff\xfe", b"\xfe\xff")
_TEXT_STARTS = {b"{": "JSON lines", b"[": "a JSON array", b"<": "XML or HTML"}


JOINED = "it is several files joined into one: keep each in a file of its own"


class ContentError(pa.ArrowInvalid):  # type: ignore[misc]
    """A file does not have the format of its label; says what it looks like."""


def looks_like(url: str, options: StorageOptions | None = None) -> str:
    """Describe a file by its first bytes, also if it is compressed.

    Raises:
        OSError: The file cannot be opened.
    """
    packed = codec_of_head(head_of(url, LOOKED_AT, options))
    with open_input(url, options) as source:
        head = bytes(source.read(LOOKED_AT))
    return f"{content_of(head)}, compressed by {packed}" if packed else content_of(head)


def content_of(head: bytes) -> str:
    """Describe the file that begins with these uncompressed bytes."""
    if not head:
        return "an empty file"
    name = _binary_name(head)
    if name:
        return name
    if b"\0" in head:
        return "binary data"
    return _TEXT_STARTS.get(head.lstrip(BLANKS)[:1], "text")


def is_binary(head: bytes, *, nulls: bool = True) -> bool:
    """Return whether bytes begin a file of a known binary format, or (`nulls`) hold a NUL."""
    return _binary_name(head) is not None or (nulls and b"\0" in head)


def _binary_name(head: bytes) -> str | None:
    """Describe the binary format of a file; None if it is not known.

    Text may begin like a mark (`PARENT_ID,...` in a CSV file), but lacks control characters.
    """
    if head.startswith(_BYTE_ORDERS):
        return "UTF-16 text"
    if not _CONTROLS.search(head):
        return None
    if head[_TAR_MARK] == b"ustar":
        return "a tar file"
    return next((name for mark, name in _LOOKS.items() if head.startswith(mark)), None)


def check_mark(
    url: str,
    mark: bytes | tuple[bytes, ...],
    label: str,
    options: StorageOptions | None,
    *,
    packed: bool = False,
) -> str | None:
    """Raise an error if a file does not begin with `mark`, or one of several: its format's.

    Returns:
        What the whole file is compressed with, if it may be (`packed`), or None.

    Raises:
        ContentError: It does not.
        OSError: The file cannot be opened.
    """
    head = head_of(url, LOOKED_AT, options)
    codec = codec_of_head(head) if packed else None
    if codec is not None:
        with open_input(url, options) as source:
            head = bytes(source.read(LOOKED_AT))
    if not head.startswith(mark):
        raise ContentError(f"labelled {label}, but it looks like {looks_like(url, options)}")
    return codec


def grouped(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Yield tables joined so that each (but the last) holds at least `size` bytes."""
    held: list[pa.Table] = []
    held_bytes = 0
    for table in tables:
        held.append(table)
        held_bytes += table.nbytes
        if held_bytes >= size:
            held, held_bytes = [pa.concat_tables(held)], 0
            yield held.pop()  # so that only the caller holds the rows
    if held:
        held = [pa.concat_tables(held)]
        yield held.pop()


_LINE_STEP = 64 * 1024
_LOOKED_AT_TEXT = 64 * 1024
_LINES_LOOKED_AT = 100


class LongLineError(ContentError):
    """A line is longer than `limits.MAX_LINE_BYTES`.

    Attributes:
        line: Its number, from 1, within what is read of the file; in `_cut` after the last block.
    """

    def __init__(self, line: int) -> None:
        super().__init__(limits.long_text(f"line {line}"))
        self.line = line


def read_lines(
    url: str,
    start: int = 0,
    length: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    options: StorageOptions | None = None,
) -> Iterator[bytes]:
    """Yield the lines of a file in blocks that end at a line's end (the last one may lack it).

    Args:
        url: The file; its content tells its compression.
        start: Byte a range begins at; a line that begins before it belongs to the range before.
        length: Bytes of the range, or None for all up to the end; the range's last line is read
            to its end. Ranges need a file that is not compressed.
        block_bytes: Size of the blocks; longer only for a longer line, or by half at the end.
        options: Of the storage.

    Raises:
        LongLineError: A line is too long to be held.
        OSError: The file cannot be opened, or its compression is damaged or cut.
    """
    count = 0
    try:
        for block in _blocks(url, start, length, block_bytes, options):
            count += 1
            yield block
    except LongLineError:
        before = islice(_blocks(url, start, length, block_bytes, options), count)
        raise LongLineError(sum(map(newlines, before)) + 1) from None


def _blocks(
    url: str, start: int, length: int | None, block_bytes: int, options: StorageOptions | None
) -> Iterator[bytes]:
    whole = start == 0 and length is None
    with open_input(url, options) if whole else open_random(url, options) as source:
        if isinstance(source, pa.OSFile):
            yield from _aligned(source, start, length, block_bytes)
        elif whole:
            yield from _cut(iter(lambda: source.read(block_bytes), b""))
        else:
            yield from _cut(_range_chunks(source, start, length, block_bytes))


def bare_lines(url: str, options: StorageOptions | None = None) -> Iterator[bytes]:
    """Yield lines as `read_lines` does, of a file that is labelled as JSON lines.

    Raises:
        ContentError: It begins like a file of another format, or as `read_lines`.
        OSError: As `read_lines`.
    """
    for number, block in enumerate(read_lines(url, options=options)):
        if not number:
            check_lines(block)
        yield block


class LineFormat:
    """JSON objects, one a line; rows to write are texts that end in a newline."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`: one column of whole lines, many lines in each value."""
        for block in bare_lines(url, options):
            yield pa.table({"value": pa.array([block], pa.large_binary())})

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
        level: int | None = None,
    ) -> None:
        """See `Codec`; the schema's only column holds the lines."""
        with open_output(url, compression, options, level) as sink:
            for table in tables:
                for chunk in table.column(schema.names[0]).chunks:
                    sink.write(text_bytes(chunk))


def packed_lines(
    url: str,
    start: int,
    length: int,
    block_bytes: int = BLOCK_BYTES,
    options: StorageOptions | None = None,
) -> Iterator[tuple[bytes, int]]:
    """Yield a share of the lines of a compressed file, so that several tasks can parse one.

    Every share decompresses from the beginning of the file to its end, which costs far less than
    parsing. Shares whose ranges cover all bytes yield every line once and in order.

    The range is of bytes of the compressed file; `block_bytes` is the same for all shares.

    Yields:
        A block of whole lines, and the number of lines before it in the file.

    Raises:
        LongLineError, OSError: As `read_lines`.
    """
    codec = codec_of(url, options)
    with open_random(url, options) as raw:
        last = raw.size() - 1
        at = 0

        def chunks() -> Iterator[bytes]:
            nonlocal at
            with unpacked(raw, codec) as source:
                while True:
                    at = min(raw.tell(), last)
                    chunk = source.read(block_bytes)
                    if not chunk or at >= start + length:
                        return
                    yield chunk

        before = 0
        try:
            for block in _cut(chunks()):
                if start <= at < start + length:
                    yield block, before
                before += newlines(block)
        except LongLineError:
            raise LongLineError(before + 1) from None


def check_lines(block: bytes) -> None:
    """Raise an error if the first block of a file cannot be JSON lines.

    Raises:
        ContentError: Says what it looks like.
    """
    head = block[:LOOKED_AT]
    content = content_of(head) if is_binary(head) else _other_text(block)
    if content:
        raise ContentError(f"labelled jsonl, but it looks like {content}")


def _other_text(block: bytes) -> str | None:
    """Describe text without JSON objects in its first lines; None if it may be JSON lines."""
    start = block[:_LOOKED_AT_TEXT].lstrip(BLANKS)
    if start.startswith(b"{"):
        opens = start.split(b"\n", 1)[0].rstrip() == b"{"
        return "a JSON document of several lines" if opens else None
    lines = [line.strip() for line in start.split(b"\n", _LINES_LOOKED_AT) if line.strip()]
    if not lines:
        return None
    if lines[0].startswith(b"["):
        is_array = len(lines) == 1 or not lines[0].endswith(b"]")
        return content_of(start) if is_array else None
    if any(line.startswith(b"{") for line in lines):
        return None
    content = content_of(start)
    return content if len(lines) > 1 or content != "text" else None


def text_bytes(texts: pa.Array) -> pa.Buffer:
    """Return all values of a string array joined, without a copy."""
    if len(texts) == 0:
        return pa.py_buffer(b"")
    if texts.null_count:
        texts = texts.drop_null()
    kind = pa.int64() if pa.types.is_large_string(texts.type) else pa.int32()
    _, offsets, data = texts.buffers()
    ends = pa.Array.from_buffers(kind, len(texts) + 1, [None, offsets], offset=texts.offset)
    first, last = ends[0].as_py(), ends[len(texts)].as_py()
    return data.slice(first, last - first) if data is not None else pa.py_buffer(b"")


def _cut(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield chunks cut anew so that each ends with a line."""
    pending: list[bytes | memoryview] = []
    held = 0
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            whole = memoryview(chunk)
            yield b"".join([*pending, whole[:end]])
            pending = [whole[end:]] if end < len(chunk) else []
            held = len(chunk) - end
        else:
            pending.append(chunk)
            held += len(chunk)
            if held > limits.MAX_LINE_BYTES:
                raise LongLineError(1)
    if pending:
        yield b"".join(pending)


def _aligned(
    source: pa.OSFile, start: int, length: int | None, block_bytes: int
) -> Iterator[bytes]:
    """Yield the lines that begin within a range, each block by one read, without a copy."""
    size = source.size()
    stop = size if length is None else min(start + length, size)
    at = start
    if start:
        source.seek(start - 1)
        at += sum(map(len, _to_line_end(source))) - 1
    while at < stop:
        # The last one is not a short one: a fast reader may leave that to another.
        is_last = stop - at <= block_bytes * 3 // 2
        last = (stop if is_last else at + block_bytes) - 1
        source.seek(last)
        rest = source.read(_LINE_STEP)
        line_end = rest.find(b"\n") + 1
        if not line_end and last + len(rest) < size:  # A long line.
            yield from _cut(_range_chunks(source, at, stop - at, block_bytes))
            return
        source.seek(at)
        block = source.read(last - at + (line_end or len(rest)))
        at += len(block)
        yield block


def _range_chunks(
    source: pa.NativeFile, start: int, length: int | None, block_bytes: int
) -> Iterator[bytes]:
    """Yield the bytes of all lines that begin within a range."""
    left = source.size() - start if length is None else length
    source.seek(max(0, start - 1))
    if start:
        skipped = sum(map(len, _to_line_end(source)))
        left -= skipped - 1
        source.seek(start - 1 + skipped)
    last = b"\n"
    while left > 0 and (chunk := source.read(min(block_bytes, left))):
        left -= len(chunk)
        last = chunk[-1:]
        yield chunk
    if last != b"\n":
        yield from _to_line_end(source)


def _to_line_end(source: pa.NativeFile) -> Iterator[bytes]:
    """Yield the bytes up to the end of the line; the source may be behind it afterwards."""
    while chunk := source.read(_LINE_STEP):
        end = chunk.find(b"\n") + 1
        yield chunk[:end] if end else chunk
        if end:
            return
