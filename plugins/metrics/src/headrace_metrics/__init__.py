"""Shows the figures of headrace jobs in Prometheus and OpenTelemetry.

``PrometheusExporter`` and ``OpenTelemetryExporter`` are given to ``job.run(metrics=…)``; ``prometheus_text`` makes the text of
many snapshots, as a server does for the jobs that it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_metrics.opentelemetry import OpenTelemetryExporter
    from headrace_metrics.prometheus import PrometheusExporter, prometheus_text

__all__ = ["OpenTelemetryExporter", "PrometheusExporter", "prometheus_text"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: OpenTelemetry need not be installed for Prometheus."""
    if name in ("PrometheusExporter", "prometheus_text"):
        from headrace_metrics import prometheus

        return getattr(prometheus, name)
    if name == "OpenTelemetryExporter":
        from headrace_metrics.opentelemetry import OpenTelemetryExporter

        return OpenTelemetryExporter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
