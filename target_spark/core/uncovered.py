"""What no STATE covers yet: rows after the last one of the input, and files to delete. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from target_spark.core import events as ev
from target_spark.core.flushes import StagedPiece, Stream
from target_spark.core.schedule import Conversion


class Uncovered:
    """Rows after the last STATE of the input, and batch files that wait for a STATE.

    Args:
        discards: Whether to discard records of a stream after the last STATE.

    Attributes:
        line: Line of the last STATE; 0 if there was none.
    """

    def __init__(self, discards: Callable[[str], bool]) -> None:
        self._discards = discards
        self._rows: dict[str, int] = {}
        self._discarded: set[str] = set()
        # Last file and number of durable flushes, and their stream.
        self._consumed: list[tuple[int, int, str]] = []
        self.line = 0

    def state(self, line: int) -> None:
        """Begin again: a STATE has come."""
        self.line = line
        self._rows.clear()

    def add(self, stream: str, rows: int) -> None:
        """Count rows of a stream."""
        self._rows[stream] = self._rows.get(stream, 0) + rows

    def add_converted(self, job: Conversion, rows: int) -> None:
        """Count rows of BATCH messages after the last STATE; their share if others came before."""
        piece = job.piece
        if isinstance(piece, StagedPiece):
            return
        late = [m for m in piece.messages or (piece,) if m.line > self.line]
        share = rows * sum(len(m.files) for m in late) // len(piece.files)
        if share:
            self.add(job.stream.schema.stream, share)

    def awaits_state(self, stream: Stream) -> bool:
        """Return whether a STATE was to be expected after the rows of a stream."""
        return stream.end.awaits_state(self.line)

    def discard(
        self, streams: Mapping[str, Stream], begun_segment: Callable[[Stream], int | None]
    ) -> Iterator[tuple[Stream, int]]:
        """Yield the streams whose last records are discarded, with the line from which on.

        Args:
            streams: All streams, by name.
            begun_segment: Returns the line at which a segment of a stream began that an earlier run
                may have loaded.
        """
        for name, stream in streams.items():
            partial = begun_segment(stream)
            if name not in self._rows or stream.swap is not None:
                continue
            if self._discards(name):
                line = self.line + 1
            elif partial is not None and self.awaits_state(stream):
                line = max(partial, self.line + 1)
            else:
                continue
            self._discarded.add(name)
            yield stream, line

    def reports(self, streams: Mapping[str, Stream]) -> Iterator[ev.ReportUncovered]:
        """Yield a report on the rows of each stream of `streams` that has any."""
        for name, rows in self._rows.items():
            if name in streams:
                awaits, is_loaded = self.awaits_state(streams[name]), name not in self._discarded
                yield ev.ReportUncovered(name, rows, is_loaded, awaits)

    def consume(self, position: int, flush: int, stream: str) -> None:
        """Add a durable flush whose files a STATE after `position` lets be deleted."""
        self._consumed.append((position, flush, stream))

    def keep_files(self, stream: str) -> None:
        """Keep all files of a stream: it has failed."""
        self._consumed = [item for item in self._consumed if item[2] != stream]

    def covered(self, before: float) -> tuple[int, ...]:
        """Return, once, the flushes whose files an emitted STATE covers."""
        covered = tuple(number for position, number, _ in self._consumed if position < before)
        self._consumed = [item for item in self._consumed if item[0] >= before]
        return covered
