"""Copies of staged lines for executors that do not see this machine's disk.

They exist while a job runs. A killed run leaves its copies; they go with the first copy of a run
that is made a day later.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from shared.spark.shared_disk import executors_share_disk
from shared.storage.files import StorageOptions, delete, remote
from shared.storage.urls import join, local_path
from target_spark.core.load_plans import STAGED
from target_spark.destinations.folders.folder_failures import writing

if TYPE_CHECKING:
    from target_spark.load.read_rows import Piece, ReadPlan
    from target_spark.run_settings import TargetConfig

KEPT = timedelta(days=1)
"""Age at which a copy counts as left by a killed run; no job runs for so long on one batch."""


class LineUploads:
    """Copies staged files below `staging.root`, if it is a URL and executors see other disks.

    Methods may be called from any thread.

    Args:
        config: The settings.
    """

    def __init__(self, config: TargetConfig) -> None:
        root = None if executors_share_disk(config.spark) else config.staging.root
        self._root = join(root, "lines") if root and local_path(root) is None else None
        self._options = StorageOptions(config.storage_options)
        self._lock = threading.Lock()
        self._is_clean = False

    @contextmanager
    def reachable(self, read: ReadPlan) -> Iterator[ReadPlan]:
        """Copy the files of a plan to where all executors can read them.

        Args:
            read: How rows of one batch are read.

        Yields:
            The plan with the copies.

        Raises:
            DestinationError: The storage failed.
        """
        pieces = [piece for task in read.tasks for piece in task]
        staged = {piece.file.url for piece in pieces if piece.file.encoding.format == STAGED}
        if self._root is None or not staged:
            yield read
            return
        self._clean(self._root)
        copies = {url: join(self._root, f"{uuid.uuid4().hex}.jsonl") for url in sorted(staged)}
        try:
            with writing(self._root, self._options):
                for url, copy in copies.items():
                    filesystem, path = remote(copy, self._options)
                    filesystem.put_file(local_path(url), path)
            tasks = tuple(tuple(_moved(piece, copies) for piece in task) for task in read.tasks)
            yield replace(read, tasks=tasks, options=self._options)
        finally:
            for copy in copies.values():
                with suppress(OSError):
                    delete(copy, self._options)

    def _clean(self, root: str) -> None:
        """Remove the copies of killed runs, once in a run."""
        with self._lock:
            if self._is_clean:
                return
            self._is_clean = True
            before = datetime.now(timezone.utc) - KEPT
            with writing(root, self._options):
                filesystem, path = remote(root, self._options)
                found = filesystem.ls(path, detail=True) if filesystem.exists(path) else []
                for entry in found:
                    if _changed(filesystem, entry) < before:
                        filesystem.rm_file(entry["name"])


def _changed(filesystem: Any, entry: dict[str, Any]) -> datetime:
    found: datetime = entry.get("LastModified") or filesystem.modified(entry["name"])
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _moved(piece: Piece, copies: dict[str, str]) -> Piece:
    return replace(piece, copy=copies.get(piece.file.url))
