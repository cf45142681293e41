"""Files named by BATCH messages: where they really lie, and whether they may be read.

A path is taken as it is, relative ones from the working folder; `..` and symbolic links are
followed before anything is compared. A file may be listed once in a message and once among the
messages that are committed together; listed again later, it is loaded again.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from shared.encodings import BATCH_FORMATS
from shared.errors import MessageError, Where
from shared.storage import local_path, shown
from target_spark.plans import InputFile

STAGED = "singer"
"""Format of staged RECORD lines, which no BATCH message names."""


def resolve(
    files: Sequence[InputFile], stream: str, allowed_roots: Sequence[str] | None = None
) -> tuple[InputFile, ...]:
    """The files with absolute paths; staged ones stay as they are.

    Args:
        files: Of one message, or of several that are loaded together.
        stream: For errors.
        allowed_roots: Folders or URLs that the files must lie in; None for no bound.

    Raises:
        MessageError: Names the stream and the first file that is refused.
    """
    roots = None if allowed_roots is None else [_place(root) for root in allowed_roots]
    found = tuple(
        file if file.encoding.format == STAGED else _resolved(file, stream, roots) for file in files
    )
    refuse_repeated(found, stream)
    return found


def refuse_repeated(files: Iterable[InputFile], stream: str) -> None:
    """Refuses a file that stands twice among some.

    Raises:
        MessageError: Names it.
    """
    seen: set[str] = set()
    for file in files:
        place = _place(file.url)
        if file.encoding.format != STAGED and place in seen:
            raise MessageError(
                "the file is listed twice; its rows would be loaded twice",
                where=Where(stream=stream, file=shown(file.url)),
            )
        seen.add(place)


def _resolved(file: InputFile, stream: str, roots: Sequence[str] | None) -> InputFile:
    where = Where(stream=stream, file=shown(file.url))
    if file.encoding.format not in BATCH_FORMATS:
        raise MessageError(
            f"batch files of the format '{file.encoding.format}' are unknown",
            where=where,
            hint=f"known are {', '.join(BATCH_FORMATS)}",
        )
    place = _place(file.url)
    if roots is not None and (_is_chained(file.url) or not any(_within(place, r) for r in roots)):
        raise MessageError(
            "the file does not lie in one of batch_config.allowed_roots",
            where=where,
            hint=f"it is {shown(place)} once `..` and links are followed",
        )
    return replace(file, url=place if local_path(file.url) is not None else file.url)


def _place(url: str) -> str:
    """One text for each place: an absolute path, or a URL without `.`, `..` and double slashes."""
    path = local_path(url)
    if path is not None:
        if url.startswith("file:") and "%" in path and not os.path.lexists(path):
            path = unquote(path)
        return os.path.realpath(path)
    parts = urlsplit(url)
    scheme = "s3" if parts.scheme in {"s3a", "s3n"} else parts.scheme.lower()
    inside = posixpath.normpath(f"/{parts.path}").replace("//", "/")
    return f"{scheme}://{parts.netloc}{inside if inside != '/' else ''}"


def _within(place: str, root: str) -> bool:
    return place == root or place.startswith(f"{root.rstrip('/')}/")


def _is_chained(url: str) -> bool:
    """Whether a URL reaches one file system through another, as fsspec writes it."""
    return "::" in url
