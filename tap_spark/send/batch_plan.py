"""Names of batch files, their staging folder, and how left-over rows are combined into files.

Files that were not announced are removed, from the staging folder and from their place.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shared.settings.batch_settings import BatchConfig
from shared.storage.access import StorageOptions, delete_all, make_durable, remote
from shared.storage.owned_folders import NO_LOCKS, OwnedFolder, remove_stale
from shared.storage.urls import local_path

FILE_BYTES = 64 * 1024 * 1024
"""Uncompressed size of a file if its number of rows is not set."""

STORAGE_FAILED = "[tap-spark batch files: {}]"
"""Mark of executors for a failure of writing, not of reading."""

_RUN_CHARACTERS = 24
_NAME_BYTES = 255
"""Longest name of a file that disks accept."""
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
        """Return the URL, as written in a manifest, of a file of a task attempt; from number 1."""
        return f"{self.root}/{self.start}{task:012x}-{number}{self.extension}"


def file_names(root: str, prefix: str, tap: str, stream: str, extension: str) -> FileNames:
    """Choose names for the files of one slice.

    `root` and `prefix` are those of `batch_config.storage`, `extension` has its dot. Characters of
    the stream with a meaning in URLs become `_`; a long name is cut.
    """
    token = str(uuid.uuid4())
    # The longest name, which is hidden, without the stream.
    others = f".{prefix.rpartition('/')[2]}{tap}---{token}-{2**31}{extension}.rest.part"
    most = max(_NAME_BYTES - len(others.encode()), 1)
    safe = _UNSAFE.sub("_", stream).encode()[:most].decode(errors="ignore")
    token = token[:_RUN_CHARACTERS]
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
        size: Bytes of its rows in memory.
        is_leftover: Whether it has left-over rows, in Arrow's format, to combine with others.
        replaced: JSON of `RecordTexts.replaced`.
    """

    url: str
    rows: int
    size: int
    is_leftover: bool = False
    replaced: str = "{}"


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
    return LeftoverRange(leftover.url, 0, leftover.rows)


def row_count(content: FileContent) -> int:
    return sum(leftover_range.stop - leftover_range.start for leftover_range in content)


def full_contents(
    ranges: Iterable[LeftoverRange], rows: int
) -> tuple[tuple[FileContent, ...], FileContent]:
    """Distribute left-over rows, in order, to files of so many rows.

    Returns:
        The full files, and the fewer than `rows` rows that remain.
    """
    full: list[FileContent] = []
    remaining: list[LeftoverRange] = []
    missing = rows
    for leftover_range in ranges:
        start = leftover_range.start
        while start < leftover_range.stop:
            stop = min(leftover_range.stop, start + missing)
            remaining.append(LeftoverRange(leftover_range.url, start, stop))
            missing -= stop - start
            start = stop
            if not missing:
                full.append(tuple(remaining))
                remaining, missing = [], rows
    return tuple(full), tuple(remaining)


def distribute(contents: Sequence[FileContent], tasks: int) -> Iterator[tuple[FileContent, ...]]:
    """Distribute files to tasks, in order; a short file, the last one, goes to the last task."""
    count = min(tasks, len(contents))
    for task in range(count):
        yield tuple(contents[task * len(contents) // count : (task + 1) * len(contents) // count])


@contextmanager
def marking_storage_failures(options: StorageOptions) -> Iterator[None]:
    """Mark failures of the storage, to separate them from failures of the source."""
    try:
        yield
    except OSError as error:
        text = " ".join(options.without_secrets(error.strerror or str(error)).split())
        raise RuntimeError(STORAGE_FAILED.format(text)) from error


PREFIX = ".tap-spark-batch-"
_logger = logging.getLogger(__name__)


class BatchStagingFolder:
    """A hidden, private folder beside the batch files.

    A killed run leaves its files there; the next run detects that and removes the folder.

    Args:
        prefix: Prefix of names below it; may contain folders.
    """

    def __init__(self, root: str, prefix: str) -> None:
        self._root = Path(root)
        self._final = Path(f"{root}/{prefix}-").parent
        self._owned: OwnedFolder | None = None
        self._is_made = False
        # Streams may be read at the same time.
        self._lock = threading.Lock()

    @property
    def work(self) -> str | None:
        """Return the folder, created at first use; None if the disk does not support locks.

        Raises:
            OSError: It cannot be created.
        """
        with self._lock:
            if not self._is_made:
                self._is_made = True
                self._owned = self._make()
        return None if self._owned is None else str(self._owned.path)

    def publish(self, waiting: str, url: str) -> None:
        """Move a finished file from its path in the folder to its URL, durably.

        Raises:
            OSError: It cannot be moved.
        """
        path = Path(local_path(url) or url)
        _make_folder(path.parent)
        os.replace(waiting, path)  # noqa: PTH105
        make_durable(str(path.parent))

    def close(self) -> None:
        """Remove the folder and its files, which were not announced; safe to call twice."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> BatchStagingFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> OwnedFolder | None:
        for folder in (self._root, self._final):
            _make_folder(folder)
            for dead in remove_stale(folder, PREFIX):
                _logger.info(
                    "removed batch files of a killed run, which were not announced: %s", dead
                )
        # In the root, as prefixes differ between runs, unless files cannot be moved from there.
        same_disk = self._root.stat().st_dev == self._final.stat().st_dev
        try:
            return OwnedFolder(self._root if same_disk else self._final, PREFIX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            _logger.warning(
                "'%s' does not support file locks: a killed run may leave batch files there",
                self._root,
            )
            return None


def staging_folder_for(batch: BatchConfig | None) -> BatchStagingFolder | None:
    """Return the folder for files on a disk that the executors share; None for other storage."""
    path = None if batch is None or batch.root is None else local_path(absolute_url(batch.root))
    return None if batch is None or path is None else BatchStagingFolder(path, batch.prefix)


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents, durably."""
    if folder.is_dir():
        return
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        # Creating a folder does not need the right to read its parent.
        with contextlib.suppress(PermissionError):
            make_durable(str(path.parent))


CLEAN_SECONDS = 2.0


def remove_unannounced(
    stream: str,
    names: FileNames,
    options: StorageOptions,
    announced: Collection[str],
    empty_listings: int,
) -> None:
    """Remove a stream's files that were not announced; warn if that fails.

    So many listings in a row must be empty, as cancelled tasks may still finish a file.
    """
    until = time.monotonic() + CLEAN_SECONDS
    clean = 0
    try:
        while clean < empty_listings and time.monotonic() < until:
            clean = 0 if _removed(names, options, announced) else clean + 1
            if clean < empty_listings:
                time.sleep(CLEAN_SECONDS / 10)
    except Exception as error:
        _logger.warning(
            "stream '%s': cannot remove batch files that were not announced: %s",
            stream,
            options.without_secrets(str(error)),
        )


def _removed(names: FileNames, options: StorageOptions, announced: Collection[str]) -> int:
    folder, _, start = f"{names.root}/{names.start}".rpartition("/")
    left = [url for url in _listed(folder, start, options) if url not in announced]
    for _, error in delete_all(left, options):
        raise error
    return len(left)


def _listed(folder: str, start: str, options: StorageOptions) -> list[str]:
    """List files whose names begin with `start`, hidden or not."""
    path = local_path(folder)
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        if path is not None:
            names = [entry.name for entry in Path(path).iterdir()]
        else:
            filesystem, inside = remote(folder, options)
            urls = filesystem.ls(inside, detail=False, refresh=True)
            names = [str(url).rpartition("/")[2] for url in urls]
    return [f"{folder}/{name}" for name in names if name.lstrip(".").startswith(start)]
