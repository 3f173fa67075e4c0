"""OTLP for headrace: log records, spans and metrics of OpenTelemetry, and samples of Prometheus, as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_otlp.codec import OtlpLogsCodec, OtlpMetricsCodec, OtlpSettings, OtlpTracesCodec
    from headrace_otlp.otlp_sink import OtlpSink, OtlpSinkSettings
    from headrace_otlp.remote_write import RemoteWriteCodec, RemoteWriteSettings
    from headrace_otlp.remote_write_sink import RemoteWriteSink, RemoteWriteSinkSettings

__version__ = "0.1.0"

__all__ = [
    "OtlpLogsCodec",
    "OtlpMetricsCodec",
    "OtlpSettings",
    "OtlpSink",
    "OtlpSinkSettings",
    "OtlpTracesCodec",
    "RemoteWriteCodec",
    "RemoteWriteSettings",
    "RemoteWriteSink",
    "RemoteWriteSinkSettings",
]
_PLACES = {
    "OtlpLogsCodec": "headrace_otlp.codec",
    "OtlpMetricsCodec": "headrace_otlp.codec",
    "OtlpSettings": "headrace_otlp.codec",
    "OtlpSink": "headrace_otlp.otlp_sink",
    "OtlpSinkSettings": "headrace_otlp.otlp_sink",
    "OtlpTracesCodec": "headrace_otlp.codec",
    "RemoteWriteCodec": "headrace_otlp.remote_write",
    "RemoteWriteSettings": "headrace_otlp.remote_write",
    "RemoteWriteSink": "headrace_otlp.remote_write_sink",
    "RemoteWriteSinkSettings": "headrace_otlp.remote_write_sink",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
