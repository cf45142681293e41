"""OpenLineage events about a run, from its summary, sent as JSON by HTTP.

They are sent in the background: a receiver that is down or slow delays nobody.
https://openlineage.io/docs/spec/object-model
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.request import Request
from uuid import UUID

from shared.singer.datasets import Dataset
from shared.singer.signals import SIGNALS
from shared.storage.urls import shown
from shared.storage.web_requests import open_without_redirects

PRODUCER = "https://github.com/singer-spark/singer-spark"

_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "ErrorMessageRunFacet": "1-0-1",
    "InputStatisticsInputDatasetFacet": "1-0-0",
    "JobTypeJobFacet": "2-0-4",
    "OutputStatisticsOutputDatasetFacet": "1-0-2",
    "ParentRunFacet": "1-2-0",
    "SchemaDatasetFacet": "1-2-0",
}
"""Versions of the facets that are sent."""
_BY_SIGNAL = frozenset(error.exit_code for error in SIGNALS.values())

Event = dict[str, Any]


@dataclass(frozen=True)
class ParentRun:
    """The run of an orchestrator that has started this one."""

    namespace: str
    job: str
    run_id: str

    def as_dict(self) -> dict[str, Any]:
        """Return its place in a facet."""
        return {
            "run": {"runId": self.run_id},
            "job": {"namespace": self.namespace, "name": self.job},
        }


def parent_run(text: str | None) -> ParentRun | None:
    """Return what `OPENLINEAGE_PARENT_ID` (`namespace/job/run id`) names; None for nothing.

    Raises:
        ValueError: It names no run.
    """
    if not text:
        return None
    namespace, _, rest = text.partition("/")
    job, _, run_id = rest.rpartition("/")
    if not namespace or not job:
        raise ValueError("not of the form 'namespace/job/run id'")
    return ParentRun(namespace, job, str(UUID(run_id)))


@dataclass(frozen=True)
class LineageJob:
    """The job whose runs are told of.

    Attributes:
        namespace: Namespace of the job, and of streams of messages.
        parent: Who has started the run.
        root: Who has started all of it.
    """

    program: str
    namespace: str = "default"
    name: str = ""
    parent: ParentRun | None = None
    root: ParentRun | None = None

    def event(
        self,
        kind: str,
        at: str,
        facts: Mapping[str, Any],
        uses: Sequence[DatasetUse] = (),
    ) -> Event:
        """Return one event.

        Args:
            kind: `START`, `RUNNING`, `COMPLETE`, `FAIL` or `ABORT`.
            at: When, in the form of RFC 3339.
        """
        facets: dict[str, Any] = {}
        if self.parent is not None:
            root = {"root": self.root.as_dict()} if self.root is not None else {}
            facets["parent"] = _facet("ParentRunFacet", **self.parent.as_dict(), **root)
        if facts.get("error"):
            error = {"message": facts["error"], "programmingLanguage": "Python"}
            facets["errorMessage"] = _facet("ErrorMessageRunFacet", **error)
        kind_of_job = {"processingType": "BATCH", "integration": "SINGER"}
        job_type = self.program.partition("-")[0].upper()
        return {
            "eventType": kind,
            "eventTime": at,
            "producer": PRODUCER,
            "schemaURL": _EVENT,
            "run": {"runId": facts["run_id"], "facets": facets},
            "job": {
                "namespace": self.namespace,
                "name": self.name or self.program,
                "facets": {"jobType": _facet("JobTypeJobFacet", **kind_of_job, jobType=job_type)},
            },
            "inputs": [self._dataset(use, facts) for use in uses if not use.is_output],
            "outputs": [self._dataset(use, facts) for use in uses if use.is_output],
        }

    def _dataset(self, use: DatasetUse, facts: Mapping[str, Any]) -> dict[str, Any]:
        place = use.dataset
        fields = [{"name": name, "type": kind} for name, kind in place.fields]
        schema = {"schema": _facet("SchemaDatasetFacet", fields=fields)} if fields else {}
        dataset = {"namespace": place.namespace, "name": place.name, "facets": schema}
        if place.namespace is None:
            # Streams of two pipelines may share a name: the run around both tells them apart.
            whole = f"{self.parent.job}.{place.name}" if self.parent else place.name
            dataset |= {"namespace": self.namespace, "name": whole}
        side = "output" if use.is_output else "input"
        numbers = _statistics(use, facts.get("streams", {}).get(use.stream, {}))
        if numbers:
            facet = _facet(f"{side.title()}Statistics{side.title()}DatasetFacet", **numbers)
            dataset[f"{side}Facets"] = {f"{side}Statistics": facet}
        return dataset


@dataclass(frozen=True)
class DatasetUse:
    """A dataset that a stream reads or writes."""

    stream: str
    dataset: Dataset
    is_output: bool = False


def last_kind(facts: Mapping[str, Any]) -> str:
    """Return the kind of the event that tells of the end of a run."""
    if facts["error"] is None:
        return "COMPLETE"
    return "ABORT" if facts["exit_code"] in _BY_SIGNAL else "FAIL"


def _statistics(use: DatasetUse, counts: Mapping[str, Any]) -> dict[str, int]:
    """Return the rows and bytes of a dataset, as far as they are known."""
    if use.dataset.table is not None:
        tables = counts.get("tables", {})
        rows = tables.get(use.dataset.table, {}).get("committed", 0)
        # Bytes are counted by stream.
        size = {"size": counts["bytes"]} if len(tables) == 1 and "bytes" in counts else {}
        return {"rowCount": rows, **size}
    if use.dataset.namespace is not None:
        return {}
    if use.is_output:
        return {"rowCount": counts.get("sent", 0), "size": counts.get("bytes", 0)}
    return {"rowCount": counts.get("received", 0)}


def _facet(name: str, **content: Any) -> dict[str, Any]:
    schema = f"{_SPEC}/facets/{_FACETS[name]}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}


_log = logging.getLogger(__name__)

MOST_WAITING = 64
"""Events that wait at most; older ones are dropped."""
TIMEOUT_SECONDS = 5.0
"""Longest wait for the receiver of one event."""


class EventSender:
    """Sends events in order, each once; the first that is lost is a warning, the others are not."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json", **headers}
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=MOST_WAITING)
        self._changed = threading.Condition()
        self._is_busy = False
        self._has_warned = False
        threading.Thread(target=self._run, name="openlineage", daemon=True).start()

    def send(self, event: Mapping[str, Any]) -> None:
        """Send an event soon; return at once."""
        with self._changed:
            self._waiting.append(event)
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait until everything was sent or lost, but not for longer than so many seconds."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._waiting or self._is_busy:
                left = until - time.monotonic()
                if left <= 0:
                    self._lost(f"no answer within {seconds:g} s")
                    return
                self._changed.wait(left)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                while not self._waiting:
                    self._changed.wait()
                event = self._waiting.popleft()
                self._is_busy = True
            try:
                body = json.dumps(event, default=str).encode()
                request = Request(self._url, body, self._headers, method="POST")  # noqa: S310
                with open_without_redirects(request, TIMEOUT_SECONDS):
                    pass
            except Exception as error:
                self._lost(str(getattr(error, "reason", None) or type(error).__name__))

    def _lost(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("OpenLineage events are lost: %s: %s", shown(self._url), reason)


RUNNING_SECONDS = 60.0
"""Least time between RUNNING events."""
FLUSH_SECONDS = 2.0
"""Longest wait for the receiver at the end of a run."""


class LineageObserver:
    """See `RunObserver`. The START event goes out at once. `facts` returns the summary so far."""

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
        by_key = {
            (stream, one.namespace, one.name, is_output): DatasetUse(stream, one, is_output)
            for one in datasets
        }
        with self._lock:
            self._uses |= by_key

    def counts(self, stream: str, counts: Mapping[str, float]) -> None:  # noqa: ARG002
        with self._lock:
            if self._clock() - self._sent_at < RUNNING_SECONDS:
                return
            self._sent_at, uses = self._clock(), tuple(self._uses.values())
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._sender.send(self._job.event("RUNNING", now, self._facts(), uses))

    def ended(self, facts: Mapping[str, Any]) -> None:
        with self._lock:
            uses = tuple(self._uses.values())
        self._sender.send(self._job.event(last_kind(facts), facts["ended_at"], facts, uses))
        self._sender.flush(FLUSH_SECONDS)
