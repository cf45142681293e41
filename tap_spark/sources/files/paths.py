"""The files of a stream's `path`: globs, folders and URLs, listed as Spark lists them."""

from __future__ import annotations

import errno
import glob
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from shared.errors import SourceError, Where
from shared.spark.spark_errors import plain_path
from shared.storage.access import failures, remote, storage_hint
from shared.storage.urls import local_path, shown, split_url
from tap_spark.sources.source_declaration import COMPRESSED
from tap_spark.stream_config import StreamConfig

_log = logging.getLogger(__name__)

FileSystem = Any
"""An fsspec file system."""
_S3 = re.compile("s3[an]?://")
DEEP = "**"
"""Folders at any depth; to Spark, those of one level."""
_BRACES = re.compile(r"(?<!\\)\{((?:[^{}\\]|\\.)*)\}")
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


def resolve_paths(stream: StreamConfig) -> tuple[str, ...]:
    """Return the stream's paths, absolute, and escaped if they name a file literally.

    Patterns that Spark reads in another way, and those that have files in common, become files.

    Raises:
        SourceError: A local path does not match any file, is a pipe or device, or cannot be read.
    """
    urls: list[str] = []
    for path in stream.paths:
        is_remote = local_path(path) is None
        try:
            urls += _resolve_remote(path) if is_remote else _resolve_local(stream.name, path)
        except OSError as error:
            failure = _unlisted(path, error)
            failure.name_stream(stream.name)
            raise failure from error
    patterns = list(dict.fromkeys(urls))
    if any(name.lower() == "recursivefilelookup" for name in stream.options):
        return tuple(patterns)  # Spark alone knows which files of folders the option adds.
    local_ones = [pattern for pattern in patterns if local_path(pattern) is not None]
    others = [pattern for pattern in patterns if local_path(pattern) is None]
    return (*_each_file_once(local_ones), *_each_file_once(others))


def _each_file_once(patterns: list[str]) -> list[str]:
    if len(patterns) < 2:  # noqa: PLR2004
        return patterns
    try:
        files = [file.url for pattern in patterns for file in _files(pattern)]
    except SourceError:
        return patterns  # Spark may have credentials of its own.
    return patterns if len({*files}) == len(files) else [*map(escaped, dict.fromkeys(files))]


def _resolve_remote(path: str) -> list[str]:
    if DEEP not in path:
        return [path]
    return [escaped(url) for url in dict.fromkeys(file.url for file in _listed(path))]


def _resolve_local(stream: str, path: str) -> list[str]:
    absolute = _absolute(str(local_path(path)))
    if _exists(absolute):
        if not (Path(absolute).is_file() or Path(absolute).is_dir()):
            raise SourceError(
                "the path is neither a file nor a folder",
                where=Where(stream=stream, file=path),
                hint="what a pipe or device gives can be read once: save it in a file",
            )
        return [escaped(absolute)]
    hits = _hits(absolute)
    _warn_of_locked(stream, path, absolute)
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
    parts = Path(path).absolute().parts
    while ".." in parts:
        after = len(parts) - parts[::-1].index("..")
        parts = (*Path(*parts[:after]).resolve().parts, *parts[after:])
    return str(Path(*parts))


def _exists(path: str) -> bool:
    """Return whether a path exists; a pattern may be longer than the name of any file."""
    try:
        return Path(path).exists()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise


def _hits(pattern: str) -> list[str]:
    """Return the files and folders that a local pattern matches, without hidden ones.

    A name with `.` or `_` at its start is matched only by a part that begins so, too.
    """
    hits: dict[str, None] = {}
    for one in expanded(pattern):
        for hit in sorted(glob.iglob(_python_pattern(one), recursive=True)):  # noqa: PTH207
            if not _is_hidden_hit(hit, one):
                hits[hit.rstrip("/")] = None
    return list(hits)


@lru_cache(maxsize=1000)
def _warn_of_locked(stream: str, path: str, pattern: str) -> None:
    """Warn of folders that a pattern cannot look into, once: discovery and the run resolve it."""
    for folder in _locked_folders(pattern):
        text = "stream '%s', file '%s': the folder '%s' cannot be read: its files are left out"
        _log.warning(text, stream, path, folder)


def _locked_folders(pattern: str) -> list[str]:
    """Return the folders that a pattern leads into and that may not be listed or entered."""
    folders: dict[str, int] = {}
    for one in expanded(pattern):
        parts = [*one.split("/"), *([""] if one.endswith(DEEP) else [])]
        patterns = [count for count, part in enumerate(parts) if _GLOB.search(part)]
        for count in range(min(patterns, default=len(parts)), len(parts)):
            # Below a folder whose next part is a name, that name is asked for alone.
            listed = count in patterns or not parts[count]
            mode = os.R_OK | os.X_OK if listed else os.X_OK
            for hit in _hits("/".join(parts[:count]) + "/"):
                folder = hit or "/"
                folders[folder] = folders.get(folder, 0) | mode
    return sorted(folder for folder, mode in folders.items() if not os.access(folder, mode))


def _has_folder(pattern: str) -> bool:
    """Return whether the folder exists in which a local pattern begins."""
    for one in expanded(pattern):
        parts = one.split("/")
        count = next((n for n, part in enumerate(parts) if _GLOB.search(part)), len(parts) - 1)
        if _hits("/".join(parts[:count]) + "/"):
            return True
    return False


def _python_pattern(pattern: str) -> str:
    # Hadoop's patterns escape by a backslash, and exclude by a caret, too.
    return re.sub(r"\\(.)", r"[\1]", pattern).replace("[^", "[!")


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
        SourceError: A folder cannot be read, or a remote storage rejects the request, does not
            answer, or lacks the bucket.
    """
    files: dict[str, ListedFile] = {}
    for path in paths:
        files.update((file.url, file) for file in _files(path))
    return [files[url] for url in sorted(files)]


def lists_nothing(paths: Iterable[str]) -> bool:
    """Return whether folders and patterns have no file now.

    It is False if a path is missing or cannot be read, which is an error.
    """
    with suppress(SourceError, OSError):
        for path in paths:
            local = local_path(path)
            pattern = path if local is None else _absolute(str(local))
            if local is not None and _exists(pattern):
                pattern = escaped(pattern)
            elif local is not None and (
                not _GLOB.search(path) or not _has_folder(pattern) or _locked_folders(pattern)
            ):
                return False
            if any(_files(pattern)):
                return False
        return True
    return False


def leads_nowhere(url: str) -> bool:
    """Return whether nothing in a remote storage has the URL, not even an empty folder.

    If the storage does not say, it is False: Spark may have credentials of its own.
    """
    with suppress(OSError), failures(url):
        filesystem, inside = _storage(url)
        return not any(filesystem.glob(_python_pattern(one)) for one in expanded(inside))
    return False


def is_compressed(url: str) -> bool:
    """Return whether Spark decompresses a file, which depends on its name."""
    return url.lower().endswith(COMPRESSED)


def is_read_whole(url: str) -> bool:
    """Return whether a file cannot be read in parts: compressed, or in `name=value` folders."""
    return is_compressed(url) or "=" in url.rpartition("/")[0]


def from_spark(url: str) -> str:
    """Convert Spark's name of a file to its URL as listed."""
    return plain_path(unquote(url))


def _files(path: str) -> Iterator[ListedFile]:
    if local_path(path) is None:
        yield from _listed(path)
        return
    literal = unescaped(path)
    try:
        roots = [literal] if _exists(literal) else _hits(path)
        for root in roots:
            yield from _below(Path(root))
    except OSError as error:
        raise _unlisted(path, error) from error


def _below(root: Path, *, partitioned: bool = False) -> Iterator[ListedFile]:
    if root.is_file():
        _check_name(root)
        stat = root.stat()
        yield ListedFile(str(root), stat.st_size, str(stat.st_mtime_ns), partitioned)
    elif root.is_dir():
        for child in sorted(root.iterdir()):
            if is_hidden(child.name):
                continue
            if child.is_file() or "=" in child.name:
                yield from _below(child, partitioned=partitioned or child.is_dir())


def _check_name(path: Path) -> None:
    """Raise an error if a name is not UTF-8: Spark would leave it out, and STATE cannot hold it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        name = os.fsencode(path).decode(errors="backslashreplace")
        text = "the name of the file is not UTF-8"
        raise SourceError(text, where=Where(file=name), hint="rename the file") from None


def _storage(url: str) -> tuple[FileSystem, str]:
    """Return the remote storage of a URL and its name there; Spark has other names of S3."""
    return remote(_S3.sub("s3://", url))


def _listed(path: str) -> list[ListedFile]:
    try:
        with failures(path):
            filesystem, inside = _storage(path)
            files = list(_remote_files(path, filesystem, inside))
            if not files and _S3.match(path):
                # A pattern in a bucket that does not exist only matches nothing.
                with suppress(PermissionError):
                    bucket = filesystem.split_path(inside)[0]
                    filesystem.call_s3("list_objects_v2", Bucket=bucket, MaxKeys=1)
            return files
    except OSError as error:
        raise _unlisted(path, error) from error


def _unlisted(path: str, error: OSError) -> SourceError:
    if local_path(path) is None:
        hint = storage_hint(error.errno)
    else:
        denied = error.errno in (errno.EACCES, errno.EPERM)
        hint = "check the permissions of the path" if denied else "check 'path'"
    text = f"cannot list the files: {error.strerror or error}"
    return SourceError(text, where=Where(file=shown(path)), hint=hint)


def _remote_files(path: str, filesystem: FileSystem, inside: str) -> Iterator[ListedFile]:
    url_of = partial(_url_of, path=path, inside=inside)
    for pattern in expanded(inside):
        for name, info in filesystem.glob(_python_pattern(pattern), detail=True).items():
            if not _is_hidden_hit(name, pattern):
                yield from _remote_below(filesystem, url_of, name, info)


def _url_of(name: str, path: str, inside: str) -> str:
    """Return the URL of a file that fsspec lists; its name may lack the host or account.

    Args:
        name: Its name in the file system.
        path: The URL that was listed.
        inside: The name of that one in the file system.
    """
    if "://" in name:
        return name
    name = name.lstrip("/")
    end = inside.rstrip("/")
    if path.rstrip("/").endswith(end):
        return path.rstrip("/").removesuffix(end) + "/" * inside.startswith("/") + name
    scheme, netloc, _ = split_url(path)
    container, at, _ = netloc.partition("@")
    if at and name.startswith(f"{container}/"):
        return f"{scheme}://{netloc}{name.removeprefix(container)}"
    return f"{scheme}://{name}"


def _remote_below(
    filesystem: FileSystem,
    url_of: Callable[[str], str],
    name: str,
    info: dict[str, Any],
    *,
    partitioned: bool = False,
) -> Iterator[ListedFile]:
    if info["type"] == "file":
        mtime = info.get("mtime") or info.get("LastModified") or info.get("last_modified") or ""
        yield ListedFile(url_of(name), int(info["size"]), str(mtime), partitioned)
        return
    for child in filesystem.ls(name, detail=True):
        leaf = child["name"].rstrip("/").rpartition("/")[2]
        if child["name"].rstrip("/") == name.rstrip("/") or is_hidden(leaf):
            continue
        if child["type"] == "file" or "=" in leaf:
            inner = partitioned or child["type"] != "file"
            yield from _remote_below(filesystem, url_of, child["name"], child, partitioned=inner)


def is_hidden(name: str) -> bool:
    """Return whether Spark ignores a file or folder of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
