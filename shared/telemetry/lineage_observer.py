"""Sends OpenLineage events about a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from shared.telemetry.event_sender import EventSender
from shared.telemetry.lineage_events import DatasetUse, LineageJob, last_kind
from shared.telemetry.run_observer import Dataset

RUNNING_SECONDS = 60.0
"""Least time between RUNNING events."""
FLUSH_SECONDS = 2.0
"""Longest wait for the receiver at the end of a run."""


class LineageObserver:
    """See `RunObserver`. The START event goes out at once.

    Args:
        job: Names of the job and of the runs around it.
        sender: Sends the events.
        facts: Returns the run summary until now.
        clock: Seconds.
    """

    def __init__(
        self,
        job: LineageJob,
        sender: EventSender,
        facts: Callable[[], Mapping[str, Any]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._sender = sender
        self._facts = facts
        self._clock = clock
        self._lock = threading.Lock()
        self._uses: dict[tuple[str, str | None, str, bool], DatasetUse] = {}
        self._sent_at = clock()
        started = facts()
        sender.send(job.event("START", started["started_at"], started))

    def uses(self, stream: str, datasets: Iterable[Dataset], *, is_output: bool) -> None:
        """See `RunObserver`."""
        found = {
            (stream, one.namespace, one.name, is_output): DatasetUse(stream, one, is_output)
            for one in datasets
        }
        with self._lock:
            self._uses |= found

    def counts(self, stream: str, counts: Mapping[str, float]) -> None:  # noqa: ARG002
        """See `RunObserver`."""
        with self._lock:
            if self._clock() - self._sent_at < RUNNING_SECONDS:
                return
            self._sent_at, uses = self._clock(), tuple(self._uses.values())
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._sender.send(self._job.event("RUNNING", now, self._facts(), uses))

    def ended(self, facts: Mapping[str, Any]) -> None:
        """See `RunObserver`."""
        with self._lock:
            uses = tuple(self._uses.values())
        self._sender.send(self._job.event(last_kind(facts), facts["ended_at"], facts, uses))
        self._sender.flush(FLUSH_SECONDS)
