"""Places of files as text: local paths and URLs. No I/O."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

S3_SCHEMES = ("s3://", "s3a://")


def local_path(url: str) -> str | None:
    """Return the local path that a bare path or `file:` URL names, or None for other URLs."""
    if url.startswith("file:"):
        rest = url[len("file:") :]
        return "/" + rest.lstrip("/") if rest.startswith("//") else rest
    return None if "://" in url else url


def shown(url: str) -> str:
    """Return the URL for errors and logs: without user, password and query."""
    if local_path(url) is not None:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def join(url: str, *names: str) -> str:
    """Return `url` with path segments appended."""
    return "/".join([url.rstrip("/") or "/", *names]).replace("//", "/", int(url == "/"))
