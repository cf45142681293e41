"""The driver's side of the spool: a private folder of chunk files, written by executors."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from shared.errors import SourceError, Where
from shared.storage.owned_folders import OwnedFolder, is_locked, remove_stale
from tap_spark.config import SpoolSettings
from tap_spark.send.line_output import spooling
from tap_spark.send.spool_files import (
    BEGUN_SUFFIX,
    ENDED_SUFFIX,
    FREE_SUFFIX,
    LINES_SUFFIX,
    META_SUFFIX,
    CopyProgress,
    KeyMax,
    TaskSpool,
    file_sizes,
    marker_name,
    partition_of,
    unpack_meta,
    write_progress,
)

PREFIX = "tap-spark-spool-"
GRACE_SECONDS = 0.5


@dataclass(frozen=True)
class SpooledChunk:
    """A finished chunk file.

    Attributes:
        key: Greatest replication key in it; None if it has none.
    """

    path: Path
    rows: int
    key: KeyMax | None

    def remove(self) -> None:
        self.path.with_suffix(META_SUFFIX).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def release(self, limit: int) -> None:
        """Leave the file to a task for its next chunk, or remove it if such files are many: they
        take a quarter of the bytes of the spool at most.
        """
        free = sum(size for _, size in file_sizes(str(self.path.parent), FREE_SUFFIX))
        with suppress(FileNotFoundError):
            if free + self.path.stat().st_size > limit // 4:
                self.remove()
            else:
                self.path.with_suffix(META_SUFFIX).unlink(missing_ok=True)
                self.path.rename(self.path.with_suffix(FREE_SUFFIX))


class SpoolFolder:
    """The folder in which the tasks of one job leave their chunks."""

    def __init__(self, task_spool: TaskSpool) -> None:
        self.task_spool = task_spool
        self.path = Path(task_spool.folder)

    def ready(self, *, ended: bool) -> Iterator[SpooledChunk]:
        """Yield the chunks that may be copied now; remove or release each before taking the next.

        Args:
            ended: Whether the job has ended: there are no later chunks.

        Raises:
            DestinationError: The folder cannot be read.
        """
        del ended
        return self._chunks(self._names())

    def remove(self) -> None:
        """Remove the folder; tasks that still run then fail to write to it."""
        gone = self.path.with_suffix(".gone")
        # Under another name first: no task can create a file in it while it is being removed.
        with suppress(OSError):
            self.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _names(self) -> list[str]:
        """List the finished chunks in the order of partitions, attempts and rows."""
        with spooling(self.path), os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(LINES_SUFFIX))

    def _chunks(self, names: list[str]) -> Iterator[SpooledChunk]:
        for name in names:
            path = self.path / name
            with spooling(self.path):
                text = path.with_suffix(META_SUFFIX).read_text(encoding="utf-8")
            yield SpooledChunk(path, *unpack_meta(text))


class OrderedSpoolFolder(SpoolFolder):
    """Yields chunks in the order of the frame's rows: partition after partition.

    Half of the space is reserved for the partition that is copied, so that later partitions cannot
    block it once it runs. Spark may start partitions in another order: if the partition to copy has
    no task while tasks of later ones wait for space on every core, these get more space, half of
    the limit at a time. That is disk, never memory, and at most the lines of all partitions that
    Spark started too early.
    """

    def __init__(self, task_spool: TaskSpool) -> None:
        super().__init__(task_spool)
        self._progress = CopyProgress()
        self._stuck_since: float | None = None

    def ready(self, *, ended: bool) -> Iterator[SpooledChunk]:
        if ended:
            yield from self._chunks(self._names())
            return
        while True:
            # Checked before the listing, which then has every chunk of an ended partition.
            over = self._marker(ENDED_SUFFIX).exists()
            names = self._names()
            yield from self._chunks(
                [n for n in names if partition_of(n) <= self._progress.partition]
            )
            if not over:
                break
            self._next()
        self._grant_if_stuck()

    def _marker(self, suffix: str) -> Path:
        return self.path / marker_name(self._progress.partition, suffix)

    def _next(self) -> None:
        for suffix in (BEGUN_SUFFIX, ENDED_SUFFIX):
            self._marker(suffix).unlink(missing_ok=True)
        self._set_progress(replace(self._progress, partition=self._progress.partition + 1))

    def _set_progress(self, progress: CopyProgress) -> None:
        self._progress = progress
        with spooling(self.path):
            write_progress(self.task_spool.folder, progress)

    def _grant_if_stuck(self) -> None:
        with spooling(self.path):
            is_stuck = not is_locked(self._marker(BEGUN_SUFFIX)) and self.task_spool.is_full_for(
                self._progress.partition + 1
            )
        now = time.monotonic()
        if not is_stuck:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > GRACE_SECONDS:
            self._stuck_since = None
            granted = self._progress.granted + self.task_spool.limit // 2
            self._set_progress(replace(self._progress, granted=granted))


class Spool:
    """A private folder of this process, which is removed when the run ends, even if it is killed.

    Args:
        settings: Where to create the folder, and how many bytes may wait in it.
        jobs: How many jobs share it at the same time.

    Raises:
        DestinationError: The folder cannot be created.
    """

    def __init__(self, settings: SpoolSettings, jobs: int = 1) -> None:
        root = Path(settings.root or tempfile.gettempdir())
        self.jobs = jobs
        self._numbers = itertools.count(1)
        with spooling(root):
            root.mkdir(parents=True, exist_ok=True)
            remove_stale(root, PREFIX)
            self._owned = OwnedFolder(root, PREFIX)
            # On a smaller disk, tasks would fill it before they wait.
            limit = min(settings.bytes, shutil.disk_usage(root).free // 2)
            self.limit = limit // jobs
        self.path = self._owned.path

    def new_folder(self, *, ordered: bool = False) -> SpoolFolder:
        """Create a folder for one job, which yields lines in the order of the rows if `ordered`.

        Raises:
            DestinationError: It cannot be created.
        """
        path = self.path / str(next(self._numbers))
        with spooling(path):
            path.mkdir(mode=0o700)
        task_spool = TaskSpool(str(path), str(self._owned.lock), self.limit, ordered)
        return OrderedSpoolFolder(task_spool) if ordered else SpoolFolder(task_spool)

    def close(self) -> None:
        """Remove the folder; safe to call twice."""
        self._owned.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_complete(count: int, expected: int, what: str) -> None:
    """Check what executors have counted against what this process has read.

    Args:
        what: Their name in the message, with placeholders for the numbers of it and expected.

    Raises:
        SourceError: Some were lost, or came twice from a task that was retried.
    """
    if count < expected:
        raise SourceError(
            f"{what.format(expected - count, expected)} were lost in the spool folder",
            where=Where(setting="spool.root"),
            hint="do not remove files there; run again",
        )
    if count > expected:
        raise SourceError(
            f"{what.format(count - expected, expected)} came twice: Spark has retried a task",
            hint="run again; set spark.task.maxFailures to 1",
        )
