"""What headrace-detection offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {
        "correlate": "headrace_detection.correlate:Correlate",
        "correlation_events": "headrace_detection.correlation_events:CorrelationEvents",
        "throttle": "headrace_detection.throttle:Throttle",
    }
