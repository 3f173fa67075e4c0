"""What headrace-metrics offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_metrics_exporters() -> Mapping[str, str]:
    return {
        "prometheus": "headrace_metrics.prometheus:PrometheusExporter",
        "otlp": "headrace_metrics.opentelemetry:OpenTelemetryExporter",
        "otlps": "headrace_metrics.opentelemetry:OpenTelemetryExporter",
    }
