"""Reports of input that is not loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.errors import Where
from shared.singer.metrics import Counter
from shared.storage.urls import shown
from target_spark.core.events import LineRejected
from target_spark.core.load_plans import Batch, LoadResult

FIRST = 10
"""Rejected records of a stream that are logged one by one."""
MAX_UNDECLARED = 20
"""Properties of a stream that are logged one by one."""

RECORD_REJECTED = "record_rejected"

_logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Rejections:
    """Logs and counts what is not loaded; used by one thread.

    Args:
        kept_in: Folder or URL of the dead letters; None if they are not kept.
    """

    kept_in: str | None = None
    _counters: dict[str | None, Counter] = field(default_factory=dict, init=False)
    _named: dict[str | None, int] = field(default_factory=dict, init=False)
    _cut: set[tuple[str, str]] = field(default_factory=set, init=False)
    _undeclared: dict[str, dict[str, int]] = field(default_factory=dict, init=False)

    def report_batch(self, batch: Batch, results: Iterable[LoadResult]) -> None:
        """Report the rejected records of a durable flush."""
        stream = batch.stream.stream
        for result in results:
            for reject in result.rejects[:FIRST]:
                self._name(stream, batch.where(reject), reject.reason)
            if result.rejected:
                self._count(stream, result.rejected)
            for name in sorted(result.cut):
                if (stream, name) not in self._cut:
                    self._cut.add((stream, name))
                    _logger.warning(
                        "stream '%s': times of '%s' are cut to microseconds", stream, name
                    )

    def report_undeclared(self, stream: str, results: Iterable[LoadResult]) -> Mapping[str, int]:
        """Report each property that a SCHEMA lacks, once; return their values in the run so far."""
        counts = self._undeclared.setdefault(stream, {})
        for name, count in (item for one in results for item in one.undeclared.items()):
            if name in counts:
                counts[name] += count
            elif len(counts) < MAX_UNDECLARED:
                counts[name] = count
                last = "; further ones are not named" if len(counts) == MAX_UNDECLARED else ""
                text = "stream '%s': property '%s' is not loaded: the SCHEMA lacks it%s"
                _logger.warning(text, stream, name, last)
        return counts

    def report_line(self, line: LineRejected) -> None:
        """Report a line that is not a message."""
        self._name(line.stream, Where(stream=line.stream, line=line.line), line.reason)
        self._count(line.stream, 1)

    def close(self) -> None:
        """Log the totals and write the counters."""
        kept = f"; they are kept in '{shown(self.kept_in)}'" if self.kept_in else ""
        for stream, counter in self._counters.items():
            what = "lines" if stream is None else f"stream '{stream}': records"
            _logger.warning("%s rejected: %d%s", what, counter.total, kept)
            counter.close()
        self._counters.clear()

    def _name(self, stream: str | None, where: Where, reason: str) -> None:
        named = self._named[stream] = self._named.get(stream, 0) + 1
        if named <= FIRST:
            _logger.warning("%s: rejected: %s", where, reason)
        elif named == FIRST + 1:
            _logger.warning("%s: rejected; further ones are only counted", where)

    def _count(self, stream: str | None, count: int) -> None:
        if stream not in self._counters:
            self._counters[stream] = Counter(RECORD_REJECTED, stream)
        self._counters[stream].increment(count)
