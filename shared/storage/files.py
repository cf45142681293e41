"""Files opened for Arrow, local paths directly and all others through fsspec.

Used on the driver and on the executors. gzip is read and written by `isal`: Arrow's own takes sixty
times as long to write and twice to read.
"""

from __future__ import annotations

import lzma
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import GzipFile
from pathlib import Path
from typing import Any

import pyarrow as pa
from isal import igzip, isal_zlib

from shared.storage import limits
from shared.storage.access import SMALL_FILES, StorageOptions, open_remote
from shared.storage.urls import S3_SCHEMES, local_path

DEFAULT_LEVEL = 3
"""The highest of `isal`: some 15 % larger than by zlib's highest, as fast as the lowest. Higher
levels are zlib's."""
_DAMAGED: Any = (isal_zlib.error, lzma.LZMAError)
_MARKS = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd)|(?P<xz>\xfd7zXZ\x00)"
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"  # Text may begin with its first letters.
)
_ARROW_CODECS = {"zstd": "zstd", "bzip2": "bz2"}
_MARK_BYTES = 10
_COPY_BYTES = 1024 * 1024


def zipped(sink: pa.NativeFile, level: int = DEFAULT_LEVEL) -> pa.NativeFile:
    """Return a file that writes gzip into another one, and closes that one with itself."""
    make: Any = igzip.IGzipFile if level <= DEFAULT_LEVEL else GzipFile
    file = make(filename="", fileobj=sink, mode="wb", compresslevel=level, mtime=0)
    return pa.PythonFile(_PackedFile(file, sink), mode="w")


class _PackedFile:
    """A file that Arrow can read or write, over another one."""

    closed = False

    def __init__(self, file: Any, packed: pa.NativeFile, codec: str = "gzip") -> None:
        self._file, self._packed, self._codec = file, packed, codec

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def read(self, size: int) -> bytes:
        with _damage(self._codec):
            return bytes(self._file.read(size))

    def write(self, data: Any) -> int:
        return int(self._file.write(data))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self._packed.close()
            self.closed = True


@contextmanager
def _damage(codec: str) -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise OSError(f"the {codec} data is truncated") from None
    except _DAMAGED as error:
        raise OSError(f"the {codec} data is damaged: {error}") from None


def open_input(url: str, options: StorageOptions | None = None) -> pa.NativeFile:
    """Open a file for sequential reading as plain bytes.

    The compression is detected from the content, never from a name or label: gzip, zstd, bzip2
    and xz are undone (see `unpacked`), everything else is returned as it is.
    """
    codec = codec_of(url, options)
    raw = open_random(url, options)
    return raw if codec is None else unpacked(raw, codec)


def is_bomb(packed: int, plain: int) -> bool:
    """Return whether so many compressed bytes hold more than any data does."""
    return plain > max(limits.FREE_BYTES, limits.MAX_RATIO * packed)


def unpacked(raw: pa.NativeFile, codec: str | None) -> pa.NativeFile:
    """Return the content of a compressed file.

    Reading it raises `pyarrow.ArrowInvalid` if it is larger than any data would be, and OSError if
    it is damaged or cut off.
    """
    plain = 0

    def count(part: pa.Buffer) -> pa.Buffer:
        nonlocal plain
        plain += len(part)
        if is_bomb(raw.tell(), plain):
            raise pa.ArrowInvalid(limits.bomb_text())
        return part

    if codec == "gzip":
        unzipped = igzip.IGzipFile(fileobj=raw, mode="rb")
        content = pa.PythonFile(_PackedFile(unzipped, raw), mode="r")
    elif codec == "xz":
        from shared.storage.xz_file import XzFile  # noqa: PLC0415

        content = pa.PythonFile(_PackedFile(XzFile(raw), raw, codec), mode="r")
    else:
        content = pa.CompressedInputStream(raw, codec)
    return pa.TransformInputStream(content, count)


def codec_of(url: str, options: StorageOptions | None = None) -> str | None:
    """Return what a file's content is compressed with, or None."""
    return codec_of_head(head_of(url, _MARK_BYTES, options))


def codec_of_head(head: bytes) -> str | None:
    """Return the same as `codec_of`, from the first bytes."""
    mark = _MARKS.match(head)
    return mark and mark.lastgroup


def head_of(url: str, count: int, options: StorageOptions | None = None) -> bytes:
    """Return the first bytes of a file, without decompression."""
    with open_random(url, options, ahead=False) as source:
        return bytes(source.read(count))


def open_random(
    url: str, options: StorageOptions | None = None, *, ahead: bool = True
) -> pa.NativeFile:
    """Open a file for random access (Parquet, ORC, ranges of lines).

    Args:
        ahead: Fetch more than is asked for, which s3fs does by tens of megabytes.
    """
    path = local_path(url)
    if path is not None:
        return pa.OSFile(path, "rb")
    alone = {} if ahead or not url.startswith(S3_SCHEMES) else {"cache_type": "none"}
    file = open_remote(url, "rb", options, **alone)
    content = SMALL_FILES.content(url, file)
    return pa.PythonFile(file, mode="r") if content is None else pa.BufferReader(content)


@contextmanager
def open_plain(
    url: str, codec: str | None, options: StorageOptions | None = None
) -> Iterator[pa.NativeFile]:
    """Open a file for random access; a compressed one through a copy on disk.

    Raises:
        pyarrow.ArrowInvalid: The copy would take more than half of the disk that is free.
    """
    if codec is None:
        with open_random(url, options) as source:
            yield source
        return
    with tempfile.NamedTemporaryFile(prefix="singer-spark-") as copy:
        room = shutil.disk_usage(copy.name).free // 2
        with unpacked(open_random(url, options), codec) as source:
            while chunk := source.read(_COPY_BYTES):
                room -= len(chunk)
                if room < 0:
                    folder = tempfile.gettempdir()
                    raise pa.ArrowInvalid(f"unpacked, it takes half of the free space of {folder}")
                copy.write(chunk)
        copy.flush()
        with pa.OSFile(copy.name, "rb") as source:
            yield source


def open_output(
    url: str,
    compression: str = "none",
    options: StorageOptions | None = None,
    level: int | None = None,
) -> pa.NativeFile:
    """Create a file for writing; compress the bytes if a compression is named.

    A file on an object store is uploaded in parts and appears when it is closed.

    Args:
        compression: One of `PACKINGS`.
        level: Of gzip; None for the fast one that is the default.
    """
    path = local_path(url)
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        sink = pa.OSFile(path, "wb")
    else:
        sink = pa.PythonFile(open_remote(url, "wb", options), mode="w")
    if compression == "none":
        return sink
    if compression == "gzip":
        return zipped(sink, level or DEFAULT_LEVEL)
    return pa.CompressedOutputStream(sink, _ARROW_CODECS[compression])
