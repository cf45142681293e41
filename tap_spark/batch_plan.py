"""Which batch files there are: names, and how left-over rows are joined; pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.storage import StorageOptions, local_path

FILE_BYTES = 64 * 1024 * 1024
"""Uncompressed size at which a file is closed where no number of rows is asked for."""

STORAGE_FAILED = "[tap-spark batch files: {}]"
"""How executors mark that writing failed, not reading."""

_RUN_CHARACTERS = 24
_UNSAFE = re.compile(r"[^\w.-]")


@dataclass(frozen=True)
class FileNames:
    """Names of the batch files of one slice: `{prefix}{tap}--{stream}-{uuid}-{n}.{extension}`.

    The first 24 characters of the UUID are the same for the whole slice; the others are those of
    the task that writes the file, so that no two tasks, nor two attempts, write the same one.

    Attributes:
        root: Folder or URL, absolute.
        start: Everything before the task's part of the UUID, relative to `root`.
        extension: With its dot.
    """

    root: str
    start: str
    extension: str

    def url(self, task: int, number: int) -> str:
        """Give the URL of a file, as it goes into a manifest.

        Args:
            task: A number that no other attempt of a task has.
            number: Counts the files of the task, from 1.
        """
        return f"{self.root}/{self.start}{task:012x}-{number}{self.extension}"


def file_names(root: str, prefix: str, tap: str, stream: str, extension: str) -> FileNames:
    """Choose names for the files of one slice.

    Args:
        root: `batch_config.storage.root`: a path or URL.
        prefix: `batch_config.storage.prefix`; may name folders.
        tap: Name of the program.
        stream: Name of the stream; characters that mean something in a URL become `_`.
        extension: With its dot.
    """
    safe = _UNSAFE.sub("_", stream)
    token = str(uuid.uuid4())[:_RUN_CHARACTERS]
    return FileNames(absolute_url(root), f"{prefix}{tap}--{safe}-{token}", extension)


def absolute_url(root: str) -> str:
    """Give a root as a URL without a final slash; paths become `file://` URLs."""
    path = local_path(root)
    if path is None:
        return root.rstrip("/")
    return "file://" + str(Path(path).absolute()).rstrip("/")


@dataclass(frozen=True)
class Written:
    """A file that a task has written.

    Attributes:
        url: Where it is.
        rows: Its rows.
        size: Bytes of its rows in memory.
        is_rest: It holds left-over rows in Arrow's own format, to be joined with others.
    """

    url: str
    rows: int
    size: int
    is_rest: bool = False


NO_FILE = Written("", 0, 0)
"""Stands for rows that are in no file, but whose replication key counts."""


@dataclass(frozen=True)
class Piece:
    """Rows of one left-over file: from `start` up to, not including, `stop`."""

    url: str
    start: int
    stop: int


Join = tuple[Piece, ...]


def piece_of(rest: Written) -> Piece:
    """Give a left-over file as a whole."""
    return Piece(rest.url, 0, rest.rows)


def rows_of(join: Join) -> int:
    """Count the rows of a file to be made."""
    return sum(piece.stop - piece.start for piece in join)


def plan_joins(pieces: Iterable[Piece], rows: int) -> tuple[Join, ...]:
    """Share left-over rows out to files of exactly `rows` rows; only the last may have fewer.

    Args:
        pieces: What is left over, in the order it is to be used.
        rows: Rows of a file.

    Returns:
        For each file the pieces it is made of.
    """
    joins: list[Join] = []
    open_join: list[Piece] = []
    missing = rows
    for piece in pieces:
        start = piece.start
        while start < piece.stop:
            stop = min(piece.stop, start + missing)
            open_join.append(Piece(piece.url, start, stop))
            missing -= stop - start
            start = stop
            if not missing:
                joins.append(tuple(open_join))
                open_join, missing = [], rows
    return (*joins, tuple(open_join)) if open_join else tuple(joins)


def full_joins(pieces: Iterable[Piece], rows: int) -> tuple[tuple[Join, ...], Join]:
    """As `plan_joins`, but what fills no file is given back.

    Returns:
        The full files, and the pieces of fewer than `rows` rows that remain.
    """
    joins = plan_joins(pieces, rows)
    if joins and rows_of(joins[-1]) < rows:
        return joins[:-1], joins[-1]
    return joins, ()


def shares(joins: Sequence[Join], tasks: int) -> Iterator[tuple[Join, ...]]:
    """Deal files out to tasks; the short one, which is the last, goes to the last task."""
    count = min(tasks, len(joins))
    for task in range(count):
        yield tuple(joins[task * len(joins) // count : (task + 1) * len(joins) // count])


def note_of(written: Written) -> dict[str, Any]:
    """Give a file as JSON values."""
    return {
        "url": written.url,
        "rows": written.rows,
        "size": written.size,
        "is_rest": written.is_rest,
    }


@contextmanager
def marked(options: StorageOptions) -> Iterator[None]:
    """Mark failures of the storage, so that they are told from those of the source."""
    try:
        yield
    except OSError as error:
        text = " ".join(options.without_secrets(error.strerror or str(error)).split())
        raise RuntimeError(STORAGE_FAILED.format(text)) from error
