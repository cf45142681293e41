"""Files by path or URL: local paths directly, all others through fsspec.

Used on the driver and on the executors; imports fsspec only for URLs that need it. Credentials of
`s3://` are found as every AWS SDK finds them (environment, profiles, roles), or given as options.
A client of web servers follows redirects only to places that the settings allow. gzip is read and
written by `isal`: Arrow's own takes sixty times as long to write and twice to read.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import pyarrow as pa
from isal import igzip, isal_zlib

from shared.errors import causes
from shared.storage import limits
from shared.storage.storage_errors import storage_error
from shared.storage.urls import S3_SCHEMES, local_path, shown

if TYPE_CHECKING:
    from shared.storage.roots import Roots


DEFAULT_LEVEL = 3
"""The highest of `isal`: some 15 % larger than by zlib's highest, as fast as the lowest. Higher
levels are zlib's."""

_DAMAGED: Any = isal_zlib.error


def unzipped(raw: pa.NativeFile) -> pa.NativeFile:
    """Return the content of a gzip file, which may have several members.

    Reading it raises OSError if the file is damaged or cut off.
    """
    return pa.PythonFile(_GzipReader(raw), mode="r")


def zipped(sink: pa.NativeFile, level: int = DEFAULT_LEVEL) -> pa.NativeFile:
    """Return a file that writes gzip into another one, and closes that one with itself."""
    return pa.PythonFile(_GzipWriter(sink, level), mode="w")


class _GzipReader:
    """A file that Arrow can read."""

    closed = False

    def __init__(self, raw: pa.NativeFile) -> None:
        self._raw = raw
        self._file: Any = igzip.IGzipFile(fileobj=raw, mode="rb")

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> bytes:
        with _damage():
            return bytes(self._file.read(size))

    def close(self) -> None:
        self._file.close()
        self._raw.close()
        self.closed = True


class _GzipWriter:
    """A file that Arrow can write."""

    closed = False

    def __init__(self, sink: pa.NativeFile, level: int) -> None:
        self._sink = sink
        make: Any = igzip.IGzipFile if level <= DEFAULT_LEVEL else GzipFile
        self._file = make(filename="", fileobj=sink, mode="wb", compresslevel=level, mtime=0)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return int(self._file.write(data))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self._sink.close()
            self.closed = True


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise OSError("the gzip data is truncated") from None
    except _DAMAGED as error:
        raise OSError(f"the gzip data is damaged: {error}") from None


class RedirectRefusedError(OSError):
    """A server redirects to a place that the settings do not allow."""


@dataclass(frozen=True)
class GuardedClient:
    """Makes the session of an fsspec file system; file systems differ by its `repr`.

    Attributes:
        reach: Hosts that get what the session sends with each request; None for any.
        bound: Folders that files must be in; None for any.
    """

    reach: Roots | None
    bound: Roots | None

    async def __call__(self, **arguments: Any) -> Any:
        """Make one."""
        import aiohttp  # noqa: PLC0415

        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(self._check)
        return aiohttp.ClientSession(**{**arguments, "trace_configs": [trace]})

    async def _check(self, _session: Any, _context: Any, params: Any) -> None:
        answer = params.response
        location = answer.headers.get("Location") or answer.headers.get("URI") or ""
        target = urljoin(str(answer.url), location)
        if (self.bound is None or self.bound.hold(target)) and (
            self.reach is None or self.reach.reach(target)
        ):
            return
        host = urlsplit(target).netloc.rpartition("@")[2]
        what = "outside of batch_config.allowed_roots" if self.bound else "without a root there"
        raise RedirectRefusedError(f"the server redirects to '{host}', {what}")


MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
}
_ARROW_CODECS = {"zstd": "zstd", "bzip2": "bz2"}
S3_PART_BYTES = 16 * 1024 * 1024
"""Bytes that are uploaded at once; ten thousand parts make the largest file: 160 GB."""

_MAGIC_BYTES = 6
_COPY_BYTES = 1024 * 1024


class StorageOptions:
    """fsspec options, which may hold secrets: `repr`, `str` and errors never show a value.

    Picklable, so that executors get them. `endpoint_url` and the AWS names `region_name`,
    `aws_access_key_id`, `aws_secret_access_key`, `aws_session_token` and `profile_name` are taken
    for `s3://` beside the names that s3fs has.

    Args:
        values: The options.
        reach: They are sent to these hosts and buckets alone; None for any.
        bound: Web servers may lead on to these folders alone; None for anywhere.
    """

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        reach: Roots | None = None,
        bound: Roots | None = None,
    ) -> None:
        self._values = dict(values or {})
        self._reach = reach
        self._bound = bound

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(sorted(self._values))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageOptions) and other._values == self._values

    def __hash__(self) -> int:
        return hash(frozenset(self._values))

    def for_url(self, url: str) -> dict[str, Any]:
        """Return the keyword arguments of the file system that a URL names."""
        values = {} if self.are_kept_from(url) else dict(self._values)
        if url.lower().startswith(("http:", "https:")):
            client = GuardedClient(self._reach if values else None, self._bound)
            return {**values, "get_client": client}
        return _s3_options(values) if url.startswith(S3_SCHEMES) else values

    def are_kept_from(self, url: str) -> bool:
        """Return whether a URL gets no options because the settings do not name its host."""
        is_remote = local_path(url) is None
        return bool(
            self._values and is_remote and self._reach is not None and not self._reach.reach(url)
        )

    def without_secrets(self, text: str) -> str:
        """Return a text of another program with the values of the options masked."""
        for value in sorted(_texts(self._values), key=len, reverse=True):
            text = text.replace(value, "***")
        return text


NO_OPTIONS = StorageOptions()
_AWS_NAMES = {
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
    "profile_name": "profile",
}
_SHORTEST_SECRET = 6


def remote(url: str, options: StorageOptions | None = None) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path inside it.

    Raises:
        OSError: The package for the scheme is not installed, or does not support an option.
    """
    import fsspec  # noqa: PLC0415

    options = options or NO_OPTIONS
    try:
        return fsspec.core.url_to_fs(url, **options.for_url(url))  # type: ignore[no-any-return]
    except (ImportError, ValueError, TypeError) as error:
        raise OSError(f"{options.without_secrets(str(error))} (for {shown(url)})") from None
    except Exception as error:
        raise _explained(error, url, options) from None


def open_input(url: str, options: StorageOptions | None = None) -> pa.NativeFile:
    """Open a file for sequential reading as plain bytes.

    The compression is detected from the content, never from a name or label: gzip, zstd, bzip2
    and xz are undone (see `unpacked`), everything else is returned as it is.
    """
    codec = codec_of(url, options)
    raw = open_random(url, options)
    return raw if codec is None else unpacked(raw, codec)


def unpacked(raw: pa.NativeFile, codec: str | None) -> pa.NativeFile:
    """Return the content of a compressed file.

    Reading it raises `pyarrow.ArrowInvalid` if it is larger than any data would be.
    """
    plain = 0

    def count(part: pa.Buffer) -> pa.Buffer:
        nonlocal plain
        plain += len(part)
        if limits.is_bomb(raw.tell(), plain):
            raise pa.ArrowInvalid(limits.bomb_text())
        return part

    if codec == "gzip":
        content = unzipped(raw)
    elif codec == "xz":
        content = pa.PythonFile(lzma.LZMAFile(raw), mode="r")  # noqa: SIM115
    else:
        content = pa.CompressedInputStream(raw, codec)
    return pa.TransformInputStream(content, count)


def codec_of(url: str, options: StorageOptions | None = None) -> str | None:
    """Return what a file's content is compressed with, or None."""
    return codec_of_head(head_of(url, _MAGIC_BYTES, options))


def codec_of_head(head: bytes) -> str | None:
    """Return the same as `codec_of`, from the first bytes."""
    return next((codec for mark, codec in MAGIC.items() if head.startswith(mark)), None)


def head_of(url: str, count: int, options: StorageOptions | None = None) -> bytes:
    """Return the first bytes of a file, without decompression."""
    path = local_path(url)
    if path is not None:
        with pa.OSFile(path, "rb") as source:
            return bytes(source.read(count))
    with open_random(url, options, ahead=False) as source:
        return bytes(source.read(count))


def open_random(
    url: str, options: StorageOptions | None = None, *, ahead: bool = True
) -> pa.NativeFile:
    """Open a file for random access (Parquet, ORC, ranges of lines).

    Args:
        url: The file.
        options: Of the storage.
        ahead: Fetch more than is asked for, which s3fs does by tens of megabytes.
    """
    path = local_path(url)
    if path is not None:
        return pa.OSFile(path, "rb")
    filesystem, inside = remote(url, options)
    alone = {} if ahead or not url.startswith(S3_SCHEMES) else {"cache_type": "none"}
    with failures(url, options):
        file = filesystem.open(inside, "rb", **alone)
        return pa.PythonFile(_Explained(file, url, options), mode="r")


@contextmanager
def open_plain(url: str, options: StorageOptions | None = None) -> Iterator[pa.NativeFile]:
    """Open a file for random access; a compressed one through a copy on disk.

    Raises:
        pyarrow.ArrowInvalid: The copy would take more than half of the disk that is free.
    """
    if codec_of(url, options) is None:
        with open_random(url, options) as source:
            yield source
        return
    with tempfile.NamedTemporaryFile(prefix="singer-spark-") as copy:
        room = shutil.disk_usage(copy.name).free // 2
        with open_input(url, options) as source:
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
        url: The file.
        compression: One of `PACKINGS`.
        options: Of the storage.
        level: Of gzip; None for the fast one that is the default.
    """
    path = local_path(url)
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        sink = pa.OSFile(path, "wb")
    else:
        filesystem, inside = remote(url, options)
        with failures(url, options):
            file = filesystem.open(inside, "wb", **_part_size(url))
            sink = pa.PythonFile(_Explained(file, url, options), mode="w")
    if compression == "none":
        return sink
    if compression == "gzip":
        return zipped(sink, level or DEFAULT_LEVEL)
    return pa.CompressedOutputStream(sink, _ARROW_CODECS[compression])


def size_of(url: str, options: StorageOptions | None = None) -> int:
    """Return the size of a file in bytes."""
    path = local_path(url)
    if path is not None:
        return Path(path).stat().st_size
    filesystem, inside = remote(url, options)
    with failures(url, options):
        return int(filesystem.size(inside))


def delete(url: str, options: StorageOptions | None = None) -> None:
    """Remove a file, if it exists."""
    path = local_path(url)
    if path is not None:
        Path(path).unlink(missing_ok=True)
        return
    filesystem, inside = remote(url, options)
    with failures(url, options):
        try:
            filesystem.rm_file(inside)
        except FileNotFoundError:
            return


def make_durable(url: str) -> None:
    """Force a finished local file or folder to disk; object stores are durable once closed."""
    path = local_path(url)
    if path is None:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def failures(url: str, options: StorageOptions | None = None) -> Iterator[None]:
    """Raise failures of a remote storage as OSErrors with the URL, without values of options.

    Raises:
        OSError: See `shared.storage.storage_errors.storage_error`.
    """
    try:
        yield
    except Exception as error:
        # The cause is left out: it may hold secrets, and executors would print it.
        raise _explained(error, url, options) from None


class _Explained:
    """An open fsspec file with its failures explained, as Arrow takes a file."""

    def __init__(self, file: Any, url: str, options: StorageOptions | None) -> None:
        self._file = file
        self._url = url
        self._options = options

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def read(self, count: int = -1) -> Any:
        with failures(self._url, self._options):
            return self._file.read(count)

    def write(self, data: Any) -> Any:
        with failures(self._url, self._options):
            return self._file.write(data)

    def flush(self) -> None:
        with failures(self._url, self._options):
            self._file.flush()

    def close(self) -> None:
        with failures(self._url, self._options):
            self._file.close()


def _explained(error: BaseException, url: str, options: StorageOptions | None) -> OSError:
    for cause in causes(error, suppressed=True):
        if isinstance(cause, RedirectRefusedError):
            return OSError(str(cause))
    clean = (options or NO_OPTIONS).without_secrets(str(error))
    return storage_error(error, shown(url), clean)


def _part_size(url: str) -> dict[str, int]:
    return {"block_size": S3_PART_BYTES} if url.startswith(S3_SCHEMES) else {}


def _s3_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for s3fs, from its own names and those of the AWS SDKs."""
    options = {_AWS_NAMES.get(name, name): value for name, value in values.items()}
    region = options.pop("region_name", options.pop("region", None))
    if region is not None:
        options["client_kwargs"] = {"region_name": region, **options.get("client_kwargs", {})}
    return options


def _texts(values: Any) -> Iterator[str]:
    """Return every text within options that is long enough not to be an ordinary word."""
    if isinstance(values, Mapping):
        for value in values.values():
            yield from _texts(value)
    elif isinstance(values, str) and len(values) >= _SHORTEST_SECRET and not _is_public(values):
        yield values


def _is_public(text: str) -> bool:
    return re.match(r"https?://[^@]*$", text) is not None
