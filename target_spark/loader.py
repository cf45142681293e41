"""The one load path: files of a batch in, durable rows of a table out.

`convert` runs one Spark job in which each task reads some files, completes the rows and writes one
hidden file, all in Arrow; formats whose text Spark makes take the same readers and writers with a
DataFrame between them. Nothing but file names and counts comes back to the driver.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.batch_types import BatchConfig
from shared.encodings import FORMATS
from shared.errors import DestinationError, MessageError, SingerSparkError, Where
from shared.spark_errors import explain
from shared.storage import StorageOptions, delete, local_path, shown, size_of
from shared.storage_errors import is_trouble
from shared.transforms.record_metadata import (
    COLUMNS,
    RecordMetadata,
    record_schema,
    stored_columns,
)
from shared.transforms.validation.keys import Key
from target_spark import load_frames, load_tasks, mapped_frames
from target_spark.adoption import adoption
from target_spark.destinations import (
    DESTINATIONS,
    Destination,
    Flush,
    Replayable,
    TableWrite,
    Tools,
    Versioned,
)
from target_spark.destinations.evolution import arrow_schema
from target_spark.destinations.trouble import read_error, writing
from target_spark.documents import DOCUMENT, as_document
from target_spark.load_results import raise_failure, record_error, result_of
from target_spark.manifests import STAGED, batch_options, refuse_repeated, resolve, roots_of
from target_spark.plans import (
    Batch,
    InputFile,
    LoadResult,
    Segment,
    StreamSchema,
    TableRequest,
)
from target_spark.read_rows import Piece, ReadPlan
from target_spark.replays import Bookmarks, Journal, segments_of, whole_segment
from target_spark.rewrite_tasks import RewritePlan, rewrite
from target_spark.schema_check import SlowKeywords
from target_spark.stream_settings import key_properties, load_method, table_name, table_request
from target_spark.table_owners import TableOwners
from target_spark.task_plan import plan_tasks
from target_spark.version_edit import VersionEdit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from target_spark.config import TargetConfig

_log = logging.getLogger(__name__)


class Loader:
    """Loads batches into the destination of the settings; methods may be called from any thread.

    Args:
        config: The settings.
        spark: Gives the session, waiting for it where it still starts.
    """

    def __init__(self, config: TargetConfig, spark: Callable[[], SparkSession]) -> None:
        self._config = config
        self._spark = spark
        self._started_at = time.time()
        self._batch_config = config.batch_config or BatchConfig()
        self._options = batch_options(config)
        self._roots = roots_of(self._batch_config)
        self._told: set[str] = set()
        self._own_options = StorageOptions(config.storage_options)
        self._leaves_out = config.failure.policy in {"LogAndContinue", "SendToDLQ"}
        self._requests: dict[str, tuple[StreamSchema, TableRequest]] = {}
        self._latest: dict[str, TableRequest] = {}
        self._writes: dict[tuple[str, str], TableWrite] = {}
        self._journals: dict[str, Journal] = {}
        self._sources: dict[str, str] = {}
        self._bookmarks: Bookmarks | None = None
        self._owners = TableOwners()
        self._slow = SlowKeywords()
        self._lock = threading.Lock()
        self._told_of_versions = False
        self._destination: Destination = DESTINATIONS[config.format](
            config, Tools(spark, self._rewrite)
        )

    def plan(self, stream: StreamSchema) -> bool:
        """Takes a new SCHEMA; everything of the stream is to be loaded.

        Raises:
            SettingsError: The stream would share its table with another one, to the loss of rows.
        """
        name = stream.stream
        table = self._destination.table(table_name(self._config, name))
        self._owners.claim(name, table, load_method(self._config, name))
        return True

    def overwrites(self, stream: str) -> bool:
        """Whether rows of a stream become visible only at the end of the input."""
        return load_method(self._config, stream) == "overwrite"

    def convert(self, batch: Batch) -> LoadResult:
        """Turns the batch's files into parts that no reader sees, by one Spark job.

        Raises:
            RecordError: A record does not fit its schema and the failure policy does not leave such
                records out; names its line.
            MessageError: A file of a BATCH message is missing, damaged, not what its label says,
                listed twice or outside of the allowed roots; names it.
            DestinationError: The parts cannot be written, or the storage of the files refuses or
                does not answer.
        """
        files = resolve(batch.files, batch.source, self._batch_config.allowed_roots)
        self._tell_of_options(files)
        batch = replace(batch, files=files)
        write = self._prepare(batch)
        segments = self._segments(batch)
        if batch.replay is not None and self._is_replay(batch, segments):
            return LoadResult()
        adopted = self._adopted(batch, write)
        if adopted is not None:
            return replace(adopted, segments=segments)
        tasks = self._tasks(batch)
        if not tasks:
            return LoadResult(segments=segments)
        rows = self._collect(batch, self._job(batch, write, tasks))
        result = replace(result_of(rows, batch), segments=segments)
        if result.rejected and not self._leaves_out:
            self._destination.abort(self._flush(batch, [result]))
            raise record_error(batch, result)
        return result

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Makes all parts of a batch durable, visible in one step.

        A batch without rows creates the table. With `overwrite`, rows are kept aside until
        `finish`: a STATE that covers them must wait for that.

        Raises:
            DestinationError: It failed; nothing of the batch is visible. May be repeated.
            MessageError: Two messages of the batch list the same file.
        """
        refuse_repeated(batch.files, batch.stream.stream)
        flush, journal = self._flush(batch, results), self._journals.get(batch.stream.stream)
        if journal is not None:
            segments = tuple(segment for result in results for segment in result.segments)
            # What holds no rows needs no commit that must be there.
            token = batch.token if flush.parts else ""
            with journal.lock:
                if journal.begin(token, segments):
                    self._keep(batch.stream.stream, journal)
        self._destination.commit(flush)
        if journal is not None:
            journal.committed()
        self._writes.pop(_key(batch), None)
        self.delete_rejects(results)

    def abort(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Removes the parts of a batch that will not be committed."""
        self._destination.abort(self._flush(batch, results))
        self._writes.pop(_key(batch), None)
        self.delete_rejects(results)

    def delete_rejects(self, results: Iterable[LoadResult]) -> None:
        """Removes the files of rejected records, which nobody needs any more."""
        for result in results:
            for url in result.reject_files:
                try:
                    delete(url, self._own_options)
                except OSError as error:
                    _log.debug("a file of rejected records stays: %s", error)

    def delete_consumed(self, files: Iterable[InputFile]) -> None:
        """Removes batch files whose rows are durable, where `batch_config.cleanup` says so.

        To be called once STATE that covers them may go out. Never raises: a file that cannot be
        removed, or lies in no root of the settings, is logged, as its rows are loaded all the same.

        Args:
            files: Of BATCH messages; staged ones are passed over.
        """
        if not self._batch_config.cleanup:
            return
        for file in files:
            if file.encoding.format == STAGED:
                continue
            if not self._roots.hold(file.url):
                self._tell(
                    "loaded files outside of batch_config.allowed_roots and "
                    "batch_config.storage.root are not deleted, such as '%s'",
                    shown(file.url),
                )
                continue
            try:
                delete(file.url, self._options)
            except OSError as error:
                reason = self._options.without_secrets(error.strerror or str(error))
                _log.warning("a loaded file stays: '%s' (%s)", shown(file.url), reason)

    def _tell_of_options(self, files: Iterable[InputFile]) -> None:
        for file in files:
            if self._options.are_kept_from(file.url):
                self._tell(
                    "batch_config.storage.options are not used for '%s' and others: name their "
                    "host or bucket in batch_config.allowed_roots or batch_config.storage.root",
                    shown(file.url),
                )

    def _tell(self, text: str, url: str) -> None:
        """Warns once in a run."""
        if text not in self._told:
            self._told.add(text)
            _log.warning(text, url)

    def can_detect_replays(self, stream: str) -> bool:
        """Whether records of a stream that come again after a crash can be told from new ones."""
        destination = self._destination
        return (
            self._config.replays.detect
            and isinstance(destination, Replayable)
            and destination.keeps_notes
            and load_method(self._config, stream) == "append-only"
        )

    def recall(self, stream: StreamSchema, source: str | None = None) -> tuple[int, ...]:
        """Find out what an earlier run has left of a stream; before its first batch.

        Args:
            stream: Its schema.
            source: Name of the stream as it came; where left out, the same.

        Returns:
            Lines of each segment that may come again, in order; 0 for a batch file.

        Raises:
            DestinationError: The table cannot be read.
        """
        name, destination = stream.stream, self._destination
        if not self.can_detect_replays(name) or not isinstance(destination, Replayable):
            return ()
        note = destination.recall(self._request(stream))
        journal = Journal(self._config.replays.max_segments)
        expected = journal.inherit(note)
        self._sources[name] = source or name
        self._journals[name] = journal
        if expected:
            count = sum(expected)
            _log.info(
                "stream '%s': an earlier run did not end well; %d records that it committed are "
                "skipped if they come again",
                name,
                count,
            )
        return expected

    def cover(self, position: int, state: bytes) -> None:
        """Forget what a STATE covers; to be called before it goes out.

        Args:
            position: Of the STATE in the input; see `StateTracker`.
            state: Its value.

        Raises:
            DestinationError: The note of a table cannot be changed: the STATE must not go out.
        """
        self._bookmarks = Bookmarks(state)
        for name, journal in tuple(self._journals.items()):
            with journal.lock:
                if journal.is_open and journal.cover(position, self._bookmark(name, journal)):
                    self._keep(name, journal)

    def close(self) -> None:
        """End the run: later ones may take over what it has left."""
        if isinstance(self._destination, Replayable):
            self._destination.release()

    def finish(self, stream: str) -> None:
        """The input of a stream has ended well: `overwrite` makes its rows visible in one step."""
        with self._lock:
            request = self._latest.get(stream)
        if request is not None:
            self._destination.finish(request)

    def activate(self, stream: StreamSchema, version: int) -> None:
        """ACTIVATE_VERSION: rows of older versions go (`hard_delete`) or are marked as deleted.

        Raises:
            DestinationError: It failed; nothing has changed.
            SettingsError: Rows of another stream are in the table.
        """
        config, destination = self._config, self._destination
        if not config.activate_version:
            return
        if not config.add_record_metadata or not isinstance(destination, Versioned):
            with self._lock:
                told, self._told_of_versions = self._told_of_versions, True
            if not told:
                why = "needs add_record_metadata" if not config.add_record_metadata else "unknown"
                _log.warning("ACTIVATE_VERSION is passed over: %s for %s", why, config.format)
            return
        self._owners.activate(stream.stream)
        request = self._request(stream)
        edit = VersionEdit(version, request.hard_delete, time.time())
        destination.activate(request, edit)

    def _segments(self, batch: Batch) -> tuple[Segment, ...]:
        """What identifies the records of a piece, should they come again."""
        if batch.stream.stream not in self._journals:
            return ()
        try:
            return segments_of(batch.files, self._options)
        except OSError as error:
            raise self._unreadable(batch, error, "") from error

    def _is_replay(self, batch: Batch, segments: tuple[Segment, ...]) -> bool:
        """Whether an earlier run has committed the one file of a piece."""
        journal, index = self._journals.get(batch.stream.stream), batch.replay
        if journal is None or index is None:
            return False
        try:
            whole = whole_segment(batch.files[0], self._options)
        except OSError as error:
            raise self._unreadable(batch, error, "") from error
        is_replay = journal.match(index, whole, segments)
        if is_replay:
            _log.info(
                "stream '%s': skipped %s that an earlier run has committed",
                batch.stream.stream,
                f"{whole.lines} records" if whole.lines else "a batch file",
            )
        return is_replay

    def _keep(self, stream: str, journal: Journal) -> None:
        """Store the note of a stream, while its journal is locked."""
        destination = self._destination
        if isinstance(destination, Replayable):
            note = journal.note(self._bookmark(stream, journal))
            try:
                destination.keep(self._requests[stream][1], note)
            except BaseException:
                journal.not_stored()
                raise

    def _bookmark(self, stream: str, journal: Journal) -> str | None:
        """The bookmark of the last STATE that went out, if it is known."""
        if self._bookmarks is None:
            return journal.anchor
        return self._bookmarks.digest(self._sources[stream])

    def _adopted(self, batch: Batch, write: TableWrite) -> LoadResult | None:
        """The files of a batch as parts, where nothing in them needs to change."""
        if batch.making is not None:
            return None
        keys = self._keys(batch.stream)
        plan = adoption(self._config, self._request(batch.stream), write, batch.files, keys)
        if plan is None:
            return None
        with writing(write.pending, write.options):
            return plan.parts(batch, write)

    def _tasks(self, batch: Batch) -> tuple[tuple[Piece, ...], ...]:
        named = ""

        def size(url: str) -> int:
            nonlocal named
            named = url
            return size_of(url, self._options)

        try:
            cores = os.cpu_count() or 1
            return plan_tasks(batch.files, size, options=self._options, cores=cores)
        except OSError as error:
            raise self._unreadable(batch, error, named) from error

    def _unreadable(self, batch: Batch, error: OSError, named: str) -> SingerSparkError:
        where = Where(stream=batch.source)
        if named and local_path(named) is None and is_trouble(error):
            return read_error(named, error, where)
        reason = error.strerror or self._options.without_secrets(str(error))
        file = shown(named) if named else None
        return MessageError(
            f"a file to load cannot be read: {reason}", where=replace(where, file=file)
        )

    def _prepare(self, batch: Batch) -> TableWrite:
        """How the parts of a flush are written: the same for all of them, until its commit."""
        with self._lock:
            if _key(batch) not in self._writes:
                request = self._latest[batch.stream.stream] = self._request(batch.stream)
                self._writes[_key(batch)] = self._destination.prepare(request)
            return self._writes[_key(batch)]

    def _request(self, stream: StreamSchema) -> TableRequest:
        known = self._requests.get(stream.stream)
        if known is None or known[0] != stream:
            columns = stored_columns(stream.schema, self._config.add_record_metadata)
            request = table_request(self._config, stream, columns)
            if not self._config.denormalized:
                request = as_document(request, view=self._config.generate_view)
            known = self._requests[stream.stream] = stream, request
        return known[1]

    def _keys(self, stream: StreamSchema) -> tuple[str, ...]:
        """The key properties that each record has to bring along."""
        own = COLUMNS if self._config.add_record_metadata else ()
        return tuple(key for key in key_properties(self._config, stream) if key not in own)

    def _flush(self, batch: Batch, results: Sequence[LoadResult]) -> Flush:
        parts = tuple(part for result in results for part in result.parts)
        write = self._prepare(batch)
        return Flush(batch.stream.stream, batch.token, write, self._request(batch.stream), parts)

    def _job(
        self, batch: Batch, write: TableWrite, tasks: tuple[tuple[Piece, ...], ...]
    ) -> DataFrame:
        """The frame whose rows are what the tasks tell."""
        add, making = self._config.add_record_metadata, batch.making
        metadata = RecordMetadata(
            received_at=batch.received_at,
            batched_at=time.time(),
            sync_started_at=self._started_at,
            version=batch.version,
        )
        read = ReadPlan(
            tasks=tasks,
            schema=record_schema((making or batch.stream).schema, add),
            columns=arrow_schema(write.struct, write.encoding.format),
            metadata=metadata if add else None,
            strict=self._config.validate_records,
            options=self._options,
            rejects=write.pending if self._config.failure.policy == "SendToDLQ" else None,
            reject_options=write.options,
            document=None if self._config.denormalized else DOCUMENT,
            keys=tuple(Key(name, (name,)) for name in self._keys(batch.stream)),
        )
        if read.strict:
            form = batch.files[0].encoding.format if batch.files else "singer"
            self._slow.tell(batch.source, read.schema, files=not FORMATS[form].text)
        numbers = self._numbers(len(tasks))
        if making is not None:
            return mapped_frames.job(numbers, read, write, making)
        if load_frames.needs_frame(write):
            return load_frames.job(numbers, read, write)
        plan = load_tasks.write_plan(write, read.columns)
        return numbers.mapInArrow(partial(load_tasks.load, read, plan), load_tasks.RESULTS_DDL)

    def _numbers(self, count: int) -> DataFrame:
        return self._spark().range(0, count, 1, numPartitions=count)

    def _collect(self, batch: Batch, frame: DataFrame) -> list[dict[str, Any]]:
        where = Where(stream=batch.source)
        try:
            rows = [row.asDict() for row in frame.collect()]
        except Exception as error:
            raise explain(error, where, DestinationError) from error
        raise_failure(rows, where)
        return rows

    def _rewrite(
        self,
        pairs: Sequence[tuple[str, str]],
        write: TableWrite,
        edit: VersionEdit | None = None,
    ) -> dict[str, int]:
        """See `Rewrite`; one task for each file."""
        columns = arrow_schema(write.struct, write.encoding.format)
        parts = load_tasks.WritePlan(write.pending, write.encoding, columns, write.options)
        plan = RewritePlan(tuple(pairs), parts, edit)
        frame = self._numbers(len(pairs)).mapInArrow(partial(rewrite, plan), load_tasks.RESULTS_DDL)
        try:
            rows = [row.asDict() for row in frame.collect()]
        except Exception as error:
            raise explain(error, Where(), DestinationError) from error
        raise_failure(rows, Where())
        return {row["url"]: row["rows"] for row in rows if row["kind"] == "part"}


def _key(batch: Batch) -> tuple[str, str]:
    """What a flush is known by: outputs of one stream share their token."""
    return batch.stream.stream, batch.token
