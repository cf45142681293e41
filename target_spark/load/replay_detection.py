"""Detection of replayed records of a killed run: notes of the destination, journals of this run.

`target_spark.replays` says what counts as a replay.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from target_spark.convert.batch_files import BatchFiles
from target_spark.convert.stream_tables import StreamTables
from target_spark.core.load_plans import Batch, LoadResult, Segment, StreamSchema
from target_spark.destinations.destination import Destination
from target_spark.replays import Bookmarks, Journal, segments_of, whole_segment
from target_spark.stream_settings import load_method

if TYPE_CHECKING:
    from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)


class ReplayDetector:
    """Distinguishes replays from new records; methods may be called from any thread.

    Args:
        config: The settings.
        destination: Keeps the notes.
        tables: Tables of the run.
        files: Opens the files that are compared.
    """

    def __init__(
        self,
        config: TargetConfig,
        destination: Destination,
        tables: StreamTables,
        files: BatchFiles,
    ) -> None:
        self._config = config
        self._destination = destination
        self._tables = tables
        self._files = files
        self._journals: dict[str, Journal] = {}
        self._sources: dict[str, str] = {}
        self._bookmarks: Bookmarks | None = None

    def can_detect(self, stream: str) -> bool:
        """See `Loader.can_detect_replays`."""
        adds = load_method(self._config, stream) in {"append-only", "history"}
        return self._config.replays.detect and self._destination.keeps_notes and adds

    def recall(self, stream: StreamSchema, source: str) -> tuple[int, ...]:
        """See `Loader.recall`."""
        name = stream.stream
        if not self.can_detect(name):
            return ()
        note = self._destination.recall(self._tables.request(stream))
        journal = Journal(self._config.replays.max_segments)
        expected = journal.inherit(note)
        self._sources[name] = source
        self._journals[name] = journal
        if expected:
            count = sum(expected)
            _log.info(
                "stream '%s': an earlier run was interrupted; %d records that it committed are "
                "skipped if they are replayed",
                name,
                count,
            )
        return expected

    def segments(self, batch: Batch) -> tuple[Segment, ...]:
        """Return the segments of a piece, by which a later run can detect replays."""
        if batch.stream.stream not in self._journals:
            return ()
        with self._files.readable(batch):
            return segments_of(batch.files)

    def is_replay(self, batch: Batch, segments: tuple[Segment, ...]) -> bool:
        """Return whether an earlier run has committed the one file of a piece."""
        journal, index = self._journals.get(batch.stream.stream), batch.replay
        if journal is None or index is None:
            return False
        with self._files.readable(batch):
            whole = whole_segment(batch.files[0])
        is_replay = journal.match(index, whole, segments)
        if is_replay:
            _log.info(
                "stream '%s': skipped %s already committed by an earlier run",
                batch.stream.stream,
                f"{whole.lines} records" if whole.lines else "a batch file",
            )
        return is_replay

    @contextmanager
    def committing(self, batch: Batch, results: Sequence[LoadResult]) -> Iterator[None]:
        """Keep a note of a flush while the block commits it.

        Raises:
            DestinationError: The note cannot be stored; the block has not run.
        """
        stream = batch.stream.stream
        journal = self._journals.get(stream)
        if journal is None:
            yield
            return
        segments = tuple(segment for result in results for segment in result.segments)
        # A segment without rows does not need a commit.
        token = batch.token if any(result.parts for result in results) else ""
        with journal.lock:
            if journal.begin(token, segments):
                self._keep(stream, journal)
        yield
        journal.committed()

    def cover(self, position: int, state: bytes, held: Mapping[str, int]) -> None:
        """See `Loader.cover`."""
        self._bookmarks = Bookmarks(state)
        for name, journal in tuple(self._journals.items()):
            at = held.get(self._sources[name], position)
            with journal.lock:
                if journal.is_open and journal.cover(at, self._bookmark(name, journal)):
                    self._keep(name, journal)

    def finish(self, stream: str, *, awaits_state: bool) -> None:
        """Store the note of records that no STATE covers, or none if they will not come again."""
        journal = self._journals.get(stream)
        if journal is None or not journal.is_open:
            return
        with journal.lock:
            if not (awaits_state or journal.expects_replays):
                journal.forget()
            self._keep(stream, journal)

    def _keep(self, stream: str, journal: Journal) -> None:
        """Store the note of a stream, while its journal is locked."""
        note = journal.note(self._bookmark(stream, journal))
        try:
            self._destination.keep(self._tables.current(stream), note)
        except BaseException:
            journal.not_stored()
            raise

    def _bookmark(self, stream: str, journal: Journal) -> str | None:
        """Return the bookmark of the last emitted STATE, if it is known."""
        if self._bookmarks is None:
            return journal.anchor
        return self._bookmarks.digest(self._sources[stream])
