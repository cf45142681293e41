"""Places of files as text: local paths and URLs, and which of them are below a folder. No I/O.

Servers read URLs differently: some decode a URL twice, treat a backslash as a slash, or ignore
parameters of a path segment. A file counts as below a root only if it is below it in every one of
these readings.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

S3_SCHEMES = ("s3://", "s3a://")
_FILE = re.compile(r"file:(?://(?:localhost(?=/))?)?", re.IGNORECASE)


def local_path(url: str) -> str | None:
    """Return the local path that a bare path or `file:` URL names, or None for other URLs.

    As for fsspec, `~` is the home folder, and `file://a/b`, which names no host, is relative.
    """
    scheme = _FILE.match(url)
    if scheme is None and "://" in url:
        return None
    path = url if scheme is None else url[scheme.end() :] or "/"
    if path.startswith("~"):
        return os.path.expanduser(path)  # noqa: PTH111 - Path fails if nobody has the name
    return "/" + path.lstrip("/") if path.startswith("//") else path


def decoded_path(url: str) -> str | None:
    """Return `local_path`, with escapes of a `file:` URL undone if no file has the name as it is.

    Programs such as taps of the Meltano SDK escape the paths in their manifests, others do not.
    """
    path = local_path(url)
    if path and "%" in path and _FILE.match(url) and not os.path.lexists(path):
        return unquote(path)
    return path


def split_url(url: str) -> tuple[str, str, str]:
    """Return scheme, netloc (login, host and port) and path of a URL, even of a wrong one."""
    scheme, _, rest = url.partition("://")
    netloc, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return scheme, netloc, slash + path


def shown(url: str) -> str:
    """Return a URL, even a wrong one, for errors and logs: without user, password and query."""
    if local_path(url) is not None:
        return url
    scheme, netloc, path = split_url(url)
    return f"{scheme}://{netloc.rpartition('@')[2]}{path}"


def join(url: str, *names: str) -> str:
    """Return `url` with path segments appended."""
    return "/".join([url.rstrip("/") or "/", *names]).replace("//", "/", int(url == "/"))


_WEB = {"http": ":80", "https": ":443"}
_S3 = {"s3a", "s3n"}
_OBJECTS = ("s3:", "gs:", "gcs:")
"""Stores whose keys have no folders: `a//b` and `a/./b` are other objects than `a/b`."""
_MOST_DECODINGS = 5
_NOT_TEXT = re.compile("[\x00-\x1f\x7f\ufffd]")
_PARAMETERS = re.compile(r";[^/]*")
_CHAINED = "::"
"""Stands in a URL that reaches one file system through another, as fsspec writes it."""


def place(url: str) -> str:
    """Return one text for each place: an absolute path without links, or the shortest URL."""
    path = _real_path(url)
    if path is not None:
        return path
    host, path = _parts(url)
    if host.startswith(_OBJECTS):
        return f"{host}{path}"
    if host.startswith(tuple(_WEB)):
        path = unquote(path)
    plain = posixpath.normpath(f"/{path}").replace("//", "/")
    return f"{host}{plain if plain != '/' else ''}"


@dataclass(frozen=True, eq=False, repr=False)
class Roots:
    """Folders and URLs that the user has named, each a local path or with its scheme."""

    urls: Sequence[str]

    @cached_property
    def _remote(self) -> list[tuple[str, str]]:
        return [_parts(url) for url in self.urls if local_path(url) is None]

    @cached_property
    def _folders(self) -> list[str]:
        return [path for url in self.urls if (path := _real_path(url)) is not None]

    def __repr__(self) -> str:
        return f"Roots({', '.join(place(url) for url in self.urls)})"

    def hold(self, url: str) -> bool:
        """Return whether a file is in one of them, for every way to read its URL."""
        if _CHAINED in url:
            return False
        path = _real_path(url)
        if path is not None:
            return any(_is_below(path, folder) for folder in self._folders)
        host, path = _parts(url)
        roots = [
            reading for name, root in self._remote if name == host for reading in _readings(root)
        ]
        if host.startswith(tuple(_WEB)) and re.search(r"[?#]", path):
            return False
        readings = list(_readings(path))
        return bool(readings) and all(
            any(_is_below(one, root) for root in roots) for one in readings
        )

    def reach(self, url: str) -> bool:
        """Return whether a URL names the host, or bucket, of one of them."""
        return _CHAINED not in url and _parts(url)[0] in {host for host, _ in self._remote}


def _real_path(url: str) -> str | None:
    path = decoded_path(url) if "%" in url else local_path(url)
    return None if path is None else os.path.realpath(path)


def _parts(url: str) -> tuple[str, str]:
    """Return scheme and host, or bucket, in one spelling; and the rest unchanged."""
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    end = next((at for at, char in enumerate(rest) if char in "/?#"), len(rest))
    host, path = rest[:end], rest[end:]
    if scheme in _WEB:
        host = host.lower().removesuffix(_WEB[scheme])
    return f"{'s3' if scheme in _S3 else scheme}://{host}", path


def _readings(path: str) -> Iterator[str]:
    """Return the paths that servers may read a path as; empty if it is not a place."""
    readings: list[str] = []
    for _ in range(_MOST_DECODINGS):
        if _NOT_TEXT.search(path):
            return
        slashes = path.replace("\\", "/")
        readings += [path, slashes, _PARAMETERS.sub("", slashes)]
        decoded = unquote(path)
        if decoded == path:
            for one in dict.fromkeys(readings):
                yield one.rstrip("/")
                yield posixpath.normpath(f"/{one}").replace("//", "/", 1)
            return
        path = decoded


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")
