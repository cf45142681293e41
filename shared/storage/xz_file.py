"""Files of xz, read as Arrow reads files of the other compressions."""

from __future__ import annotations

import lzma

import pyarrow as pa

_XZ_BYTES = 64 * 1024


class XzFile:
    """The content of streams of xz, which zeros may follow: `LZMAFile` ends at what is neither."""

    def __init__(self, packed: pa.NativeFile) -> None:
        self._packed = packed
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        data = b""
        while size:
            if self._stream.eof:
                data = self._stream.unused_data.lstrip(b"\0")
                while not data and (more := bytes(self._packed.read(_XZ_BYTES))):
                    data = more.lstrip(b"\0")
                if not data:
                    break
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self._stream.needs_input and not (data := bytes(self._packed.read(_XZ_BYTES))):
                raise EOFError
            parts.append(self._stream.decompress(data, size))
            data = b""
            size -= len(parts[-1])
        return b"".join(parts)

    def close(self) -> None:
        """Leave the file below to the one above."""
