"""Spans and metrics that a receiver got, decoded by OpenTelemetry's package."""

from __future__ import annotations

from typing import Any

from http_receiver import Receiver
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def spans(receiver: Receiver) -> list[Any]:
    requests = (
        ExportTraceServiceRequest.FromString(one.body)
        for one in receiver.posted
        if one.path == "/v1/traces"
    )
    return [
        span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def points(receiver: Receiver) -> dict[tuple[str, str], float]:
    """Return the last value (the sum of a histogram) by metric and stream, or status."""
    actual: dict[tuple[str, str], float] = {}
    for one in receiver.posted:
        if one.path != "/v1/metrics":
            continue
        for resource in ExportMetricsServiceRequest.FromString(one.body).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in (*metric.sum.data_points, *metric.histogram.data_points):
                    [label] = (label.value.string_value for label in point.attributes)
                    is_histogram = metric.HasField("histogram")
                    value = point.sum if is_histogram else point.as_int or point.as_double
                    actual[metric.name, label] = value
    return actual
