"""The observers of a run that settings and environment ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.settings.kinds import TEXT, Schema, setting
from shared.singer.datasets import RunObserver

_WEB: Schema = {"type": "string", "pattern": r"^https?://[^\s@?]+$"}
"""A URL without user, password and query."""


@dataclass(frozen=True)
class OpenLineageSettings:
    """Where to send events about the runs, and under which names."""

    url: str | None = setting(
        _WEB,
        "Server that gets OpenLineage events; else that of `OPENLINEAGE_URL`."
        " Without both, none are sent.",
        examples=["http://marquez:5000"],
    )
    api_key: str | None = setting(
        TEXT, "Key for the server; else that of `OPENLINEAGE_API_KEY`.", secret=True, repr=False
    )
    namespace: str | None = setting(
        TEXT, "Namespace of the job; else `OPENLINEAGE_NAMESPACE`, else `default`."
    )
    job_name: str | None = setting(
        TEXT, "Name of the job; by default that of the program.", examples=["orders.extract"]
    )


@dataclass(frozen=True)
class OpenTelemetrySettings:
    """Where to send spans and metrics of the runs."""

    endpoint: str | None = setting(
        _WEB,
        "OTLP/HTTP receiver of spans and metrics; else that of `OTEL_EXPORTER_OTLP_ENDPOINT`. None "
        "are sent without. Needs the extra `opentelemetry`.",
        examples=["http://collector:4318"],
    )


_log = logging.getLogger(__name__)

_OTLP_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)

Facts = Callable[[], Mapping[str, Any]]


def observers_of(
    program: str,
    lineage: OpenLineageSettings,
    traces: OpenTelemetrySettings,
    environ: Mapping[str, str],
    facts: Facts,
) -> list[RunObserver]:
    """Return who is told of a run; none that cannot work, which is only a warning.

    Args:
        program: Name of the program.
        lineage: Where to send OpenLineage events.
        traces: Where to send spans and metrics.
        environ: Environment variables.
        facts: Returns the run summary until now.
    """
    makers = {
        "OpenLineage": lambda: _lineage(program, lineage, environ, facts),
        "OpenTelemetry": lambda: _traces(program, traces, environ, facts),
    }
    return list(_started(makers))


def _started(makers: Mapping[str, Callable[[], RunObserver | None]]) -> Iterator[RunObserver]:
    for name, make in makers.items():
        try:
            observer = make()
        except Exception as error:
            _log.warning("%s is off: %s", name, " ".join(str(error).split()))
        else:
            if observer is not None:
                yield observer


def _lineage(
    program: str, settings: OpenLineageSettings, environ: Mapping[str, str], facts: Facts
) -> RunObserver | None:
    url = settings.url or environ.get("OPENLINEAGE_URL")
    if not url or _is_true(environ.get("OPENLINEAGE_DISABLED")):
        return None
    from shared.singer.lineage import (  # noqa: PLC0415
        EventSender,
        LineageJob,
        LineageObserver,
        parent_run,
    )

    if not url.startswith(("http://", "https://")):
        raise ValueError("its URL must begin with http:// or https://")
    try:
        parent = parent_run(environ.get("OPENLINEAGE_PARENT_ID"))
        root = parent_run(environ.get("OPENLINEAGE_ROOT_PARENT_ID"))
    except ValueError as error:
        _log.warning("OPENLINEAGE_PARENT_ID is ignored: %s", error)
        parent = root = None
    job = LineageJob(
        program,
        settings.namespace or environ.get("OPENLINEAGE_NAMESPACE") or "default",
        settings.job_name or program,
        parent,
        root,
    )
    endpoint = environ.get("OPENLINEAGE_ENDPOINT") or "api/v1/lineage"
    key = settings.api_key or environ.get("OPENLINEAGE_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return LineageObserver(job, EventSender(f"{url.rstrip('/')}/{endpoint}", headers), facts)


def _traces(
    program: str, settings: OpenTelemetrySettings, environ: Mapping[str, str], facts: Facts
) -> RunObserver | None:
    wanted = settings.endpoint or any(environ.get(name) for name in _OTLP_ENDPOINTS)
    if not wanted or _is_true(environ.get("OTEL_SDK_DISABLED")):
        return None
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if protocol != "http/protobuf":
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is '{protocol}', not 'http/protobuf'")
    try:
        from shared.singer.traces import TraceObserver  # noqa: PLC0415
    except ImportError as error:
        hint = "pip install 'singer-spark[opentelemetry]'"
        raise ValueError(f"the extra is not installed ({hint})") from error
    return TraceObserver(program, facts()["run_id"], settings.endpoint, environ)


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() in {"true", "1"}
