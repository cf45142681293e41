"""Who gets spans and metrics, and what is sent of a run, decoded by OpenTelemetry's own package."""

from __future__ import annotations

import builtins
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from http_receiver import Receiver, receiving
from otlp import points, spans
from own_logs import own_records

from shared.singer import lineage, traces
from shared.singer.datasets import RunObserver
from shared.singer.run_summary import (
    OpenLineageSettings,
    OpenTelemetrySettings,
    RunSummary,
    observers_of,
)

NO_LINEAGE = OpenLineageSettings()
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    """Exporters that still try must not log into the tests that follow."""
    log = logging.getLogger("opentelemetry")
    log.setLevel(logging.NOTSET)
    yield
    log.setLevel(logging.CRITICAL)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        server.status = 200
        yield server


def observers(
    environ: dict[str, str], endpoint: str | None = None, summary: RunSummary | None = None
) -> list[RunObserver]:
    settings = OpenTelemetrySettings(endpoint=endpoint)
    facts = (summary or RunSummary("target-spark")).as_dict
    return observers_of("target-spark", NO_LINEAGE, settings, environ, facts)


def test_who_is_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    assert not observers({})
    assert not observers({**endpoint, "OTEL_SDK_DISABLED": "true"})
    assert not own_records(caplog)
    assert not observers({**endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "OpenTelemetry is off: OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'" in caplog.text
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith(("opentelemetry", "shared.singer.traces")):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert not observers(endpoint)
    assert "pip install 'singer-spark[opentelemetry]'" in caplog.text


def test_spans_and_metrics(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod")
    summary = RunSummary("target-spark")
    around = {"TRACEPARENT": f"00-{TRACE}-{SPAN}-01"}
    summary.observe(observers(around, receiver.url, summary))
    for stream in ("a", "b"):
        summary.add(stream, received=5, rejected=1, bytes=70, flushes=1, flush_seconds=0.25)
    summary.add("a", received=2, rejected=0, bytes=7, flushes=1, flush_seconds=0.5)
    summary.note("b", error="b is bad")
    summary.end({**summary.as_dict(None), "error": "1 stream failed", "exit_code": 9})

    actual = {span.name: span for span in spans(receiver)}
    assert actual.keys() == {"target-spark", "stream a", "stream b", "flush a", "flush b"}
    run = actual["target-spark"]
    assert {span.trace_id.hex() for span in actual.values()} == {TRACE}
    assert run.parent_span_id.hex() == SPAN
    assert actual["stream a"].parent_span_id == run.span_id
    assert actual["flush b"].parent_span_id == actual["stream b"].span_id
    assert (run.status.message, actual["stream b"].status.message) == (
        "1 stream failed",
        "b is bad",
    )
    assert actual["stream a"].status.code == 0
    flush = actual["flush b"]
    assert flush.end_time_unix_nano - flush.start_time_unix_nano == 250_000_000

    got = points(receiver)
    assert got["singer.record_count", "a"] == 7
    assert got["singer.record_count", "b"] == 5
    assert got["singer.rejected_count", "b"] == 1
    assert got["singer.bytes", "a"] == 77
    assert got["singer.batch_count", "a"] == 2
    assert got["singer.batch_processing_time", "a"] == 0.75
    assert ("singer.job_duration", "failed") in got
    for name in (b"deployment.environment", b"prod", summary.run_id.encode(), b"target-spark"):
        assert all(name in one.body for one in receiver.posted)


@pytest.mark.parametrize("status", [None, 400, "silent"])
def test_a_receiver_that_fails_is_one_warning(
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    status: int | str | None,
) -> None:
    assert traces.FLUSH_SECONDS == lineage.FLUSH_SECONDS == 2
    monkeypatch.setattr(traces, "FLUSH_SECONDS", 0.5)
    receiver.status = status if isinstance(status, int) else 200
    if status == "silent":
        receiver.answers.clear()
    summary, started = RunSummary("tap-spark"), time.monotonic()
    summary.observe(observers({}, receiver.url if status else "http://127.0.0.1:9", summary))
    for _ in range(5000 if status == "silent" else 20):
        summary.add("a", sent=1, batch_files=1)
    summary.end(summary.as_dict(None))
    assert time.monotonic() - started < 5
    # The exporters of the test before may still be at work.
    [warning] = [one for one in caplog.records if one.name.startswith("shared.")]
    assert warning.getMessage().startswith("OpenTelemetry spans or metrics are lost: ")
    assert "\n" not in warning.getMessage()
