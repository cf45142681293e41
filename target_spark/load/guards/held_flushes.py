"""The guard of whole tables: `overwrite` replaces rows only once their stream is complete."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from target_spark.core.balance import Counts, merged_rows
from target_spark.destinations.destination import Destination, Flush
from target_spark.load.guards.guard import CommitStep, EndStep, Guard


@dataclass(frozen=True)
class _HeldFlush:
    """A flush that replaces rows once its stream is complete.

    Attributes:
        flush: The flush; without parts if they are left out.
        version: Table version of its records, if any.
        is_older: A newer version has been activated, so its rows are left out.
    """

    flush: Flush
    version: int | None
    rows: int
    is_older: bool = False


@dataclass(eq=False)
class HeldFlushes(Guard):
    """Holds the flushes of `overwrite` until the end of their stream."""

    destination: Destination
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _held: dict[str, dict[str, _HeldFlush]] = field(default_factory=dict, init=False)
    _unpublished: dict[str, int] = field(default_factory=dict, init=False)

    def before_commit(self, step: CommitStep) -> None:
        """Hold a flush that replaces rows."""
        flush = step.flush
        if flush.request.method == "overwrite":
            step.is_held = True
            with self._lock:
                held = self._held.setdefault(flush.stream, {})
                held[flush.token] = _HeldFlush(flush, step.batch.version, step.rows)

    def after_commit(self, step: CommitStep) -> None:
        """Count rows that the destination itself holds back until they are published."""
        if self.destination.holds_rows and not step.is_held:
            stream = step.flush.stream
            with self._lock:
                self._unpublished[stream] = self._unpublished.get(stream, 0) + step.rows

    def before_end(self, step: EndStep) -> None:
        """Give the held flushes to be committed."""
        with self._lock:
            step.flushes = tuple(one.flush for one in self._held.get(step.stream, {}).values())

    def after_end(self, step: EndStep) -> None:
        """Forget the stream, all rows of which are visible, and compare them with the commit.

        Raises:
            BalanceError: The commit has another number of rows than the flushes.
        """
        with self._lock:
            written = self._unpublished.pop(step.stream, 0)
            held = self._held.pop(step.stream, {}).values()
        written += sum(one.rows for one in held if not one.is_older)
        older = sum(one.rows for one in held if one.is_older)
        counts = Counts(committed=-older, merged=older, unconfirmed=-older)
        if step.committed is not None and step.committed.rows is not None:
            merged = merged_rows(step.stream, written, step.committed)
            counts += Counts(committed=-merged, merged=merged, unconfirmed=-written)
        step.loaded = replace(step.loaded, counts=counts)

    def leave_out_older(self, stream: str, version: int) -> None:
        """Remove the parts of held flushes of a version before this one."""
        held = self._held.get(stream, {})
        for token, one in list(held.items()):
            if one.version is not None and one.version < version and not one.is_older:
                self.destination.abort(one.flush)
                flush = replace(one.flush, parts=())
                held[token] = replace(one, flush=flush, is_older=True)
