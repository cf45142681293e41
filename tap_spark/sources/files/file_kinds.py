"""What the first bytes of a file say: compression, encoding, or that it is no text."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from shared.storage.files import codec_of_head

HEAD_BYTES = 4096
ENCODING_HINT = (
    "set the option 'encoding' (such as windows-1252, GBK or UTF-16LE), or mend the file"
)
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
    """A file cannot be read as text.

    Attributes:
        hint: What to do.
    """

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


def kind_of(head: bytes, encoding: str) -> FileKind:
    """Return how to read a file.

    Args:
        head: Its first bytes.
        encoding: The encoding of the settings; empty if they have none.

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
