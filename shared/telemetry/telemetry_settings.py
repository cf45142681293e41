"""The settings of what a run tells other systems."""

from __future__ import annotations

from dataclasses import dataclass

from shared.settings.kinds import TEXT, Schema, setting

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
