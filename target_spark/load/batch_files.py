"""The files that a run reads: opened with the right options, deleted once they are loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.errors import MessageError, SingerSparkError, Where
from shared.settings.batch.batch_settings import BatchConfig
from shared.storage.files import size_of
from shared.storage.many_files import delete_all, facts_of
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
        """Return the batch with the absolute paths of its files, and facts of remote ones.

        Raises:
            MessageError: A file is missing, listed twice or outside of the allowed roots; names it.
            DestinationError: The storage of a file fails or does not answer.
        """
        files = resolve(batch.files, batch.source, self._config.allowed_roots)
        for file in files:
            if self.options.are_kept_from(file.url):
                self._warn_once(
                    "batch_config.storage.options are ignored for files such as '%s': name their "
                    "host or bucket in batch_config.allowed_roots or batch_config.storage.root",
                    file.url,
                )
        return replace(batch, files=self._with_facts(batch, files))

    def _with_facts(self, batch: Batch, files: Sequence[InputFile]) -> tuple[InputFile, ...]:
        far = [file.url for file in files if local_path(file.url) is None]
        facts, looked_up = iter(facts_of(far, self.options)), dict[str, InputFile]()
        for file in files:
            if local_path(file.url) is None:
                seen = next(facts)
                if isinstance(seen, OSError):
                    raise self._unreadable(batch, seen, file.url) from seen
                looked_up[file.url] = replace(file, size=seen.size, checksum=seen.checksum)
        return tuple(looked_up.get(file.url, file) for file in files)

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
        urls = [file.url for file in files if file.encoding.format != STAGED]
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
