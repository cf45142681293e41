"""The files of a stream's `path`: globs, folders and URLs, listed as Spark lists them.

Their first bytes say what they are: compression, encoding, or that a file is no text.
"""

from __future__ import annotations

import codecs
import glob
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from shared.errors import SourceError, Where
from shared.spark.spark_errors import plain_path
from shared.storage.access import failures, remote
from shared.storage.files import codec_of_head
from shared.storage.storage_errors import storage_hint
from shared.storage.urls import local_path, shown

if TYPE_CHECKING:
    from tap_spark.stream_config import StreamConfig


FileSystem = Any
"""An fsspec file system."""
COMPRESSED = (".gz", ".gzip", ".bz2", ".zst", ".zstd", ".lz4", ".snappy", ".deflate", ".xz")
DEEP = "**"
"""Folders at any depth; to Spark, those of one level."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_GLOB = re.compile(r"[*?\[\]{}\\]")


@dataclass(frozen=True)
class ListedFile:
    """A file as it is listed now.

    Attributes:
        url: Absolute path, or URL.
        size: Bytes.
        mtime: Time of the last change, as text; empty if the storage has none.
        partitioned: Whether it is in a `name=value` folder, which Spark reads as a column.
    """

    url: str
    size: int
    mtime: str = ""
    partitioned: bool = False


def resolve(stream: StreamConfig) -> tuple[str, ...]:
    """Return the stream's paths, absolute, and escaped if they name a file literally.

    Patterns that Spark reads in another way, and those that have files in common, become files.

    Raises:
        SourceError: A local path does not match any file.
    """
    urls = []
    for path in stream.paths:
        local = local_path(path)
        urls.append(_resolve_remote(path) if local is None else _resolve_local(stream.name, path))
    patterns = list(dict.fromkeys(pattern for patterns in urls for pattern in patterns))
    local_ones = [pattern for pattern in patterns if local_path(pattern) is not None]
    files = [file.url for pattern in local_ones for file in _local_files(pattern)]
    if len(patterns) == 1 or len({*files}) == len(files):
        return tuple(patterns)
    others = [pattern for pattern in patterns if local_path(pattern) is None]
    return (*map(escaped, dict.fromkeys(files)), *others)


def _resolve_remote(path: str) -> list[str]:
    if DEEP not in path:
        return [path]
    return [escaped(url) for url in dict.fromkeys(file.url for file in _listed(path))]


def _resolve_local(stream: str, path: str) -> list[str]:
    absolute = _absolute(str(local_path(path)))
    if Path(absolute).exists():
        return [escaped(absolute)]
    hits = _hits(absolute)
    if not hits:
        raise SourceError(
            "the path does not exist" if not _GLOB.search(path) else "no file matches the path",
            where=Where(stream=stream, file=path),
            hint=f"looked for {absolute}" if absolute != path else "check 'path'",
        )
    if DEEP not in absolute:
        return [absolute]
    return [escaped(hit) for hit in hits if Path(hit).is_file()]


def _absolute(path: str) -> str:
    """Return an absolute path without `..`, so that a file has one name."""
    parts = Path(path).expanduser().absolute().parts
    while ".." in parts:
        after = len(parts) - parts[::-1].index("..")
        parts = (*Path(*parts[:after]).resolve().parts, *parts[after:])
    return str(Path(*parts))


def _hits(pattern: str) -> list[str]:
    """Return the files and folders that a local pattern matches, without hidden ones.

    A name with `.` or `_` at its start is matched only by a part that begins so, too.
    """
    hits: dict[str, None] = {}
    for one in expanded(pattern):
        # Hadoop's patterns escape by a backslash, and exclude by a caret, too.
        python = re.sub(r"\\(.)", r"[\1]", one).replace("[^", "[!")
        for hit in sorted(glob.iglob(python, recursive=True)):  # noqa: PTH207
            if not _is_hidden_hit(hit, one):
                hits[hit.rstrip("/")] = None
    return list(hits)


def _is_hidden_hit(hit: str, pattern: str) -> bool:
    """Return whether a hit has a hidden name that no part of the pattern asks for."""
    parts = pattern.split("/")
    asked = {part[0] for part in parts if part[:1] in ("_", ".") and _GLOB.search(part)}
    names = (name for name in hit.split("/") if name and name not in parts)
    return any(is_hidden(name) and name[0] not in asked for name in names)


def escaped(path: str) -> str:
    """Escape a literal path for Spark's globbing."""
    return _GLOB.sub(lambda match: "\\" + match.group(), path)


def unescaped(path: str) -> str:
    """Undo `escaped`."""
    return re.sub(r"\\(.)", r"\1", path)


def expanded(pattern: str) -> list[str]:
    """Expand the `{a,b}` alternatives of a pattern."""
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    before, after = pattern[: match.start()], pattern[match.end() :]
    choices = match.group(1).split(",")
    return [full for choice in choices for full in expanded(before + choice + after)]


def list_files(paths: tuple[str, ...]) -> list[ListedFile]:
    """List the data files of resolved paths, sorted by URL, each once.

    Raises:
        SourceError: A remote storage rejects the request, or does not answer.
    """
    files: dict[str, ListedFile] = {}
    for path in paths:
        listing = _local_files(path) if local_path(path) is not None else _listed(path)
        files.update((file.url, file) for file in listing)
    return [files[url] for url in sorted(files)]


def is_compressed(url: str) -> bool:
    """Return whether Spark decompresses a file, which depends on its name."""
    return url.lower().endswith(COMPRESSED)


def is_read_whole(url: str) -> bool:
    """Return whether a file cannot be read in parts: compressed, or in `name=value` folders."""
    return is_compressed(url) or "=" in url.rpartition("/")[0]


def from_spark(url: str) -> str:
    """Convert Spark's name of a file to its URL as listed."""
    return plain_path(unquote(url))


def spark_url(url: str) -> str:
    """Convert the URL of a listed file to a path for Spark."""
    return escaped(url)


def _local_files(path: str) -> Iterator[ListedFile]:
    literal = unescaped(path)
    roots = [literal] if Path(literal).exists() else _hits(path)
    for root in roots:
        yield from _below(Path(root))


def _below(root: Path, *, partitioned: bool = False) -> Iterator[ListedFile]:
    if root.is_file():
        stat = root.stat()
        yield ListedFile(str(root), stat.st_size, str(stat.st_mtime_ns), partitioned)
    elif root.is_dir():
        for child in sorted(root.iterdir()):
            if is_hidden(child.name):
                continue
            if child.is_file() or "=" in child.name:
                yield from _below(child, partitioned=partitioned or child.is_dir())


def _listed(path: str) -> list[ListedFile]:
    try:
        with failures(path):
            return list(_remote_files(path))
    except OSError as error:
        raise SourceError(
            f"cannot list the files: {error.strerror or error}",
            where=Where(file=display(path)),
            hint=storage_hint(error.errno),
        ) from error


def _remote_files(path: str) -> Iterator[ListedFile]:
    scheme = path.split("://", 1)[0]
    filesystem, inside = remote(re.sub(r"^s3[an]://", "s3://", path))
    for pattern in expanded(inside):
        for name, info in filesystem.glob(pattern, detail=True).items():
            if _is_hidden_hit(name, pattern):
                continue
            yield from _remote_below(filesystem, scheme, name, info)


def _remote_below(
    filesystem: FileSystem,
    scheme: str,
    name: str,
    info: dict[str, Any],
    *,
    partitioned: bool = False,
) -> Iterator[ListedFile]:
    if info["type"] == "file":
        mtime = info.get("mtime") or info.get("LastModified") or info.get("last_modified") or ""
        yield ListedFile(
            f"{scheme}://{name.lstrip('/')}", int(info["size"]), str(mtime), partitioned
        )
        return
    for child in filesystem.ls(name, detail=True):
        leaf = child["name"].rstrip("/").rpartition("/")[2]
        if child["name"].rstrip("/") == name.rstrip("/") or is_hidden(leaf):
            continue
        if child["type"] == "file" or "=" in leaf:
            inner = partitioned or child["type"] != "file"
            yield from _remote_below(filesystem, scheme, child["name"], child, partitioned=inner)


def is_hidden(name: str) -> bool:
    """Return whether Spark ignores a file or folder of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def display(url: str) -> str:
    """Return the URL as an error may show it."""
    return shown(url)


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
