"""What file formats share, and how to detect the format of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pyarrow as pa

from shared.storage.access import StorageOptions
from shared.storage.files import codec_of_head, head_of, open_input

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
) -> None:
    """Raise an error if a file does not begin with the first bytes of its format.

    Raises:
        ContentError: It does not.
        OSError: The file cannot be opened.
    """
    head = head_of(url, LOOKED_AT, options)
    if packed and codec_of_head(head):
        with open_input(url, options) as source:
            head = bytes(source.read(LOOKED_AT))
    if not head.startswith(mark):
        raise ContentError(f"labelled {label}, but it looks like {looks_like(url, options)}")


def grouped(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Yield tables joined so that each (but the last) holds at least `size` bytes."""
    held: list[pa.Table] = []
    held_bytes = 0
    for table in tables:
        held.append(table)
        held_bytes += table.nbytes
        if held_bytes >= size:
            held_bytes = 0
            yield _joined(held)
    if held:
        yield _joined(held)


def _joined(held: list[pa.Table]) -> pa.Table:
    """Return tables as one and empty the list, so that only the caller holds the rows."""
    table = pa.concat_tables(held)
    held.clear()
    return table
