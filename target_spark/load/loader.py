"""The one load path: files of a batch in, durable rows of a table out.

`Converter` turns files into hidden parts, the destination commits them, `ReplayDetector` recognises
what an earlier run has committed. `Loader` puts the three in order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.storage.files import StorageOptions, delete
from target_spark.config import REGISTRY
from target_spark.core.load_plans import Batch, InputFile, LoadResult, StreamSchema
from target_spark.destinations.destination import Destination, Tools
from target_spark.load.batch_files import BatchFiles
from target_spark.load.conversion import Converter, Rewriter
from target_spark.load.load_results import record_error
from target_spark.load.manifests import reject_duplicates
from target_spark.load.replay_detection import ReplayDetector
from target_spark.load.stream_tables import StreamTables
from target_spark.stream_settings import load_method
from target_spark.tables.version_edit import VersionEdit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark.config import TargetConfig

_log = logging.getLogger(__name__)


class Loader:
    """Loads batches into the destination of the settings; methods may be called from any thread.

    Args:
        config: The settings.
        spark: Returns the session, waits for it if it still starts.
    """

    def __init__(self, config: TargetConfig, spark: Callable[[], SparkSession]) -> None:
        self._config = config
        self._own_options = StorageOptions(config.storage_options)
        self._leaves_out = config.failure.policy in {"LogAndContinue", "SendToDLQ"}
        self._lock = threading.Lock()
        self._has_warned_of_versions = False
        declared = REGISTRY.get(config.format)
        self._supports = declared.supports
        self._destination: Destination = declared.open(config, Tools(spark, Rewriter(spark)))
        self._files = BatchFiles(config)
        self._tables = StreamTables(config, self._destination)
        self._converter = Converter(config, spark, self._files, self._tables)
        self._replays = ReplayDetector(config, self._destination, self._tables, self._files)

    def plan(self, stream: StreamSchema) -> bool:
        """Plan the load of a new SCHEMA.

        Returns:
            True: the whole stream is loaded.

        Raises:
            SettingsError: The stream would share its table with another one and lose rows.
        """
        self._tables.claim(stream.stream)
        return True

    def overwrites(self, stream: str) -> bool:
        """Return whether rows of a stream become visible only at the end of the input."""
        return load_method(self._config, stream) == "overwrite"

    def convert(self, batch: Batch) -> LoadResult:
        """Convert the batch's files into parts that no reader sees, by one Spark job.

        Raises:
            RecordError: A record does not fit its schema and the failure policy does not leave such
                records out; names its line.
            MessageError: A file of a BATCH message is missing, damaged, not what its label says,
                listed twice or outside of the allowed roots; names it.
            DestinationError: The parts cannot be written, or the storage of the files fails or
                does not answer.
        """
        batch = self._files.resolved(batch)
        write = self._tables.prepare(batch)
        segments = self._replays.segments(batch)
        if batch.replay is not None and self._replays.is_replay(batch, segments):
            return LoadResult()
        result = replace(self._converter.convert(batch, write), segments=segments)
        if result.rejected and not self._leaves_out:
            self._destination.abort(self._tables.flush(batch, [result]))
            raise record_error(batch, result)
        return result

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Make all parts of a batch durable, visible in one step.

        A batch without rows creates the table. With `overwrite`, rows are kept aside until
        `finish`: a STATE that covers them must wait for that.

        Raises:
            DestinationError: It failed; nothing of the batch is visible. May be repeated.
            MessageError: Two messages of the batch list the same file.
        """
        reject_duplicates(batch.files, batch.stream.stream)
        flush = self._tables.flush(batch, results)
        with self._replays.committing(batch, results):
            self._destination.commit(flush)
        self._tables.release(batch)
        self.delete_rejects(results)

    def abort(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Remove the parts of a batch that will not be committed."""
        self._destination.abort(self._tables.flush(batch, results))
        self._tables.release(batch)
        self.delete_rejects(results)

    def delete_rejects(self, results: Iterable[LoadResult]) -> None:
        """Delete the files of rejected records, which are not needed any more."""
        for result in results:
            for url in result.reject_files:
                try:
                    delete(url, self._own_options)
                except OSError as error:
                    _log.debug("a file of rejected records cannot be deleted: %s", error)

    def delete_consumed(self, files: Iterable[InputFile]) -> None:
        """Delete batch files whose rows are durable, if `batch_config.cleanup` says so.

        Called when STATE that covers them may be emitted. Never raises: a file that cannot be
        deleted, or is outside of the roots in the settings, is only logged: its rows are loaded.

        Args:
            files: Files of BATCH messages; staged ones are ignored.
        """
        self._files.delete_consumed(files)

    def can_detect_replays(self, stream: str) -> bool:
        """Return whether replayed records of a stream can be detected."""
        return self._replays.can_detect(stream)

    def recall(self, stream: StreamSchema, source: str | None = None) -> tuple[int, ...]:
        """Adopt an earlier run's note for a stream; called before its first batch.

        Args:
            stream: Its schema.
            source: Name of the source stream; by default the same.

        Returns:
            Lines of each segment that may be replayed, in order; 0 for a batch file.

        Raises:
            DestinationError: The table cannot be read.
        """
        return self._replays.recall(stream, source or stream.stream)

    def cover(self, position: int, state: bytes) -> None:
        """Discard the segments that a STATE covers; called before it is emitted.

        Args:
            position: Position of the STATE in the input; see `StateTracker`.
            state: Its value.

        Raises:
            DestinationError: The note of a table cannot be changed: the STATE must not be emitted.
        """
        self._replays.cover(position, state)

    def close(self) -> None:
        """End the run: later ones may adopt its notes."""
        self._destination.close()

    def finish(self, stream: str) -> None:
        """End a stream whose input has ended well: `overwrite` makes its rows visible."""
        request = self._tables.latest_written(stream)
        if request is not None:
            self._destination.finish(request)

    def activate(self, stream: StreamSchema, version: int) -> None:
        """Remove rows of versions before an ACTIVATE_VERSION (`hard_delete`), or mark them.

        Raises:
            DestinationError: It failed; nothing has changed.
            SettingsError: Rows of another stream are in the table.
        """
        config = self._config
        if not config.activate_version:
            return
        if not config.add_record_metadata or not self._supports.versions:
            with self._lock:
                has_warned, self._has_warned_of_versions = self._has_warned_of_versions, True
            if not has_warned:
                why = f"not supported by format '{config.format}'"
                if not config.add_record_metadata:
                    why = "'add_record_metadata' is false"
                _log.warning("ignoring ACTIVATE_VERSION: %s", why)
            return
        self._tables.claim_versions(stream.stream)
        request = self._tables.request(stream)
        edit = VersionEdit(version, request.hard_delete, time.time())
        self._destination.activate(request, edit)
