"""The files that a run reads: opened with the right options, deleted once they are loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.errors import MessageError, SingerSparkError, Where
from shared.settings.batch.batch_settings import BatchConfig
from shared.storage.files import delete, size_of
from shared.storage.storage_errors import is_trouble
from shared.storage.urls import local_path, shown
from target_spark.core.load_plans import STAGED, Batch, InputFile
from target_spark.destinations.folders.folder_failures import read_error
from target_spark.load.manifests import batch_options, resolve, roots_of

if TYPE_CHECKING:
    from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)


class BatchFiles:
    """Staged files and files of BATCH messages; methods may be called from any thread.

    Args:
        config: The settings.

    Attributes:
        options: Of the storage of the files.
    """

    def __init__(self, config: TargetConfig) -> None:
        self._config = config.batch_config or BatchConfig()
        self._roots = roots_of(self._config)
        self._warned: set[str] = set()
        self.options = batch_options(config)

    def resolved(self, batch: Batch) -> Batch:
        """Return the batch with the absolute paths of its files.

        Raises:
            MessageError: A file is listed twice or outside of the allowed roots; names it.
        """
        files = resolve(batch.files, batch.source, self._config.allowed_roots)
        for file in files:
            if self.options.are_kept_from(file.url):
                self._warn_once(
                    "batch_config.storage.options are ignored for files such as '%s': name their "
                    "host or bucket in batch_config.allowed_roots or batch_config.storage.root",
                    file.url,
                )
        return replace(batch, files=files)

    @contextmanager
    def readable(self, batch: Batch) -> Iterator[Callable[[str], int]]:
        """Explain why a file of a batch cannot be read.

        Yields:
            A function that returns the size of a file; a later error names the last file asked for.

        Raises:
            MessageError: A file is missing or cannot be read.
            DestinationError: The storage of a file fails or does not answer.
        """
        named = ""

        def size(url: str) -> int:
            nonlocal named
            named = url
            return size_of(url, self.options)

        try:
            yield size
        except OSError as error:
            raise self._unreadable(batch, error, named) from error

    def delete_consumed(self, files: Iterable[InputFile]) -> None:
        """See `Loader.delete_consumed`."""
        if not self._config.cleanup:
            return
        for file in files:
            if file.encoding.format == STAGED:
                continue
            if not self._roots.hold(file.url):
                self._warn_once(
                    "loaded files outside of batch_config.allowed_roots and "
                    "batch_config.storage.root are not deleted, such as '%s'",
                    file.url,
                )
                continue
            try:
                delete(file.url, self.options)
            except OSError as error:
                reason = self.options.without_secrets(error.strerror or str(error))
                _log.warning("a loaded file cannot be deleted: '%s' (%s)", shown(file.url), reason)

    def _warn_once(self, text: str, url: str) -> None:
        """Warn once in a run."""
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
