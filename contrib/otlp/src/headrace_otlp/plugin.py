"""What headrace-otlp offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {
        "otlp-logs": "headrace_otlp.codec:OtlpLogsCodec",
        "otlp-metrics": "headrace_otlp.codec:OtlpMetricsCodec",
        "otlp-traces": "headrace_otlp.codec:OtlpTracesCodec",
        "prometheus-remote-write": "headrace_otlp.remote_write:RemoteWriteCodec",
    }


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {
        "otlp": "headrace_otlp.otlp_sink:OtlpSink",
        "prometheus_remote_write": "headrace_otlp.remote_write_sink:RemoteWriteSink",
    }
