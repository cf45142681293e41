"""Names of batch files, and how left-over rows are combined into files. Pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.storage.files import StorageOptions
from shared.storage.urls import local_path

FILE_BYTES = 64 * 1024 * 1024
"""Uncompressed size of a file if its number of rows is not set."""

STORAGE_FAILED = "[tap-spark batch files: {}]"
"""Mark of executors for a failure of writing, not of reading."""

_RUN_CHARACTERS = 24
_UNSAFE = re.compile(r"[^\w.-]")


@dataclass(frozen=True)
class FileNames:
    """Names of the batch files of one slice: `{prefix}{tap}--{stream}-{uuid}-{n}.{extension}`.

    The first 24 characters of the UUID are those of the slice, the others those of the task, so
    that neither two tasks nor two attempts write the same file.

    Attributes:
        root: Folder or URL, absolute.
        start: Everything before the task's part of the UUID, relative to `root`.
        extension: File extension, with its dot.
    """

    root: str
    start: str
    extension: str

    def url(self, task: int, number: int) -> str:
        """Return the URL of a file, as written in a manifest.

        Args:
            task: Unique id of the task attempt.
            number: Number of the file within the task, from 1.
        """
        return f"{self.root}/{self.start}{task:012x}-{number}{self.extension}"


def file_names(root: str, prefix: str, tap: str, stream: str, extension: str) -> FileNames:
    """Choose names for the files of one slice.

    Args:
        root: `batch_config.storage.root`: a path or URL.
        prefix: `batch_config.storage.prefix`; may contain folders.
        tap: Name of the program.
        stream: Name of the stream; characters with a meaning in URLs become `_`.
        extension: File extension, with its dot.
    """
    safe = _UNSAFE.sub("_", stream)
    token = str(uuid.uuid4())[:_RUN_CHARACTERS]
    return FileNames(absolute_url(root), f"{prefix}{tap}--{safe}-{token}", extension)


def absolute_url(root: str) -> str:
    """Return a root as a URL without a final slash; paths become `file://` URLs."""
    path = local_path(root)
    if path is None:
        return root.rstrip("/")
    return "file://" + str(Path(path).absolute()).rstrip("/")


@dataclass(frozen=True)
class WrittenFile:
    """A file that a task wrote.

    Attributes:
        url: URL or path of the file.
        rows: Number of rows.
        size: Bytes of its rows in memory.
        is_leftover: Whether it has left-over rows, in Arrow's format, to combine with others.
    """

    url: str
    rows: int
    size: int
    is_leftover: bool = False


NO_FILE = WrittenFile("", 0, 0)
"""Stands for filtered rows, which are not in a file but whose replication key counts."""


@dataclass(frozen=True)
class LeftoverRange:
    """Rows of one left-over file: from `start` to before `stop`."""

    url: str
    start: int
    stop: int


FileContent = tuple[LeftoverRange, ...]
"""The left-over rows that one file consists of."""


def whole_leftover(leftover: WrittenFile) -> LeftoverRange:
    """Return all rows of a left-over file."""
    return LeftoverRange(leftover.url, 0, leftover.rows)


def row_count(content: FileContent) -> int:
    """Count the rows of a file to write."""
    return sum(leftover_range.stop - leftover_range.start for leftover_range in content)


def plan_contents(ranges: Iterable[LeftoverRange], rows: int) -> tuple[FileContent, ...]:
    """Distribute left-over rows to files of exactly `rows` rows; only the last may have fewer.

    Args:
        ranges: The left-over rows, in order.
        rows: Rows of a file.

    Returns:
        For each file the rows it consists of.
    """
    contents: list[FileContent] = []
    open_content: list[LeftoverRange] = []
    missing = rows
    for leftover_range in ranges:
        start = leftover_range.start
        while start < leftover_range.stop:
            stop = min(leftover_range.stop, start + missing)
            open_content.append(LeftoverRange(leftover_range.url, start, stop))
            missing -= stop - start
            start = stop
            if not missing:
                contents.append(tuple(open_content))
                open_content, missing = [], rows
    return (*contents, tuple(open_content)) if open_content else tuple(contents)


def full_contents(
    ranges: Iterable[LeftoverRange], rows: int
) -> tuple[tuple[FileContent, ...], FileContent]:
    """Plan files as `plan_contents` does, but return the rows that do not fill one.

    Returns:
        The full files, and the fewer than `rows` rows that remain.
    """
    contents = plan_contents(ranges, rows)
    if contents and row_count(contents[-1]) < rows:
        return contents[:-1], contents[-1]
    return contents, ()


def distribute(contents: Sequence[FileContent], tasks: int) -> Iterator[tuple[FileContent, ...]]:
    """Distribute files to tasks, in order; a short file, the last one, goes to the last task."""
    count = min(tasks, len(contents))
    for task in range(count):
        yield tuple(contents[task * len(contents) // count : (task + 1) * len(contents) // count])


def file_note(written: WrittenFile) -> dict[str, Any]:
    """Return a file as JSON values."""
    return {
        "url": written.url,
        "rows": written.rows,
        "size": written.size,
        "is_leftover": written.is_leftover,
    }


@contextmanager
def marking_storage_failures(options: StorageOptions) -> Iterator[None]:
    """Mark failures of the storage, to separate them from failures of the source."""
    try:
        yield
    except OSError as error:
        text = " ".join(options.without_secrets(error.strerror or str(error)).split())
        raise RuntimeError(STORAGE_FAILED.format(text)) from error
