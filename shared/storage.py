"""Files by path or URL: local paths directly, everything else through fsspec.

Used on the driver and on the executors; imports fsspec only for URLs that need it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
COMPRESSIONS = {"gzip": "gzip", "zstd": "zstd", "bzip2": "bz2"}
_MAGIC_BYTES = 4


def local_path(url: str) -> str | None:
    """The local path that a bare path or `file:` URL names, or None for other URLs."""
    if url.startswith("file:"):
        rest = url[len("file:") :]
        return "/" + rest.lstrip("/") if rest.startswith("//") else rest
    return None if "://" in url else url


def shown(url: str) -> str:
    """The URL as errors and logs may show it: without user, password and query."""
    if local_path(url) is not None:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def join(url: str, *names: str) -> str:
    """`url` with path segments appended."""
    return "/".join([url.rstrip("/") or "/", *names]).replace("//", "/", int(url == "/"))


def remote(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL and the path inside it."""
    import fsspec  # noqa: PLC0415

    return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]


def open_input(url: str) -> pa.NativeFile:
    """Opens a file for sequential reading as plain bytes.

    The compression is told from the content, never from a name or label: gzip, zstd and bzip2
    are undone, everything else is returned as it is.
    """
    codec = codec_of(url)
    raw = _raw_input(url)
    return raw if codec is None else pa.CompressedInputStream(raw, codec)


def codec_of(url: str) -> str | None:
    """What a file's content is compressed with, or None."""
    with _raw_input(url) as source:
        head = bytes(source.read(_MAGIC_BYTES))
    return next((codec for mark, codec in MAGIC.items() if head.startswith(mark)), None)


def open_random(url: str) -> pa.NativeFile:
    """Opens a file for random access (Parquet, ORC, ranges of lines)."""
    return _raw_input(url)


def open_output(url: str, compression: str = "none") -> pa.NativeFile:
    """Creates a file for writing; the bytes are compressed where a compression is named."""
    path = local_path(url)
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        sink = pa.OSFile(path, "wb")
    else:
        filesystem, inside = remote(url)
        sink = pa.PythonFile(filesystem.open(inside, "wb"), mode="w")
    return (
        sink
        if compression == "none"
        else pa.CompressedOutputStream(sink, COMPRESSIONS[compression])
    )


def size_of(url: str) -> int:
    """Bytes in a file."""
    path = local_path(url)
    if path is not None:
        return Path(path).stat().st_size
    filesystem, inside = remote(url)
    return int(filesystem.size(inside))


def make_durable(url: str) -> None:
    """Forces a finished local file or folder to disk; object stores are durable once closed."""
    path = local_path(url)
    if path is None:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raw_input(url: str) -> pa.NativeFile:
    path = local_path(url)
    if path is not None:
        return pa.OSFile(path, "rb")
    filesystem, inside = remote(url)
    return pa.PythonFile(filesystem.open(inside, "rb"), mode="r")
