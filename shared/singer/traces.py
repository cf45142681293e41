"""Sends OpenTelemetry spans and metrics of a run by OTLP/HTTP."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.settings.about import version
from shared.singer.datasets import Dataset

_log = logging.getLogger(__name__)
_OTEL_LOG = logging.getLogger("opentelemetry")
_POLL_SECONDS, _LONGEST_TEXT = 0.02, 200

FLUSH_SECONDS = 2.0
"""Longest wait for the receiver at the end of a run."""

COUNTERS = {
    "sent": ("singer.record_count", "{record}"),
    "received": ("singer.record_count", "{record}"),
    "rejected": ("singer.rejected_count", "{record}"),
    "bytes": ("singer.bytes", "By"),
    "batch_files": ("singer.batch_count", "{batch}"),
    "flushes": ("singer.batch_count", "{batch}"),
}
"""Counts of streams in the run summary → metric and unit."""
BATCH_TIME, JOB_TIME = "singer.batch_processing_time", "singer.job_duration"


class TraceObserver:
    """See `RunObserver`. The run has a span, in it each stream, in it each flush or batch file.

    Without `endpoint`, the receiver is that of the environment.
    """

    def __init__(
        self, program: str, run_id: str, endpoint: str | None, environ: Mapping[str, str]
    ) -> None:
        self._warnings = _FirstWarning(logging.WARNING)
        _OTEL_LOG.handlers[:], _OTEL_LOG.propagate = [self._warnings], False
        self._lock = threading.Lock()
        self._streams: dict[str, tuple[Span, int]] = {}
        own = {"service.instance.id": run_id, "service.version": version()}
        named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        resource = Resource.create(own if named else {**own, "service.name": program})
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        if environ.get("OTEL_TRACES_EXPORTER") != "none":
            spans = OTLPSpanExporter(endpoint=_signal(endpoint, "traces"))
            self._traces.add_span_processor(BatchSpanProcessor(spans))
        readers = []
        if environ.get("OTEL_METRICS_EXPORTER") != "none":
            points = OTLPMetricExporter(endpoint=_signal(endpoint, "metrics"))
            readers.append(PeriodicExportingMetricReader(points))
        self._metrics = MeterProvider(readers, resource, shutdown_on_exit=False)
        self._tracer = self._traces.get_tracer(program, version())
        meter = self._metrics.get_meter(program, version())
        counters = {name: meter.create_counter(name, unit) for name, unit in set(COUNTERS.values())}
        self._counters = {count: counters[name] for count, (name, _) in COUNTERS.items()}
        self._batch_time = meter.create_histogram(BATCH_TIME, "s")
        self._job_time = meter.create_histogram(JOB_TIME, "s")
        # W3C's names in the environment, by which schedulers pass their own span on.
        carrier = {name: environ.get(name.upper(), "") for name in ("traceparent", "tracestate")}
        around = TraceContextTextMapPropagator().extract(carrier, Context())
        attributes = {"singer.run_id": run_id}
        self._run = self._tracer.start_span(
            program, around, attributes=attributes, start_time=time.time_ns()
        )

    def uses(self, stream: str, datasets: Iterable[Dataset], *, is_output: bool) -> None:  # noqa: ARG002
        """See `RunObserver`: the span of a stream begins."""
        with self._lock:
            self._span_of(stream)

    def counts(self, stream: str, counts: Mapping[str, float]) -> None:
        labels, now = {"singer.stream": stream}, time.time_ns()
        for name, count in counts.items():
            if name in self._counters:
                self._counters[name].add(count, labels)
        with self._lock:
            span, before = self._span_of(stream)
            self._streams[stream] = span, now
        inside = set_span_in_context(span, Context())
        if "flushes" in counts:
            self._batch_time.record(counts["flush_seconds"], labels)
            since = now - int(counts["flush_seconds"] * 1e9)
            self._part(f"flush {stream}", inside, since, now, {**labels, **counts})
        elif "batch_files" in counts:
            self._part(f"batch {stream}", inside, before, now, {**labels, **counts})

    def ended(self, facts: Mapping[str, Any]) -> None:
        labels = {"status": "failed" if facts["error"] else "succeeded"}
        self._job_time.record(facts["seconds"], labels)
        with self._lock:
            for stream, (span, last) in self._streams.items():
                _close(span, facts["streams"].get(stream, {}).get("error"), last)
        self._run.set_attribute("singer.exit_code", facts["exit_code"])
        _close(self._run, facts["error"], time.time_ns())
        ends = (self._traces.shutdown, self._metrics.shutdown)
        threads = [threading.Thread(target=end, daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        until, before = time.monotonic() + FLUSH_SECONDS, self._warnings.count
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(_POLL_SECONDS)
            if time.monotonic() > until:
                _OTEL_LOG.warning("no answer within %g s", FLUSH_SECONDS)
            # The exporters would try for longer.
            if self._warnings.count > before:
                break

    def _span_of(self, stream: str) -> tuple[Span, int]:
        if stream not in self._streams:
            inside, now = set_span_in_context(self._run, Context()), time.time_ns()
            labels = {"singer.stream": stream}
            span = self._tracer.start_span(
                f"stream {stream}", inside, attributes=labels, start_time=now
            )
            self._streams[stream] = span, now
        return self._streams[stream]

    def _part(
        self, name: str, inside: Context, since: int, until: int, facts: Mapping[str, Any]
    ) -> None:
        labels = {key if "." in key else f"singer.{key}": value for key, value in facts.items()}
        span = self._tracer.start_span(name, inside, attributes=labels, start_time=since)
        span.end(until)


def _signal(endpoint: str | None, signal: str) -> str | None:
    return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{signal}"


def _close(span: Span, error: str | None, at: int) -> None:
    if error:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(at)


class _FirstWarning(logging.Handler):
    """Passes the first failure of the exporters on, as one line; they repeat it for each try."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, or none."""
        self.count += 1
        if self.count == 1:
            text = " ".join(record.getMessage().split())[:_LONGEST_TEXT]
            _log.warning("OpenTelemetry spans or metrics are lost: %s", text)
