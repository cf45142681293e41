"""The guard of replays: records that a killed run has committed are not loaded twice.

The destination keeps notes of flushes that no STATE covers; this run keeps journals.

`target_spark.replays` says what counts as a replay.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from target_spark.config import stream_settings
from target_spark.convert.batch_files import BatchFiles
from target_spark.convert.stream_tables import StreamTables
from target_spark.core.load_plans import (
    ADDING,
    Batch,
    LoadResult,
    Segment,
    StreamSchema,
    TableRequest,
)
from target_spark.destinations.destination import Destination
from target_spark.load.guards.guard import CommitStep, ConvertStep, EndStep, Guard
from target_spark.replays import Bookmarks, Journal, segments_of, whole_segment
from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ReplayGuard(Guard):
    """Distinguishes replays from new records; methods may be called from any thread."""

    config: TargetConfig
    destination: Destination
    tables: StreamTables
    files: BatchFiles
    _journals: dict[str, Journal] = field(default_factory=dict, init=False)
    _sources: dict[str, str] = field(default_factory=dict, init=False)
    _requests: dict[str, TableRequest] = field(default_factory=dict, init=False)
    _bookmarks: Bookmarks | None = field(default=None, init=False)

    def before_stream(self, stream: StreamSchema, source: str) -> tuple[int, ...]:
        """Adopt the note of an earlier run."""
        name = stream.stream
        if stream_settings(self.config, name).method not in ADDING:
            return ()
        request = self._requests[name] = self.tables.request(stream)
        note = self.destination.recall(request)
        most = self.config.replays.max_segments
        self._sources[name] = source
        self._journals[name] = Journal(most, list(note.entries), note.anchor)
        # Lines of each segment that may be replayed; 0 for a batch file.
        expected = tuple(entry.segment.lines for entry in note.entries)
        if expected:
            _log.info(
                "stream '%s': an earlier run was interrupted; %d records that it committed are "
                "skipped if they are replayed",
                name,
                sum(expected),
            )
        return expected

    def before_conversion(self, step: ConvertStep) -> None:
        """Skip a piece that an earlier run has committed."""
        if step.batch.stream.stream in self._journals:
            with self.files.readable(step.batch):
                files = map(segments_of, step.batch.files)
                step.segments = tuple(chain.from_iterable(files))
        if step.batch.replay is not None and self._is_replay(step.batch, step.segments):
            lines = sum(segment.lines for segment in step.segments)
            step.result = LoadResult(received=lines, replayed=lines)

    def after_conversion(self, step: ConvertStep, result: LoadResult) -> LoadResult:
        """Add the segments of the piece to its result."""
        return replace(result, segments=step.segments)

    def _is_replay(self, batch: Batch, segments: tuple[Segment, ...]) -> bool:
        """Return whether an earlier run has committed the one file of a piece."""
        journal, index = self._journals.get(batch.stream.stream), batch.replay
        if journal is None or index is None:
            return False
        with self.files.readable(batch):
            whole = whole_segment(batch.files[0])
        is_replay = journal.match(index, whole, segments)
        if is_replay:
            _log.info(
                "stream '%s': skipped %s already committed by an earlier run",
                batch.stream.stream,
                f"{whole.lines} records" if whole.lines else "a batch file",
            )
        return is_replay

    def before_commit(self, step: CommitStep) -> None:
        """Keep a note of a flush that is about to be committed.

        Raises:
            DestinationError: The note cannot be stored.
        """
        stream = step.flush.stream
        journal = self._journals.get(stream)
        if journal is None:
            return
        segments = tuple(segment for result in step.results for segment in result.segments)
        # A segment without rows does not need a commit.
        token = step.batch.token if step.flush.parts else ""
        self._requests[stream] = step.flush.request
        with journal.lock:
            if journal.begin(token, segments):
                self._keep(stream, journal)

    def after_commit(self, step: CommitStep) -> None:
        """Note that the flush is durable."""
        journal = self._journals.get(step.flush.stream)
        if journal is not None:
            journal.committed()

    def before_state(self, position: int, state: bytes, held: Mapping[str, int]) -> None:
        """Discard the segments that a STATE covers: they must never count as replays."""
        self._bookmarks = bookmarks = Bookmarks(state)
        for name, journal in tuple(self._journals.items()):
            source = self._sources[name]
            at = held.get(source, position)
            with journal.lock:
                if journal.is_open and journal.cover(at, bookmarks.digest(source)):
                    self._keep(name, journal)

    def before_end(self, step: EndStep) -> None:
        """Store the note of records that no STATE covers, or none if they will not come again."""
        journal = self._journals.get(step.stream)
        if journal is None or not journal.is_open:
            return
        with journal.lock:
            if not (step.awaits_state or journal.inherited):
                journal.forget()
            self._keep(step.stream, journal)

    def _keep(self, stream: str, journal: Journal) -> None:
        """Store the note of a stream, while its journal is locked."""
        # The bookmark of the last emitted STATE, if it is known.
        bookmarks, source = self._bookmarks, self._sources[stream]
        note = journal.note(journal.anchor if bookmarks is None else bookmarks.digest(source))
        try:
            self.destination.keep(self._requests[stream], note)
        except BaseException:
            journal.not_stored()
            raise
