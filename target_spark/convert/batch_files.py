"""Files of BATCH messages and of staged lines: may they be read, with which options, until when.

A path is used unchanged, relative ones from the working folder; `..` and symbolic links are
resolved before anything is compared (`shared.storage.urls`). A file may be listed once in a
message and once among the messages that are committed together; if it is listed again later, it is
loaded again.

Executors that do not see this machine's disk read copies of staged lines, which exist while a job
runs. A killed run leaves its copies; they go with the first copy of a run that is made a day later.
"""

from __future__ import annotations

import errno
import logging
import stat
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.encodings.encoding_format import FORMATS
from shared.errors import MessageError, SettingsError, SingerSparkError, Where
from shared.settings.batch_settings import COMPRESSIONS, BatchConfig
from shared.spark.connect import executors_share_disk
from shared.storage.access import (
    StorageFacts,
    StorageOptions,
    delete,
    delete_all,
    facts_of,
    is_trouble,
    remote,
)
from shared.storage.urls import Roots, decoded_path, join, local_path, place, shown
from target_spark.core.load_plans import STAGED, Batch, InputFile
from target_spark.destinations.folders.table_folder import read_error, writing
from target_spark.run_settings import TargetConfig

if TYPE_CHECKING:
    from target_spark.convert.read_plan import ReadPlan


def resolve_files(
    files: Sequence[InputFile], stream: str, allowed_roots: Sequence[str] | None = None
) -> tuple[InputFile, ...]:
    """Return the files with absolute paths; staged ones stay unchanged.

    Args:
        allowed_roots: Folders or URLs that must contain the files; None allows any.

    Raises:
        MessageError: A file is rejected; names the stream and the first such file.
    """
    roots = None if allowed_roots is None else Roots(allowed_roots)
    results = list[InputFile]()
    for file in files:
        form, where = file.encoding.format, Where(stream=stream, file=shown(file.url))
        if form == STAGED:
            results.append(file)
            continue
        if form not in COMPRESSIONS:
            raise MessageError(
                f"unknown batch file format '{form}'",
                where=where,
                hint=f"known are {', '.join(COMPRESSIONS)}",
            )
        if missing := FORMATS[form].missing():
            raise SettingsError(missing, where=where)
        real = place(file.url)
        if roots is not None and not roots.hold(file.url):
            raise MessageError(
                "the file is outside of batch_config.allowed_roots",
                where=where,
                hint=f"its path with `..` and links resolved is {shown(real)}",
            )
        results.append(replace(file, url=real if local_path(file.url) is not None else file.url))
    reject_duplicates(results, stream)
    return tuple(results)


def reject_duplicates(files: Iterable[InputFile], stream: str) -> None:
    """Reject files that contain a duplicate.

    Raises:
        MessageError: A file is listed twice; names it.
    """
    seen: set[str] = set()
    for file in files:
        if file.encoding.format == STAGED:
            continue
        result = place(file.url)
        if result in seen:
            raise MessageError(
                "the file is listed twice; its rows would be loaded twice",
                where=Where(stream=stream, file=shown(file.url)),
            )
        seen.add(result)


def roots_of(config: BatchConfig) -> Roots:
    """Return the folders whose batch files the target deletes if it cleans up."""
    return Roots([*([config.root] if config.root else []), *(config.allowed_roots or ())])


def batch_options(config: TargetConfig) -> StorageOptions:
    """Return options for batch files, only for hosts and buckets that the settings name."""
    batch = config.batch_config or BatchConfig()
    named = [batch.root, *(batch.allowed_roots or ()), config.path]
    reach = Roots([url for url in named if url])
    bound = None if batch.allowed_roots is None else Roots(batch.allowed_roots)
    return StorageOptions(batch.options, reach, bound)


_log = logging.getLogger(__name__)

KEPT = timedelta(days=1)
"""Age at which a copy counts as left by a killed run; no job runs for so long on one batch."""


class BatchFiles:
    """Staged files and files of BATCH messages; methods may be called from any thread."""

    def __init__(self, config: TargetConfig) -> None:
        self._config = config.batch_config or BatchConfig()
        self._warned: set[str] = set()
        self._unescaped: dict[str, str] = {}
        """Escaped URLs of files to delete, and the paths that were loaded: later, the same URL can
        name another file."""
        self.options = batch_options(config)
        # Staged files are copied if `staging.root` is a URL and executors see other disks.
        root = None if executors_share_disk(config.spark) else config.staging.root
        self._copies = join(root, "lines") if root and local_path(root) is None else None
        self._copy_options = StorageOptions(config.storage_options)
        self._lock = threading.Lock()
        self._is_clean = False

    @cached_property
    def _roots(self) -> Roots:
        return roots_of(self._config)

    def resolved(self, batch: Batch) -> Batch:
        """Return the batch with the absolute paths and sizes of its files.

        Raises:
            MessageError: A file is missing, listed twice or outside of the allowed roots; names it.
            DestinationError: The storage of a file fails or does not answer.
        """
        if all(file.encoding.format == STAGED and file.size is not None for file in batch.files):
            return batch
        files = resolve_files(batch.files, batch.source, self._config.allowed_roots)
        urls = [file.url for file in batch.files if self._config.cleanup and "%" in file.url]
        self._unescaped |= {url: path for url in urls if (path := decoded_path(url))}
        # Storage is asked for all files at once: each answer takes as long as a small load.
        far = [file.url for file in files if local_path(file.url) is None]
        for url in filter(self.options.are_kept_from, far):
            self._warn_once(
                "batch_config.storage.options are ignored for files such as '%s': name their "
                "host or bucket in batch_config.allowed_roots or batch_config.storage.root",
                url,
            )
        facts, results = iter(facts_of(far, self.options) if far else ()), list[InputFile]()
        for file in files:
            path = local_path(file.url)
            try:
                status = None if path is None else Path(path).stat()
                if status is not None and not stat.S_ISREG(status.st_mode):
                    text = "it is no file, but a folder, pipe or device"
                    raise OSError(errno.EINVAL, text)
                seen = next(facts) if status is None else StorageFacts(status.st_size)
                if isinstance(seen, OSError):
                    raise seen
            except OSError as error:
                raise self._unreadable(batch, error, file.url) from error
            results.append(replace(file, size=seen.size, checksum=seen.checksum))
        return replace(batch, files=tuple(results))

    @contextmanager
    def readable(self, batch: Batch) -> Iterator[None]:
        """Explain why a file of a batch cannot be read.

        Raises:
            MessageError: A file is missing or cannot be read.
            DestinationError: The storage of a file fails or does not answer.
        """
        try:
            yield
        except OSError as error:
            named = batch.files[0].url if len(batch.files) == 1 else str(error.filename or "")
            raise self._unreadable(batch, error, named) from error

    def delete_consumed(self, files: Iterable[InputFile]) -> None:
        """See `Loader.delete_consumed`."""
        names = (file.url for file in files if file.encoding.format != STAGED)
        urls = [self._unescaped.pop(url, url) for url in names]
        for url in urls:
            if not self._roots.hold(url):
                self._warn_once(
                    "loaded files outside of batch_config.allowed_roots and "
                    "batch_config.storage.root are not deleted, such as '%s'",
                    url,
                )
        for url, error in delete_all([*filter(self._roots.hold, urls)], self.options):
            reason = self.options.without_secrets(error.strerror or str(error))
            _log.warning("a loaded file cannot be deleted: '%s' (%s)", shown(url), reason)

    def _warn_once(self, text: str, url: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning(text, shown(url))

    def _unreadable(self, batch: Batch, error: OSError, named: str) -> SingerSparkError:
        where = Where(stream=batch.source)
        if named and local_path(named) is None and is_trouble(error):
            return read_error(named, error, where)
        reason = error.strerror or self.options.without_secrets(str(error))
        file = shown(named) if named else None
        return MessageError(
            f"a file to load cannot be read: {reason}", where=replace(where, file=file)
        )

    @contextmanager
    def reachable(self, read: ReadPlan) -> Iterator[ReadPlan]:
        """Yield a plan whose staged files are copied to where all executors can read them.

        Raises:
            DestinationError: The storage failed.
        """
        pieces = [piece for task in read.tasks for piece in task]
        staged = {piece.file.url for piece in pieces if piece.file.encoding.format == STAGED}
        if self._copies is None or not staged:
            yield read
            return
        self._clean(self._copies)
        copies = {url: join(self._copies, f"{uuid.uuid4().hex}.jsonl") for url in sorted(staged)}
        try:
            with writing(self._copies, self._copy_options):
                for url, copy in copies.items():
                    filesystem, path = remote(copy, self._copy_options)
                    filesystem.put_file(local_path(url), path)
            tasks = tuple(
                tuple(replace(piece, copy=copies.get(piece.file.url)) for piece in task)
                for task in read.tasks
            )
            yield replace(read, tasks=tasks, options=self._copy_options)
        finally:
            for copy in copies.values():
                with suppress(OSError):
                    delete(copy, self._copy_options)

    def _clean(self, root: str) -> None:
        """Remove the copies of killed runs, once in a run."""
        with self._lock:
            if self._is_clean:
                return
            self._is_clean = True
            before = datetime.now(timezone.utc) - KEPT
            with writing(root, self._copy_options):
                filesystem, path = remote(root, self._copy_options)
                result = filesystem.ls(path, detail=True) if filesystem.exists(path) else []
                for entry in result:
                    if _changed(filesystem, entry) < before:
                        filesystem.rm_file(entry["name"])


def _changed(filesystem: Any, entry: dict[str, Any]) -> datetime:
    result: datetime = entry.get("LastModified") or filesystem.modified(entry["name"])
    return result if result.tzinfo else result.replace(tzinfo=timezone.utc)
