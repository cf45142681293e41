"""Removal of batch files that were not announced."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shared.storage.files import delete, remote
from shared.storage.urls import local_path

if TYPE_CHECKING:
    from shared.storage.files import StorageOptions
    from tap_spark.batch.batch_plan import FileNames

CLEAN_SECONDS = 2.0
_logger = logging.getLogger(__name__)


def remove_unannounced(
    stream: str,
    names: FileNames,
    options: StorageOptions,
    announced: Collection[str],
    empty_listings: int,
) -> None:
    """Remove a stream's files that were not announced; warn if that fails.

    Args:
        stream: The stream, for the log.
        names: Names of its files.
        options: Options of the storage.
        announced: URLs of files to keep.
        empty_listings: How many listings in a row must find none: cancelled tasks may still
            finish a file.
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
    for url in left:
        delete(url, options)
    return len(left)


def _listed(folder: str, start: str, options: StorageOptions) -> Iterator[str]:
    """List files whose names begin with `start`, hidden or not."""
    path = local_path(folder)
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            names = [entry.name for entry in Path(path).iterdir()]
            yield from (f"{folder}/{name}" for name in names if _is_ours(name, start))
        return
    filesystem, inside = remote(folder, options)
    with contextlib.suppress(FileNotFoundError):
        for found in filesystem.ls(inside, detail=False, refresh=True):
            name = str(found).rpartition("/")[2]
            if _is_ours(name, start):
                yield f"{folder}/{name}"


def _is_ours(name: str, start: str) -> bool:
    return name.lstrip(".").startswith(start)
